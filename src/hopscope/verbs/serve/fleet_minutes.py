# SPDX-License-Identifier: Apache-2.0
"""Histograms by minute for a fleet's directory: what the process that measures says, and who writes it.

The process that measures never waits: a thread sends its readings, and where nobody takes them, the oldest are left
out, so that their time counts as not measured. The process that writes keeps what cannot be written for some hours.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import threading
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hopscope import __version__
from hopscope.errors import HopscopeError, UsageError
from hopscope.gate import tell
from hopscope.model.counters.sources import kind_of
from hopscope.recorded.confine import confine
from hopscope.store.fleet.batches import add_rows, identity
from hopscope.store.fleet.objects import place_of
from hopscope.store.fleet.schema import HOURS_OF_DAY, KERNEL, MINUTES_OF_HOUR, NS_OF_MINUTE, OF_DROPS, OF_HOPS, PROGRAM
from hopscope.verbs.fleet.add import facts_of, rows_of
from hopscope.verbs.serve.family import HEAD, framed, received

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator, Mapping
    from typing import Any

    from hopscope.model.counters.readings import Readings
    from hopscope.model.histogram import Histogram

# Readings that wait for a process that does not take them, and minutes that wait for a disk.
_MOST_READINGS: Final = 64
_MOST_MINUTES: Final = 6 * MINUTES_OF_HOUR
# Two kilobytes each.
_MOST_HISTOGRAMS: Final = 50_000
# So many times as many groups as have labels in the end are told apart in a minute.
_SPARE_GROUPS: Final = 4
# So much is lost at most where the machine stops.
_EVERY_MINUTES: Final = 10
_NS_PER_S: Final = 10**9
_END_S: Final = 2.0
_HOPS: Final = ("rx", "tx")
_OTHER: Final = "other"
_HOST_NETNS: Final = "host"


@dataclass(slots=True)
class Reading:
    """What was measured between two moments.

    Attributes
    ----------
    from_ns, until_ns
        CLOCK_REALTIME.
    measured
        What was: of `minutes.measured` in a fleet.
    hops
        Hop and labels → durations.
    drops
        Reason and place → packets.
    lost
        Events.
    part
        Of the packets that was measured.
    facts
        Those that are new: name → value.
    """

    from_ns: int
    until_ns: int
    measured: str
    hops: dict[tuple[str, str], Histogram]
    drops: dict[tuple[str, str], int]
    lost: int
    part: float
    facts: dict[str, str] = field(default_factory=dict)


def reading_of(now: Mapping[str, Any], facts: dict[str, str]) -> Reading | None:
    """Return what snapshots of an interval, by verb, say; None: nothing of hops or drops was measured."""
    found = {verb: now[verb] for verb in (*_HOPS, "drops") if verb in now}
    if not found:
        return None
    hops: dict[tuple[str, str], Histogram] = {}
    units: dict[str, str] = {}
    part = 1.0
    for verb in _HOPS:
        snapshot = found.get(verb)
        if snapshot is None:
            continue
        followed = snapshot.coverage.followed_share if snapshot.coverage else 1.0
        part = min(part, followed / snapshot.sampling_1_in)
        for row in snapshot.hops:
            if not row.histogram.count:
                continue
            # What is counted twice, in two units, is two hops.
            name = row.hop if units.setdefault(row.hop, row.unit) == row.unit else f"{row.hop} ({row.unit})"
            key = name, " ".join(f"{key}={value}" for key, value in row.group.items())
            hops[key] = hops[key] + row.histogram if key in hops else row.histogram
    drops: Counter[tuple[str, str]] = Counter()
    if of_drops := found.get("drops"):
        for row in of_drops.rows:
            drops[row.group["reason"], row.group["function"]] += row.count
    from_ns = min(each.started_ns for each in found.values())
    until_ns = max(each.started_ns + round(each.duration_s * _NS_PER_S) for each in found.values())
    measured = [OF_HOPS] * (not found.keys().isdisjoint(_HOPS)) + [OF_DROPS] * ("drops" in found)
    lost = sum(each.lost for each in found.values())
    return Reading(from_ns, until_ns, " ".join(measured), hops, dict(drops), lost, part, facts)


class Facts:
    """What is true of this host, each fact when it is new."""

    def __init__(self) -> None:
        system = os.uname()
        self._known: dict[str, str] = {}
        self._always = {KERNEL: system.release, PROGRAM: __version__, "machine": system.machine}

    def new(self, readings: Readings | None) -> dict[str, str]:
        """Return the facts that are not as they were, of a reading of counters and settings; None: there is none."""
        found = dict(self._always)
        if readings:
            own = {0, *(netns for netns, name in readings.namespaces.items() if name == _HOST_NETNS)}
            numbers = {key: str(value) for key, value in readings.numbers.items() if kind_of(key) == "setting"}
            settings = {**numbers, **readings.words}
            found |= facts_of({key: value for key, value in settings.items() if key.netns in own})
        fresh = {name: value for name, value in found.items() if self._known.get(name) != value}
        self._known |= fresh
        return fresh


class Journal:
    """Sends readings to the process that writes, and never waits for it.

    Parameters
    ----------
    line
        To it.
    """

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._waiting: deque[bytes] = deque()
        self._changed = threading.Condition()
        self._facts = Facts()
        threading.Thread(target=self._run, daemon=True).start()

    def take(self, now: Mapping[str, Any], readings: Readings | None) -> None:
        """Take the snapshots of an interval, by verb, and the last reading of settings."""
        reading = reading_of(now, self._facts.new(readings))
        if reading is None:
            return
        with self._changed:
            if len(self._waiting) == _MOST_READINGS:
                self._waiting.popleft()
            self._waiting.append(framed(pickle.dumps(reading, pickle.HIGHEST_PROTOCOL)))
            self._changed.notify_all()

    def close(self) -> None:
        """Let what waits be sent, if somebody takes it soon."""
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting, _END_S)

    def _run(self) -> None:
        with contextlib.suppress(OSError):  # the other side has ended, which its parent notices
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._waiting)
                    data = self._waiting[0]
                self._line.sendall(data)
                with self._changed:
                    if self._waiting and self._waiting[0] is data:
                        self._waiting.popleft()
                    self._changed.notify_all()


@dataclass(slots=True)
class _Minute:
    measured_ns: int = 0
    measured: str = ""
    lost: int = 0
    parts_ns: float = 0.0
    hops: dict[tuple[str, str], Histogram] = field(default_factory=dict)
    labels: dict[str, set[str]] = field(default_factory=dict)
    drops: Counter[tuple[str, str]] = field(default_factory=Counter)
    facts: dict[str, str] = field(default_factory=dict)


class Minutes:
    """Adds readings up by minute, and writes those that are over.

    Parameters
    ----------
    folder
        Of the fleet.
    host, boot
        Who we are.
    most_groups
        How many groups of a hop keep their labels; the others are ``other``.
    """

    def __init__(self, folder: Path | str, host: str, boot: str, most_groups: int) -> None:
        self._place = place_of(folder)
        self._host, self._boot, self._most_groups = host, boot, most_groups
        self._minutes: dict[int, _Minute] = {}
        self._facts: dict[str, str] = {}
        self._day = -1
        self._failed = ""
        # Parts of one service have ids of their own: a minute may have some of two.
        self._service = time.time_ns()

    def add(self, reading: Reading) -> None:
        """Add a reading to the minute in which most of it lies."""
        middle = (reading.from_ns + reading.until_ns) // 2
        minute = self._minutes.setdefault(middle // NS_OF_MINUTE, _Minute())
        length_ns = max(reading.until_ns - reading.from_ns, 0)
        minute.measured_ns += length_ns
        minute.parts_ns += length_ns * reading.part
        minute.measured = reading.measured
        minute.lost += reading.lost
        for (hop, labels), histogram in sorted(reading.hops.items(), key=lambda each: -each[1].count):
            known = minute.labels.setdefault(hop, set())
            # Of very many groups, those that come first: which of them are the largest is seen when they are written.
            if labels not in known and len(known) >= _SPARE_GROUPS * self._most_groups:
                labels = _OTHER  # noqa: PLW2901 # as all that there is no room for
            known.add(labels)
            key = hop, labels
            minute.hops[key] = minute.hops[key] + histogram if key in minute.hops else histogram
        minute.drops.update(reading.drops)
        minute.facts |= reading.facts
        while len(self._minutes) > 1 and (
            len(self._minutes) > _MOST_MINUTES
            or sum(len(each.hops) for each in self._minutes.values()) > _MOST_HISTOGRAMS
        ):
            gone = self._minutes.pop(min(self._minutes))
            following = self._minutes[min(self._minutes)]
            following.facts = gone.facts | following.facts

    def write(self, *, everything: bool = False) -> None:
        """Write the minutes of each tenth that is over, or all; what cannot be written stays for the next time."""
        if not self._minutes:
            return
        last = max(self._minutes)
        tenths: dict[int, list[int]] = {}
        for minute in sorted(self._minutes):
            tenths.setdefault(minute // _EVERY_MINUTES, []).append(minute)
        try:
            for tenth, minutes in tenths.items():
                if everything or tenth < last // _EVERY_MINUTES:
                    self._write(minutes)
        except (HopscopeError, OSError) as error:
            if not self._failed:
                kept = f"the last {_MOST_MINUTES // MINUTES_OF_HOUR} hours are kept meanwhile"
                tell(f"hopscope: {error}; it is tried again, and {kept}")
            self._failed = str(error)
        else:
            if self._failed:
                tell(f"hopscope: histograms are written to {self._place.shown} again")
            self._failed = ""

    def _write(self, numbers: list[int]) -> None:
        hour = numbers[0] // MINUTES_OF_HOUR
        minutes = {number: self._minutes[number] for number in numbers}
        facts: dict[tuple[int, str], str] = {}
        if (day := hour // HOURS_OF_DAY) != self._day:  # each day is read by itself
            facts = {(numbers[0], name): value for name, value in self._facts.items()}
        for number, each in minutes.items():
            facts |= {(number, name): value for name, value in each.facts.items()}
        rows = rows_of(
            self._host,
            self._boot,
            self._named(minutes),
            {
                number: (each.measured_ns, each.measured, each.lost, each.parts_ns / max(each.measured_ns, 1))
                for number, each in minutes.items()
            },
            {(number, *key): count for number, each in minutes.items() for key, count in each.drops.items()},
            facts,
        )
        add_rows(self._place, hour, identity(self._host, self._boot, self._service, *numbers), rows)
        self._day = day
        for number in numbers:
            self._facts |= self._minutes.pop(number).facts

    def _named(self, minutes: Mapping[int, _Minute]) -> dict[tuple[str, int, str], Histogram]:
        """Return hop, minute and labels → durations, where only the largest groups of a hop have labels."""
        sizes: dict[str, Counter[str]] = {}
        for each in minutes.values():
            for (hop, labels), histogram in each.hops.items():
                sizes.setdefault(hop, Counter())[labels] += histogram.count
        kept = {hop: {labels for labels, _ in counts.most_common(self._most_groups)} for hop, counts in sizes.items()}
        found: dict[tuple[str, int, str], Histogram] = {}
        for number, each in minutes.items():
            for (hop, labels), histogram in each.hops.items():
                key = hop, number, labels if labels in kept[hop] else _OTHER
                found[key] = found[key] + histogram if key in found else histogram
        return found


def keep_minutes(folder: Path | str, line: socket.socket, most_groups: int) -> None:
    """Write what comes over the line until it ends; a stop signal is not heeded, as the line ends with the service."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if not isinstance(folder, str):  # object storage is reached through the network
        confine((str(folder),))
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    minutes = Minutes(folder, os.uname().nodename, boot, most_groups)
    for reading in _readings(line):
        minutes.add(reading)
        minutes.write()
    minutes.write(everything=True)


def _readings(line: socket.socket) -> Iterator[Reading]:
    """Yield the readings that come; a thread takes them, also while some are written."""
    waiting: deque[Reading | None] = deque(maxlen=_MOST_READINGS)
    changed = threading.Condition()

    def give(reading: Reading | None) -> None:
        with changed:
            waiting.append(reading)
            changed.notify()

    def run() -> None:
        try:
            while head := received(line, HEAD.size):
                data = received(line, *HEAD.unpack(head))
                if not data:
                    break
                give(pickle.loads(data))  # noqa: S301 # of the process that measures
        finally:
            give(None)

    threading.Thread(target=run, daemon=True).start()
    while True:
        with changed:
            changed.wait_for(lambda: waiting)
            reading = waiting.popleft()
        if reading is None:
            return
        yield reading


def prepared(folder: Path | str) -> Path | str:
    """Return a fleet's directory, which is made if it is not there, or where it is in object storage.

    Raises
    ------
    UsageError
        It cannot be made, or not be written.
    """
    if isinstance(folder, str):
        place_of(folder)  # which refuses what cannot be
        return folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"{folder} cannot be created: {error.strerror}", "Name another directory with --fleet"
        ) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"{folder} cannot be written by this user", "Name another directory with --fleet")
    return folder.absolute()
