# SPDX-License-Identifier: Apache-2.0
"""Record what passes the probe points: records out of the rings, into the tables of a trace.

The kernel side makes a record at each hook and keeps nothing in mind (``bpf/record/``): what belongs together is
found in analysis. All times are CLOCK_MONOTONIC, taken in the kernel.
"""

from __future__ import annotations

import contextlib
import os
import platform
import socket
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from hopscope import __version__
from hopscope.bpf.layout import HOP_INTERFACE_DTYPE, HopPoint
from hopscope.clock.domain import boot_id
from hopscope.clock.wall_clock import wall_offset_ns
from hopscope.errors import KernelError, UsageError
from hopscope.kernel import pcap
from hopscope.kernel.drop_reasons import drop_reasons
from hopscope.kernel.libraries import find
from hopscope.kernel.tracepoint_columns import CALLER, STACK
from hopscope.kernel.tracepoints import Tracepoints, wants_stacks
from hopscope.libbpf import Btf, possible_cpus
from hopscope.libbpf.capabilities import NEEDED
from hopscope.live.attached import Attached
from hopscope.live.cost import CostWindows
from hopscope.live.filters import set_list
from hopscope.live.own_flows import SelfTrafficFilter
from hopscope.live.recorder.captures import Captures
from hopscope.live.recorder.marks import MARKS, Marks
from hopscope.live.recorder.options import LIBRARY_POINTS, PREFIX, RecordOptions
from hopscope.live.recorder.plaintexts import Plaintexts
from hopscope.live.recorder.rings import Rings, configure_rings
from hopscope.live.recorder.rules import Rules, Unrecorded
from hopscope.live.recorder.symbols import STACKS, DropPlaces
from hopscope.live.recorder.tables import Tables, point_names
from hopscope.live.session import Session
from hopscope.probes.catalogue import POINTS
from hopscope.probes.libraries import attach_to_libraries
from hopscope.probes.resolve import Plan, Resolver
from hopscope.store.meta import Metadata
from hopscope.store.plaintext import PLAINTEXTS, risk_notes
from hopscope.store.unrecorded import CLASSES, CLASSES_OPTION, RULES, UNRECORDED
from hopscope.term.format import plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hopscope.errors import LoadError
    from hopscope.libbpf import BpfObject
    from hopscope.model.snapshot import Overhead
    from hopscope.store.schema import Table

Array = np.ndarray[Any, np.dtype[Any]]

# Between looks for network namespaces, and rules of netfilter, that are new.
_REFRESH_S: Final = 1.0
# So long the end waits for lines of source.
_LINES_S: Final = 5.0
# Calls of TLS libraries that are under way at once.
_TLS_CALLS: Final = 16_384
# The kernel's function by which programs read what a packet has in pages.
_FROM_PAGES: Final = "bpf_dynptr_from_skb"
_NOT_IN_PAGES: Final = (
    "--bytes: this kernel does not let us read what packets have in pages, as TCP's usually do: such bytes are missing"
)
# Requests of io_uring that are under way at once, twice.
_URING_REQUESTS: Final = 65_536
# What the kernel side has said the meaning of, by section (bpf/record/).
_KNOWN: Final = {
    ".bss.flows": ("known_flows",),
    ".bss.threads": ("known_threads",),
    ".bss": ("known_devices", "known_qdiscs"),
}
# perf_uprobe_event_init() is not content with CAP_PERFMON.
_FOR_LIBRARIES: Final = ("CAP_SYS_ADMIN",)


class Taken(NamedTuple):
    """What was in the rings.

    Attributes
    ----------
    records
        CPU and records of each ring that had any: arrays of ``struct hop_packet``, or another of its size.
    others
        Tables' names and columns, besides those that come of the records.
    """

    records: list[tuple[int, Array]]
    others: list[tuple[str, dict[str, Array]]]

    @property
    def size_bytes(self) -> int:
        """What it takes of memory."""
        columns = (column for _, each in self.others for column in each.values())
        return sum(records.nbytes for _, records in self.records) + sum(column.nbytes for column in columns)


def rights(libraries: Sequence[str]) -> Sequence[str]:
    """Return the capabilities that a recorder takes, with these libraries."""
    return _FOR_LIBRARIES if libraries else NEEDED


class Recorder(SelfTrafficFilter, Attached):
    """Runs the recording programs and reads what they say.

    Parameters
    ----------
    options
        What is asked for.

    Attributes
    ----------
    lost : int
        Records for which a ring had no room, or that were none: those of the table ``losses``, and of tracepoints.

    ended, behind : bool
        Whether no more events can come, and whether some are due already: never.

    Raises
    ------
    UsageError
        A point is not known.
    """

    ended = behind = False

    def __init__(self, options: RecordOptions) -> None:
        self._options = options
        self._forced = {f"{PREFIX}{name}": way for name, way in options.ways.items()}
        names = options.names()
        self._plan = Plan(Resolver(), [POINTS[name] for name in names], self._forced)
        rules = Rules(options.keep, options.drop, options.classes)
        self._conditions = rules.checked([name.removeprefix(PREFIX) for name in names])
        if options.tracepoints and self._conditions.leave_out:
            raise UsageError(
                "--keep and --drop select events of probe points, and those of -e have filters of their own",
                "Write -e EVENT:FILTER, or record the two separately",
            )
        self._from_pages = Btf.kernel().has_func(_FROM_PAGES)
        self.lost = 0

    def _adapt(self, error: LoadError) -> bool:
        """Do without what this kernel has, and does not grant to programs of tracepoints."""
        adapted = self._from_pages and _FROM_PAGES in error.log
        self._from_pages &= not adapted
        return adapted

    def _configure(self, bpf: BpfObject) -> None:
        options = self._options
        options.configure(bpf)
        set_list(bpf, "interface", np.array(list(options.interfaces), HOP_INTERFACE_DTYPE))
        by_process = bool(options.pids or options.comms or options.cgroups)
        bpf.set_const("cfg_by_process", int(by_process))
        by_headers = options.selects or options.sample > 1 or bool(options.interfaces or options.pcap)
        bpf.set_const("cfg_by_headers", int(by_headers))
        self._configure_own(bpf)
        self._conditions.configure(bpf)
        bpf.set_const("cfg_own_ethertype", socket.htons(options.own_ethertype))
        bpf.set_const("cfg_all_calls", int(f"{PREFIX}call.exit" in options.names()))
        by_flow = options.ports or options.addresses or options.sample > 1 or options.interfaces or options.pcap
        bpf.set_const("cfg_calls_by_flow", int(bool(by_flow)))
        bpf.set_const("cfg_sample", options.sample)
        bpf.set_const("cfg_pcap", int(bool(options.pcap)))
        bpf.set_const("cfg_drop_arguments", Btf.kernel().tracepoint_arguments("kfree_skb"))
        bpf.set_const("cfg_retransmit_arguments", Btf.kernel().tracepoint_arguments("tcp_retransmit_skb"))
        bpf.set_const("cfg_uring_arguments", Btf.kernel().tracepoint_arguments("io_uring_complete"))
        bpf.maps["uring_requests"].set_max_entries(_URING_REQUESTS if f"{PREFIX}uring.submit" in options.names() else 1)
        bpf.set_const("cfg_drop_stacks", int(options.stacks))
        bpf.maps["stacks"].set_max_entries(STACKS if options.stacks or wants_stacks(options.tracepoints) else 1)
        bpf.set_const("cfg_libraries", int(bool(options.libraries)))
        for name in ("tls_calls", "tls_goroutines"):
            bpf.maps[name].set_max_entries(_TLS_CALLS if options.libraries else 1)
        bpf.set_const("cfg_snap", options.snap_bytes)
        bpf.set_const("cfg_bytes", options.payload_bytes)
        bpf.set_const("cfg_capture", max(options.snap_bytes, options.payload_bytes))
        bpf.set_const("cfg_from_pages", int(self._from_pages))
        bpf.set_const("cfg_tls_bytes", options.tls_bytes)
        configure_rings(bpf, options.classes)
        for name in ("captures", "plaintexts"):
            bpf.maps[name].set_max_entries(possible_cpus())

    def _open(self, stack: contextlib.ExitStack) -> None:
        options = self._options
        self._reasons = drop_reasons()
        functions = {
            **(pcap.functions(options.pcap) if options.pcap else {}),
            **self._conditions.functions(self._reasons),
        }
        needed = rights(options.libraries)
        self._session = stack.enter_context(
            Session("record", self._plan, self._configure, self._adapt, functions=functions, needed=needed)
        )
        stack.enter_context(self._session.refreshed(_REFRESH_S))
        bpf = self._session.bpf
        self._note_plan(bpf, self._forced)
        self._costs = CostWindows(self._cost)
        stack.callback(lambda: self._costs.close())  # noqa: PLW0108 # those of the last recording
        for name in [*options.points, *(LIBRARY_POINTS if options.libraries else ())]:
            if name in self.not_granted():
                raise KernelError(f"This kernel supports no attach method for {name}", "`hopscope probes` says why")
        self._known_names = [bpf.data(section)[name] for section, names in _KNOWN.items() for name in names]
        counters = bpf.data(".bss.counts")["record_counters"]
        self._captures_lost = counters["captures_lost"]
        self._plaintexts_lost = counters["plaintexts_lost"]
        self._start_own(bpf)
        self._library_notes = self._attach_libraries(bpf) if options.libraries else []
        # What takes time comes before the rings, which fill from their first moment on.
        self._places = DropPlaces(bpf.maps["stacks"])
        stack.callback(self._places.close)
        self._tracepoints = Tracepoints(options.tracepoints, stacks=bpf.maps["stacks"])
        if options.tracepoints:
            stack.enter_context(self._tracepoints)
        slot_bytes = max(options.snap_bytes, options.payload_bytes)
        self._captures = Captures(bpf, slot_bytes, options.ring_bytes) if slot_bytes else None
        if self._captures:
            stack.callback(self._captures.close)
        self._plaintexts = Plaintexts(bpf, options.tls_bytes, options.ring_bytes) if options.tls_bytes else None
        if self._plaintexts:
            stack.callback(self._plaintexts.close)
        self._marks = stack.enter_context(Marks()) if options.marks else None
        self._rings = Rings(bpf, options.ring_bytes, options.classes)
        stack.callback(self._rings.close)
        if options.tracepoints:
            self._tracepoints.start()
        self._begin()

    def _begin(self) -> None:
        """Keep what comes from now on."""
        if self._captures:
            list(self._captures.read())  # they may be full of what came before
        if self._plaintexts:
            self._plaintexts.read()
        # From here on all are there: CPUs' rings come one after the other, some 10 ms each, as do those of what is
        # captured. What was seen before is not kept: the rest of it is missing. It is no loss, and nobody asked for it.
        self.started_ns = self._rings.start()
        self._is_first_take = True
        self._stopped = False
        self._captures_lost_before = self._captures_lost.copy()
        self._plaintexts_lost_before = self._plaintexts_lost.copy()
        self._missed_before = int(self._cost.read().missed.sum())
        self._costs = CostWindows(self._cost)
        self._tables = Tables()
        self._unrecorded = Unrecorded(self._session.bpf, self.started_ns) if self._conditions.leave_out else None

    def require_resumable(self) -> None:
        """Find out whether :meth:`pause` can be followed by :meth:`resume`; what came before is not kept.

        Raises
        ------
        KernelError
            This kernel does not attach programs a second time.
        """
        self._session.require_resumable()
        self._begin()

    def pause(self) -> None:
        """Detach all programs, after a recording has ended."""
        self._costs.close()
        self._session.pause()
        self._cost.detached()

    def resume(self) -> None:
        """Attach them again, for a recording that knows nothing of the one before.

        Raises
        ------
        LoadError
            The kernel refuses what it has granted before.
        """
        self._forget_names()
        self._session.resume()
        self._cost.attached()
        self._begin()

    def _attach_libraries(self, bpf: BpfObject) -> list[str]:
        """Attach to the libraries that are wanted, and return a sentence on each that is not seen."""
        points = [POINTS[f"{PREFIX}{name}"] for name in LIBRARY_POINTS]
        ways = [way for point in points if (way := self._plan.chosen(point))]
        options = self._options
        with contextlib.ExitStack() as stack:
            found = find(options.libraries, stack, pids=options.pids, comms=options.comms)
            attach_to_libraries(bpf, ways, found.libraries, options.pids)
        return found.notes

    def not_granted(self) -> list[str]:
        """Return the points that were asked for and that this kernel grants no way to attach."""
        return [point.name.removeprefix(PREFIX) for point in self._plan.points if not self._plan.chosen(point)]

    def notes(self) -> list[str]:
        """Return a sentence on what is not recorded for want of a capability."""
        drops = any(point.name == f"{PREFIX}skb.drop" for point in self._plan.points)
        notes = [*self._session.notes(), *self._library_notes, *(self._places.notes() if drops else [])]
        if self._options.payload_bytes and not self._from_pages:
            notes.append(_NOT_IN_PAGES)
        return [*notes, *risk_notes(self._own_tables())]

    @property
    def namespaces(self) -> Sequence[int] | None:
        """Inodes of the network namespaces that are recorded; None: all."""
        return self._options.namespaces or None

    def metadata(self) -> Metadata:
        """Return what a trace says of itself, at its start."""
        return Metadata(
            hopscope=__version__,
            started_ns=self.started_ns,
            realtime_ns=self.started_ns + wall_offset_ns(),
            points=point_names(),
            reasons=self._reasons,
            host={
                "name": platform.node(),
                "release": platform.release(),
                "machine": platform.machine(),
                "boot": boot_id(),
                "cpus": str(os.cpu_count()),
            },
            plan=[
                {name: str(value) for name, value in asdict(row).items()} | {"point": row.point.removeprefix(PREFIX)}
                for row in self._plan.rows()
            ],
            tables=[*self._tracepoints.tables, *self._own_tables()],
            options={
                "profiles": list(self._options.profiles),
                "points": list(self._options.points),
                "tracepoints": list(self._options.tracepoints),
                "filters": dict(self._options.shown),
                "sampling_1_in": self._options.sample,
                **{name: text for name in RULES if (text := getattr(self._options, name))},
                CLASSES_OPTION: {each.name: each.condition for each in self._options.classes} or None,
                "libraries": list(self._options.libraries),
                "bytes": self._options.payload_bytes or None,
                **({"tls_bytes": self._options.tls_bytes} if self._plaintexts else {}),
            },
        )

    def _own_tables(self) -> list[Table]:
        """Return the tables that not every trace has, besides those of tracepoints."""
        own = (
            *((MARKS, self._marks), (PLAINTEXTS, self._plaintexts)),
            *((UNRECORDED, self._unrecorded), (CLASSES, self._options.classes)),
        )
        return [table for table, used in own if used]

    def read(self) -> Iterator[tuple[str, dict[str, Array]]]:
        """Yield the rows that came since the last call, as :meth:`rows` makes them of what :meth:`take` takes."""
        return self.rows(self.take())

    def take(self) -> Taken:
        """Take what is in the rings, as it is: quick, so that they do not fill up."""
        records = self._rings.take()
        # After the records, which have the names of devices.
        others: list[tuple[str, dict[str, Array]]] = []
        others += self._captures.read() if self._captures else ()
        if self._options.tracepoints:
            before = self._tracepoints.lost
            others += self._tracepoints.read().items()
            self.lost += self._tracepoints.lost - before
        if self._plaintexts:
            others += [(PLAINTEXTS.name, columns) for columns in self._plaintexts.read()]
        if self._marks and len((marks := self._marks.read(self.started_ns))["time_ns"]):
            others.append((MARKS.name, marks))
        if self._unrecorded:
            others += self._unrecorded.read()
        if self._is_first_take:
            late = ((table, _since(columns, self.started_ns)) for table, columns in others)
            others = [(table, columns) for table, columns in late if len(next(iter(columns.values())))]
        self._is_first_take = False
        lost = self._rings.lost
        others += self._rings.counts()
        self.lost += self._rings.lost - lost
        return Taken(records, others)

    def lost_by_now(self) -> int:
        """Return :attr:`lost` and what has been lost since the rings were read; from any thread."""
        return self.lost + self._rings.lost_by_now() - self._rings.lost

    def fullness(self) -> float:
        """Return how full the fullest ring of records is, 0 to 1: a look at it is not worth mentioning."""
        return self._rings.fullness()

    @property
    def has_other_rings(self) -> bool:
        """Whether there are more rings than those, of which :meth:`fullness` says nothing."""
        return bool(self._captures or self._plaintexts or self._options.tracepoints)

    def rows(self, taken: Taken) -> Iterator[tuple[str, dict[str, Array]]]:
        """Yield what was taken as rows: a table's name and its columns. To be called in the order of taking.

        Captured frames come as :meth:`~hopscope.live.recorder.captures.Captures.read` has them.
        """
        for cpu, records in taken.records:
            for table, columns in self._tables.rows(records, cpu):
                yield table, columns
                if table == "drops":
                    yield from self._places.rows(columns)
                elif table == "cpu":
                    handlers = columns["value"][columns["point"] == HopPoint.HOP_POINT_IRQ_ENTER]
                    yield from self._places.symbols(handlers)
        for table, columns in taken.others:
            yield table, columns
            if table in self._tracepoints.with_callers:
                yield from self._places.symbols(columns[CALLER.name])
            if table in self._tracepoints.with_stacks:
                yield from self._places.stacks(columns[STACK.name])
        yield from self._places.lines(_LINES_S if self._stopped else 0)

    def name_again(self) -> None:
        """Have rows say anew what flows, threads, devices and queueing disciplines are, as events of them come.

        To be called between two calls of :meth:`rows`. A thread that the kernel side notes at this very moment may be
        left out: a second call, later, has it come, too.
        """
        self._forget_names()
        self._tables.forget()

    def _forget_names(self) -> None:
        for known in self._known_names:
            known[...] = np.zeros((), known.dtype)

    def now_ns(self) -> int:
        """Return the time, by the clock of events."""
        return time.monotonic_ns()

    def stop(self) -> None:
        """Record no more tracepoints; the next :meth:`read` gives their rest, all losses, and lines of source."""
        self._stopped = True
        if self._options.tracepoints:
            self._tracepoints.stop()

    @property
    def captures(self) -> bool:
        """Whether bytes of frames are captured."""
        return bool(self._options.snap_bytes)

    def missed(self) -> int:
        """Return how many runs of the programs the kernel suppressed since the recording began."""
        return int(self._cost.read().missed.sum()) - self._missed_before + self._tracepoints.missed()

    def look_at_cost(self) -> None:
        """Measure what the programs cost, now and then; to be called again and again."""
        self._costs.look()

    @property
    def cost_rate(self) -> float:
        """CPU time a second that the programs take."""
        return self._costs.rate

    def cost(self) -> Overhead | None:
        """Return what recording has cost so far; None: it was too short to tell."""
        return self._costs.overhead()

    def captures_lost(self) -> int:
        """Return how many packets could not be captured, because a ring had no room."""
        return int((self._captures_lost - self._captures_lost_before).sum())

    def remarks(self) -> list[str]:
        """Return a sentence on each thing that is missing and no event, at the end."""
        found = []
        if lost := self.captures_lost():
            found.append(f"{plural(lost, 'packet')} not captured: a ring buffer was full (--buffer)")
        if lost := int((self._plaintexts_lost - self._plaintexts_lost_before).sum()):
            found.append(f"no plaintext of {plural(lost, 'call')}: a ring buffer was full (--buffer)")
        return found

    def ended_ns(self, drained_ns: int) -> int:
        """Return when the recording ended, whose rings were last read at a time."""
        return drained_ns


def _since(columns: dict[str, Array], started_ns: int) -> dict[str, Array]:
    """Return the rows that are of no time before; of what was lost, those that reach beyond."""
    late = columns["time_ns" if "time_ns" in columns else "until_ns"] >= started_ns
    return {name: column[late] for name, column in columns.items()}
