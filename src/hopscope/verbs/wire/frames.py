# SPDX-License-Identifier: Apache-2.0
"""Events become frames: as arrays, whatever their number."""

from __future__ import annotations

import ipaddress
import struct
import zlib
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hopscope import __version__
from hopscope.model.event_batch import Numbers, Texts
from hopscope.verbs.wire.layout import ETHERTYPE, EVENT, FRAME, HOP_LIMIT_NS, VERSION, Flag, Kind, Tlv

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from hopscope.model.event_batch import Columns
    from hopscope.store.meta import Metadata

# Of a frame, with the header of Ethernet: what passes every link.
_MOST_BYTES: Final = 1500
_NUMBERS: Final = 1 << 32
# Tables of tracepoints have numbers above those of probe points.
_FIRST_OWN: Final = 1 << 10
_ENTRY: Final = struct.Struct("!HH")
_ALIGNED: Final = 4


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
    """

    def __init__(self, metadata: Metadata, names: Sequence[str], destination: bytes, source: bytes) -> None:
        numbers = {name: number for number, name in metadata.points.items()}
        self._numbers = {name: numbers.get(name, _FIRST_OWN + at) for at, name in enumerate(names)}
        self._points = np.array([*self._numbers.values(), 0], np.uint16)
        self._described = [
            _entry(Tlv.VERSION, __version__.encode()),
            _entry(Tlv.HOST, metadata.host.get("name", "").encode()),
            _entry(Tlv.REALTIME_OFFSET, struct.pack("!q", metadata.realtime_ns - metadata.started_ns)),
            *(_entry(Tlv.POINT, struct.pack("!H", number) + name.encode()) for name, number in self._numbers.items()),
        ]
        self._catalogue = zlib.crc32(b"".join(self._described))
        self._ends = np.void(destination), np.void(source)
        self._number = 0

    @property
    def numbers(self) -> Mapping[str, int]:
        """Number of each point, by its name."""
        return self._numbers

    def of(self, events: Columns, chosen: NDArray[np.bool_]) -> NDArray[np.void]:
        """Return a frame of each event that is chosen.

        Parameters
        ----------
        events
            With the columns of packets and of flows.
        chosen : ndarray of bool, shape (n,)
            Which.

        Returns
        -------
        ndarray of :data:`~hopscope.verbs.wire.layout.FRAME`, shape (m,)
            In the order of the events.
        """
        rows = np.flatnonzero(chosen)
        frames = self._begun(len(rows), Kind.EVENT)
        event, flags = frames["event"], np.zeros(len(rows), np.int64)
        points = events.column("point")
        event["point"] = self._points[points.codes[rows]] if isinstance(points, Texts) else 0
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
        return frames

    def catalogue(self, sent: int, not_sent: int, lost: int) -> list[bytes]:
        """Return the frames of the catalogue.

        Parameters
        ----------
        sent, not_sent
            Frames of events so far.
        lost
            Events for which the recorder's rings had no room.
        """
        counts = _entry(Tlv.COUNTS, struct.pack("!QQQ", sent, not_sent, lost))
        made = []
        for entries in _packed([counts, *self._described]):
            (frame,) = self._begun(1, Kind.CATALOGUE)
            frame["event"]["tlv_bytes"] = len(entries)
            made.append(frame.tobytes() + entries)
        return made

    def _begun(self, count: int, kind: Kind) -> NDArray[np.void]:
        frames = np.zeros(count, FRAME)
        frames["ethernet_destination"], frames["ethernet_source"] = self._ends
        frames["ethertype"] = ETHERTYPE
        event = frames["event"]
        event["version"], event["kind"], event["catalogue"] = VERSION, kind, self._catalogue
        event["number"] = np.arange(self._number, self._number + count, dtype=np.int64) % _NUMBERS
        self._number += count
        return frames


def read_catalogue(frame: bytes) -> Iterator[tuple[Tlv, bytes]]:
    """Yield the entries of a frame of the catalogue."""
    at, end = FRAME.itemsize, len(frame)
    while at < end:
        kind, length = _ENTRY.unpack_from(frame, at)
        at += _ENTRY.size
        yield Tlv(kind), frame[at : at + length]
        at += -(-length // _ALIGNED) * _ALIGNED


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


def _fill_ends(frames: NDArray[np.void], events: Columns, rows: NDArray[Any]) -> NDArray[np.bool_]:
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


def _entry(kind: Tlv, value: bytes) -> bytes:
    return _ENTRY.pack(kind, len(value)) + value + bytes(-len(value) % _ALIGNED)


def _packed(entries: Iterable[bytes]) -> Iterator[bytes]:
    """Yield entries together, as many as a frame has room for."""
    room, together = _MOST_BYTES - FRAME.itemsize, b""
    for entry in entries:
        if together and len(together) + len(entry) > room:
            yield together
            together = b""
        together += entry
    yield together


assert EVENT.itemsize == 108, "the first version's layout"  # noqa: S101 # others rely on it
