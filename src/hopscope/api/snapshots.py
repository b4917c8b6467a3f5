# SPDX-License-Identifier: Apache-2.0
"""What happens on this host now, for programs: the snapshots of the verbs that report at intervals."""

from __future__ import annotations

import math
import time
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, Self, TypeVar, overload

from hopscope.errors import UsageError
from hopscope.live.arguments import check_names, invoke
from hopscope.live.contract import NoMessages, batches
from hopscope.live.handover import handed_over
from hopscope.live.interval import cost_window_s

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from hopscope.live.contract import Collector
    from hopscope.model.counters.rows import CounterSnapshot
    from hopscope.model.cpu import CpuSnapshot
    from hopscope.model.drops import DropSnapshot
    from hopscope.model.message import Message
    from hopscope.model.snapshot import PlanRow, Snapshot
    from hopscope.verbs.sockets.report import SocketReport

SnapshotT = TypeVar("SnapshotT")

VERBS: Final = ("rx", "tx", "cpu", "drops", "counters", "sockets")


@overload
def live(
    verb: Literal["rx", "tx"], *, interval: float = ..., duration: float | None = ..., **options: object
) -> Live[Snapshot]: ...


@overload
def live(
    verb: Literal["cpu"], *, interval: float = ..., duration: float | None = ..., **options: object
) -> Live[CpuSnapshot]: ...


@overload
def live(
    verb: Literal["drops"], *, interval: float = ..., duration: float | None = ..., **options: object
) -> Live[DropSnapshot]: ...


@overload
def live(
    verb: Literal["counters"], *, interval: float = ..., duration: float | None = ..., **options: object
) -> Live[CounterSnapshot]: ...


@overload
def live(
    verb: Literal["sockets"], *, interval: float = ..., duration: float | None = ..., **options: object
) -> Live[SocketReport]: ...


def live(verb: str, *, interval: float = 1.0, duration: float | None = None, **options: object) -> Live[Any]:
    """Measure on this host.

    Parameters
    ----------
    verb
        ``rx``, ``tx``, ``cpu``, ``drops``, ``counters`` or ``sockets``, as on the command line.
    interval
        Time between snapshots, s; at least 0.1.
    duration
        Stop after this time, s; None: when the program leaves the loop or the context.
    options
        Those of the command line, without dashes before and with underscores within: ``port=[443]``,
        ``group_by="process"``, ``since_entry=True``. Options that say how results are printed, and those about other
        hosts, are not among them.

    Returns
    -------
    Live
        An iterable of snapshots, and a context manager. Nothing is attached before it is entered or iterated over.

    Raises
    ------
    UsageError
        There is no such verb or option, or a value is wrong.
    PrivilegeError
        A right is missing: root or CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN are needed.

    Examples
    --------
    >>> with hopscope.live("rx", duration=10, port=[443]) as rx:
    ...     for snapshot in rx:
    ...         for row in snapshot.hops:
    ...             print(row.hop, row.histogram.count, row.histogram.percentile(99))
    """
    check_names("live verb", verb, VERBS, hint=f"There are {', '.join(VERBS)}")
    if options.get("slowest"):
        raise UsageError("slowest is for people", "events=True and Live.messages() give every message")
    command = import_module(f"hopscope.verbs.{verb}.command").command
    timing = {"interval": interval, "duration": duration}
    with handed_over() as left:
        invoke(command, f"hopscope {verb}", {**timing, **options})
    if left.collector is None:
        raise UsageError(f"`hopscope {verb}` measures nothing with these options", "Leave some out")
    return Live(left.collector, interval, duration, left.between_s)


class Live(Generic[SnapshotT]):
    """Snapshots at intervals; made by :func:`hopscope.live`.

    Entering it attaches, leaving it detaches, whatever ends it; as links to the kernel live in file descriptors, they
    end with the process at the latest. Where it is iterated over without having been entered, that happens around the
    loop. It can be used once.

    While the program does something else than waiting for the next snapshot, the kernel's buffers are not emptied
    (``drops``, ``rx`` and ``tx`` with ``events``, ``cpu`` with samples): what does not fit is counted as lost in the
    next one.
    """

    def __init__(
        self, collector: Collector[SnapshotT], interval_s: float, duration_s: float | None, between_s: float | None
    ) -> None:
        self._collector = collector
        self._interval_s = interval_s
        self._duration_s = duration_s
        self._between_s = between_s
        self._messages: list[Message] = []
        self._state: Literal["new", "attached", "over"] = "new"

    def __enter__(self) -> Self:
        """Attach.

        Raises
        ------
        PrivilegeError
            A right is missing.
        KernelError
            Nothing useful can be attached on this kernel.
        """
        if self._state != "new":
            raise UsageError("A live measurement can be used once", "Call hopscope.live() again")
        self._collector.__enter__()
        self._state = "attached"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._state == "attached":
            self._state = "over"
            self._collector.__exit__(kind, error, traceback)

    def __iter__(self) -> Iterator[SnapshotT]:
        """Iterate over snapshots, each of the time since the one before.

        Raises
        ------
        HopscopeError
            As :meth:`__enter__`, where it is not entered.
        """
        if self._state == "attached":
            yield from self._snapshots()
            return
        with self:
            yield from self._snapshots()

    def total(self) -> SnapshotT:
        """Return what was seen since it was attached, up to the last snapshot.

        Raises
        ------
        UsageError
            It is not attached.
        """
        return self._attached().total()

    def plan(self) -> list[PlanRow]:
        """Return how each probe point is attached, and why not better.

        Raises
        ------
        UsageError
            It is not attached.
        """
        return self._attached().plan()

    def messages(self) -> list[Message]:
        """Return the single messages that came since the last call, up to the last snapshot, in order.

        Their times are of CLOCK_MONOTONIC, ns; what was not seen is None.

        Raises
        ------
        UsageError
            They were not asked for: ``rx`` and ``tx`` with ``events=True`` have them.
        """
        if isinstance(getattr(self._attached(), "found", NoMessages()), NoMessages):
            raise UsageError(
                "There are no single messages", 'hopscope.live("tx", events=True) has them, and so has "rx"'
            )
        found, self._messages = self._messages, []
        return found

    def close(self) -> None:
        """Detach; again is allowed."""
        self.__exit__(None, None, None)

    def _attached(self) -> Collector[SnapshotT]:
        if self._state != "attached":
            raise UsageError("Nothing is attached", "Use it inside of its `with`")
        return self._collector

    def _snapshots(self) -> Iterator[SnapshotT]:
        end_s = time.monotonic() + self._duration_s if self._duration_s else math.inf
        window_s = cost_window_s(self._interval_s)
        next_s = time.monotonic()
        while next_s < end_s and self._state == "attached":
            # A program that took longer than an interval gets whole ones again.
            next_s = min(max(next_s, time.monotonic()) + self._interval_s, end_s)
            self._wait(next_s - window_s)
            self._collector.measure_cost(window_s)
            snapshot = self._collector.interval()
            self._drain()
            yield snapshot

    def _wait(self, until_s: float) -> None:
        """Wait until that time of CLOCK_MONOTONIC, and empty rings meanwhile."""
        while (left_s := until_s - time.monotonic()) > 0:
            time.sleep(min(left_s, self._between_s or left_s))
            self._drain()

    def _drain(self) -> None:
        drained: Any = self._collector
        if hasattr(drained, "drain"):
            drained.drain()
        if hasattr(drained, "found"):
            for messages in batches(drained.found, self._between_s or 0.0):
                self._messages += messages
