# SPDX-License-Identifier: Apache-2.0
"""Holds the lock of a socket for a known time, while other threads want to send on it.

The send call of the holder copies from a page that is not there yet (userfaultfd): TCP waits for it with the lock held.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import socket
import struct
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from tests.lab.causes.actors.common import STAMP, Held, Options, report, tcp_info

_SYS_USERFAULTFD: Final = {"x86_64": 323, "aarch64": 282}
_UFFDIO_API, _UFFDIO_REGISTER, _UFFDIO_COPY = 0xC018AA3F, 0xC020AA00, 0xC028AA03
_API: Final = 0xAA
_REGISTER_MISSING: Final = 1
_PAGE: Final = mmap.PAGESIZE
MESSAGE_BYTES: Final = 2 * _PAGE


def run(options: Options) -> None:
    """Send messages of MESSAGE_BYTES, `count` in all: the holder's, and one of each of the `waiters` meanwhile.

    Options: `address`, `port`, `hold` (ms), `gap` (ms).
    """
    held, waiters = Held(), options["waiters"]
    address = (options["address"], options["port"])
    with socket.create_connection(address) as sock, ThreadPoolExecutor(waiters + 1) as threads:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        area = mmap.mmap(-1, MESSAGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        faults = _faults_of(area)
        for _ in range(options["count"] // (waiters + 1)):
            area.madvise(mmap.MADV_DONTNEED)
            sending = [threads.submit(_send, sock, area)]
            place = struct.unpack("=QQQQ", os.read(faults, 32))[2] & ~(_PAGE - 1)
            with held.by("send-lock"):
                sending += [threads.submit(_send, sock, bytearray(MESSAGE_BYTES)) for _ in range(waiters)]
                time.sleep(options["hold"] / 1e3)
                _bring(faults, place)
            for each in sending:
                each.result()
            time.sleep(options["gap"] / 1e3)
        sock.shutdown(socket.SHUT_WR)
        sock.recv(1)
        report(intervals=held.intervals, tcp_info=tcp_info(sock), bursts=[])


def _send(sock: socket.socket, data: bytearray | mmap.mmap) -> None:
    STAMP.pack_into(data, 0, time.monotonic_ns())
    sock.sendall(data)


def _faults_of(area: mmap.mmap) -> int:
    """Return a descriptor that tells of reads of the second page while it is missing."""
    libc = ctypes.CDLL(None, use_errno=True)
    faults: int = libc.syscall(_SYS_USERFAULTFD[os.uname().machine], os.O_CLOEXEC)
    if faults < 0:
        raise OSError(ctypes.get_errno(), "userfaultfd")
    fcntl.ioctl(faults, _UFFDIO_API, bytearray(struct.pack("=QQQ", _API, 0, 0)))
    start = ctypes.addressof(ctypes.c_char.from_buffer(area)) + _PAGE
    fcntl.ioctl(faults, _UFFDIO_REGISTER, bytearray(struct.pack("=QQQQ", start, _PAGE, _REGISTER_MISSING, 0)))
    return faults


def _bring(faults: int, place: int) -> None:
    source = ctypes.create_string_buffer(_PAGE * 2)
    start = (ctypes.addressof(source) + _PAGE - 1) & ~(_PAGE - 1)
    fcntl.ioctl(faults, _UFFDIO_COPY, bytearray(struct.pack("=QQQQq", place, start, _PAGE, 0, 0)))
