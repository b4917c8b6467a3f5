# SPDX-License-Identifier: Apache-2.0
"""Frames of events that arrive at an interface, out of a ring that the kernel fills: with CAP_NET_RAW alone.

The memory of a socket's queue is limited without CAP_NET_ADMIN; that of such a ring is not. Its second version has
slots of one size, which are read as an array.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import socket
import struct
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import numpy as np

from hopscope.errors import HopscopeError, KernelError, UsageError
from hopscope.live.wire.layout import ETHERTYPE

if TYPE_CHECKING:
    from types import TracebackType

    from numpy.typing import NDArray

# include/uapi/linux/if_packet.h
_SOL_PACKET: Final = 263
_PACKET_ADD_MEMBERSHIP, _PACKET_RX_RING, _PACKET_STATISTICS, _PACKET_VERSION = 1, 5, 6, 10
_TPACKET_V2: Final = 1
_PROMISCUOUS: Final = 1
_TP_STATUS_USER: Final = 1
_SLOT_BYTES: Final = 2048
_BLOCK_BYTES: Final = 1 << 16
# struct tpacket2_hdr
_HEAD: Final = np.dtype({
    "names": ["status", "length", "captured", "begin"],
    "formats": [np.uint32, np.uint32, np.uint32, np.uint16],
    "offsets": [0, 4, 8, 12],
    "itemsize": _SLOT_BYTES,
})  # fmt: skip
_GONE: Final = (errno.ENETDOWN, errno.ENXIO, errno.ENODEV)
_LOOKS: Final = 64


class Received(NamedTuple):
    """Frames of one length.

    Attributes
    ----------
    places : ndarray of int64, shape (n,)
        Which they are of all that came with them, in their order.
    data : ndarray of uint8, shape (n, m)
        Their bytes, as far as they were kept.
    """

    places: NDArray[np.int64]
    data: NDArray[np.uint8]


class Inbox:
    """Receives while it is entered.

    Parameters
    ----------
    interface
        Of this network namespace.
    ring_bytes
        Of the ring, a multiple of 64 KiB.

    Attributes
    ----------
    lost : int
        Frames for which the ring had no room.

    Raises
    ------
    UsageError
        There is no such interface.
    KernelError
        The kernel makes no such socket.
    """

    def __init__(self, interface: str, ring_bytes: int) -> None:
        self.interface = interface
        self._slots = ring_bytes // _SLOT_BYTES
        self._next = 0
        self.lost = 0

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            try:
                self._index = socket.if_nametoindex(self.interface)
            except OSError as error:
                raise UsageError(f"There is no interface {self.interface}", "`ip link` lists them") from error
            try:
                self._open(stack)
            except OSError as error:
                raise KernelError(
                    f"Frames cannot be received from {self.interface}: {error.strerror}", "See packet(7)"
                ) from error
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()

    def fullness(self) -> float:
        """Return how full the ring is, 0 to 1, by a look at some of its slots."""
        places = (self._next + np.arange(_LOOKS) * self._slots // _LOOKS) % self._slots
        return float(np.mean(self._heads["status"][places] & _TP_STATUS_USER))

    def take(self) -> list[Received]:
        """Return the frames that have come since the last call, by their lengths, of which there are few.

        Raises
        ------
        HopscopeError
            The interface is gone.
        """
        places = (self._next + np.arange(self._slots)) % self._slots
        waiting = self._heads["status"][places] & _TP_STATUS_USER
        places = places[: int(np.argmin(waiting)) if not waiting.all() else self._slots]
        heads = self._heads[["captured", "begin"]][places]
        found = []
        for kind in np.unique(heads):
            rows = np.flatnonzero(heads == kind)
            begin, length = int(kind["begin"]), int(kind["captured"])
            found.append(Received(rows, self._bytes[places[rows], begin : begin + length]))
        self._heads["status"][places] = 0
        self._next = (self._next + len(places)) % self._slots
        self._count_lost()
        if not len(places):
            self._require_there()
        return found

    def _open(self, stack: contextlib.ExitStack) -> None:
        # Nothing comes before it is bound: what arrives at other interfaces is no concern.
        found = stack.enter_context(socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0))
        size = self._slots * _SLOT_BYTES
        found.setsockopt(_SOL_PACKET, _PACKET_VERSION, _TPACKET_V2)
        request = struct.pack("=IIII", _BLOCK_BYTES, size // _BLOCK_BYTES, _SLOT_BYTES, self._slots)
        found.setsockopt(_SOL_PACKET, _PACKET_RX_RING, request)
        self._socket = found
        memory = mmap.mmap(found.fileno(), size)
        self._heads: NDArray[np.void] = np.frombuffer(memory, _HEAD)
        self._bytes: NDArray[np.uint8] = np.frombuffer(memory, np.uint8).reshape(self._slots, _SLOT_BYTES)
        # They are addressed to the other end of the sender's interface.
        member = struct.pack("=iHH8x", self._index, _PROMISCUOUS, 0)
        found.setsockopt(_SOL_PACKET, _PACKET_ADD_MEMBERSHIP, member)
        found.bind((self.interface, ETHERTYPE))

    def _count_lost(self) -> None:
        """Count what the kernel has counted since it was asked before."""
        _, lost = struct.unpack("=II", self._socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8))
        self.lost += lost

    def _require_there(self) -> None:
        code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code in _GONE and self.interface not in {name for _, name in socket.if_nameindex()}:
            raise HopscopeError(f"The interface {self.interface} is gone: {os.strerror(code)}", "Start it again")
