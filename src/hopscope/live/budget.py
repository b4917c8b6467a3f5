# SPDX-License-Identifier: Apache-2.0
"""What measuring may cost, and how it is kept.

There is an account of CPU time. It is credited with the budget as time passes, and charged with what this process and
the programs take, which the kernel tells of for a few milliseconds now and then. Where the programs cost little, all is
measured. Where they cost more than the budget, one packet in 2, 4, 8, … is followed, as long as what remains, which is
to decide that a packet is left out, is affordable. Where it is not, programs are detached when the account is empty,
and attached again once there is enough in it; in such a slice of time everything is measured. Detached programs cost
nothing.
"""

from __future__ import annotations

import contextlib
import math
import random
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from hopscope.errors import HopscopeError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.live.slices import Slices
    from hopscope.model.sampled import Coverage
    from hopscope.model.snapshot import Kind

READING_TAKES_IT: Final = (
    "Reading results, and programs that are always attached, take the budget: a longer --interval helps"
)
# Between two looks at whether much more comes than before, and where results are read seldom.
_LOOK_S: Final = 0.25
_SELDOM_S: Final = 1.0
_WINDOW_S: Final = 0.01
# Packets of a look that make a measurement due: so many times as many as at the last one, and more than so many.
_MUCH_MORE: Final = 2
_FEW: Final = 100
# How long packets that are followed have to get to their readers, before programs are detached.
_SHORTEST_DRAIN_S: Final = 0.02
_LONGEST_DRAIN_S: Final = 0.2
# What is in the account when programs are attached again, as a multiple of what attaching and detaching takes: about as
# much of it is then for measuring. A gap is longer than that needs by up to half, by chance.
_RESERVE: Final = 2.5
_JITTER: Final = 0.5
# Between two measurements of the cost, or between two readings, if that is longer. At most as much is saved as the
# budget gives in that time, or as much as attaching again needs.
_SAVED_S: Final = 2.0
# What attaching and detaching is taken to cost until it was measured.
_FIRST_SWITCH_S: Final = 0.01
# One packet in 2 ** this is followed at least.
_MOST_HALVINGS: Final = 10
# Of the budget, where packets are left out to stay attached: the rest is for what changes.
_AIM: Final = 0.8
# How long detached programs wait before the account is looked at again, at most.
_LONGEST_WAIT_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class _Rate:
    """CPU time of programs a second, and their runs a second."""

    cpu: float = 0.0
    runs: float = 0.0

    def at(self, runs: float) -> float:
        """Return the CPU time a second of so many runs a second, if one costs as much."""
        return self.cpu / self.runs * runs if self.runs else 0.0


class Account:
    """CPU time that this process and its programs may take, in s: what was given, less what was taken.

    Parameters
    ----------
    allowed
        CPU time a second.

    Attributes
    ----------
    reader
        CPU time a second that this process takes, without attaching and detaching.
    others
        That of programs which are always attached.
    is_charged
        Whether what is taken counts.
    span_s
        For how long is saved up.
    """

    def __init__(self, allowed: float) -> None:
        self.allowed = allowed
        self.reader = self.others = 0.0
        self.is_charged = True
        self.span_s = _SAVED_S
        self.most_s = allowed * self.span_s
        self._saved_s = self.most_s
        self._rates: dict[object, float] = {}
        self._last_s, self._process_s = time.monotonic(), time.process_time()
        self._lock = threading.Lock()

    def begin(self, interval_s: float) -> None:
        """Charge from now on, and save up for readings that are so far apart."""
        with self._lock:
            self._settle(switched=True)
            self.span_s = max(_SAVED_S, interval_s)
            self.most_s = max(self.most_s, self.allowed * self.span_s)
            self._saved_s = self.most_s
            self.is_charged = True

    @property
    def programs(self) -> float:
        """CPU time a second of all programs that are attached."""
        return sum(self._rates.values()) + self.others

    @property
    def excess(self) -> float:
        """CPU time a second beyond what is given."""
        return self.programs + self.reader - self.allowed

    def set_rate(self, member: object, rate: float | None, *, switched: bool = False) -> None:
        """Take note of the CPU time a second that a member's programs take from now on; None: it is gone.

        `switched`: it has attached or detached programs since the last call.
        """
        with self._lock:
            self._settle(switched=switched)
            self._rates.pop(member, None)
            if rate is not None:
                self._rates[member] = rate

    def saved_s(self) -> float:
        """Return what is in it now, below 0 if too much was taken."""
        with self._lock:
            self._settle(switched=False)
            return self._saved_s

    def _settle(self, *, switched: bool) -> None:
        now_s, process_s = time.monotonic(), time.process_time()
        passed_s, taken_s = now_s - self._last_s, process_s - self._process_s
        self._last_s, self._process_s = now_s, process_s
        if not self.is_charged:
            return
        self._saved_s = min(self._saved_s + (self.allowed - self.programs) * passed_s - taken_s, self.most_s)
        if passed_s > 0 and not switched:
            self.reader += min(passed_s / self.span_s, 1.0) * (taken_s / passed_s - self.reader)


class _Process:
    """What there is once in a process: an account, as long as any collector in it keeps a budget."""

    def __init__(self) -> None:
        self.account: Account | None = None
        self.is_starting = False
        self._members = 0

    def join(self, percent: float) -> Account:
        if self.account is None or self.account.allowed != percent / 100:
            self.account = Account(percent / 100)
            self.account.is_charged = not self.is_starting
        self._members += 1
        return self.account

    def leave(self) -> None:
        self._members -= 1
        if not self._members:
            self.account = None


_PROCESS: Final = _Process()


@contextlib.contextmanager
def starting(interval_s: float) -> Iterator[None]:
    """Charge nothing while collectors are attached, whose results are then read so far apart, which is saved up for."""
    _PROCESS.is_starting = True
    try:
        yield
    finally:
        _PROCESS.is_starting = False
        if _PROCESS.account:
            _PROCESS.account.begin(interval_s)


def until_next(period_s: float) -> float:
    """Return the time until the next multiple of a period, in s: what is due at one of them wakes the CPU once."""
    return period_s - time.monotonic() % period_s


def charge_others(rate: float) -> None:
    """Charge this process's account, if it has one, with programs that are always attached: CPU time a second."""
    if _PROCESS.account:
        _PROCESS.account.others = rate


class Budget:
    """Keeps the cost of what slices are of below a limit while it is entered, in a thread of its own.

    Parameters
    ----------
    percent
        Of one CPU.
    slices
        What is attached and detached.
    """

    def __init__(self, percent: float, slices: Slices) -> None:
        self.percent = percent
        self._slices, self._meter = slices, slices.meter
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hopscope-budget", daemon=True)
        self._error: HopscopeError | None = None
        self._switch_s = _FIRST_SWITCH_S
        self._rate = self._floor = _Rate()

    def __enter__(self) -> Self:
        self._account = _PROCESS.join(self.percent)
        self._first = self._before = self._last = self._slices.covered
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._account.set_rate(self, None)
        _PROCESS.leave()

    # ---- results ----

    def interval(self) -> None:
        """End an interval: let what was measured count."""
        self._before, self._last = self._last, self._slices.count()

    def coverage(self, kind: Kind) -> Coverage:
        """Return which part of the last interval, or of all of them, was measured."""
        return self._last.since(self._before if kind == "interval" else self._first, self.percent)

    def notes(self) -> list[str]:
        """Return sentences on what keeps it from measuring."""
        notes = [f"Measuring has ended: {self._error}"] if self._error else []
        if self._account.reader + self._account.others >= self._account.allowed:
            notes.append(READING_TAKES_IT)
        return notes

    # ---- the thread ----

    def _run(self) -> None:
        try:
            while not self._over.is_set():
                self._measure_while_affordable()
                if not self._over.is_set():
                    self._detach()
                    self._attach_again()
        except HopscopeError as error:
            self._error = error

    def _measure_while_affordable(self) -> None:
        account = self._account
        measured_s, expected, before = float("-inf"), 0, self._slices.packets()
        while not self._over.is_set():
            now = self._slices.packets()
            came, before = now - before, now
            if time.monotonic() - measured_s >= account.span_s or came > max(_MUCH_MORE * expected, _FEW):
                self._note_rate(self._rate_now())
                measured_s, expected, before = time.monotonic(), came, self._slices.packets()
                self._follow_fewer_or_more()
            left_s, excess = account.saved_s() - self._switch_s / 2, account.excess
            if excess > 0 >= left_s:
                return
            look_s = until_next(_LOOK_S if account.span_s == _SAVED_S else _SELDOM_S)
            self._over.wait(min(look_s, left_s / excess) if excess > 0 else look_s)

    def _follow_fewer_or_more(self) -> None:
        """Follow as many packets as lets programs stay attached, or all where no number does."""
        account = self._account
        floor = min(self._floor.at(self._rate.runs), self._rate.cpu)
        of_packets = (self._rate.cpu - floor) * 2**self._slices.halvings
        others = account.programs - self._rate.cpu
        room = account.allowed * _AIM - account.reader - others - floor
        needed = of_packets / room if room > 0 and self._floor.runs else 1.0
        halvings = min(math.ceil(math.log2(max(needed, 1.0))), _MOST_HALVINGS)
        if halvings != self._slices.halvings:
            self._slices.follow(halvings)

    def _rate_now(self) -> _Rate:
        """Return what programs take, measured for a moment."""
        hits, time_ns, window_s = self._meter.sample(_WINDOW_S)
        return _Rate(time_ns / 1e9 / window_s, hits / window_s) if window_s else self._rate

    def _note_rate(self, rate: _Rate, *, switched: bool = False) -> None:
        self._rate = rate
        self._account.set_rate(self, rate.cpu, switched=switched)

    def _detach(self) -> None:
        """Let packets that are followed get to their readers, then detach."""
        open_s = self._slices.close()
        self._floor = self._rate_now()
        self._note_rate(self._floor)
        self._over.wait(min(max(open_s, _SHORTEST_DRAIN_S), _LONGEST_DRAIN_S) - _WINDOW_S)
        started_s = time.thread_time()
        self._slices.detach()
        self._switch_s = 2 * (time.thread_time() - started_s)
        self._note_rate(_Rate(), switched=True)

    def _attach_again(self) -> None:
        """Attach once there is enough in the account."""
        account = self._account
        account.most_s = max(account.most_s, self._switch_s * _RESERVE * (1 + _JITTER))
        wanted_s = self._switch_s * _RESERVE * (1 + random.random() * _JITTER)  # noqa: S311 # no secret
        while (missing_s := wanted_s - account.saved_s()) > 0:
            if self._over.wait(min(max(missing_s / account.allowed, _LOOK_S), _LONGEST_WAIT_S)):
                return
        started_s = time.thread_time()
        self._slices.attach()
        self._switch_s += time.thread_time() - started_s - self._switch_s / 2
        self._note_rate(_Rate(), switched=True)
