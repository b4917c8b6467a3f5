# SPDX-License-Identifier: Apache-2.0
"""Any tracepoint or function of the kernel, recorded as perf records it: events with their fields, a table each.

What the kernel does while it records an event on that CPU cannot be recorded itself, as with perf: the allocation of
memory for a record, say. CPUs that come later are not seen. Before Linux 6.0, losses after a CPU's last record are not
known if a sched:sched_stat_* event is among those recorded.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, Self

import numpy as np

from hopscope.errors import UsageError
from hopscope.kernel.capabilities import require_rights
from hopscope.kernel.functions import KINDS, ValuesEvent, Wanted, function_events
from hopscope.kernel.tracefs import Tracefs
from hopscope.kernel.tracepoint_columns import CALLER, STACK, EventColumns
from hopscope.kernel.tracepoint_format import parse_format
from hopscope.libbpf import online_cpus
from hopscope.libbpf.perf_event import Tracepoint
from hopscope.libbpf.perf_ring import PerfRing
from hopscope.store.schema import BY_NAME, Table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

    from numpy.typing import NDArray

    from hopscope.kernel.tracepoint_format import Field
    from hopscope.libbpf import Map, Program
    from hopscope.libbpf.perf_event import RecordedEvent
    from hopscope.libbpf.perf_ring import Batch
    from hopscope.store.schema import Column

RING_BYTES: Final = 4 << 20
LOSSES: Final = Table(
    "e_losses",
    "records of tracepoints and functions (the tables e_*) that are missing, because the ring was full",
    BY_NAME["losses"].columns,
)
# The left side of a comparison in the kernel's filter language, which it does not explain when it refuses one.
_COMPARED: Final = re.compile(r"([A-Za-z_][\w.]*)\s*(?:[=!<>]=|[<>&~])")
_QUOTED: Final = re.compile(r"\"[^\"]*\"|'[^']*'")
# What the kernel lets a filter compare besides the event's own fields.
_ALWAYS: Final = {"cpu", "comm", "stacktrace"}
_FILTERS: Final = (
    "Compare fields with numbers (== != < <= > >= &) or, where they are text, with strings (== != ~ with *), "
    "joined by && and ||"
)

Columns = dict[str, "NDArray[Any]"]


@dataclass(frozen=True, slots=True)
class Spec:
    """What ``-e`` says: ``subsystem:event[:filter]``, of which the first two may be patterns of the shell.

    The subsystems ``function`` and ``return``, which no kernel has, mean a function, and what is wanted of it.
    """

    subsystem: str
    event: str
    filter: str = ""
    function: Wanted | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Take it apart.

        Raises
        ------
        UsageError
            It has no event, or is more than can be wanted of a function.
        """
        subsystem, _, rest = (part.strip() for part in text.partition(":"))
        if not subsystem or not rest.partition(":")[0].strip():
            raise UsageError(
                f"'{text}' is not the name of a tracepoint",
                "Write subsystem:event or subsystem:event:filter, such as 'kmem:kmalloc:bytes_req > 1000', or "
                "function:NAME, return:NAME",
            )
        if subsystem in KINDS:
            return cls(subsystem, rest, "", Wanted.parse(subsystem, rest))
        event, _, condition = (part.strip() for part in rest.partition(":"))
        return cls(subsystem, event, condition)

    @property
    def is_function(self) -> bool:
        """Whether it names a function."""
        return self.function is not None

    def __str__(self) -> str:
        return f"{self.subsystem}:{self.event}"


def wants_stacks(specs: Sequence[str]) -> bool:
    """Tell whether stacks are asked for.

    Raises
    ------
    UsageError
        A spec is wrong.
    """
    functions = (Spec.parse(each).function for each in specs)
    return any(each.stack for each in functions if each)


class WantedEvent(Protocol):
    """What is wanted, of whatever kind."""

    @property
    def label(self) -> str:
        """As ``-e`` names it, without its filter."""

    @property
    def is_function(self) -> bool:
        """Whether it is one of a function, and no tracepoint."""

    @property
    def filter(self) -> str:
        """What the kernel is to leave out otherwise; empty: nothing."""

    @property
    def columns(self) -> EventColumns:
        """Of its table."""

    def open(self, cpu: int, *, recorded: bool = True) -> RecordedEvent:
        """Have it on a CPU, disabled; one that is not `recorded` is counted alone."""


@dataclass(frozen=True, slots=True)
class _TracepointEvent:
    """A tracepoint that is wanted."""

    label: str
    number: int
    fields: list[Field]
    columns: EventColumns
    filter: str
    is_function: Literal[False] = False

    def open(self, cpu: int, *, recorded: bool = True) -> Tracepoint:
        opened = Tracepoint(self.label, self.number, cpu, recorded=recorded)
        try:
            if self.filter:
                opened.set_filter(self.filter)
        except OSError as error:
            opened.close()
            if error.errno != errno.EINVAL:
                raise
            raise _bad_filter(self) from error
        return opened


class Tracepoints:
    """Records tracepoints and functions while it is entered; nothing of it stays in the kernel, however it ends.

    Parameters
    ----------
    specs
        As :class:`Spec` reads them. An event that several name is recorded if one of them wants it.
    ring_bytes
        A CPU's, for all events together: a power of two, a multiple of the page.
    stacks
        Where stacks are put that are asked for; None: they are not kept.

    Attributes
    ----------
    tables : tuple of Table
        Once entered: one for each event, and :data:`LOSSES`.
    with_callers, with_stacks : frozenset of str
        Those of them that have :data:`~hopscope.kernel.tracepoint_columns.CALLER`, or
        :data:`~hopscope.kernel.tracepoint_columns.STACK`, of functions.
    received : int
        Records handed out.
    lost : int
        Records that the ring had no room for, as far as it is known: the last ones of a CPU are after :meth:`stop`.

    Raises
    ------
    UsageError
        A spec is wrong.
    """

    def __init__(self, specs: Sequence[str], ring_bytes: int = RING_BYTES, stacks: Map | None = None) -> None:
        self._specs = [Spec.parse(each) for each in specs]
        self._ring_bytes = ring_bytes
        self._stacks = stacks
        self.tables: tuple[Table, ...] = ()
        self.with_callers: frozenset[str] = frozenset()
        self.with_stacks: frozenset[str] = frozenset()
        self.received = 0
        self.lost = 0
        self._programs: list[Program] = []

    def __enter__(self) -> Self:
        """Open all of them; :meth:`start` begins.

        Raises
        ------
        PrivilegeError
            A right is missing.
        UsageError
            There is no such event or function, or the kernel refuses a filter.
        KernelError
            The kernel refuses, or has no probes for functions.
        """
        require_rights()
        events = wanted_events(self._specs)
        self.tables = (*(each.columns.table for each in events), LOSSES)
        functions = [each.columns.table for each in events if each.is_function]
        self.with_callers = frozenset(table.name for table in functions if _has(table, CALLER))
        self.with_stacks = frozenset(table.name for table in functions if _has(table, STACK))
        with contextlib.ExitStack() as stack:
            self._open(events, stack)
            self._closing = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._closing.close()

    def start(self) -> None:
        """Begin to record: next to nothing is left to do."""
        for cpu in self._cpus:
            cpu.start()

    def read(self) -> dict[str, Columns]:
        """Take what was recorded since the last call.

        Returns
        -------
        dict of str to dict of str to ndarray
            Name of a table → its columns; only tables that have rows. The rows of a CPU are in order of time.
        """
        parts: dict[str, list[Columns]] = {}
        for cpu in self._cpus:
            batch = cpu.read()
            for name, columns in self._events(batch):
                parts.setdefault(name, []).append(columns)
            if len(batch.lost):
                parts.setdefault(LOSSES.name, []).append(_losses(cpu.ring.cpu, batch))
        self.received = sum(cpu.received for cpu in self._cpus)
        self.lost = sum(cpu.lost for cpu in self._cpus)
        return {name: _joined(each) for name, each in parts.items()}

    def stop(self) -> None:
        """Record no more; the next :meth:`read` gives the rest, and all losses."""
        for cpu in self._cpus:
            cpu.stop()

    def missed(self) -> int:
        """Return how many runs of functions' programs the kernel suppressed, from Linux 6.7 on."""
        return sum(program.info().recursion_misses for program in self._programs)

    def _open(self, events: Sequence[WantedEvent], stack: contextlib.ExitStack) -> None:
        self._cpus: list[_Cpu] = []
        self._by_id: dict[int, EventColumns] = {}
        by_cpu: dict[int, list[RecordedEvent]] = {cpu: [] for cpu in online_cpus()}
        # One event after the other, on all CPUs: in what order functions are probed matters (kernel_functions.KINDS).
        for event in events:
            for cpu, opened in by_cpu.items():
                opened.append(event.open(cpu))
                stack.callback(opened[-1].close)
                self._by_id[opened[-1].id] = event.columns
            if isinstance(event, ValuesEvent):
                outputs = {cpu: opened[-1] for cpu, opened in by_cpu.items()}
                self._programs.append(stack.enter_context(event.attached(outputs, self._stacks)))
        for opened in by_cpu.values():
            self._cpus.append(_Cpu(opened, self._ring_bytes))
            stack.callback(self._cpus[-1].ring.close)
        self._ids = np.array(sorted(self._by_id), np.uint64)

    def _events(self, batch: Batch) -> Iterator[tuple[str, Columns]]:
        """Yield table and columns of each event that a ring had."""
        which = np.searchsorted(self._ids, batch.ids)
        for index in np.flatnonzero(np.bincount(which)):
            event = self._by_id[int(self._ids[index])]
            yield event.table.name, event.columns(batch.words, batch.starts[which == index])


class _Cpu:
    """The events on one CPU, and what became of their records."""

    def __init__(self, events: Sequence[RecordedEvent], ring_bytes: int) -> None:
        self.ring = PerfRing(events, ring_bytes)
        self.received = 0
        self.lost = 0
        self._events = events
        self._weight = 0
        self._stopped = False

    def start(self) -> None:
        for event in self._events:
            event.enable()

    def stop(self) -> None:
        for event in self._events:
            event.disable()
        self._stopped = True

    def read(self) -> Batch:
        """Take what is there; of losses, the kernel tells with the next record, or never if none follows."""
        batch = self.ring.read()
        self.received += len(batch.starts)
        self._weight += batch.weight
        self.lost += int(batch.lost.sum())
        unsaid = self._lost_in_all() - self.lost if self._stopped else 0
        if unsaid > 0:
            self.lost += unsaid
            batch = _with_loss(batch, unsaid, self.ring.last_ns)
        return batch

    def _lost_in_all(self) -> int:
        """Return how many records found no room; before Linux 6.0 by what is missing, if each event counts one."""
        counts = [event.counted() for event in self._events]
        known = [each.lost for each in counts if each.lost is not None]
        if len(known) == len(counts):
            return sum(known)
        return sum(each.weight for each in counts) - self.received if self._weight == self.received else self.lost


def _with_loss(batch: Batch, lost: int, from_ns: int) -> Batch:
    now_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    return batch._replace(
        lost=np.append(batch.lost, lost),
        from_ns=np.append(batch.from_ns, from_ns),
        until_ns=np.append(batch.until_ns, now_ns),
    )


def _losses(cpu: int, batch: Batch) -> Columns:
    return {
        "from_ns": batch.from_ns,
        "until_ns": batch.until_ns,
        "cpu": np.full(len(batch.lost), cpu, np.int16),
        "lost": batch.lost,
    }


def _has(table: Table, column: Column) -> bool:
    return column.name in (each.name for each in table.columns)


def _joined(parts: Sequence[Columns]) -> Columns:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def wanted_events(specs: Sequence[Spec]) -> list[WantedEvent]:
    """Return what the specs name, each once.

    Raises
    ------
    UsageError
        There is no such event or function, or it has no field that a filter names.
    PrivilegeError, KernelError
        tracefs cannot be read, or the kernel has no probes for functions.
    """
    functions = function_events(each.function for each in specs if each.function)
    tracepoints = [each for each in specs if not each.is_function]
    if not tracepoints:
        return [*functions]
    with Tracefs() as tracefs:
        return [*functions, *_tracepoints(tracefs, tracepoints)]


def _tracepoints(tracefs: Tracefs, specs: Sequence[Spec]) -> list[_TracepointEvent]:
    """Return the events that the specs name, each once."""
    filters: dict[tuple[str, str], list[str]] = {}
    for spec in specs:
        found = tracefs.matching(spec.subsystem, spec.event)
        if not found:
            raise unknown_tracepoint(tracefs, spec)
        for each in found:
            filters.setdefault(each, []).append(spec.filter)
    return [_event(tracefs, subsystem, name, each) for (subsystem, name), each in filters.items()]


def _event(tracefs: Tracefs, subsystem: str, name: str, filters: Sequence[str]) -> _TracepointEvent:
    fields = parse_format(tracefs.format(subsystem, name))
    for each in filters:
        _require_fields(f"{subsystem}:{name}", each, fields)
    # Who names it without a filter wants them all.
    distinct = list(dict.fromkeys(filters)) if all(filters) else [""]
    return _TracepointEvent(
        f"{subsystem}:{name}",
        tracefs.number(subsystem, name),
        fields,
        EventColumns(subsystem, name, fields),
        distinct[0] if len(distinct) == 1 else " || ".join(f"({each})" for each in distinct),
    )


def unknown_tracepoint(tracefs: Tracefs, spec: Spec) -> UsageError:
    """Return the error that says that no tracepoint matches, and which have similar names."""
    known = [f"{subsystem}:{name}" for subsystem, name in tracefs.matching("*", "*")]
    close = difflib.get_close_matches(str(spec), known, 3)
    step = f"Did you mean {' or '.join(close)}?" if close else "`hopscope probes --events '*:*'` lists them all"
    return UsageError(f"This kernel has no tracepoint {spec}", step)


def _compared(text: str) -> list[str]:
    """Return the names on the left of a filter's comparisons."""
    return list(dict.fromkeys(_COMPARED.findall(_QUOTED.sub("''", text))))


def _require_fields(event: str, text: str, fields: Sequence[Field]) -> None:
    known = {field.name for field in fields}
    for name in _compared(text):
        if name not in known and name.casefold() not in _ALWAYS and not name.startswith("common_"):
            listed = ", ".join(field.name for field in fields) or "none"
            raise UsageError(f"{event} has no field {name}, which its filter '{text}' names", f"Its fields: {listed}")


def _bad_filter(event: _TracepointEvent) -> UsageError:
    declared = {field.name: field.declaration for field in event.fields}
    named = [declared[name] for name in _compared(event.filter) if name in declared]
    about = f" (declared there: {'; '.join(named)})" if named else ""
    return UsageError(f"The kernel rejects '{event.filter}' as a filter of {event.label}{about}", _FILTERS)
