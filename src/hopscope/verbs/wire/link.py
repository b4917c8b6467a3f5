# SPDX-License-Identifier: Apache-2.0
"""An interface on which frames arrive that we send: one end of a veth pair, the other one being ours alone.

The other end is in a network namespace that nothing but file descriptors of this process refers to. When the process
ends, also by SIGKILL, the kernel removes the namespace, with it that end, and with that the interface.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import socket
import struct
import threading
import time
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final, Self, TypeVar

import numpy as np

from hopscope.errors import HopscopeError, KernelError, PrivilegeError, UsageError
from hopscope.lab._libc import libc, unshare_net
from hopscope.lab.netlink import add_addresses, add_veth, wait_up
from hopscope.live.wire.layout import ETHERTYPE

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from hopscope.term.ragged import Ragged

T = TypeVar("T")

_NAME: Final = re.compile(r"[^\s/:]{1,15}")
_FAR_END: Final = "events"
_MTU_BYTES: Final = 1500
_AT_ONCE: Final = 1024
# include/uapi/linux/if_packet.h; SO_ATTACH_FILTER of include/uapi/asm-generic/socket.h
_SOL_PACKET: Final = 263
_PACKET_QDISC_BYPASS: Final = 20
_SO_ATTACH_FILTER: Final = 26
# The queue of the CPU that receives is full: its softirq has to run first.
_FULL: Final = (errno.ENOBUFS, errno.EAGAIN, errno.EINTR)
_GONE: Final = (errno.ENXIO, errno.ENODEV)
# struct iovec, struct mmsghdr
_IOVEC: Final = np.dtype([("base", np.uint64), ("len", np.uint64)])
_MESSAGE: Final = np.dtype(
    [
        ("name", np.uint64),
        ("namelen", np.uint64),
        ("iov", np.uint64),
        ("iovlen", np.uint64),
        ("control", np.uint64),
        ("controllen", np.uint64),
        ("flags", np.uint64),
        ("len", np.uint64),
    ]
)


class Link:
    """The pair of ends, as long as it is entered.

    Parameters
    ----------
    interface
        The name of the end in this network namespace.

    Attributes
    ----------
    near, far
        Ethernet addresses of the two ends, of 6 bytes each.
    sent, not_sent
        Frames that the kernel took, and that it did not.

    Raises
    ------
    UsageError
        There is such an interface, or it cannot be a name of one.
    PrivilegeError, KernelError
        As :class:`~hopscope.lab.namespaces.Namespace` and :func:`~hopscope.lab.netlink.add_veth`.
    """

    near: bytes
    far: bytes

    def __init__(self, interface: str) -> None:
        if not _NAME.fullmatch(interface) or interface in {".", ".."}:
            raise UsageError(f"'{interface}' cannot be the name of an interface", "Use up to 15 letters and digits")
        self.interface = interface
        self.sent = self.not_sent = 0

    def __enter__(self) -> Self:
        if self.interface in {name for _, name in socket.if_nameindex()}:
            raise UsageError(f"There is an interface {self.interface} already", "Use another name: --interface NAME")
        with contextlib.ExitStack() as stack:
            self._socket, far = _in_new_namespace(lambda: _far_end(self.interface, os.getpid()))
            stack.callback(self._socket.close)
            near = add_addresses(self.interface, ())
            wait_up(self.interface)
            self._sink = stack.enter_context(_sink(self.interface))
            self.near, self.far = (bytes.fromhex(address.replace(":", "")) for address in (near, far))
            self._buffers()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()

    def send(self, frames: Ragged, until_s: float) -> None:
        """Send frames, in their order.

        Parameters
        ----------
        frames
            The frames.
        until_s
            Of time.monotonic(): what the kernel does not take by then is counted as not sent.

        Raises
        ------
        HopscopeError
            The interface is gone.
        """
        done, count = 0, len(frames.starts)
        while done < count:
            now = slice(done, min(done + _AT_ONCE, count))
            self._iovecs["base"][: now.stop - done] = frames.starts[now] + frames.data.ctypes.data
            self._iovecs["len"][: now.stop - done] = frames.lengths[now]
            taken = self._send_some(now.stop - done)
            done += taken
            if not taken and time.monotonic() > until_s:
                break
        self.sent += done
        self.not_sent += count - done

    def send_one(self, frame: bytes) -> None:
        """Send one frame, which is not counted."""
        with contextlib.suppress(BlockingIOError, InterruptedError):
            try:
                self._socket.send(frame)
            except OSError as error:
                self._require_there(error.errno or 0)

    def _buffers(self) -> None:
        self._iovecs = np.zeros(_AT_ONCE, _IOVEC)
        self._messages = np.zeros(_AT_ONCE, _MESSAGE)
        places = np.arange(_AT_ONCE, dtype=np.uint64) * np.uint64(_IOVEC.itemsize)
        self._messages["iov"] = np.uint64(self._iovecs.ctypes.data) + places
        self._messages["iovlen"] = 1

    def _send_some(self, count: int) -> int:
        """Return how many the kernel took; 0: its queue is full."""
        taken = int(libc.sendmmsg(self._socket.fileno(), ctypes.c_void_p(self._messages.ctypes.data), count, 0))
        if taken > 0:
            return taken
        self._require_there(ctypes.get_errno())
        os.sched_yield()
        return 0

    def _require_there(self, code: int) -> None:
        """Raise what an errno means, unless it means to try again, or that the interface is down, which may change."""
        if code in _GONE:
            raise HopscopeError(f"The interface {self.interface} is gone", "Somebody removed it; start it again")
        if code not in _FULL and code != errno.ENETDOWN:
            raise KernelError(f"Events cannot be sent to {self.interface}: {os.strerror(code)}", "See dmesg")


def _far_end(interface: str, pid: int) -> tuple[socket.socket, str]:
    """Make the pair, from inside the new namespace; return the socket that sends, and the far end's address."""
    add_veth(_FAR_END, interface, pid, _MTU_BYTES)
    address = add_addresses(_FAR_END, ())
    sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
    sender.setsockopt(_SOL_PACKET, _PACKET_QDISC_BYPASS, 1)
    sender.bind((_FAR_END, 0))
    return sender, address


def _sink(interface: str) -> socket.socket:
    """Return a socket that takes events and keeps none: frames of an EtherType that nobody takes count as dropped."""
    sink = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
    refuse = ctypes.create_string_buffer(struct.pack("=HBBI", 0x06, 0, 0, 0))  # ret 0
    sink.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("@HP", 1, ctypes.addressof(refuse)))
    sink.bind((interface, ETHERTYPE))
    return sink


def _in_new_namespace(act: Callable[[], T]) -> T:
    """Return what a function returns in a thread of its own in a new network namespace.

    The namespace lives as long as a socket that was made there.
    """
    outcome: Future[T] = Future()

    def inside() -> None:
        try:
            unshare_net()
            outcome.set_result(act())
        except BaseException as error:  # noqa: BLE001 # handed to the caller's thread
            outcome.set_exception(error)

    thread = threading.Thread(target=inside, name="hopscope-wire")
    thread.start()
    thread.join()
    try:
        return outcome.result()
    except PermissionError as error:
        raise PrivilegeError(
            "A network namespace cannot be created", "Run it as root, or with CAP_SYS_ADMIN"
        ) from error
    except OSError as error:
        raise KernelError(
            f"A network namespace cannot be created: {error.strerror}", "See the sysctl user.max_net_namespaces"
        ) from error
