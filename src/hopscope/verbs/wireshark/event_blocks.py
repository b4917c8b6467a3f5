# SPDX-License-Identifier: Apache-2.0
"""Frames of a subscription to events, as blocks of a pcapng file."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from hopscope.live.wire.frames import read_catalogue
from hopscope.live.wire.layout import COUNTS, ETHERNET_BYTES, Kind, Tlv, place
from hopscope.term import pcapng

if TYPE_CHECKING:
    from collections.abc import Iterator

_LENGTH_BYTES: Final = 4
_KIND_AT, _TIME_AT = (ETHERNET_BYTES + place(name).offset_bytes for name in ("kind", "time_ns"))


class EventBlocks:
    """Takes frames as `hopscope serve` sends them, gives blocks.

    Parameters
    ----------
    host
        For the file's first block.
    realtime_offset_ns
        To be added to times for CLOCK_REALTIME.
    """

    def __init__(self, host: str, realtime_offset_ns: int) -> None:
        self._host = host
        self._realtime_offset_ns = realtime_offset_ns
        # Events that did not come so far: not sent, and lost by the recording.
        self._missing = 0, 0

    def begin(self) -> bytes:
        """Return what a file begins with."""
        return pcapng.section(None, f"hopscope, live on {self._host}") + pcapng.interface("hopscope", "events")

    def take(self, data: bytearray) -> Iterator[bytes]:
        """Take the frames that are whole, remove them, and yield a block of each, and of what is missing."""
        at = 0
        while at + _LENGTH_BYTES <= len(data):
            end = at + _LENGTH_BYTES + int.from_bytes(data[at : at + _LENGTH_BYTES])
            if end > len(data):
                break
            yield from self._blocks(bytes(data[at + _LENGTH_BYTES : end]))
            at = end
        del data[:at]

    def complete(self, now_ns: int | None) -> Iterator[bytes]:
        """Yield nothing: each frame is whole by itself."""
        del now_ns
        return iter(())

    def _blocks(self, frame: bytes) -> Iterator[bytes]:
        (time_ns,) = struct.unpack_from("!Q", frame, _TIME_AT)
        time_ns += self._realtime_offset_ns
        if frame[_KIND_AT] == Kind.CATALOGUE:
            yield from self._lost(frame, time_ns)
        yield pcapng.packet(frame, time_ns)

    def _lost(self, frame: bytes, time_ns: int) -> Iterator[bytes]:
        for kind, value in read_catalogue(frame):
            if kind is Tlv.COUNTS:
                _, *missing = COUNTS.unpack(value)
                slow, kernel = (now - before for now, before in zip(missing, self._missing, strict=True))
                self._missing = missing[0], missing[1]
                if slow or kernel:
                    yield pcapng.journal(pcapng.lost(kernel, slow), time_ns)
