# SPDX-License-Identifier: Apache-2.0
"""Captured bytes of packets as a pcapng file, which Wireshark and tcpdump read: written while they come.

The format is that of draft-ietf-opsawg-pcapng: a section header, a block for each interface when its first packet
comes, a block for each packet with its time in ns. A file that is cut off can be read up to its last whole block.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple, Self

import numpy as np

from hopscope.errors import DiskFullError
from hopscope.store.unwritable import unwritable_file

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from numpy.typing import NDArray

Array = np.ndarray[Any, np.dtype[Any]]

FILE: Final = "capture.pcapng"
_SECTION, _INTERFACE, _PACKET = 0x0A0D0D0A, 1, 6
_BYTE_ORDER: Final = 0x1A2B3C4D
# Options: if_name, if_tsresol (10^-9), epb_flags (1 received, 2 sent), the end of options.
_IF_NAME, _IF_TSRESOL, _EPB_FLAGS, _END = 2, 9, 2, 0
_NANOSECONDS: Final = 9
# https://www.tcpdump.org/linktypes.html
_ETHERNET, _RAW_IP = 1, 101
# include/uapi/linux/if_arp.h: ARPHRD_ETHER, ARPHRD_LOOPBACK
_ETHERNET_TYPES: Final = frozenset({1, 772})
# Packets that are laid out at once.
_AT_ONCE: Final = 4096
_HEAD: Final = np.dtype(
    [(name, "<u4") for name in ("type", "total", "interface", "high", "low", "captured", "len_bytes")]
)
_TAIL: Final = np.dtype(
    [("code", "<u2"), ("length", "<u2"), ("flags", "<u4"), ("end", "<u4"), ("total", "<u4")],
)


class Device(NamedTuple):
    """An interface: its name, and its type as ARPHRD_*."""

    name: str
    type: int


class Captured(NamedTuple):
    """Captured packets, an element each.

    Attributes
    ----------
    time_ns : int64
        CLOCK_MONOTONIC.
    ifindex, netns : int64
        Where.
    len_bytes, captured_bytes : int64
        Of the frame, and of it here.
    sent : bool
        By this host, rather than received.
    frames : uint8, shape (n, snap)
        The bytes.
    """

    time_ns: Array
    ifindex: Array
    netns: Array
    len_bytes: Array
    captured_bytes: Array
    sent: Array
    frames: Array


class CaptureWriter:
    """Writes one file; a context manager that closes it.

    Parameters
    ----------
    file
        To write to, which is closed in the end.
    wall_offset_ns
        How far CLOCK_REALTIME is ahead of CLOCK_MONOTONIC: files of this kind have the time of day.

    Attributes
    ----------
    bytes_written : int
        So far.
    """

    def __init__(self, file: BinaryIO, wall_offset_ns: int) -> None:
        self._file = file
        self._wall_offset_ns = wall_offset_ns
        self._interfaces: dict[tuple[int, int], int] = {}
        self._devices: dict[tuple[int, int], Device] = {}
        self.bytes_written = 0
        try:
            self._put(_block(_SECTION, struct.pack("<IHHq", _BYTE_ORDER, 1, 0, -1)))
        except DiskFullError:
            self.close()
            raise

    def learn(self, devices: Mapping[str, Array]) -> None:
        """Take rows of the table ``devices``: names for interfaces that come later."""
        rows = zip(*(devices[name].tolist() for name in ("netns", "ifindex", "name", "type")), strict=True)
        self._devices.update(((netns, ifindex), Device(name, kind)) for netns, ifindex, name, kind in rows)

    def write(self, packets: Captured) -> None:
        """Add packets, in any order.

        Raises
        ------
        DiskFullError
            There is no room.
        """
        for start in range(0, len(packets.time_ns), _AT_ONCE):
            some = Captured(*(column[start : start + _AT_ONCE] for column in packets))
            self._put(_packet_blocks(some, self._numbers(some), self._wall_offset_ns))

    def close(self) -> None:
        """Close the file; again is allowed."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _numbers(self, packets: Captured) -> Array:
        """Return the number of each packet's interface in the file; new ones get their block."""
        keys = np.stack([packets.netns, packets.ifindex], axis=1)
        found, index = np.unique(keys, axis=0, return_inverse=True)
        numbers = [self._number((int(netns), int(ifindex))) for netns, ifindex in found]
        return np.array(numbers, np.uint32)[index.ravel()]

    def _number(self, key: tuple[int, int]) -> int:
        if key not in self._interfaces:
            netns, ifindex = key
            device = self._devices.get(key, Device(f"device {ifindex}", 1))
            self._interfaces[key] = len(self._interfaces)
            name = _option(_IF_NAME, f"{device.name}@{netns}".encode())
            link_type = _ETHERNET if device.type in _ETHERNET_TYPES else _RAW_IP
            body = struct.pack("<HHI", link_type, 0, 0) + name + _option(_IF_TSRESOL, bytes([_NANOSECONDS]))
            self._put(_block(_INTERFACE, body + _option(_END, b"")))
        return self._interfaces[key]

    def _put(self, data: bytes) -> None:
        try:
            left = memoryview(data)
            while left:
                left = left[self._file.write(left) :]
        except OSError as error:
            raise unwritable_file(Path(self._file.name), error) from error
        self.bytes_written += len(data)


def _packet_blocks(packets: Captured, numbers: Array, wall_offset_ns: int) -> bytes:
    """Lay blocks out side by side, each in room for the largest, and leave out what none of it uses."""
    count, snap = packets.frames.shape
    padded = (packets.captured_bytes + 3) // 4 * 4
    total = padded + _HEAD.itemsize + _TAIL.itemsize
    head, tail = np.zeros(count, _HEAD), np.zeros(count, _TAIL)
    head["type"], head["total"], head["interface"] = _PACKET, total, numbers
    wall_ns = packets.time_ns + wall_offset_ns
    head["high"], head["low"] = wall_ns >> 32, wall_ns & 0xFFFFFFFF
    head["captured"], head["len_bytes"] = packets.captured_bytes, packets.len_bytes
    tail["code"], tail["length"], tail["flags"] = _EPB_FLAGS, 4, np.where(packets.sent, 2, 1)
    tail["total"] = total
    place = np.arange(snap + 3)
    frames = np.zeros((count, snap + 3), np.uint8)
    frames[:, :snap] = np.where(place[:snap] < packets.captured_bytes[:, None], packets.frames, 0)
    used = np.ones((count, _HEAD.itemsize + snap + 3 + _TAIL.itemsize), np.bool_)
    used[:, _HEAD.itemsize : -_TAIL.itemsize] = place < padded[:, None]
    blocks: NDArray[np.uint8] = np.concatenate(
        [head.view(np.uint8).reshape(count, -1), frames, tail.view(np.uint8).reshape(count, -1)], axis=1
    )
    return blocks[used].tobytes()


def _option(code: int, value: bytes) -> bytes:
    return struct.pack("<HH", code, len(value)) + value + bytes(-len(value) % 4)


def _block(kind: int, body: bytes) -> bytes:
    total = len(body) + 12
    return struct.pack("<II", kind, total) + body + struct.pack("<I", total)
