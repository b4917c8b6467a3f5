# SPDX-License-Identifier: Apache-2.0
"""Packets of a pcapng file whose headers are made of what is known of them, many at a time."""

from __future__ import annotations

import ipaddress
import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from hopscope.term import pcapng
from hopscope.term.ragged import Ragged

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from hopscope.term.ragged import Bytes, Joined

LINK_BYTES: Final = 14
IPV4_BYTES, IPV6_BYTES = 20, 40
_TCP, _UDP = 6, 17
UDP_BYTES: Final = 8
_TCP_BYTES, _MOST_TCP_BYTES = 20, 60
_MOST: Final = 0xFFFF
_NO_OPERATION: Final = 1
_HEAD: Final = np.dtype(
    [
        ("kind", "<u4"),
        ("block_bytes", "<u4"),
        ("interface", "<u4"),
        ("high", "<u4"),
        ("low", "<u4"),
        ("captured", "<u4"),
        ("length", "<u4"),
    ]
)
_COMMENT: Final = np.dtype([("code", "<u2"), ("length", "<u2")])
_TAIL: Final = np.dtype(
    [
        ("flags_code", "<u2"),
        ("flags_length", "<u2"),
        ("flags", "<u4"),
        ("id_code", "<u2"),
        ("id_length", "<u2"),
        ("id", "<u8"),
        ("end", "<u4"),
        ("block_bytes", "<u4"),
    ]
)
_IPV4: Final = np.dtype(
    [
        ("version", "u1"),
        ("service", "u1"),
        ("total", ">u2"),
        ("number", ">u2"),
        ("fragment", ">u2"),
        ("ttl", "u1"),
        ("protocol", "u1"),
        ("checksum", ">u2"),
        ("addresses", "V8"),
    ]
)
_IPV6: Final = np.dtype(
    [("version", ">u4"), ("payload", ">u2"), ("protocol", "u1"), ("hops", "u1"), ("addresses", "V32")]
)
_TCP_HEAD: Final = np.dtype(
    [
        ("ports", "V4"),
        ("seq", ">u4"),
        ("ack", ">u4"),
        ("size", "u1"),
        ("flags", "u1"),
        ("window", ">u2"),
        ("checksum", ">u2"),
        ("urgent", ">u2"),
    ]
)
_UDP_HEAD: Final = np.dtype([("ports", "V4"), ("length", ">u2"), ("checksum", ">u2")])


class Flows:
    """What the headers of flows' packets have in common.

    Attributes
    ----------
    numbers : ndarray of int64, shape (n,)
        Of the flows, in ascending order.
    version, protocol : ndarray of int64, shape (n,)
        Of IP, and of what it carries.
    """

    def __init__(self, rows: Iterable[tuple[int, str, int, str, int, int]]) -> None:
        """Take number, source, its port, destination, its port and protocol of each flow; what is none is left out."""
        listed = sorted(
            (number, *ends, ports, protocol & 0xFF)
            for number, source, source_port, destination, destination_port, protocol in rows
            if (ends := _ends(source, destination))
            for ports in [struct.pack(">HH", source_port & _MOST, destination_port & _MOST)]
        )
        columns: Any = list(zip(*listed, strict=True)) or [()] * 5
        self.numbers = np.array(columns[0], np.int64)
        self.version, self.protocol = np.array(columns[1], np.int64), np.array(columns[4], np.int64)
        self._addresses = np.array([each.ljust(32, b"\0") for each in columns[2]], "V32")
        self._ports = np.array(columns[3], "V4")
        words = self._addresses.view(">u2").reshape(-1, 16)
        self._sums = words.sum(axis=1, dtype=np.int64)

    @property
    def network_bytes(self) -> NDArray[np.int64]:
        """Length of IP's header."""
        return np.where(self.version == 4, IPV4_BYTES, IPV6_BYTES)

    def places(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return which flow each number is; -1: none."""
        if not len(self.numbers):
            return np.full(len(numbers), -1)
        found = np.minimum(np.searchsorted(self.numbers, numbers), len(self.numbers) - 1)
        return np.where(self.numbers[found] == numbers, found, -1)

    def headers(self, packets: Headers) -> tuple[Ragged, NDArray[np.int64]]:
        """Return the headers of packets, and the packets' lengths with Ethernet's."""
        flow, header, length, link = packets.flow, packets.header_bytes, packets.len_bytes, packets.link_bytes
        protocol, version = self.protocol[flow], self.version[flow]
        network = self.network_bytes[flow]
        size = header - link
        size = size - np.where(size >= network + _TCP_BYTES, network, 0)
        size = np.where((size >= _TCP_BYTES) & (size <= _MOST_TCP_BYTES) & (size % 4 == 0), size, _TCP_BYTES)
        transport = np.select([protocol == _TCP, protocol == _UDP], [size, np.full(len(flow), UDP_BYTES)], 0)
        before = np.where(transport > 0, header, link + network)
        rest = transport + np.maximum(length - before, 0)
        lengths = LINK_BYTES + network + transport
        starts = np.cumsum(lengths) - lengths
        data = np.zeros(int(lengths.sum()), np.uint8)
        for kind in np.unique(version * 256 + protocol * 4096 + transport).tolist():
            rows = np.flatnonzero(version * 256 + protocol * 4096 + transport == kind)
            made = self._of_kind(packets, rows, int(transport[rows[0]]), rest[rows])
            data[starts[rows, np.newaxis] + np.arange(made.shape[1])] = made
        return Ragged(data, starts, lengths), LINK_BYTES + network + rest

    def _of_kind(self, packets: Headers, rows: NDArray[np.int64], transport: int, rest: NDArray[np.int64]) -> Bytes:
        """Return the headers of packets of one version and protocol, and of one length."""
        flow = packets.flow[rows]
        protocol, version = int(self.protocol[flow[0]]), int(self.version[flow[0]])
        link = np.zeros((len(rows), LINK_BYTES), np.uint8)
        link[:, -2:] = (0x08, 0x00) if version == 4 else (0x86, 0xDD)
        parts = [link, _raw(self._ip(packets, rows, rest))]
        if protocol == _TCP:
            head = np.zeros(len(rows), _TCP_HEAD)
            head["seq"], head["size"] = packets.seq[rows] & 0xFFFFFFFF, transport << 2
            head["flags"], head["window"] = packets.tcp_flags[rows] & 0xFF, _MOST
            head["ports"] = self._ports[flow]
            parts += [_raw(head), np.full((len(rows), transport - _TCP_BYTES), _NO_OPERATION, np.uint8)]
        elif protocol == _UDP:
            datagram = np.zeros(len(rows), _UDP_HEAD)
            datagram["ports"], datagram["length"] = self._ports[flow], np.minimum(rest, _MOST)
            parts.append(_raw(datagram))
        return np.concatenate(parts, axis=1)

    def _ip(self, packets: Headers, rows: NDArray[np.int64], rest: NDArray[np.int64]) -> NDArray[np.void]:
        flow = packets.flow[rows]
        protocol, version = int(self.protocol[flow[0]]), int(self.version[flow[0]])
        head = np.zeros(len(rows), _IPV4 if version == 4 else _IPV6)
        head["protocol"] = protocol
        if version != 4:
            head["version"], head["payload"], head["hops"] = 6 << 28, np.minimum(rest, _MOST), 64
            head["addresses"] = self._addresses[flow]
            return head
        # What is too long for the field is segmented later: Wireshark takes 0 for that.
        total = np.where(rest + IPV4_BYTES <= _MOST, rest + IPV4_BYTES, 0)
        number = np.zeros(len(rows), np.int64) if protocol == _TCP else packets.seq[rows] & _MOST
        summed = 0x4500 + total + number + 0x4000 + protocol + self._sums[flow]
        for _ in range(2):
            summed = (summed & _MOST) + (summed >> 16)
        head["version"], head["total"], head["number"], head["ttl"] = 0x45, total, number, 64
        head["checksum"] = ~summed & _MOST
        head["addresses"] = _raw(self._addresses[flow])[:, :8].copy().view("V8").reshape(-1)
        return head


class Headers(NamedTuple):
    """What is known of packets' headers: arrays of int64, shape (n,), as the table `packets` has them.

    Attributes
    ----------
    flow
        Place of the flow (:meth:`Flows.places`).
    seq, tcp_flags, header_bytes, len_bytes
        As there.
    link_bytes
        How many of these bytes are of the link's header.
    """

    flow: NDArray[np.int64]
    seq: NDArray[np.int64]
    tcp_flags: NDArray[np.int64]
    header_bytes: NDArray[np.int64]
    len_bytes: NDArray[np.int64]
    link_bytes: NDArray[np.int64]


class Options(NamedTuple):
    """What else is said of packets.

    Attributes
    ----------
    interface, at_ns, number : ndarray of int64, shape (n,)
        Number of the device, time by CLOCK_REALTIME, and the packet's own number.
    sends : ndarray of bool, shape (n,)
        Whether it is outbound; otherwise it is inbound.
    comments : Joined, of n
        The comments.
    """

    interface: NDArray[np.int64]
    at_ns: NDArray[np.int64]
    number: NDArray[np.int64]
    sends: NDArray[np.bool_]
    comments: Joined


def blocks(data: Ragged, lengths: NDArray[np.int64], options: Options) -> tuple[Bytes, NDArray[np.int64]]:
    """Return the blocks of packets, and where each begins.

    Parameters
    ----------
    data
        The bytes that there are of each packet.
    lengths
        How many it has.
    options
        What else is said of it.
    """
    comment_bytes = options.comments.lengths
    padded, said = _padded(data.lengths), _padded(comment_bytes)
    size = _HEAD.itemsize + padded + _COMMENT.itemsize + said + _TAIL.itemsize
    starts = np.cumsum(size) - size
    made = np.zeros(int(size.sum()), np.uint8)
    head = np.zeros(len(size), _HEAD)
    head["kind"], head["block_bytes"], head["interface"] = pcapng.PACKET, size, options.interface
    head["high"], head["low"] = options.at_ns >> 32, options.at_ns & 0xFFFFFFFF
    head["captured"], head["length"] = data.lengths, lengths
    at = starts + _put(made, starts, head)
    data.put(made, at)
    comment = np.zeros(len(size), _COMMENT)
    comment["code"], comment["length"] = pcapng.COMMENT, comment_bytes
    at = at + padded
    options.comments.put(made, at + _put(made, at, comment))
    tail = np.zeros(len(size), _TAIL)
    tail["flags_code"], tail["flags_length"] = pcapng.FLAGS, 4
    tail["flags"] = np.where(options.sends, pcapng.OUTBOUND, pcapng.INBOUND)
    tail["id_code"], tail["id_length"], tail["id"] = pcapng.PACKET_ID, 8, options.number.astype(np.uint64)
    tail["block_bytes"] = size
    _put(made, at + _COMMENT.itemsize + said, tail)
    return made, starts


def _ends(source: str, destination: str) -> tuple[int, bytes] | None:
    """Return version and both addresses; None: they are none."""
    try:
        ends = [ipaddress.ip_address(each) for each in (source, destination)]
    except ValueError:
        return None  # of a stranger's recording
    return (ends[0].version, b"".join(each.packed for each in ends)) if ends[0].version == ends[1].version else None


def _padded(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    return -(-lengths // 4) * 4


def _raw(records: NDArray[np.void]) -> Bytes:
    return np.ascontiguousarray(records).view(np.uint8).reshape(len(records), records.itemsize)


def _put(made: Bytes, at: NDArray[np.int64], records: NDArray[np.void]) -> int:
    """Put records where they are to begin, and return how long each is."""
    made[at[:, np.newaxis] + np.arange(records.itemsize)] = _raw(records)
    return records.itemsize
