# SPDX-License-Identifier: Apache-2.0
"""Recordings of hosts as traces of hours, for a fleet.

A trace of an hour has what counts in that hour, and what is needed to say so: the events of the ten seconds before, so
that a packet that was on its way at the full hour has its earlier points; the last reading of the counters before, so
that increases are complete; the last names of threads. ``started_ns`` is where its own events begin, and ``lead_ns``
how much there is before. What ends in an hour counts in it, and losses of events where they may begin.

A packet or message that was on its way for longer than ten seconds at a full hour has no beginning in the next one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hopscope.errors import UsageError
from hopscope.store.fleet.raw import HOUR_NS, UNKNOWN_BOOT, hour_of
from hopscope.store.hosts import Hosts, is_of_hosts
from hopscope.store.lock import is_locked
from hopscope.store.meta import Metadata
from hopscope.store.schema import BY_NAME, EVENT_TABLES, TABLES, TEXT
from hopscope.store.trace import Trace
from hopscope.store.unrecorded import CLASSES, UNRECORDED
from hopscope.store.writer import TraceWriter

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from hopscope.store.fleet.raw import Leaf, Raw
    from hopscope.store.hosts import Absence
    from hopscope.store.schema import Table

LEAD_NS: Final = 10 * 10**9
_ROTATE_NEVER_S: Final = float("inf")
_ENDLESS: Final = (1 << 62) - 1

# What a row says holds until another row of the same of these columns.
_STATES: Final = {
    "threads": ("tid",),
    "qdiscs": ("netns", "ifindex"),
    "counters": ("netns", "source", "subject", "name"),
    "settings": ("netns", "source", "subject", "name"),
    "unread": ("netns", "source"),
}
# Those of them that are of the readings of counters.
_READ: Final = ("counters", "settings", "unread")
# Those that a trace of one host does not have.
_OF_JOINED: Final = ("hosts", "clocks")
# Counted once, as they are of no event.
_COUNTED: Final = (UNRECORDED.name, CLASSES.name)
# Columns in which a flow may be.
_FLOWS: Final = " UNION ".join(
    [
        *(f"SELECT flow FROM {name} WHERE {{0}}" for name in ("packets", "sockets", "tcp", "drops", "payloads")),
        "SELECT subject AS flow FROM cpu WHERE {0}",
    ]
)


@dataclass(frozen=True, slots=True)
class Recorded:
    """A recording of one host.

    Attributes
    ----------
    folder
        The trace.
    host
        Its name; empty: it does not say.
    absence
        Why there is nothing after it, where a recording of several hosts says so.
    later
        What is of the same host after that; None: it did not come back.
    """

    folder: Path
    host: str
    absence: Absence | None = None
    later: Path | None = None


@dataclass(frozen=True, slots=True)
class Stored:
    """What became of a recording.

    Attributes
    ----------
    leaves
        The traces that it became.
    missing
        Sentences on what is missing from them.
    """

    leaves: list[Leaf]
    missing: list[str]


@dataclass(frozen=True, slots=True)
class _Period:
    """An hour of a recording, CLOCK_MONOTONIC.

    Attributes
    ----------
    hour
        Its name.
    from_ns, until_ns
        Own times; of the first and the last hour also what is before and after.
    least_ns, end_ns
        The same, but all that the recording has before and after.
    """

    hour: str
    from_ns: int
    until_ns: int
    least_ns: int
    end_ns: int

    @property
    def lead_ns(self) -> int:
        return LEAD_NS if self.least_ns == self.from_ns else 0


def recorded(folder: Path) -> tuple[list[Recorded], list[str]]:
    """Return the traces of a recording of one host or several, and sentences on those that cannot be read.

    Parameters
    ----------
    folder
        Of the recording.

    Raises
    ------
    FormatError
        It is none.
    """
    if not is_of_hosts(folder):
        return [Recorded(folder, "")], []
    recording = Hosts.read(folder)
    found = []
    for host in recording.hosts:
        for place, part in enumerate(host.parts):
            absence = host.absences[place] if place < len(host.absences) else None
            later = folder / host.parts[place + 1] if place + 1 < len(host.parts) else None
            found.append(Recorded(folder / part, host.name, absence, later))
    return found, [] if recording.state == "complete" else [f"{folder} is incomplete: {recording.state}"]


def store(recording: Recorded, raw: Raw) -> Stored:
    """Put a recording into a fleet, an hour at a time; what is there already stays.

    Raises
    ------
    FormatError
        It cannot be read.
    UsageError
        It is of several hosts, or of one without a name, or overlaps with what is there.
    DiskFullError
        There is no room.
    """
    with Trace(recording.folder) as trace:
        metadata = trace.metadata
        if metadata.state == "recording" and is_locked(recording.folder):
            raise UsageError(f"{recording.folder} is still being recorded", "Store it when that has ended")
        if metadata.joined:
            raise UsageError(f"{recording.folder} is a joined trace", "Store the recordings that it was made of")
        host = recording.host or metadata.host.get("name", "")
        if not host:
            raise UsageError(
                f"{recording.folder} does not say which host it is of", "Add recordings that `hopscope record` made"
            )
        boot = metadata.host.get("boot") or UNKNOWN_BOOT
        periods = _periods(metadata, _ended_ns(trace))
        there = {} if boot == UNKNOWN_BOOT else _spans(raw, host, boot)
        leaves = []
        for period in periods:
            if (period.from_ns, period.until_ns) in there:
                continue
            if other := _overlapping(there, period):
                raise UsageError(
                    f"{recording.folder} overlaps with {other}, which is of the same host and boot",
                    "Store one of them: what both have would count twice",
                )
            leaves.append(raw.add(host, boot, period.hour, _Writer(trace, period, recording, host)))
        return Stored(leaves, [*trace.warnings, *_left_out(recording.folder)])


def _left_out(folder: Path) -> list[str]:
    return ["captured frames stay in the recording alone"] if (folder / "capture.pcapng").exists() else []


def _spans(raw: Raw, host: str, boot: str) -> dict[tuple[int, int], str]:
    """Return the times of a boot that are there, CLOCK_MONOTONIC, each with its trace."""
    found = {}
    for leaf in raw.of_boot(host, boot):
        metadata = Metadata.read(leaf.folder)
        found[metadata.started_ns, metadata.ended_ns or _ENDLESS] = leaf.name
    return found


def _overlapping(there: Mapping[tuple[int, int], str], period: _Period) -> str:
    return next((name for (a, b), name in there.items() if a < period.until_ns and period.from_ns < b), "")


def _ended_ns(trace: Trace) -> int:
    """Return when a recording ended; of one whose recorder was killed, when the last event was."""
    metadata = trace.metadata
    if metadata.ended_ns is not None:
        return metadata.ended_ns
    last = " UNION ALL ".join(f"SELECT max(time_ns) AS time_ns FROM {table}" for table in (*EVENT_TABLES, "readings"))
    ((found,),) = trace.rows(f"SELECT max(time_ns) FROM ({last}) l")
    return max(metadata.started_ns, found or 0)


def _periods(metadata: Metadata, ended_ns: int) -> list[_Period]:
    """Return the hours of a recording that may have events."""
    begins = [metadata.started_ns]
    first_ns = metadata.realtime_ns
    next_ns = (first_ns // HOUR_NS + 1) * HOUR_NS
    while begins[0] + next_ns - first_ns < ended_ns:
        begins.append(begins[0] + next_ns - first_ns)
        next_ns += HOUR_NS
    ends = [*begins[1:], ended_ns]
    return [
        _Period(
            hour_of(first_ns + begin - begins[0]),
            begin,
            end,
            -_ENDLESS if place == 0 else begin,
            _ENDLESS if place == len(begins) - 1 else end,
        )
        for place, (begin, end) in enumerate(zip(begins, ends, strict=True))
    ]


class _Writer:
    """Writes an hour of a trace."""

    def __init__(self, trace: Trace, period: _Period, recording: Recorded, host: str) -> None:
        self._trace, self._period, self._recording, self._host = trace, period, recording, host
        before = trace.rows(f"SELECT max(time_ns) FROM readings WHERE time_ns < {period.least_ns}")[0][0]
        self._read_ns = period.least_ns if before is None else int(before)
        self._first_ns = period.least_ns - period.lead_ns

    def __call__(self, folder: Path) -> None:
        """Write it into a folder."""
        metadata = self._metadata()
        ended_ns = metadata.ended_ns
        with TraceWriter(folder, metadata, file_s=_ROTATE_NEVER_S) as writer:
            for table in (*TABLES, *metadata.tables):
                for columns in self._columns(table):
                    writer.append(table.name, columns)
            if self._is_last and self._recording.absence:
                writer.append("absences", self._absent(self._recording.absence))
            writer.close("complete" if not self._is_last else self._trace.metadata.state, ended_ns)

    @property
    def _is_last(self) -> bool:
        return self._period.end_ns == _ENDLESS

    def _metadata(self) -> Metadata:
        of_trace, period = self._trace.metadata, self._period
        usual = [] if of_trace.state == "complete" else self._trace.warnings[:1]
        missing = [each for each in self._trace.warnings if each not in usual and not each.startswith(_SAID_BY_FIELDS)]
        return replace(
            of_trace,
            started_ns=period.from_ns,
            realtime_ns=of_trace.realtime_ns + period.from_ns - of_trace.started_ns,
            ended_ns=period.until_ns,
            lead_ns=of_trace.lead_ns if period.least_ns < period.from_ns else period.lead_ns,
            missed=of_trace.missed if self._is_last else 0,
            host=of_trace.host | {"name": self._host},
            notes=list(dict.fromkeys([*of_trace.notes, *missing])),
            state="recording",
        )

    def _columns(self, table: Table) -> Iterator[dict[str, NDArray[Any]]]:
        if table.name in _OF_JOINED:
            return
        wanted = self._wanted(table)
        if wanted is None:  # it has no times: what is known, once
            yield _plain(table, self._trace.columns(self._known(table)))
            return
        for query in self._trace.file_queries(table):
            found = self._trace.columns(f"SELECT * FROM ({query}) f WHERE {wanted}")
            if len(found[table.columns[0].name]):
                yield _plain(table, found)
        if table.name in _STATES and self._first_ns > -_ENDLESS:
            yield _plain(table, self._trace.columns(self._before(table)))

    def _wanted(self, table: Table) -> str | None:
        """Return the condition that a row belongs here; None: the table has no times."""
        names = {column.name for column in table.columns}
        first_ns, end_ns = self._first_ns, self._period.end_ns
        if "time_ns" in names:
            if table.name == "readings":
                return f"time_ns >= {self._read_ns} AND time_ns < {end_ns}"
            since_ns = self._read_ns + 1 if table.name in _READ and first_ns > -_ENDLESS else first_ns
            return f"time_ns >= {since_ns} AND time_ns < {end_ns}"
        if {"from_ns", "until_ns"} <= names:
            if table.name in _COUNTED:
                return f"from_ns >= {self._period.least_ns} AND from_ns < {end_ns}"
            return f"until_ns >= {first_ns} AND from_ns < {end_ns}"
        return None

    def _known(self, table: Table) -> str:
        if table.name != "flows" or (self._first_ns == -_ENDLESS and self._is_last):
            return f"SELECT * FROM {table.name}"
        when = f"time_ns >= {self._first_ns} AND time_ns < {self._period.end_ns}"
        return f"SELECT * FROM flows WHERE flow IN ({_FLOWS.format(when)})"

    def _before(self, table: Table) -> str:
        """Return the query for what held when the hour began, or at the reading before."""
        at_ns = self._read_ns if table.name in _READ else self._first_ns - 1
        known = {"counters": "present = 1", "settings": "present = 1", "unread": "reason <> ''"}.get(table.name, "TRUE")
        columns = ", ".join(
            f"CAST({at_ns} AS BIGINT) AS time_ns" if column.name == "time_ns" else column.name
            for column in table.columns
        )
        return f"""
            SELECT {columns} FROM (
                SELECT *, row_number() OVER (PARTITION BY {", ".join(_STATES[table.name])} ORDER BY time_ns DESC) AS age
                FROM {table.name} WHERE time_ns <= {at_ns}) found
            WHERE age = 1 AND {known}"""

    def _absent(self, absence: Absence) -> dict[str, NDArray[Any]]:
        """Return the row of an absence. Its end is by the wall clocks: after a boot, CLOCK_MONOTONIC is another one."""
        until_ns, reason = absence.from_ns, absence.reason
        if self._recording.later:
            later, own = Metadata.read(self._recording.later), self._trace.metadata
            until_ns = max(until_ns, later.realtime_ns - own.realtime_ns + own.started_ns)
        else:
            reason += "; it did not come back"
        values: Sequence[Any] = (0, absence.from_ns, until_ns, reason)
        columns = BY_NAME["absences"].columns
        return {column.name: np.array([value], column.dtype) for column, value in zip(columns, values, strict=True)}


# Warnings of a trace that follow from what its metadata have, which is copied.
_SAID_BY_FIELDS: Final = ("missed events:", "recorded with ")


def _plain(table: Table, columns: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return columns without masks: what a recorder of before did not write is no text, or -1."""
    return {
        column.name: np.ma.filled(columns[column.name].astype(object), None)
        if column.dtype == TEXT
        else np.asarray(np.ma.filled(columns[column.name], -1)).astype(column.dtype, copy=False)
        for column in table.columns
    }
