# SPDX-License-Identifier: Apache-2.0
"""CPU cost: what networking takes from each processor, exactly, and by stacks which part of the stack takes it.

The kernel side (``bpf/cpu/``) keeps for each CPU what it does for networking at the moment, and charges each
interval once. Socket calls are found by their functions where this kernel lets functions be hooked, else by system
calls.
"""

from __future__ import annotations

import socket
import struct
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hopscope.bpf.layout import HOP_GROUP_DTYPE, HopCpuPart
from hopscope.errors import KernelError
from hopscope.kernel.capabilities import TO_TRACE
from hopscope.kernel.irqs import network_irqs
from hopscope.libbpf import online_cpus, possible_cpus
from hopscope.live.attached import Attached
from hopscope.live.labels import NOT_KNOWN, Labels
from hopscope.live.session import Session
from hopscope.model.cpu import Counted, CpuRow, CpuSnapshot, Part, added
from hopscope.model.parts import PARTS
from hopscope.probes.catalogue import POINTS
from hopscope.probes.resolve import Plan, Resolver
from hopscope.term.format import plural
from hopscope.verbs.cpu import uring as cpu_uring
from hopscope.verbs.cpu.callbacks import Callbacks
from hopscope.verbs.cpu.energy import energy_j, read_energy_uj
from hopscope.verbs.cpu.offloads import Moved, moved, sentences
from hopscope.verbs.cpu.options import GROUP_BY, CpuOptions, overflow_note
from hopscope.verbs.cpu.pmu import NAMES, PmuCounters, PmuReading
from hopscope.verbs.cpu.stacks import StackSampler
from hopscope.verbs.cpu.uring import UringWatch

if TYPE_CHECKING:
    import contextlib

    from hopscope.libbpf import BpfObject
    from hopscope.live.cost import CostReading
    from hopscope.model.snapshot import Kind
    from hopscope.probes.point import AttachMethod

_CALLBACK_POINTS: Final = ("cpu.timer_list", "cpu.hrtimer", "cpu.tasklet", "cpu.work")
_POINTS: Final = (
    "cpu.irq",
    "cpu.timer",
    "cpu.ipi",
    "cpu.softirq",
    "cpu.poll",
    *_CALLBACK_POINTS,
    "cpu.switch",
    "cpu.exit",
    "cpu.call",
    "cpu.control",
    "cpu.busy_poll",
)
_WITH_FUNCTIONS: Final = ("cpu.packet", "cpu.sendpage")
_FIELDS: Final = ("ns", "runs", "packets", "bytes")

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class _Reading:
    """All of it at one instant, cumulative.

    Attributes
    ----------
    figures
        int64, shape (4, cpus, rows, parts): ns, runs, packets, bytes; with hardware counters, theirs follow.
    counts
        The counters by their names in the kernel side, over all CPUs.
    at_s, clock_ns
        CLOCK_MONOTONIC and, for display, CLOCK_REALTIME.
    energy_uj
        Of all processors' packages, None where the machine does not say.
    """

    figures: Array
    counts: dict[str, int]
    at_s: float
    clock_ns: int
    energy_uj: int | None
    cost: CostReading
    pmu: PmuReading | None


class CpuCollector(Attached):
    """Runs the accounting; entering it attaches, leaving it detaches, whatever happened.

    Parameters
    ----------
    options
        What is asked for.
    """

    _sampler: StackSampler | None = None
    _uring: UringWatch
    _callbacks: Callbacks
    _pmu: PmuCounters | None = None
    _last: _Reading
    _moved: Moved

    def __init__(self, options: CpuOptions) -> None:
        self._options = options
        self._resolver = Resolver()
        self._plan = self._new_plan(None)
        self._labels = Labels(options.group_by)

    def drain(self) -> None:
        """Make room for further stacks, and watch io_uring once it is in use; to be called several times a second."""
        self._look()
        if self._sampler:
            self._sampler.drain()

    def interval(self) -> CpuSnapshot:
        """Return what was seen since the last call."""
        self._look()
        before = self._last
        self._last = self._read()
        self._moved_before, self._moved = self._moved, moved() if self._sampler else {}
        return self._snapshot("interval", before, self._last)

    def total(self) -> CpuSnapshot:
        """Return what was seen since the start, as of the last :meth:`interval`."""
        return self._snapshot("total", self._first, self._last)

    def _look(self) -> None:
        self._uring.look()
        self._callbacks.look()

    # ---- what is attached ----

    def _new_plan(self, calls: AttachMethod | None) -> Plan:
        """Return the plan whose other points go with the way that the socket calls get."""
        forced = dict(self._options.ways)
        if calls is None:
            calls = Plan(self._resolver, [POINTS["cpu.call"]], _only(forced, "cpu.call")).chosen(POINTS["cpu.call"])
        else:
            forced["cpu.call"] = calls.name
        by_functions = calls is not None and calls.kind != "tp_btf"
        names = [*_POINTS, *(_WITH_FUNCTIONS if by_functions else cpu_uring.NAMES)]
        if self._options.hz:
            names.append("cpu.sample")
        if calls:
            for name in ("cpu.control", "cpu.busy_poll", *(_WITH_FUNCTIONS if by_functions else ())):
                forced.setdefault(name, next(way.name for way in POINTS[name].ways if way.kind == calls.kind))
        return Plan(self._resolver, [POINTS[name] for name in names], forced)

    def _started(self) -> Session:
        """Load and attach; where the kernel refuses functions only in the act, go by system calls instead."""
        refused = []
        while True:
            before = self._plan.chosen(POINTS["cpu.call"])
            session = Session(
                "cpu", self._plan, self._configure, later=lambda: cpu_uring.programs(self._plan), needed=TO_TRACE
            )
            after = self._plan.chosen(POINTS["cpu.call"])
            if after is before:
                return session
            session.close()
            refused.append(before)
            if after in refused:  # a new plan forgets what an older one was refused
                raise KernelError(
                    "The kernel refuses every way to observe calls", "`hopscope cpu --plan` gives reasons"
                )
            self._plan = self._new_plan(after)

    def _configure(self, bpf: BpfObject) -> None:
        options = self._options
        bpf.set_const("cfg_group_by", int(GROUP_BY[options.group_by]))
        bpf.set_const("cfg_groups", options.rows)
        busy = self._plan.chosen(POINTS["cpu.busy_poll"])
        bpf.set_const("cfg_busy_functions", int(bool(busy and busy.kind != "tp_btf")))
        bpf.maps["rows"].set_max_entries(possible_cpus() * options.rows)
        if self._pmu:
            self._pmu.configure(bpf, options.rows)
        bpf.maps["counters"].set_max_entries(possible_cpus())
        bpf.maps["groups"].set_max_entries(options.rows)
        bpf.maps["group_rows"].set_max_entries(options.rows)
        bpf.maps["rings"].set_max_entries(possible_cpus())
        self._irqs = network_irqs()
        bpf.maps["network_irqs"].set_max_entries(max(len(self._irqs), 1))

    def _open(self, stack: contextlib.ExitStack) -> None:
        if self._options.counters:
            self._pmu = stack.enter_context(PmuCounters(self._options.counters))
        self._session = stack.enter_context(self._started())
        bpf = self._session.bpf
        self._note_plan(bpf, self._options.ways)
        for number, interface in self._irqs.items():
            bpf.maps["network_irqs"].update(struct.pack("=I", number), _device(interface))
        self._uring = UringWatch(bpf, self._plan)
        self._callbacks = Callbacks(bpf)
        stack.callback(self._callbacks.close)
        self._rows = bpf.maps["rows"].array().reshape(possible_cpus(), self._options.rows)
        self._counters = bpf.maps["counters"].array()
        if self._pmu:
            self._pmu.start(bpf, self._options.rows)
        if self._options.hz:
            self._sampler = StackSampler(bpf, self._options.hz)
            stack.callback(self._sampler.close)
        self._first = self._last = self._read()
        self._moved = self._moved_first = self._moved_before = moved() if self._sampler else {}

    # ---- results ----

    def _read(self) -> _Reading:
        names = [name for name in self._counters.dtype.names or () if self._counters[name].ndim == 1]
        pmu = self._pmu.read() if self._pmu else None
        figures = [self._rows[name].astype(np.int64) for name in _FIELDS]
        return _Reading(
            figures=np.stack([*figures, *(pmu.counted if pmu else ())]),
            counts={name: int(self._counters[name].sum()) for name in names},
            at_s=time.monotonic(),
            clock_ns=time.time_ns(),
            energy_uj=read_energy_uj(),
            cost=self._cost.read(),
            pmu=pmu,
        )

    def _snapshot(self, kind: Kind, before: _Reading, after: _Reading) -> CpuSnapshot:
        names = self._group_names()
        rows = self._cpu_rows(before, after) if self._options.group_by == "cpu" else self._rows_by(names, before, after)
        stacks = []
        if self._sampler:
            stacks = self._sampler.interval(names) if kind == "interval" else self._sampler.total()
        counts = {name: after.counts[name] - before.counts[name] for name in after.counts}
        found = CpuSnapshot(
            kind=kind,
            started_ns=before.clock_ns,
            duration_s=after.at_s - before.at_s,
            cpus=len(online_cpus()),
            total=CpuRow({}, added(rows)),
            rows=sorted(rows, key=lambda row: -row.ns) if self._options.group_by != "cpu" else rows,
            overhead=self._cost.overhead(before.cost, after.cost),
            hz=self._options.hz,
            stacks=stacks,
            lost=counts["lost"],
            energy_j=energy_j(before.energy_uj, after.energy_uj),
            plan=self._plan.rows(),
            notes=self._notes(counts) + self._pmu_notes(before, after),
        )
        if not self._sampler:
            return found
        earlier = self._moved_before if kind == "interval" else self._moved_first
        could_save = sentences(earlier, self._moved, found.breakdown(), found.total.ns)
        return replace(found, notes=[*could_save, *found.notes])

    def _group_names(self) -> dict[int, str]:
        """Return what each row is called."""
        if self._options.group_by == "cpu":
            return {}
        rows, groups = self._session.bpf.maps["groups"].items()
        return {0: NOT_KNOWN} | {int(row): self._labels.name(group) for row, group in zip(rows, groups, strict=True)}

    def _cpu_rows(self, before: _Reading, after: _Reading) -> list[CpuRow]:
        figures = (after.figures - before.figures)[:, :, 0]
        online = set(online_cpus())
        return [
            CpuRow({"cpu": str(cpu)}, _parts(figures[:, cpu], after.pmu))
            for cpu in range(figures.shape[1])
            if cpu in online or figures[:, cpu].any()
        ]

    def _rows_by(self, names: dict[int, str], before: _Reading, after: _Reading) -> list[CpuRow]:
        figures = (after.figures - before.figures).sum(axis=1)
        by = self._options.group_by
        rows = [CpuRow({by: name}, _parts(figures[:, row], after.pmu)) for row, name in names.items()]
        return [row for row in rows if any(part.seen for part in row.parts.values())]

    def _pmu_notes(self, before: _Reading, after: _Reading) -> list[str]:
        return self._pmu.notes(before.pmu, after.pmu) if self._pmu and before.pmu and after.pmu else []

    def _notes(self, counts: dict[str, int]) -> list[str]:
        notes = []
        if counts["group_overflow"]:
            notes.append(overflow_note(counts["group_overflow"], self._options))
        if counts["no_memory"]:
            notes.append(
                f"{plural(counts['no_memory'], 'thread switch', 'thread switches')} during a call could not be "
                "tracked for lack of memory: the rest of the call is missing"
            )
        if counts["unseen"]:
            notes.append(
                f"{plural(counts['unseen'], 'socket call')} with unknown start (before the measurement, or repeated by "
                "io_uring): not included"
            )
        if self._callbacks.hidden:
            notes.append(
                "`timer`, `tasklet` and `workqueue` are not included: the kernel hides the addresses of its functions "
                "(CAP_SYSLOG shows them, unless the sysctl kernel.kptr_restrict is 2)"
            )
        if counts["unread"]:
            notes.append(
                f"{plural(counts['unread'], 'message')} of calls with several messages could not be read: "
                "their bytes are not included"
            )
        if counts["uring"]:
            notes.append(
                f"{plural(counts['uring'], 'system call or run', 'system calls and runs')} of io_uring threads "
                "occurred before tracing began: their socket operations are not included"
            )
        return notes


def _only(forced: dict[str, str], name: str) -> dict[str, str]:
    return {name: forced[name]} if name in forced else {}


def _parts(figures: Array, pmu: PmuReading | None) -> dict[str, Part]:
    """Return the parts; figures as in :class:`_Reading`, of shape (4 or 7, parts)."""
    parts = {}
    for part, name in enumerate(PARTS, start=HopCpuPart.HOP_CPU_IRQ):
        ns, runs, packets, len_bytes, *counted = figures[:, part].tolist()
        parts[name] = Part(ns, runs, packets, len_bytes, _counted(counted, pmu))
    return parts


def _counted(numbers: list[int], pmu: PmuReading | None) -> Counted | None:
    """Return the counters of a part, those that counted."""
    if not pmu:
        return None
    return Counted(*(number if name in pmu.times else None for name, number in zip(NAMES, numbers, strict=True)))


def _device(interface: str) -> bytes:
    """Return the group of a device that sysfs shows, as a record of ``struct hop_group``.

    Sysfs may have been mounted for another network namespace than ours: which one, nobody can tell.
    """
    index = int(Path(f"/sys/class/net/{interface}/ifindex").read_text(encoding="ascii"))
    ours = (index, interface) in socket.if_nameindex()
    group = np.zeros((), HOP_GROUP_DTYPE)
    group["key"]["id"] = index
    group["key"]["netns"] = Path("/proc/thread-self/ns/net").stat().st_ino if ours else 0
    group["name"] = interface.encode()
    return group.tobytes()
