# SPDX-License-Identifier: Apache-2.0
"""io_uring by its system calls, for one request at a time."""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
import time
from typing import TYPE_CHECKING, Self

from hopscope.lab._libc import libc

if TYPE_CHECKING:
    import socket

# include/uapi/asm-generic/unistd.h, which x86-64 follows here
_NR_SETUP, NR_ENTER = 425, 426
# include/uapi/linux/io_uring.h
SEND, RECV = 26, 27
SETUP_SQPOLL = 2
_SQE_ASYNC = 1 << 4
_ENTER_GETEVENTS, _ENTER_SQ_WAKEUP = 1, 2
_FEAT_SINGLE_MMAP = 1
_SQ_NEED_WAKEUP = 1
_OFF_SQES = 0x10000000
_PARAMS = struct.Struct("=10I8IQ8IQ")
_SQE = struct.Struct("=BBHiQQIIQ24x")
_CQE = struct.Struct("=QiI")
_ENTRIES = 64


class Uring:
    """A ring of requests to the kernel.

    Parameters
    ----------
    flags
        Of the ring, such as `SETUP_SQPOLL`.

    Raises
    ------
    OSError
        The kernel has none, or forbids it (``kernel.io_uring_disabled``).
    """

    def __init__(self, flags: int = 0) -> None:
        words = bytearray(_PARAMS.pack(*[0, 0, flags], *[0] * (len(_PARAMS.unpack(bytes(_PARAMS.size))) - 3)))
        params = (ctypes.c_char * len(words)).from_buffer(words)
        self._fd = int(libc.syscall(_NR_SETUP, _ENTRIES, params))
        if self._fd < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        values = _PARAMS.unpack(bytes(words))
        assert values[5] & _FEAT_SINGLE_MMAP
        sq, cq = values[10:19], values[19:28]
        self._sq = dict(zip(("head", "tail", "mask", "entries", "flags", "dropped", "array"), sq[:7], strict=True))
        self._cq = dict(zip(("head", "tail", "mask", "entries", "overflow", "cqes"), cq[:6], strict=True))
        size = max(self._sq["array"] + values[0] * 4, self._cq["cqes"] + values[1] * _CQE.size)
        self._ring = mmap.mmap(self._fd, size)
        self._sqes = mmap.mmap(self._fd, values[0] * _SQE.size, offset=_OFF_SQES)
        # The kernel may write here as long as there is a ring.
        self._memory = ctypes.create_string_buffer(1 << 16)
        self._polled = bool(flags & SETUP_SQPOLL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ring.close()
        self._sqes.close()
        os.close(self._fd)

    def submit(self, opcode: int, sock: socket.socket, len_bytes: int, *, by_worker: bool = False) -> None:
        """Hand a request to the kernel."""
        tail = self._word(self._sq["tail"])
        at = tail & self._word(self._sq["mask"])
        flags = _SQE_ASYNC if by_worker else 0
        address = ctypes.addressof(self._memory)
        _SQE.pack_into(self._sqes, at * _SQE.size, opcode, flags, 0, sock.fileno(), 0, address, len_bytes, 0, 0)
        self._set(self._sq["array"] + 4 * at, at)
        self._set(self._sq["tail"], tail + 1)
        if not self._polled:
            assert self._call(1, 0, 0) == 1
        elif self._word(self._sq["flags"]) & _SQ_NEED_WAKEUP:
            self._call(0, 0, _ENTER_SQ_WAKEUP)

    def result(self) -> int:
        """Wait for a request's end and return its result."""
        while self._word(self._cq["head"]) == self._word(self._cq["tail"]):
            if self._polled:
                time.sleep(0.001)
            else:
                self._call(0, 1, _ENTER_GETEVENTS)
        head = self._word(self._cq["head"])
        _, result, _ = _CQE.unpack_from(
            self._ring, self._cq["cqes"] + (head & self._word(self._cq["mask"])) * _CQE.size
        )
        self._set(self._cq["head"], head + 1)
        return int(result)

    def _call(self, submitted: int, wanted: int, flags: int) -> int:
        answer = int(libc.syscall(NR_ENTER, self._fd, submitted, wanted, flags, None, 0))
        if answer < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        return answer

    def _word(self, at: int) -> int:
        return int.from_bytes(self._ring[at : at + 4], "little")

    def _set(self, at: int, value: int) -> None:
        self._ring[at : at + 4] = (value % 2**32).to_bytes(4, "little")
