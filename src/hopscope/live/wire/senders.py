# SPDX-License-Identifier: Apache-2.0
"""What senders say of their frames in catalogues, and which of their frames are missing."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from hopscope.live.recorder.tables import point_names, table_of
from hopscope.live.wire.frames import packed_entry
from hopscope.live.wire.layout import ENTRY_BYTES, EVENT, Entry, Place, Tlv, entries_of
from hopscope.store.schema import BY_NAME, TEXT, Table, described_table

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Sequence as Listed

    from numpy.typing import NDArray

# What the number of a catalogue is the checksum of; the other entries change.
_DESCRIBES: Final = (Tlv.VERSION, Tlv.HOST, Tlv.REALTIME_OFFSET, Tlv.POINT, Tlv.FIELD, Tlv.REASON)
# Of one catalogue: those of all tracepoints that a command line has room for are shorter.
_MOST_BYTES: Final = 1 << 18
_OWN: Final = "e_"
_NUMBERS: Final = 1 << 32
# Of a table that only this sender has, as `record -e` has them.
_COMMON: Final = (
    {"name": "time_ns", "dtype": "int64", "meaning": "when, CLOCK_MONOTONIC"},
    {"name": "cpu", "dtype": "int16", "meaning": "where"},
    {"name": "tid", "dtype": "int32", "meaning": "the thread that ran, or was interrupted"},
)
_TYPES: Final = {0: TEXT, 4: "int32", 8: "int64"}
_AS_SENT: Final = "as the sender's catalogue has it"


class Kept(NamedTuple):
    """Where events of a number go.

    Attributes
    ----------
    table
        Of the recording.
    point
        Number of the probe point here; -1: it is none.
    entries
        What is behind the fields.
    """

    table: Table
    point: int
    entries: tuple[Entry, ...]


@dataclass(slots=True)
class Catalogue:
    """What a sender says of its frames.

    Attributes
    ----------
    version, host
        Of the sender.
    realtime_offset_ns
        CLOCK_REALTIME minus CLOCK_MONOTONIC.
    events
        Number of an event → what becomes of it.
    short
        Numbers of events without all columns of their tables: with zeros in their place, reports would be wrong.
    unknown
        Names of probe points that this version does not have.
    reasons
        Number of a drop reason → its name.
    """

    version: str = ""
    host: str = ""
    realtime_offset_ns: int = 0
    events: dict[int, Kept] = field(default_factory=dict)
    short: set[int] = field(default_factory=set)
    unknown: list[str] = field(default_factory=list)
    reasons: dict[int, str] = field(default_factory=dict)

    @property
    def tables(self) -> dict[str, Table]:
        """Tables that only this sender has, by their names."""
        return {kept.table.name: kept.table for kept in self.events.values() if kept.point < 0}


class Described:
    """Collects the frames of catalogues until one is complete."""

    def __init__(self) -> None:
        self._number = -1
        self._entries: list[tuple[Tlv, bytes]] = []
        self._packed = b""

    def add(self, number: int, entries: Iterable[tuple[Tlv, bytes]]) -> Catalogue | None:
        """Take a frame of a catalogue; return the catalogue if it is complete.

        Raises
        ------
        ValueError, struct.error
            It says what cannot be.
        """
        entries = list(entries)
        if number != self._number or any(kind is Tlv.COUNTS for kind, _ in entries):
            self._number, self._entries, self._packed = number, [], b""
        described = [(kind, value) for kind, value in entries if kind in _DESCRIBES]
        packed = self._packed + b"".join(packed_entry(kind, value) for kind, value in described)
        if len(packed) > _MOST_BYTES:
            raise ValueError("a catalogue that long is none")
        self._entries, self._packed = [*self._entries, *described], packed
        return _read(self._entries) if zlib.crc32(packed) == number else None


def _read(entries: Listed[tuple[Tlv, bytes]]) -> Catalogue:
    last = dict(entries)
    (offset_ns,) = struct.unpack("!q", last.get(Tlv.REALTIME_OFFSET, bytes(8)))
    reasons = [value for kind, value in entries if kind is Tlv.REASON]
    found = Catalogue(
        _text(last.get(Tlv.VERSION, b"")),
        _text(last.get(Tlv.HOST, b"")),
        offset_ns,
        reasons={int.from_bytes(value[:4]): _text(value[4:]) for value in reasons},
    )
    fields: dict[int, list[tuple[int, int, str]]] = {}
    for value in (value for kind, value in entries if kind is Tlv.FIELD):
        event, number, size = struct.unpack_from("!HHH", value)
        fields.setdefault(event, []).append((number, size, _text(value[6:])))
    points = {name: number for number, name in point_names().items()}
    for event, name in ((int.from_bytes(value[:2]), _text(value[2:])) for kind, value in entries if kind is Tlv.POINT):
        described = sorted(fields.get(event, ()))
        if name in points:
            kept = Kept(BY_NAME[table_of(points[name])], points[name], _entries(described))
            if {entry.name for entry in entries_of(kept.table)} <= {entry.name for entry in kept.entries}:
                found.events[event] = kept
            else:
                found.short.add(event)
        elif name.startswith(_OWN):
            found.events[event] = Kept(_table(name, described), -1, _entries(described))
        else:
            found.unknown.append(name)
    return found


def _text(raw: bytes) -> str:
    return raw.decode(errors="replace")


def _entries(described: list[tuple[int, int, str]]) -> tuple[Entry, ...]:
    """Return entries as they follow each other: their places follow from the lengths of those before."""
    found: list[Entry] = []
    at = EVENT.itemsize
    for number, size, name in described:
        if size not in _TYPES or (size and found and not found[-1].size_bytes):
            raise ValueError(f"a field cannot have {size} bytes, or be behind a text")
        found.append(Entry(number, name, size, Place(at + ENTRY_BYTES, size) if size else None))
        at += ENTRY_BYTES + size
    return tuple(found)


def _table(name: str, described: list[tuple[int, int, str]]) -> Table:
    columns = [{"name": column, "dtype": _TYPES.get(size), "meaning": _AS_SENT} for _, size, column in described]
    return described_table({"name": name, "meaning": _AS_SENT, "columns": [*_COMMON, *columns]})


class Gap(NamedTuple):
    """Frames that are missing, and the times of those before and after."""

    lost: int
    from_ns: int
    until_ns: int


@dataclass(slots=True)
class _Hole:
    """Numbers that have not come yet."""

    first: int
    until: int
    lost: int
    from_ns: int
    until_ns: int


class Sequence:
    """Frames of one sender by their numbers: which have come before, and which are missing.

    Frames may arrive out of order, as from a tunnel: what is missing is reported after the next frames have been taken.

    Parameters
    ----------
    number
        Of the frame that was taken last.
    time_ns
        Its time.

    Attributes
    ----------
    twice : int
        Frames that have come before.
    """

    def __init__(self, number: int, time_ns: int) -> None:
        self._first = self._next = number + 1
        self._time_ns = time_ns
        self._holes: list[_Hole] = []
        self.twice = 0

    def take(self, numbers: NDArray[Any], times_ns: NDArray[np.int64]) -> tuple[NDArray[np.bool_], list[Gap]]:
        """Take frames as they came.

        Returns
        -------
        ndarray of bool, shape (n,)
            Which of them have not come before, and are behind the first one.
        list of Gap
            What has been missing since frames were taken before this.
        """
        base = self._next
        places = base + ((numbers.astype(np.int64) - base) % _NUMBERS).astype(np.uint32).view(np.int32).astype(np.int64)
        fresh = np.zeros(len(places), bool)
        fresh[np.unique(places, return_index=True)[1]] = True
        fresh &= places >= self._first
        for at in np.flatnonzero(fresh & (places < base)).tolist():
            fresh[at] = self._fills(int(places[at]))
        self.twice += int(np.count_nonzero(~fresh & (places >= self._first)))
        gaps = [Gap(hole.lost, hole.from_ns, hole.until_ns) for hole in self._holes if hole.lost]
        self._holes = []
        self._advance(places[fresh & (places >= base)], times_ns[fresh & (places >= base)])
        return fresh, gaps

    def end(self) -> list[Gap]:
        """Return what is missing at last."""
        return self.take(np.zeros(0, np.int64), np.zeros(0, np.int64))[1]

    def _fills(self, place: int) -> bool:
        for hole in self._holes:
            if hole.first <= place < hole.until and hole.lost:
                hole.lost -= 1
                return True
        return False

    def _advance(self, places: NDArray[np.int64], times_ns: NDArray[np.int64]) -> None:
        if not len(places):
            return
        order = np.argsort(places)
        every = np.concatenate([[self._next - 1], places[order]])
        times = np.concatenate([[self._time_ns], times_ns[order]])
        for at in np.flatnonzero(np.diff(every) > 1).tolist():
            first, until = int(every[at]) + 1, int(every[at + 1])
            ends = sorted((int(times[at]), int(times[at + 1])))
            self._holes.append(_Hole(first, until, until - first, *ends))
        self._next, self._time_ns = int(every[-1]) + 1, int(times[-1])
