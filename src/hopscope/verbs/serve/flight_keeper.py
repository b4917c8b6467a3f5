# SPDX-License-Identifier: Apache-2.0
"""The process of the flight recorder: the last seconds of events in memory, written when something happens.

It keeps and looks for what ``record --flight`` does, but goes on afterwards, so that names of flows and threads have to
be forgotten, too (:mod:`hopscope.verbs.serve.flight_names`).
"""

from __future__ import annotations

import contextlib
import json
import select
import time
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from hopscope.errors import HopscopeError, UsageError
from hopscope.gate import tell
from hopscope.kernel.counters.reader import CounterReader
from hopscope.live.lookup import record_options
from hopscope.live.processes import share_arenas
from hopscope.live.recorder.collector import Recorder
from hopscope.live.recorder.options import PREFIX
from hopscope.live.stop import stop_on_signal
from hopscope.verbs.check.findings import SEVERITIES, Checker
from hopscope.verbs.record.backlog import Backlog
from hopscope.verbs.record.counters import CounterLog
from hopscope.verbs.record.flight import Kept, Trigger, Watch
from hopscope.verbs.record.pace import Pace
from hopscope.verbs.serve.beats import beat, fail
from hopscope.verbs.serve.dumps import MARK, Dumps
from hopscope.verbs.serve.flight_names import Names

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from hopscope.live.recorder.collector import Taken
    from hopscope.live.recorder.options import RecordOptions
    from hopscope.live.stop import Stop
    from hopscope.model.counters.readings import Readings
    from hopscope.store.meta import Metadata
    from hopscope.verbs.record.flight import Columns
    from hopscope.verbs.serve.tally import Tally

# Of records that are taken while a recording is written.
_BACKLOG_BYTES: Final = 256 << 20
_COUNTERS_S: Final = 5.0
# Between two looks for findings, which compare counters that far apart.
_FINDINGS_S: Final = 10.0
# What numbers mean is said anew so long after no event of the time before is kept any more.
_TURN_S: Final = 60.0
# What a name takes on disk at most, and counters, settings and metadata: half of it where there are few namespaces.
_NAME_BYTES: Final = 32
_REST_BYTES: Final = 1 << 17
_FINDING: Final = "finding"
_LONGEST: Final = 1 << 12


@dataclass(frozen=True, slots=True)
class Flight:
    """What is kept, and when and where it is written.

    Attributes
    ----------
    last_s, memory_bytes
        How far back, and at most so much.
    triggers
        As the user wrote them.
    profiles, points
        Of probe points.
    chosen
        The filters, by the options' names in Python.
    ring_bytes
        Size of each CPU's ring.
    directory
        Where recordings go; None: the state directory.
    most_bytes
        Of all recordings there that a flight recorder wrote.
    every_s
        Between two recordings, at least.
    """

    last_s: float
    memory_bytes: int
    triggers: Sequence[str]
    profiles: Sequence[str]
    points: Sequence[str]
    chosen: Mapping[str, Any]
    ring_bytes: int
    directory: Path | None
    most_bytes: int
    every_s: float

    def options(self) -> RecordOptions:
        """Return what the recorder is asked for.

        Raises
        ------
        UsageError
            Something of it does not exist.
        """
        return record_options(
            **self.chosen, ways=(), profiles=self.profiles, points=self.points, ring_bytes=self.ring_bytes
        )

    def packet_triggers(self, options: RecordOptions) -> list[Trigger]:
        """Return the triggers that are seen in events.

        Raises
        ------
        UsageError
            One can never fire.
        """
        found = [Trigger.parse(text) for text in self.triggers if not _is_finding(text)]
        for each in found:
            each.require_recorded({name.removeprefix(PREFIX) for name in options.names()})
        return found

    def severities(self) -> frozenset[str]:
        """Return which findings are triggers: those of a severity that is named, and worse ones.

        Raises
        ------
        UsageError
            There is no such severity.
        """
        found: set[str] = set()
        for text in filter(_is_finding, self.triggers):
            name = text.partition(":")[2]
            known = [each for each in SEVERITIES if each != "note"]
            if name not in known:
                raise UsageError(f"--trigger {text}: there is no such severity", f"Choose from {', '.join(known)}")
            found.update(known[: known.index(name) + 1])
        return frozenset(found)

    def check(self) -> None:
        """Look whether all of it can be.

        Raises
        ------
        UsageError
            It cannot.
        """
        self.packet_triggers(self.options())
        self.severities()
        Dumps(self.directory, self.most_bytes).check()


def keep(flight: Flight, tally: Tally, lines: Sequence[socket.socket], beats: socket.socket) -> None:
    """Keep the last seconds until a signal comes.

    Parameters
    ----------
    lines
        To processes that ask for a recording: a message of each says why, and each gets a message of JSON.
    beats
        See :func:`~hopscope.verbs.serve.beats.beat`.
    """
    share_arenas()
    try:
        with stop_on_signal() as stop, Keeper(flight, tally) as keeper:
            keeper.run(stop, lines, beats)
    except HopscopeError as error:
        fail(beats, error)


class Ask(NamedTuple):
    """Somebody wants a recording, and is answered on a line."""

    line: socket.socket
    why: str


class Work(NamedTuple):
    """What was in the rings, begun to be read at a time, and who asked for a recording by then."""

    at_ns: int
    taken: Taken
    asks: Sequence[Ask]


class Keeper:
    """The flight recorder, attached once entered.

    Parameters
    ----------
    flight
        What is wanted.
    tally
        What it has done is written there.

    Raises
    ------
    HopscopeError
        On entry: it cannot be attached, or something that is asked for does not exist.
    """

    def __init__(self, flight: Flight, tally: Tally) -> None:
        self._flight = flight
        self._tally = tally
        self._dumps = Dumps(flight.directory, flight.most_bytes)
        self._last_ns = round(flight.last_s * 1e9)
        self._kept = Kept(self._last_ns, flight.memory_bytes)
        self._names = Names()
        # CLOCK_MONOTONIC, and how many runs were missed by then.
        self._missed: deque[tuple[int, int]] = deque([(0, 0)])
        self._next_s = 0.0
        self._findings: _Findings | None = None
        self._name_again = 0

    def __enter__(self) -> Self:
        flight = self._flight
        options = flight.options()
        self._triggers = flight.packet_triggers(options)
        self._watch = Watch(self._triggers)
        severities = flight.severities()
        with contextlib.ExitStack() as stack:
            self._recorder = stack.enter_context(Recorder(options))
            for each in self._triggers:
                each.require_attached(self._recorder.not_granted())
            if missing := self._recorder.not_granted():
                tell(f"hopscope: --flight does not record {', '.join(missing)} (`hopscope probes` says why)")
            reader = stack.enter_context(CounterReader(self._recorder.namespaces))
            self._counters = CounterLog(reader, lambda _: None, _COUNTERS_S, flight.last_s)
            stack.callback(self._counters.close)
            self._counters.start()
            self._findings = _Findings(severities, self._counters) if severities else None
            self._named_s = time.monotonic()
            self._backlog: Backlog[Work] = Backlog(self._keep, _BACKLOG_BYTES)
            stack.callback(self._end)
            self._tally["stored_bytes"] = self._dumps.stored_bytes()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(self, stop: Stop, lines: Sequence[socket.socket], beats: socket.socket) -> None:
        """Keep what comes until it is time to stop."""
        pace = Pace(self._recorder)
        while not stop.wait(pace.pause_s):
            asks = list(_heard(lines))
            if pace.is_due() or asks:
                at_ns = self._recorder.now_ns()
                taken = self._recorder.take()
                self._backlog.put(Work(at_ns, taken, asks), taken.size_bytes)
                self._tally["lost"] = self._recorder.lost_by_now()
                pace.emptied()
                beat(beats)

    def _end(self) -> None:
        with contextlib.suppress(HopscopeError):  # it was raised before
            self._backlog.close()

    # ---- in the other thread ----

    def _keep(self, work: Work) -> None:
        rows = list(self._recorder.rows(work.taken))
        for table, columns in rows:
            for each in self._kept.add(table, columns):
                self._names.add(*each)
        self._kept.expire(work.at_ns)
        self._renew(work.at_ns)
        self._tally["kept_bytes"] = self._kept.size_bytes
        self._tally["kept_ns"] = work.at_ns - self._since_ns()
        for why in self._causes(rows):
            self._dump(why, work.at_ns)
        for ask in work.asks:
            self._answer(ask, self._dump(ask.why, work.at_ns))

    def _renew(self, now_ns: int) -> None:
        """Forget names of what is not kept any more."""
        if self._name_again:  # what was missed at the very moment of the first time
            self._recorder.name_again()
            self._name_again -= 1
        if time.monotonic() - self._named_s >= self._flight.last_s + _TURN_S:
            self._names.turn()
            self._recorder.name_again()
            self._named_s, self._name_again = time.monotonic(), 1
        if now_ns - self._missed[-1][0] >= _COUNTERS_S * 1e9:
            self._missed.append((now_ns, self._recorder.missed()))
            while len(self._missed) > 1 and self._missed[1][0] < now_ns - self._last_ns:
                self._missed.popleft()

    def _causes(self, rows: list[tuple[str, Columns]]) -> Iterator[str]:
        """Yield why a recording is to be written, of what is seen; events are not looked at where none may be."""
        if self._triggers and not self._wait_s() and (seen := self._watch.seen(rows)):
            yield seen.text
        if self._findings and (found := self._findings.new()):
            yield found

    def _wait_s(self) -> float:
        """Return how long no recording may be written."""
        return max(self._next_s - time.monotonic(), 0.0)

    def _since_ns(self) -> int:
        return max(self._kept.since_ns, self._recorder.started_ns)

    def _dump(self, why: str, now_ns: int) -> dict[str, Any]:
        """Write a recording, unless one was written just now; say what became of it."""
        if wait_s := self._wait_s():
            self._tally["skipped"] += 1
            what = f"No recording was written ({why}): the last one is too recent (--dump-every)"
            tell(f"hopscope: {what}")
            return {"error": what, "retry_after_s": round(wait_s, 1)}
        self._next_s = time.monotonic() + self._flight.every_s
        try:
            need_bytes = self._kept.size_bytes + _NAME_BYTES * len(self._names) + _REST_BYTES
            folder = self._dumps.write(self._metadata(why), self._rows(), now_ns, need_bytes)
        except Exception as error:  # noqa: BLE001 # whatever it is, the service goes on
            self._tally["failed"] += 1
            reason = error.what if isinstance(error, HopscopeError) else f"{type(error).__name__}: {error}"
            what = f"The last {self._flight.last_s:g} s could not be written ({why}): {reason}"
            tell(f"hopscope: {what}")
            return {"error": what}
        finally:
            # Packets that were under way meanwhile are not looked for any more.
            self._watch = Watch(self._triggers)
        self._tally["written"] += 1
        self._tally["stored_bytes"] = self._dumps.stored_bytes()
        tell(f"hopscope: {why}: the last {self._flight.last_s:g} s are in {folder}")
        return {"recording": str(folder)}

    def _metadata(self, why: str) -> Metadata:
        found = self._recorder.metadata()
        since_ns = self._since_ns()
        missed = self._recorder.missed() - self._missed[0][1]
        return replace(
            found,
            started_ns=since_ns,
            realtime_ns=found.realtime_ns + since_ns - found.started_ns,
            missed=missed,
            options={**found.options, "trigger": why, MARK: self._flight.last_s},
        )

    def _rows(self) -> Iterator[tuple[str, Columns]]:
        yield from self._names.rows()
        since_ns = self._kept.since_ns
        for table, columns in self._kept.rows():
            late = columns["time_ns" if "time_ns" in columns else "until_ns"] > since_ns
            yield table, columns if late.all() else {name: column[late] for name, column in columns.items()}
        yield from self._counters.kept()

    def _answer(self, ask: Ask, answer: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # it has ended
            ask.line.send(json.dumps(answer).encode())


class _Findings:
    """Looks for findings that were not there before."""

    def __init__(self, severities: frozenset[str], counters: CounterLog) -> None:
        self._severities = severities
        self._counters = counters
        self._checker = Checker()
        self._before: Readings | None = None
        self._known: set[tuple[str, int, str]] | None = None

    def new(self) -> str:
        """Return the worst of those that are new since the last look, if it is time for one; empty: none."""
        now = self._counters.newest
        if not now or (self._before and now.time_ns - self._before.time_ns < _FINDINGS_S * 1e9):
            return ""
        before, self._before = self._before, now
        if not before:
            return ""
        found = [
            each
            for each in self._checker.evaluate(before, now).findings  # the worst ones first
            if each.severity in self._severities
        ]
        known, self._known = self._known, {(each.id, each.netns, each.subject) for each in found}
        if known is None:
            return ""  # it was so before anybody looked
        new = (each for each in found if (each.id, each.netns, each.subject) not in known)
        return next((f"{_FINDING}: {each.id} ({each.severity})" for each in new), "")


def _is_finding(text: str) -> bool:
    return text.partition(":")[0] == _FINDING


def _heard(lines: Sequence[socket.socket]) -> Iterator[Ask]:
    """Yield what was asked for by now; does not wait."""
    poll = select.poll()
    for line in lines:
        poll.register(line, select.POLLIN)
    by_fd = {line.fileno(): line for line in lines}
    for fd, _ in poll.poll(0):
        if why := by_fd[fd].recv(_LONGEST):
            yield Ask(by_fd[fd], why.decode())
