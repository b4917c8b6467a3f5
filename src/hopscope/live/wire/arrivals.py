# SPDX-License-Identifier: Apache-2.0
"""Frames become rows of a recording's tables again: as arrays, whatever their number."""

from __future__ import annotations

import ipaddress
import operator
import struct
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hopscope.bpf.layout import HopPoint
from hopscope.kernel.tracepoint_columns import texts
from hopscope.live.wire.frames import MOST_NAME_BYTES, read_catalogue
from hopscope.live.wire.layout import (
    COUNTS,
    ENTRY_BYTES,
    ETHERNET_BYTES,
    ETHERTYPE,
    EVENT,
    FRAME,
    VERSION,
    Flag,
    Kind,
    Tlv,
    padded_bytes,
)
from hopscope.live.wire.senders import Described, Gap, Sequence
from hopscope.store.schema import BY_NAME, HOST_UNITS, TEXT, Column

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from numpy.typing import NDArray

    from hopscope.live.wire.inbox import Received
    from hopscope.live.wire.senders import Catalogue, Kept

Columns = dict[str, "NDArray[Any]"]

# Which field of a frame a column is.
_FIELDS: Final = {"skb": "packet"}
# What readers of recordings take is below.
_TIMES: Final = 1 << 60
_INDEXES: Final = 1 << 31
_IPV4: Final = bytes(10) + b"\xff\xff"
# What is remembered, whatever a stranger sends: a flow takes some 100 bytes of memory, a thread or device up to 500, a
# catalogue some MiB. Of what is beyond, events are taken, but not names; of further catalogues, nothing is.
MOST: Final = {"flows": 1 << 20, "threads": 1 << 18, "devices": 1 << 16, "catalogues": 64}


class Arrivals:
    """Takes frames of one host, gives rows.

    Attributes
    ----------
    catalogue : Catalogue or None
        Of the host whose first complete one came.
    started_ns : int
        When that was sent; events before are not taken.
    newest_ns : int
        Time of the latest frame.
    lost : int
        Frames that did not come, and events that the sender had lost before it sent them.
    not_understood, of_others, short : int
        Frames that are none or cannot be, those of other hosts, and events without all columns of their tables.
    beyond : dict
        Kind of :data:`MOST` → how often one came that is not remembered, because so many are.
    """

    def __init__(self) -> None:
        self.catalogue: Catalogue | None = None
        self.started_ns = self.newest_ns = 0
        self.lost = self.not_understood = self.of_others = self.short = 0
        self.beyond = dict.fromkeys(MOST, 0)
        self._described = Described()
        self._known: dict[int, Catalogue | None] = {}
        self._sequences: dict[int, Sequence] = {}
        self._counted: dict[int, tuple[int, int]] = {}
        self._flows: set[int] = set()
        self._devices: set[bytes] = set()
        self._threads: dict[bytes, bytes] = {}

    @property
    def twice(self) -> int:
        """Frames that had come before."""
        return sum(sequence.twice for sequence in self._sequences.values())

    def rows(self, received: Iterable[Received]) -> Iterator[tuple[str, Columns]]:
        """Yield table and columns of what came; before the catalogue, nothing is."""
        parts = [_Part(each) for each in received]
        self.not_understood += sum(part.not_understood for part in parts)
        places = np.concatenate([part.places for part in parts]) if parts else np.zeros(0, np.int64)
        if not len(places):
            return
        # Mostly one sender, and a catalogue comes before what it describes.
        catalogues = [catalogue for part in parts for catalogue in part.catalogues()]
        for _, frame, head in sorted(catalogues, key=operator.itemgetter(0)):
            yield from self._describe(frame, head)
        order = np.argsort(places)
        heads = np.concatenate([part.heads for part in parts])[order]
        wanted = np.zeros(len(places), bool)
        for number in np.unique(heads["catalogue"]).tolist():
            mine = np.flatnonzero(heads["catalogue"] == number)
            wanted[order[mine]], gaps = self._fresh(number, heads[mine])
            yield from self._losses(gaps)
        ends = np.cumsum([len(part.places) for part in parts])
        for part, chosen in zip(parts, np.split(wanted, ends[:-1]), strict=True):
            for number in np.unique(part.heads["catalogue"][chosen]).tolist():
                mine = chosen & (part.heads["catalogue"] == number)
                if catalogue := self._known[number]:
                    yield from self._events(catalogue, part.data[mine], part.heads[mine])

    def end(self) -> Iterator[tuple[str, Columns]]:
        """Yield the last losses."""
        for sequence in self._sequences.values():
            yield from self._losses(sequence.end())

    def _fresh(self, number: int, heads: NDArray[np.void]) -> tuple[NDArray[np.bool_], list[Gap]]:
        """Return which frames with one catalogue have events to be taken, and what is missing among them."""
        is_event = heads["kind"] == Kind.EVENT
        if number not in self._sequences:
            if number in self._known:
                self.of_others += int(np.count_nonzero(is_event))
            return np.zeros(len(heads), bool), []  # or before its catalogue
        fresh, gaps = self._sequences[number].take(heads["number"], heads["time_ns"].astype(np.int64))
        return fresh & is_event & (heads["time_ns"] >= self.started_ns), gaps

    def _describe(self, frame: bytes, head: np.void) -> Iterator[tuple[str, Columns]]:
        number, time_ns = int(head["catalogue"]), int(head["time_ns"])
        try:
            entries = list(read_catalogue(frame))
            found = self._described.add(number, entries)
        except (ValueError, struct.error):
            self.not_understood += 1
            return
        if found and number not in self._known and time_ns < _TIMES and self._room("catalogues", self._known, [number]):
            self._meet(number, found, int(head["number"]), time_ns)
        if self._known.get(number):
            yield from self._named(number, entries, time_ns)

    def _meet(self, number: int, found: Catalogue, frame: int, time_ns: int) -> None:
        """Take note of a sender: the first one, the same after it was started again, or another one."""
        if self.catalogue is None:
            self.catalogue, self.started_ns, self.newest_ns = found, time_ns, time_ns
        again = found.host == self.catalogue.host and found.tables.items() <= self.catalogue.tables.items()
        self._known[number] = found if again else None
        if again:
            self._sequences[number] = Sequence(frame, time_ns)

    def _named(self, number: int, entries: list[tuple[Tlv, bytes]], time_ns: int) -> Iterator[tuple[str, Columns]]:
        """Yield names and losses that a catalogue tells."""
        for kind, value in entries:
            if kind is Tlv.COUNTS and len(value) == COUNTS.size:
                yield from self._lost_there(number, min(COUNTS.unpack(value)[2], _TIMES - 1), time_ns)
        devices = [
            value[: _DEVICE.size + MOST_NAME_BYTES]
            for kind, value in entries
            if kind is Tlv.DEVICE and len(value) >= _DEVICE.size
        ]
        if fresh := self._room("devices", self._devices, dict.fromkeys(devices)):
            self._devices.update(fresh)
            cells = [(*_DEVICE.unpack_from(value), _text(value[_DEVICE.size :])) for value in fresh]
            cells = [each for each in cells if each[1] < _INDEXES]
            yield "devices", _columns("devices", ("netns", "ifindex", "type", "name"), cells)
        threads = {
            value[:4]: value[: _THREAD.size + MOST_NAME_BYTES]
            for kind, value in entries
            if kind is Tlv.THREAD and len(value) >= _THREAD.size
        }
        taken = [*self._room("threads", self._threads, threads), *(threads.keys() & self._threads.keys())]
        if renamed := {tid: threads[tid] for tid in taken if self._threads.get(tid) != threads[tid]}:
            since = [time_ns if tid in self._threads else self.started_ns for tid in renamed]
            self._threads |= renamed
            cells = [
                (from_ns, *_THREAD.unpack_from(value), _text(value[_THREAD.size :]), "")
                for from_ns, value in zip(since, renamed.values(), strict=True)
            ]
            cells = [each for each in cells if max(each[1:3]) < HOST_UNITS["tid"] and each[0] < _TIMES]
            yield "threads", _columns("threads", ("time_ns", "tid", "pid", "comm", "cgroup_path"), cells)

    def _room(self, kind: str, known: Collection[Any], wanted: Iterable[Any]) -> list[Any]:
        """Return those that are not known yet and for which there is room; the others are counted."""
        fresh = [each for each in wanted if each not in known]
        room = MOST[kind] - len(known)
        self.beyond[kind] += max(len(fresh) - room, 0)
        return fresh[:room]

    def _lost_there(self, number: int, lost: int, time_ns: int) -> Iterator[tuple[str, Columns]]:
        """Yield what the sender's own rings have lost since it said so before."""
        before, from_ns = self._counted.get(number, (lost, time_ns))
        self._counted[number] = lost, time_ns
        if lost > before:
            yield from self._losses([Gap(lost - before, from_ns, time_ns)])

    def _losses(self, gaps: list[Gap]) -> Iterator[tuple[str, Columns]]:
        gaps = [gap for gap in gaps if gap.until_ns < _TIMES]
        if gaps:
            self.lost += sum(gap.lost for gap in gaps)
            cells = [(gap.lost, max(gap.from_ns, self.started_ns), max(gap.until_ns, self.started_ns)) for gap in gaps]
            yield "losses", _columns("losses", ("lost", "from_ns", "until_ns"), cells)

    def _events(
        self, catalogue: Catalogue, data: NDArray[np.uint8], heads: NDArray[np.void]
    ) -> Iterator[tuple[str, Columns]]:
        understood = np.isin(heads["point"], list(catalogue.short))
        self.short += int(np.count_nonzero(understood))
        for event, kept in catalogue.events.items():
            mine = np.flatnonzero(heads["point"] == event)
            if not len(mine):
                continue
            mine = mine[_possible(heads[mine])]
            entries = _Entries(kept, data[mine], heads["tlv_bytes"][mine].astype(np.int64))
            mine = mine[entries.fit]
            understood[mine] = True
            if len(mine):
                yield from self._table(kept, heads[mine], entries)
        self.not_understood += int(np.count_nonzero(~understood))

    def _table(self, kept: Kept, heads: NDArray[np.void], entries: _Entries) -> Iterator[tuple[str, Columns]]:
        times = heads["time_ns"].astype(np.int64)
        self.newest_ns = max(self.newest_ns, int(times.max()))
        yield from self._new_flows(heads)
        columns = {
            column.name: np.full(len(heads), kept.point, np.int16)
            if column.name == "point" and kept.point >= 0
            else entries.column(column)
            if column.name in entries.names
            else _field(column, heads)
            for column in kept.table.columns
        }
        yield kept.table.name, columns
        if kept.point == HopPoint.HOP_POINT_SKB_DROP and "reason" in entries.names:
            reasons = entries.column(Column("reason", np.int32, ""))
            known = reasons != 0
            made = {**columns, "reason": reasons, "stack": np.full(len(heads), -1, np.int32)}
            drops = {
                column.name: made.get(column.name, np.zeros(len(heads), np.int64))[known].astype(column.dtype)
                for column in BY_NAME["drops"].columns
            }
            if known.any():
                yield "drops", drops

    def _new_flows(self, heads: NDArray[np.void]) -> Iterator[tuple[str, Columns]]:
        told = heads[(heads["flags"] & (Flag.ENDS | Flag.FLOW)) == Flag.ENDS | Flag.FLOW]
        _, first = np.unique(told["flow"], return_index=True)
        at_flow = dict(zip(told["flow"][first].tolist(), first.tolist(), strict=True))
        chosen = self._room("flows", self._flows, at_flow)
        fresh = [told[at_flow[number]] for number in chosen]
        if fresh:
            self._flows.update(chosen)
            cells = [
                (
                    int(each["flow"].astype(np.int64)),
                    _address(each["source"]),
                    int(each["source_port"]),
                    _address(each["destination"]),
                    int(each["destination_port"]),
                    int(each["protocol"]),
                )
                for each in fresh
            ]
            names = ("flow", "source", "source_port", "destination", "destination_port", "protocol")
            yield "flows", _columns("flows", names, cells)


_DEVICE: Final = struct.Struct("!IIH")
_THREAD: Final = struct.Struct("!II")


class _Part:
    """Frames of one length that are of this version and have what they say.

    Attributes
    ----------
    places, data
        See :class:`~hopscope.live.wire.inbox.Received`.
    heads : ndarray of :data:`~hopscope.live.wire.layout.EVENT`, shape (n,)
        Their fields.
    not_understood : int
        How many others there were.
    """

    def __init__(self, received: Received) -> None:
        size, length = FRAME.itemsize, received.data.shape[1]
        count = len(received.places)
        if length < size:
            self.places, self.data, self.heads = received.places[:0], received.data[:0], np.zeros(0, EVENT)
        else:
            frames = np.ascontiguousarray(received.data[:, :size]).view(FRAME).reshape(-1)
            heads = frames["event"]
            good = (frames["ethertype"] == ETHERTYPE) & (heads["version"] == VERSION)
            good &= (heads["kind"] == Kind.EVENT) | (heads["kind"] == Kind.CATALOGUE)
            good &= heads["tlv_bytes"] + size <= length
            self.places, self.data, self.heads = received.places[good], received.data[good], heads[good]
        self.not_understood = count - len(self.places)

    def catalogues(self) -> Iterator[tuple[int, bytes, np.void]]:
        """Yield place, bytes and fields of frames of catalogues."""
        for at in np.flatnonzero(self.heads["kind"] == Kind.CATALOGUE).tolist():
            yield int(self.places[at]), self.data[at].tobytes(), self.heads[at]


def _possible(heads: NDArray[np.void]) -> NDArray[np.bool_]:
    """Return which events have values that a recording can have."""
    good: NDArray[np.bool_] = (heads["time_ns"] < _TIMES) & (heads["cpu"] < HOST_UNITS["cpu"])
    return good & (heads["tid"] < HOST_UNITS["tid"])


class _Entries:
    """Entries of events of one kind.

    Attributes
    ----------
    fit : ndarray of bool, shape (n,)
        Which events have the entries that the catalogue says; :meth:`column` gives those of these alone.
    names : set of str
        Of the entries.
    """

    def __init__(self, kept: Kept, data: NDArray[np.uint8], sizes: NDArray[np.int64]) -> None:
        self.names = {entry.name for entry in kept.entries}
        self._numbers = {entry.name: entry.place for entry in kept.entries if entry.place}
        self._data = data
        end = max((place.offset_bytes + place.size_bytes for place in self._numbers.values()), default=0)
        self.fit = sizes >= end - (FRAME.itemsize - ETHERNET_BYTES) if end else np.ones(len(data), bool)
        for entry in kept.entries:
            if entry.place and self.fit.any():
                at = ETHERNET_BYTES + entry.place.offset_bytes - ENTRY_BYTES
                head = np.frombuffer(struct.pack("!HH", entry.number, entry.size_bytes), np.uint8)
                self.fit &= (data[:, at : at + ENTRY_BYTES] == head).all(axis=1)
        self._data, sizes = data[self.fit], sizes[self.fit]
        texts_at = np.full(len(self._data), ETHERNET_BYTES + end if end else FRAME.itemsize, np.int64)
        texts = {entry.name: entry.number for entry in kept.entries if not entry.size_bytes}
        found = _texts(self._data, texts_at, sizes + FRAME.itemsize, list(texts.values()))
        self._texts = dict(zip(texts, found, strict=True))

    def column(self, column: Column) -> NDArray[Any]:
        """Return the values of an entry."""
        if column.name in self._texts:
            return self._texts[column.name]
        place = self._numbers[column.name]
        at = ETHERNET_BYTES + place.offset_bytes
        raw = np.ascontiguousarray(self._data[:, at : at + place.size_bytes])
        values: NDArray[Any] = raw.view(f">i{place.size_bytes}").reshape(-1)
        return np.zeros(0, np.int64).astype(column.dtype) if not len(raw) else values.astype(column.dtype)


def _texts(
    data: NDArray[np.uint8], at: NDArray[np.int64], ends: NDArray[np.int64], numbers: list[int]
) -> Iterator[NDArray[Any]]:
    """Yield the texts of frames that begin there, by their numbers; those that were cut away are empty."""
    rows = np.arange(len(data))
    for number in numbers:
        values = np.full(len(data), "", object)
        there = at + ENTRY_BYTES <= ends
        places = np.where(there, at, 0)
        kind, lengths = (data[rows, places + k].astype(np.int64) << 8 | data[rows, places + k + 1] for k in (0, 2))
        there &= (kind == number) & (at + ENTRY_BYTES + lengths <= ends)
        for length in np.unique(lengths[there]).tolist():
            mine = np.flatnonzero(there & (lengths == length))
            begin = at[mine] + ENTRY_BYTES
            raw = data[mine[:, np.newaxis], begin[:, np.newaxis] + np.arange(length)]
            values[mine] = texts(np.ascontiguousarray(raw).view(f"V{length}").reshape(-1), _text) if length else ""
        at = np.where(there, at + ENTRY_BYTES + padded_bytes(lengths), at)
        yield values


def _field(column: Column, heads: NDArray[np.void]) -> NDArray[Any]:
    """Return a column that is a field of all events; zeros where there is none."""
    name = _FIELDS.get(column.name, column.name)
    if column.dtype == TEXT:
        return np.full(len(heads), "", object)
    if name not in (heads.dtype.names or ()):
        return np.zeros(len(heads), column.dtype)
    values = heads[name]
    dtype = np.dtype(column.dtype)
    if dtype.itemsize == values.dtype.itemsize:
        return values.astype(values.dtype.newbyteorder("=")).view(dtype)
    return values.astype(dtype)


def _columns(table: str, names: tuple[str, ...], cells: list[tuple[Any, ...]]) -> Columns:
    """Return rows as columns of a table; those that are not named are 0."""
    listed = dict(zip(names, zip(*cells, strict=True), strict=True)) if cells else dict.fromkeys(names, ())
    return {
        column.name: np.array(listed.get(column.name, ("" if column.dtype == TEXT else 0,) * len(cells)), column.dtype)
        for column in BY_NAME[table].columns
    }


def _address(packed: np.void) -> str:
    raw = packed.tobytes()
    return str(ipaddress.IPv4Address(raw[12:]) if raw.startswith(_IPV4) else ipaddress.IPv6Address(raw))


def _text(raw: bytes) -> str:
    return raw.decode(errors="replace")
