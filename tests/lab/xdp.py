# SPDX-License-Identifier: Apache-2.0
"""Frames of an interface as AF_XDP gives them (Documentation/networking/af_xdp.rst): a reader of the tests' own."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import socket
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import numpy as np

import build_bpf
from hopscope.libbpf import BpfObject

if TYPE_CHECKING:
    from types import TracebackType

# include/linux/socket.h, include/uapi/linux/if_xdp.h, if_link.h
_AF_XDP, _SOL_XDP = 44, 283
_MMAP_OFFSETS, _RX_RING, _UMEM_REG, _FILL_RING, _COMPLETION_RING = 1, 2, 4, 5, 6
_FILL_PAGE: Final = 0x1_0000_0000
_COPY: Final = 1 << 1
_SKB_MODE: Final = 1 << 1
_FRAME_BYTES: Final = 2048
_FRAMES: Final = 4096
_DESCRIPTOR_DTYPE: Final = np.dtype([("address", "u8"), ("length", "u4"), ("options", "u4")])


class XdpSocket:
    """Takes all frames of the only queue of an interface of the calling thread's namespace; they come no further.

    Parameters
    ----------
    interface
        Its name.
    folder
        For the program that hands frames over.
    """

    def __init__(self, interface: str, folder: Path) -> None:
        with contextlib.ExitStack() as stack:
            self._socket = stack.enter_context(socket.socket(_AF_XDP, socket.SOCK_RAW))
            self._memory = stack.enter_context(contextlib.closing(mmap.mmap(-1, _FRAMES * _FRAME_BYTES)))
            ifindex = socket.if_nametoindex(interface)
            self._make_rings()
            library = ctypes.CDLL("libbpf.so.1", use_errno=True)
            address = struct.pack("=HHIII", _AF_XDP, _COPY, ifindex, 0, 0)
            if ctypes.CDLL(None, use_errno=True).bind(self._socket.fileno(), address, len(address)):
                raise OSError(ctypes.get_errno(), "AF_XDP cannot be bound")
            bpf = stack.enter_context(BpfObject.open(_compiled(folder)))
            bpf.load()
            bpf.maps["sockets"].update(struct.pack("=I", 0), struct.pack("=I", self._socket.fileno()))
            if error := library.bpf_xdp_attach(ifindex, bpf.programs["take"].fd, _SKB_MODE, None):
                raise OSError(-error, "XDP cannot be attached")
            stack.callback(library.bpf_xdp_detach, ifindex, _SKB_MODE, None)
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()

    def take(self) -> list[bytes]:
        """Return the frames that have come."""
        first, end = int(self._taken[0]), int(self._come[0])
        found = []
        for at in range(first, end):
            descriptor = self._received[at % _FRAMES]
            start = int(descriptor["address"])
            found.append(self._memory[start : start + int(descriptor["length"])])
            self._free[at % _FRAMES] = start - start % _FRAME_BYTES
        self._taken[0] = end
        self._freed[0] += end - first
        return found

    def _make_rings(self) -> None:
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self._socket.setsockopt(
            _SOL_XDP, _UMEM_REG, struct.pack("=QQIII4x", start, len(self._memory), _FRAME_BYTES, 0, 0)
        )
        for ring in (_FILL_RING, _COMPLETION_RING, _RX_RING):
            self._socket.setsockopt(_SOL_XDP, ring, _FRAMES)
        offsets = struct.unpack("=16Q", self._socket.getsockopt(_SOL_XDP, _MMAP_OFFSETS, 128))
        receive, fill = offsets[:4], offsets[8:12]
        received = self._mapped(receive[2] + _FRAMES * _DESCRIPTOR_DTYPE.itemsize, 0)
        free = self._mapped(fill[2] + _FRAMES * 8, _FILL_PAGE)
        self._come, self._taken = (np.ndarray((1,), np.uint32, received, offsets[at]) for at in (0, 1))
        self._freed = np.ndarray((1,), np.uint32, free, fill[0])
        self._received = np.ndarray((_FRAMES,), _DESCRIPTOR_DTYPE, received, receive[2])
        self._free = np.ndarray((_FRAMES,), np.uint64, free, fill[2])
        self._free[:] = np.arange(_FRAMES, dtype=np.uint64) * _FRAME_BYTES
        self._freed[0] = _FRAMES

    def _mapped(self, size: int, offset: int) -> mmap.mmap:
        return mmap.mmap(self._socket.fileno(), size, mmap.MAP_SHARED | mmap.MAP_POPULATE, offset=offset)


def _compiled(folder: Path) -> Path:
    target = folder / "xdp.bpf.o"
    build_bpf.compile_object(Path(__file__).parent / "bpf" / "xdp.bpf.c", target, build_bpf.host_arch())
    return target
