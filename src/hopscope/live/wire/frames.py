# SPDX-License-Identifier: Apache-2.0
"""Events become frames: as arrays, whatever their number."""

from __future__ import annotations

import ipaddress
import struct
import zlib
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hopscope import __version__
from hopscope.live.recorder.tables import table_of
from hopscope.live.stream.events import PLACE, places_of
from hopscope.live.wire.layout import (
    COUNTS,
    ENTRY_BYTES,
    ETHERNET_BYTES,
    ETHERTYPE,
    EVENT,
    FRAME,
    HOP_LIMIT_NS,
    MOST_BYTES,
    VERSION,
    Flag,
    Kind,
    Tlv,
    entries_of,
    numbers_of_own,
    padded_bytes,
    place,
)
from hopscope.model.event_batch import Numbers, Texts
from hopscope.store.schema import BY_NAME, EVENT_TABLES
from hopscope.term.ragged import Ragged

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from hopscope.live.stream.events import Events, Names, Table
    from hopscope.live.wire.layout import Entry
    from hopscope.store.meta import Metadata
    from hopscope.term.ragged import Bytes

_NUMBERS: Final = 1 << 32
# More than Linux' own names have.
MOST_NAME_BYTES: Final = 255
# Of threads and devices that a catalogue names.
_MOST_NAMES: Final = 4096
_ENTRY: Final = struct.Struct("!HH")
# For entries, in whole words.
_ROOM: Final = (MOST_BYTES - FRAME.itemsize) // ENTRY_BYTES * ENTRY_BYTES
_ENTRIES_AT: Final = ETHERNET_BYTES + place("tlv_bytes").offset_bytes


class Frames:
    """Makes frames, one after the other.

    Parameters
    ----------
    metadata
        What a recording would say of itself.
    names
        Of points, as events have them.
    destination, source
        Ethernet addresses, of 6 bytes each.
    full
        Whether events of probe points have all columns of their tables.
    number
        Of the first frame.
    """

    def __init__(  # noqa: PLR0913 # as many as a frame begins with
        self,
        metadata: Metadata,
        names: Sequence[str],
        destination: bytes,
        source: bytes,
        *,
        full: bool = False,
        number: int = 0,
    ) -> None:
        tables = {table.name: table for table in metadata.tables if table.name in names}
        numbers = {name: number for number, name in metadata.points.items()} | numbers_of_own(tables)
        self._numbers = {name: numbers[name] for name in names}
        self._reasons = {name: number for number, name in metadata.reasons.items()} if full else {}
        table_of_point = {name: name for name in tables}
        if full:
            tables |= {name: BY_NAME[name] for name in EVENT_TABLES}
            table_of_point |= {name: table_of(number) for number, name in metadata.points.items()}
        self._entries = {name: entries_of(table) for name, table in tables.items()}
        self._described = [
            packed_entry(Tlv.VERSION, __version__.encode()),
            packed_entry(Tlv.HOST, metadata.host.get("name", "").encode()),
            packed_entry(Tlv.REALTIME_OFFSET, struct.pack("!q", metadata.realtime_ns - metadata.started_ns)),
            *(_named(Tlv.POINT, name, "!H", number) for name, number in self._numbers.items()),
            *(
                _named(Tlv.FIELD, each.name, "!HHH", numbers[point], each.number, each.size_bytes)
                for point, table in table_of_point.items()
                for each in self._entries[table]
            ),
            *(_named(Tlv.REASON, name, "!I", number) for name, number in self._reasons.items()),
        ]
        self._catalogue = zlib.crc32(b"".join(self._described))
        self._ends = np.void(destination), np.void(source)
        self.number = number
        # Of frames since the last catalogue, whose names are to come with the next one.
        self._threads: set[int] = set()
        self._devices: set[int] = set()

    @property
    def numbers(self) -> Mapping[str, int]:
        """Number of each point, by its name."""
        return self._numbers

    def of(self, events: Events, chosen: NDArray[np.bool_]) -> Ragged:
        """Return a frame of each event that is chosen.

        Parameters
        ----------
        events
            With the columns of packets and of flows.
        chosen : ndarray of bool, shape (n,)
            Which.

        Returns
        -------
        Ragged
            In the order of the events; each begins as :data:`~hopscope.live.wire.layout.FRAME`.
        """
        rows = np.flatnonzero(chosen)
        frames = self._begun(len(rows), Kind.EVENT)
        event, flags = frames["event"], np.zeros(len(rows), np.int64)
        points = events.column("point")
        assert isinstance(points, Texts)  # noqa: S101 # for the type checker
        numbers = np.array([*(self._numbers.get(name, 0) for name in points.names), 0], np.uint16)
        event["point"] = numbers[points.codes[rows]]
        for name in ("time_ns", "cpu", "tid"):
            _fill(event, name, events.column(name), rows)
        flags[_fill_hops(event, events.column("hop_ns"), rows)] |= Flag.HOP
        flags[_fill(event, "pid", events.column("pid"), rows)] |= Flag.PROCESS
        flags[_fill(event, "len_bytes", events.column("len_bytes"), rows)] |= Flag.LENGTH
        flags[_fill(event, "packet", events.column("skb"), rows)] |= Flag.PACKET
        flags[_fill(event, "ifindex", events.column("ifindex"), rows)] |= Flag.DEVICE
        flags[_fill(event, "netns", events.column("netns"), rows)] |= Flag.NAMESPACE
        flags[_fill(event, "flow", events.column("flow"), rows)] |= Flag.FLOW
        flags[_fill_ends(event, events, rows)] |= Flag.ENDS
        event["flags"] = flags
        if len(self._threads) < _MOST_NAMES:
            self._threads.update(np.unique(event["tid"]).tolist())
        if len(self._devices) < _MOST_NAMES:
            self._devices.update(np.unique(places_of(event["netns"], event["ifindex"])).tolist())
        return self._with_entries(frames, events, chosen)

    def catalogue(self, counts: tuple[int, int, int], names: Names, time_ns: int) -> list[bytes]:
        """Return the frames of the catalogue.

        Parameters
        ----------
        counts
            Frames of events that were sent so far, that were not sent, and events for which the recorder's rings had no
            room.
        names
            Of threads and devices.
        time_ns
            By the clock of the events.
        """
        made = []
        of_devices, of_threads = self._names_of_frames(names)
        for entries in _packed(
            [packed_entry(Tlv.COUNTS, COUNTS.pack(*counts)), *self._described, *of_devices, *of_threads]
        ):
            (frame,) = self._begun(1, Kind.CATALOGUE)
            frame["event"]["tlv_bytes"], frame["event"]["time_ns"] = len(entries), time_ns
            made.append(frame.tobytes() + entries)
        return made

    def _names_of_frames(self, names: Names) -> tuple[list[bytes], list[bytes]]:
        """Return entries of the devices and threads that there were in frames since this was called before."""
        devices = [
            _named(Tlv.DEVICE, name, "!IIH", *divmod(place, PLACE), names.device_types[place])
            for place in sorted(self._devices)
            if (name := names.devices.get(place))
        ]
        threads = [
            _named(Tlv.THREAD, known[1], "!II", tid, known[0])
            for tid in sorted(self._threads)
            if (known := names.threads.get(tid))
        ]
        self._devices, self._threads = set(), set()
        return devices, threads

    def _with_entries(self, frames: NDArray[np.void], events: Events, chosen: NDArray[np.bool_]) -> Ragged:
        """Return the frames, and behind those of events with fields of their own these."""
        parts = [frames.view(np.uint8)]
        starts = np.arange(len(frames), dtype=np.int64) * FRAME.itemsize
        sizes = np.full(len(frames), FRAME.itemsize, np.int64)
        numbers = np.cumsum(chosen) - 1
        end = len(parts[0])
        for name, columns, places in events.tables():
            wanted = chosen[places]
            if name in self._entries and wanted.any():
                rows = numbers[places[wanted]]
                values = {column: values[wanted] for column, values in columns.items()}
                if name == "packets":
                    values["reason"] = self._reason_numbers(events)[places[wanted]]
                data, begins, lengths = _extended(frames[rows], self._entries[name], values)
                parts.append(data)
                starts[rows], sizes[rows] = end + begins, lengths
                end += len(data)
        return Ragged(np.concatenate(parts) if len(parts) > 1 else parts[0], starts, sizes)

    def _reason_numbers(self, events: Events) -> NDArray[np.int32]:
        """Return of each event why its packet was dropped; 0: it was not, or it is not known."""
        column = events.column("reason")
        assert isinstance(column, Texts)  # noqa: S101 # for the type checker
        numbers = np.array([*(self._reasons[name] for name in column.names), 0], np.uint32)
        found: NDArray[np.int32] = numbers[column.codes].view(np.int32)
        return found

    def _begun(self, count: int, kind: Kind) -> NDArray[np.void]:
        frames = np.zeros(count, FRAME)
        frames["ethernet_destination"], frames["ethernet_source"] = self._ends
        frames["ethertype"] = ETHERTYPE
        event = frames["event"]
        event["version"], event["kind"], event["catalogue"] = VERSION, kind, self._catalogue
        event["number"] = np.arange(self.number, self.number + count, dtype=np.int64) % _NUMBERS
        self.number += count
        return frames


def read_entries(frame: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield type and value of each entry behind the fields of a frame.

    Raises
    ------
    struct.error
        It ends within one.
    """
    at = FRAME.itemsize
    end = at + int.from_bytes(frame[_ENTRIES_AT : _ENTRIES_AT + 2])
    while at < end:
        kind, length = _ENTRY.unpack_from(frame, at)
        at += _ENTRY.size
        yield kind, frame[at : at + length]
        at += padded_bytes(length)


def read_catalogue(frame: bytes) -> Iterator[tuple[Tlv, bytes]]:
    """Yield the entries of a frame of the catalogue that this version knows."""
    known = {each.value for each in Tlv}
    return ((Tlv(kind), value) for kind, value in read_entries(frame) if kind in known)


def _extended(
    frames: NDArray[np.void], entries: Sequence[Entry], columns: Table
) -> tuple[Bytes, NDArray[np.int64], NDArray[np.int64]]:
    """Return frames with entries behind them, one behind the other: their bytes, where they begin, how long they are.

    A text that has no room is cut, and the frame's flag says so.
    """
    count = len(frames)
    numeric = [entry for entry in entries if entry.size_bytes]
    made = np.zeros(count, _with_numbers(numeric))
    for entry in numeric:
        made[f"type_{entry.number}"], made[f"length_{entry.number}"] = entry.number, entry.size_bytes
        made[f"value_{entry.number}"] = columns[entry.name]
    texts = [_Text(entry.number, columns[entry.name].tolist()) for entry in entries if not entry.size_bytes]
    sizes = np.full(count, made.dtype.itemsize, np.int64)
    cut = np.zeros(count, bool)
    for text in texts:
        cut |= text.fit(FRAME.itemsize + _ROOM - sizes)
        sizes += text.sizes
    frames["event"]["tlv_bytes"] = sizes - FRAME.itemsize
    frames["event"]["flags"] |= np.where(cut, Flag.CUT, 0).astype(">u2")
    made["frame"] = frames
    if not texts:
        return made.view(np.uint8), np.arange(count, dtype=np.int64) * made.dtype.itemsize, sizes
    starts = np.cumsum(sizes) - sizes
    data = np.zeros(int(sizes.sum()), np.uint8)
    width = made.dtype.itemsize
    data[starts[:, np.newaxis] + np.arange(width)] = made.view(np.uint8).reshape(count, width)
    at = starts + width
    for text in texts:
        text.put(data, at)
        at += text.sizes
    return data, starts, sizes


def _with_numbers(entries: Iterable[Entry]) -> np.dtype[np.void]:
    """Return the type of a frame with these entries."""
    fields: list[tuple[str, Any]] = [("frame", FRAME)]
    for entry in entries:
        fields += [(f"type_{entry.number}", ">u2"), (f"length_{entry.number}", ">u2")]
        fields += [(f"value_{entry.number}", f">i{entry.size_bytes}")]
    return np.dtype(fields)


class _Text:
    """A text of each of some events, as entries.

    Attributes
    ----------
    sizes : ndarray of int64, shape (n,)
        What each takes, with what pads it.
    """

    def __init__(self, number: int, texts: Sequence[str]) -> None:
        self._number = number
        places = {text: at for at, text in enumerate(dict.fromkeys(texts))}
        self._codes = np.array([places[text] for text in texts], np.int64)
        self._texts = Ragged.of(text.encode(errors="replace") for text in places)
        self.sizes = self._lengths = np.zeros(len(texts), np.int64)

    def fit(self, rooms: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Cut what is longer than its room, and return which are; with no room for an entry at all, there is none."""
        whole = self._texts.lengths[self._codes]
        self._lengths = np.minimum(rooms - ENTRY_BYTES, whole)
        self.sizes = np.where(self._lengths < 0, 0, ENTRY_BYTES + padded_bytes(self._lengths))
        cut: NDArray[np.bool_] = self._lengths < whole
        return cut

    def put(self, data: Bytes, at: NDArray[np.int64]) -> None:
        """Put them where they belong."""
        there = np.flatnonzero(self._lengths >= 0)
        lengths = self._lengths[there]
        head = np.zeros(len(there), np.dtype([("type", ">u2"), ("length", ">u2")]))
        head["type"], head["length"] = self._number, lengths
        at = at[there, np.newaxis]
        data[at + np.arange(ENTRY_BYTES)] = head.view(np.uint8).reshape(len(there), ENTRY_BYTES)
        starts = self._texts.starts[self._codes[there]]
        Ragged(self._texts.data, starts, lengths).put(data, at[:, 0] + ENTRY_BYTES)


def _fill(frames: NDArray[np.void], name: str, column: Numbers | Texts, rows: NDArray[Any]) -> NDArray[np.bool_]:
    """Fill a field; return where its value is known."""
    if isinstance(column, Texts):  # tracepoints may have text in a field of this name
        return np.zeros(len(rows), bool)
    known: NDArray[np.bool_] = np.ones(len(rows), bool) if column.known is None else column.known[rows]
    values = column.values[rows]
    dtype = frames.dtype[name].newbyteorder("=")
    frames[name] = np.where(known, values, 0).astype(np.int64).astype(dtype)
    return known


def _fill_hops(frames: NDArray[np.void], column: Numbers | Texts, rows: NDArray[Any]) -> NDArray[np.bool_]:
    """Fill the field of the hop, and its thermometer; return where it is known."""
    if isinstance(column, Texts) or column.known is None:
        return np.zeros(len(rows), bool)
    known: NDArray[np.bool_] = column.known[rows]
    hop_ns = np.where(known, np.clip(column.values[rows], 0, HOP_LIMIT_NS), 0).astype(np.uint32)
    frames["hop_ns"] = hop_ns
    frames["thermometer"] = thermometer(hop_ns)
    return known


def thermometer(values: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return values with all bits below their highest one set."""
    bits = values.copy()
    for shift in (1, 2, 4, 8, 16):
        bits |= bits >> np.uint32(shift)
    return bits


def _fill_ends(frames: NDArray[np.void], events: Events, rows: NDArray[Any]) -> NDArray[np.bool_]:
    """Fill ports, addresses and protocols; return where they are known."""
    known = _fill(frames, "source_port", events.column("source_port"), rows)
    _fill(frames, "destination_port", events.column("destination_port"), rows)
    _fill(frames, "protocol", events.column("protocol"), rows)
    for name in ("source", "destination"):
        column = events.column(name)
        if isinstance(column, Texts):
            packed = [_packed_address(text) for text in column.names]
            places = column.codes[rows]
            frames[name] = np.array([*packed, bytes(16)], "V16")[places]
            if name == "source":
                versions = np.array([*(4 if each[:12] == _MAPPED else 6 for each in packed), 0], np.uint8)
                frames["ip_version"] = versions[places]
    return known


_MAPPED: Final = bytes(10) + b"\xff\xff"


def _packed_address(text: str) -> bytes:
    address = ipaddress.ip_address(text)
    return _MAPPED + address.packed if address.version == 4 else address.packed


def packed_entry(kind: Tlv, value: bytes) -> bytes:
    """Return an entry."""
    return _ENTRY.pack(kind, len(value)) + value + bytes(padded_bytes(len(value)) - len(value))


def _named(kind: Tlv, name: str, form: str, *numbers: int) -> bytes:
    return packed_entry(kind, struct.pack(form, *numbers) + name.encode(errors="replace")[:MOST_NAME_BYTES])


def _packed(entries: Iterable[bytes]) -> Iterator[bytes]:
    """Yield entries together, as many as a frame has room for."""
    room, together = MOST_BYTES - FRAME.itemsize, b""
    for entry in entries:
        if together and len(together) + len(entry) > room:
            yield together
            together = b""
        together += entry
    yield together


assert EVENT.itemsize == 108, "the first version's layout"  # noqa: S101 # others rely on it
