# SPDX-License-Identifier: Apache-2.0
"""Memory of TCP that is used up: all of the host's, of orphans, or of one socket."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import mmap
import os
import platform
import socket
import struct
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hopscope.lab import shape
from hopscope.lab.veth import CLIENT_IFNAME
from tests.lab.measure import in_thread
from tests.lab.rawtcp import RawTcp, Tun
from tests.provoke.common import RESET_ON_CLOSE, TIMES, Provoked, connected, host_setting
from tests.provoke.evidence import nstat
from tests.provoke.udp import STANDSTILL
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.lab import Lab, Namespace

_USERFAULTFD: Final = {"x86_64": 323, "aarch64": 282}
# include/uapi/linux/userfaultfd.h
_UFFDIO_API: Final = 0xC018AA3F
_UFFDIO_REGISTER: Final = 0xC020AA00


@contextlib.contextmanager
def tcp_memory_used_up(lab: Lab) -> Iterator[Provoked]:
    """All connections of the host together may have (tcp_mem) no more than they have.

    The time is short: others' connections are slower meanwhile, but each keeps what is its own.
    """
    ends = (lab.client, lab.server)
    with contextlib.ExitStack() as stack:
        pairs = [stack.enter_context(connected(lab)) for _ in range(8)]

        def press() -> bool:
            with host_setting("net.ipv4.tcp_mem", "1 1 1"):
                for sender, _ in pairs:
                    with contextlib.suppress(BlockingIOError):
                        for _ in range(64):
                            sender.send(bytes(65_536), socket.MSG_DONTWAIT)
            for _, receiver in pairs:  # or there would be no room another time
                with contextlib.suppress(BlockingIOError):
                    while receiver.recv(1 << 20, socket.MSG_DONTWAIT):
                        pass
            return any(_pressures(end) for end in ends)

        # Whichever socket of the host asks first brings the pressure upon all: it is to be one of these.
        eventually(press)
        yield Provoked(next(end for end in ends if _pressures(end)))


@contextlib.contextmanager
def too_many_orphans(lab: Lab) -> Iterator[Provoked]:
    """More closed connections than the host may have (tcp_max_orphans) still have something to send."""
    with contextlib.ExitStack() as stack:
        first, *senders = [stack.enter_context(connected(lab))[0] for _ in range(TIMES + 1)]
        shape(lab.client, CLIENT_IFNAME, replace(STANDSTILL, limit_bytes=1_000_000))
        for sender in (first, *senders):
            sender.send(bytes(300))
        # The kernel counts anew only every 100 ms (tcp_orphan_update): one of them must be there already.
        first.close()
        time.sleep(0.3)
        with host_setting("net.ipv4.tcp_max_orphans", 0):
            for sender in senders:
                sender.close()
        yield Provoked(lab.client, {"TcpExtTCPAbortOnMemory": TIMES})


@contextlib.contextmanager
def socket_backlog_full(lab: Lab) -> Iterator[Provoked]:
    """A socket is held by a system call that waits for memory, while more comes than may wait for it.

    The page that is to be sent from is one of userfaultfd, which nobody fills until the end.
    """
    with (
        lab.server.call(socket.create_server, ("0.0.0.0", 0)) as listener,  # noqa: S104 - in a namespace of its own
        Tun(lab.server) as tun,
        RawTcp(tun, _with_small_buffers(listener)) as raw,
        listener.accept()[0] as accepted,
        mmap.mmap(-1, mmap.PAGESIZE) as page,
    ):
        ready = threading.Event()
        with in_thread(lambda: ready.wait() and accepted.send(page)) as thread, _unfilled(page):
            ready.set()
            eventually(lambda: _waits(thread))
            for number in range(2000):
                raw.send_segment(2 + 2 * number, b"x")
        # Only now: who asks for tcp_info of a socket waits until it is let go of (tcp_get_info), and cannot be killed.
        yield Provoked(lab.server)
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)


def _with_small_buffers(listener: socket.socket) -> int:
    for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        listener.setsockopt(socket.SOL_SOCKET, option, 1)
    return int(listener.getsockname()[1])


@contextlib.contextmanager
def _unfilled(page: mmap.mmap) -> Iterator[None]:
    """Let whoever touches a page wait until the end."""
    fd = ctypes.CDLL(None, use_errno=True).syscall(_USERFAULTFD[platform.machine()], os.O_CLOEXEC)
    if fd < 0:
        raise OSError(ctypes.get_errno(), "userfaultfd")
    try:
        fcntl.ioctl(fd, _UFFDIO_API, bytearray(struct.pack("QQQ", 0xAA, 0, 0)))
        fcntl.ioctl(fd, _UFFDIO_REGISTER, bytearray(struct.pack("QQQQ", _address(page), len(page), 1, 0)))
        yield
    finally:
        os.close(fd)


def _address(page: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(page))


def _waits(thread: threading.Thread) -> bool:
    return "handle_userfault" in Path(f"/proc/self/task/{thread.native_id}/wchan").read_text()


def _pressures(namespace: Namespace) -> int:
    return nstat(namespace)["TcpExtTCPMemoryPressures"]
