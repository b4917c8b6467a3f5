# SPDX-License-Identifier: Apache-2.0
"""The process that measures: all metrics an interval, to the processes that hand them out or send them.

Counts are those of the kernel's own arrays, less what was in them at the start: nothing is added up over intervals, so
that they are what the arrays hold. What is not asked for is not attached.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any, Final, Self

from hopscope.errors import HopscopeError, KernelError, PrivilegeError, UsageError
from hopscope.gate import tell
from hopscope.kernel.counters.reader import CounterReader
from hopscope.kernel.netns import looked_at_once
from hopscope.live.attached import Attached, measure_costs
from hopscope.live.budget import charge_others, starting, until_next
from hopscope.live.interval import cost_window_s
from hopscope.live.lookup import namespaces
from hopscope.live.processes import share_arenas
from hopscope.live.stop import stop_on_signal
from hopscope.verbs.check.findings import Checker
from hopscope.verbs.frames.live import attach, words_for
from hopscope.verbs.serve.beats import beat, fail
from hopscope.verbs.serve.families import Families
from hopscope.verbs.serve.fleet_minutes import Journal
from hopscope.verbs.serve.pods import Pods

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from socket import socket
    from typing import TypeAlias

    from hopscope.live.contract import Collector
    from hopscope.live.stop import Stop
    from hopscope.model.counters.readings import Readings
    from hopscope.model.message import Message
    from hopscope.model.snapshot import Overhead
    from hopscope.verbs.check.findings import Check
    from hopscope.verbs.frames.live import Running
    from hopscope.verbs.serve.family import Family
    from hopscope.verbs.serve.wanted import Budget, Wanted
    from hopscope.verbs.sockets.report import SocketReport

    Form: TypeAlias = Callable[[Sequence[Family], int], bytes]

# Verbs with hops, which can be measured in part.
_HOPS: Final = ("rx", "tx")
# How often rings are emptied; within a budget, less often: where little happens, looks at them are much of the cost.
_BETWEEN_S: Final = 0.25
_BETWEEN_WITHIN_S: Final = 2.0
# The first figures do not wait for a long interval.
_FIRST_S: Final = 1.0
_MINUTE_S: Final = 60.0
# Between two readings of all sockets, and of all counters, at least: they take milliseconds.
_SOCKETS_S: Final = 5.0
_CHECK_S: Final = 10.0
# Of a budget, what each of them may take, and CPU time, which is estimated from samples then.
_SHARE: Final = 0.1
_CPU_SHARE: Final = 0.2


def measure(
    wanted: Wanted,
    lines: Sequence[tuple[socket, Form]],
    beats: socket,
    asks: socket,
    to_fleet: socket | None = None,
) -> None:
    """Send metrics until a signal comes, or nobody takes them any more.

    Parameters
    ----------
    lines
        To the processes that hand them out or send them, and what makes what each of them takes of the families, and of
        when counting began: CLOCK_REALTIME, ns.
    beats
        To the process that watches, for each time.
    asks
        To the process that asks for names of pods.
    to_fleet
        To the process that writes a fleet's histograms; None: there is none.
    """
    share_arenas()
    try:
        journal = Journal(to_fleet) if to_fleet else None
        with (
            contextlib.closing(journal) if journal else contextlib.nullcontext(),
            stop_on_signal() as stop,
            Measurement(wanted, asks, by_minute=journal is not None) as measurement,
        ):
            while not measurement.wait(stop):
                families = measurement.families()
                if journal:
                    journal.take(measurement.now, measurement.readings)
                for line, form in lines:
                    line.sendall(form(families, measurement.started_ns))
                beat(beats)
    except HopscopeError as error:
        fail(beats, error)


class Measurement:
    """All collectors that are wanted, attached; those that cannot be are told of on stderr, and in the metrics.

    Parameters
    ----------
    wanted
        What is measured.
    asks
        To the process that asks for names of pods.
    by_minute
        Whether to read at the end of each minute, too, so that what is read is of one.

    Attributes
    ----------
    started_ns : int
        CLOCK_REALTIME since when is counted, once entered.
    now : dict of str to snapshot
        Verb → what was measured in the last interval.

    Raises
    ------
    HopscopeError
        On entry: none of them can be.
    """

    def __init__(self, wanted: Wanted, asks: socket, *, by_minute: bool = False) -> None:
        self._wanted = wanted
        self._by_minute = by_minute
        self.now: dict[str, Any] = {}
        self._pods = Pods(wanted.kubernetes, asks) if wanted.kubernetes else None
        self._families = Families(wanted.collected, wanted.group_by, wanted.most_groups, self._pods)
        self._running: dict[str, Running] = {}
        self._absent: dict[str, str] = {}
        self._told: set[str] = set()
        self._before: Readings | None = None
        self._check: Check | None = None
        self._checker = Checker()
        self._sockets: SocketReport | None = None
        self._check_s = self._sockets_s = 0.0
        self._between_s = _BETWEEN_WITHIN_S if wanted.budget else _BETWEEN_S
        self._interval_s = min(wanted.interval_s, _FIRST_S)

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self._counters = stack.enter_context(self._reader())
            with starting(self._wanted.interval_s):
                for verb in self._wanted.collected:
                    if verb != "check":
                        self._attach(verb, stack)
            if len(self._absent) == len(self._wanted.collected):
                raise HopscopeError(next(iter(self._absent.values())))
            self._stack = stack.pop_all()
        self.started_ns = time.time_ns()
        self._next_s = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def wait(self, stop: Stop) -> bool:
        """Wait until the next reading is due, and empty rings meanwhile; say whether to end."""
        window_s = cost_window_s(self._interval_s)
        self._next_s = max(self._next_s, time.monotonic()) + self._interval_s
        self._interval_s = self._wanted.interval_s
        if self._by_minute:
            self._next_s = min(self._next_s, time.monotonic() + _MINUTE_S - time.time() % _MINUTE_S)
        while (left_s := self._next_s - window_s - time.monotonic()) > 0:
            if stop.wait(min(left_s, until_next(self._between_s))):
                return True
            for running in self._running.values():
                running.drain()
        measure_costs([each.collector for each in self._running.values()], window_s)
        return False

    @property
    def readings(self) -> Readings | None:
        """The last reading of counters and settings; None: there is none yet."""
        return self._before

    def families(self) -> list[Family]:
        """Read everything."""
        with looked_at_once():
            return list(self._measured())

    def _attach(self, verb: str, stack: contextlib.ExitStack) -> None:
        try:
            self._running[verb] = self._attached(verb)
        except UsageError:
            raise  # what is asked for is wrong
        except HopscopeError as error:
            self._absent[verb] = str(error)
            tell(f"hopscope: {verb} is not measured: {error}")
        else:
            stack.push(self._running[verb].stack)

    def _attached(self, verb: str) -> Running:
        budget = self._wanted.budget
        try:
            return attach(verb, _words(self._wanted, verb, budget))
        except (KernelError, PrivilegeError) as error:
            if budget is None or budget.must_hold or verb not in {*_HOPS, "cpu"}:
                raise
            running = attach(verb, _words(self._wanted, verb, None))
            tell(f"hopscope: all of {verb} is measured, whatever it costs, as the budget cannot be kept: {error}")
            return running

    def _reader(self) -> CounterReader:
        names = self._wanted.chosen.get("namespaces")
        return CounterReader(namespaces(names) if names else None)

    def _measured(self) -> Iterator[Family]:
        collectors = {verb: each.collector for verb, each in self._running.items() if verb != "sockets"}
        now = self.now = {verb: each.interval() for verb, each in collectors.items()}
        totals = {verb: each.total() for verb, each in collectors.items()}
        families = self._families
        yield from families.own(now, totals, self._absent, [row for each in totals.values() for row in each.plan])
        self._tell_budget(collectors.values())
        charge_others(sum(_rate(now[verb].overhead) for verb in now if verb not in _HOPS))
        yield from self._hops(totals)
        if "cpu" in totals:
            yield from families.cpu(totals["cpu"])
        if "drops" in totals:
            yield from families.drops(totals["drops"])
        self._look_at_sockets()
        if self._sockets is not None:
            yield from families.sockets(self._sockets)
        self._look_at_counters()
        if self._check:
            yield from families.check(self._check)
        if self._wanted.tally:
            yield from families.flight(self._wanted.tally)
        if self._wanted.pushes:
            yield from families.pushes(self._wanted.pushes)

    def _hops(self, totals: Mapping[str, Any]) -> Iterator[Family]:
        if self._pods:
            self._pods.take()
        for verb in _HOPS:
            if verb in totals:
                yield from self._families.hops(verb, totals[verb], self._slowest(verb))
        if self._pods:
            self._pods.ask()

    def _slowest(self, verb: str) -> Message | None:
        """Return the slowest message of the last interval; None: there was none, or it is not wanted."""
        if not self._wanted.exemplars:
            return None
        collector: Any = self._running[verb].collector
        found = collector.found.slowest("interval")
        return found.messages[0] if found.messages else None

    def _tell_budget(self, collectors: Iterable[Collector[Any]]) -> None:
        """Tell once what keeps the budget from measuring."""
        attached = [each for each in collectors if isinstance(each, Attached)]
        for note in {note for each in attached for note in each.budget_notes()} - self._told:
            self._told.add(note)
            tell(f"hopscope: {note}")

    def _look_at_sockets(self) -> None:
        running = self._running.get("sockets")
        if running and time.monotonic() >= self._sockets_s:
            begun_s = time.process_time()
            self._sockets = running.collector.interval()
            self._sockets_s = self._due_s(_SOCKETS_S, time.process_time() - begun_s)

    def _look_at_counters(self) -> None:
        if "check" not in self._wanted.collected or time.monotonic() < self._check_s:
            return
        begun_s = time.process_time()
        now = self._counters.read()
        if self._before is not None:
            self._check = self._checker.evaluate(self._before, now)
            self._check_s = self._due_s(_CHECK_S, time.process_time() - begun_s)
        self._before = now

    def _due_s(self, least_s: float, taken_s: float) -> float:
        """Return when something is to be read again that took so much CPU time."""
        budget = self._wanted.budget
        return time.monotonic() + max(least_s, taken_s / (budget.percent / 100 * _SHARE) if budget else 0.0)


def _rate(overhead: Overhead) -> float:
    """Return CPU time of programs a second."""
    return (overhead.bpf_cpu_percent or 0.0) / 100


def _words(wanted: Wanted, verb: str, budget: Budget | None) -> list[str]:
    """Return the options of a verb."""
    words = words_for(verb, wanted.chosen)
    if verb in _HOPS and wanted.group_by:
        words.append(f"--group-by={wanted.group_by}")
    if verb in _HOPS and wanted.exemplars:
        words.append("--slowest=1")
    if verb in _HOPS and budget:
        words.append(f"--budget={budget.percent}")
    if verb == "cpu" and budget:
        words.append(f"--budget={budget.percent * _CPU_SHARE}")
    if verb == "drops":
        words += ["--group-by=reason", "--group-by=function"]
    return [*words, "--interval=1"] if verb == "sockets" else words
