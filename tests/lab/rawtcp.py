# SPDX-License-Identifier: Apache-2.0
"""A TCP client in user space: segments in any order, at any time, to a real TCP listener of the kernel.

The packets come out of a TUN device, which hands them to the kernel's receive path (``netif_receive_skb``, or
``napi_gro_receive`` with `napi`). Nothing is sent but what the caller asks for, plus acknowledgements of what the
kernel sent: no retransmission, no timer, no window of its own, no SACK, no time stamps. So one can say beforehand which
bytes wait for which, as head-of-line blocking needs.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import struct
import time
from typing import TYPE_CHECKING

from hopscope.errors import HopscopeError, KernelError
from hopscope.lab.netlink import add_addresses, wait_local
from tests.lab.packets import Segment, TcpFlag, build, parse

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from hopscope.lab.namespaces import Namespace

KERNEL_IPV4 = "10.78.0.1"
KERNEL_IPV6 = "fd78::1"
RAW_IPV4 = "10.78.0.2"
RAW_IPV6 = "fd78::2"

_TUN_DEVICE = "/dev/net/tun"
_TUNSETIFF = 0x400454CA
_IFF_TUN = 0x0001
_IFF_NAPI = 0x0010
_IFF_NO_PI = 0x1000
_READ_BYTES = 65_536
_SEQ_MODULUS = 1 << 32
_MSS_BYTES = 1400
_WAIT_S = 5.0


class Tun:
    """A TUN device in a namespace: the kernel is 10.78.0.1 and fd78::1, we are 10.78.0.2 and fd78::2.

    Parameters
    ----------
    namespace
        Where to make it.
    ifname
        Its name.
    napi
        Give packets to the kernel through NAPI and GRO.

    Raises
    ------
    KernelError
        The kernel has no TUN, or refuses it.
    """

    def __init__(self, namespace: Namespace, ifname: str = "tun0", *, napi: bool = False) -> None:
        flags = _IFF_TUN | _IFF_NO_PI | (_IFF_NAPI if napi else 0)
        with contextlib.ExitStack() as stack:
            self._fd = namespace.call(_open_tun, ifname, flags)
            stack.callback(os.close, self._fd)
            namespace.call(add_addresses, ifname, (KERNEL_IPV4, KERNEL_IPV6))
            namespace.call(wait_local, (KERNEL_IPV4, KERNEL_IPV6))
            self._cleanup = stack.pop_all()
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLIN)

    def __enter__(self) -> Self:
        """Return the device."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove it."""
        self.close()

    def close(self) -> None:
        """Remove the device; idempotent."""
        self._cleanup.close()

    def write(self, packet: bytes) -> None:
        """Let the kernel receive an IP packet; without NAPI, IP has handled it on return."""
        os.write(self._fd, packet)

    def read(self, timeout_s: float) -> bytes | None:
        """Return the next IP packet that the kernel sent; None when there is none in time."""
        if not self._poll.poll(max(timeout_s, 0) * 1e3):
            return None
        return os.read(self._fd, _READ_BYTES)


class RawTcp:
    """One TCP connection over a `Tun`; the constructor does the handshake, leaving resets it.

    Parameters
    ----------
    tun
        The device; one connection at a time reads from it.
    port
        Of the kernel's listener.
    ipv6
        Connect to fd78::1 instead of 10.78.0.1.
    source_port
        Ours.
    isn
        Our initial sequence number; the first byte of the stream has the next one.

    Attributes
    ----------
    acks
        Each acknowledgement that came, in order, as the offset in our stream up to which the kernel has all bytes.
    received
        What the kernel sent, in order.
    peer_closed
        The kernel has sent FIN.
    peer_reset
        The kernel has sent RST.

    Raises
    ------
    HopscopeError
        No listener, or no answer.
    """

    def __init__(self, tun: Tun, port: int, *, ipv6: bool = False, source_port: int = 40_000, isn: int = 1_000) -> None:
        self._tun = tun
        self._source = (RAW_IPV6 if ipv6 else RAW_IPV4, source_port)
        self._destination = (KERNEL_IPV6 if ipv6 else KERNEL_IPV4, port)
        self._isn = isn
        self._peer_next = 0
        self._end_offset = 0
        self._fin_sent = False
        self.acks: list[int] = []
        self.received = bytearray()
        self.peer_closed = False
        self.peer_reset = False
        self._handshake()

    def __enter__(self) -> Self:
        """Return the connection."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Reset the connection unless both sides have closed it."""
        if not (self.peer_reset or (self.peer_closed and self._fin_sent)):
            self._send(self._end_offset + self._fin_sent, TcpFlag.RST | TcpFlag.ACK)

    @property
    def acked_offset(self) -> int:
        """Offset in our stream up to which the kernel has all bytes, as far as heard."""
        return max(self.acks, default=0)

    def send_segment(self, offset: int, payload: bytes) -> None:
        """Send bytes of the stream, which begins at offset 0; any order, twice, or overlapping.

        Parameters
        ----------
        offset
            Of the first byte.
        payload
            The bytes, at most the MTU less the headers; the kernel's MSS is not heeded.
        """
        self._end_offset = max(self._end_offset, offset + len(payload))
        self._send(offset, TcpFlag.PSH | TcpFlag.ACK, payload)

    def send_fin(self) -> None:
        """End our stream after the highest byte that was sent."""
        self._send(self._end_offset, TcpFlag.FIN | TcpFlag.ACK)
        self._fin_sent = True

    def wait_acked(self, offset: int, timeout_s: float = _WAIT_S) -> None:
        """Wait until the kernel has all bytes before an offset (a FIN counts as one).

        Raises
        ------
        HopscopeError
            It does not say so in time, or resets the connection.
        """
        deadline_s = time.monotonic() + timeout_s
        while self.acked_offset < offset:
            if self.peer_reset:
                raise HopscopeError("The kernel has reset the connection")
            if not self._take(deadline_s):
                raise HopscopeError(f"The kernel acknowledges {self.acked_offset} bytes, not {offset}")

    def listen_for(self, duration_s: float) -> None:
        """Take in (and acknowledge) what the kernel sends during a time."""
        deadline_s = time.monotonic() + duration_s
        while self._take(deadline_s):
            pass

    def _handshake(self) -> None:
        self._send(-1, TcpFlag.SYN, mss_bytes=_MSS_BYTES)
        deadline_s = time.monotonic() + _WAIT_S
        while (answer := self._next(deadline_s)) is not None:
            if answer.flags & TcpFlag.RST:
                raise HopscopeError(f"Nothing listens on port {self._destination[1]}")
            if answer.flags & TcpFlag.SYN and answer.ack == (self._isn + 1) % _SEQ_MODULUS:
                self._peer_next = (answer.seq + 1) % _SEQ_MODULUS
                self._send(0, TcpFlag.ACK)
                return
        raise HopscopeError(f"No answer from port {self._destination[1]}")

    def _take(self, deadline_s: float) -> bool:
        segment = self._next(deadline_s)
        if segment is None:
            return False
        if segment.flags & TcpFlag.RST:
            self.peer_reset = True
            return True
        # Modulo 2**32, relative to the highest so far, which is less than 2**31 away.
        seen = self.acked_offset
        step = (segment.ack - self._isn - 1 - seen + (1 << 31)) % _SEQ_MODULUS - (1 << 31)
        self.acks.append(seen + step)
        is_fin = bool(segment.flags & TcpFlag.FIN)
        if segment.seq == self._peer_next and (segment.payload or is_fin):
            self.received += segment.payload
            self.peer_closed |= is_fin
            self._peer_next = (self._peer_next + len(segment.payload) + is_fin) % _SEQ_MODULUS
        if segment.payload or is_fin:
            self._send(self._end_offset + self._fin_sent, TcpFlag.ACK)
        return True

    def _next(self, deadline_s: float) -> Segment | None:
        while (packet := self._tun.read(deadline_s - time.monotonic())) is not None:
            segment = parse(packet)
            if segment is not None and (segment.source, segment.destination) == (self._destination, self._source):
                return segment
        return None

    def _send(self, offset: int, flags: TcpFlag, payload: bytes = b"", mss_bytes: int | None = None) -> None:
        segment = Segment(
            self._source,
            self._destination,
            (self._isn + 1 + offset) % _SEQ_MODULUS,
            self._peer_next if flags & TcpFlag.ACK else 0,
            flags,
            payload=payload,
            mss_bytes=mss_bytes,
        )
        self._tun.write(build(segment))


def _open_tun(ifname: str, flags: int) -> int:
    try:
        fd = os.open(_TUN_DEVICE, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise KernelError(f"{_TUN_DEVICE} cannot be opened: {error.strerror}", "Load the kernel module tun.") from error
    try:
        fcntl.ioctl(fd, _TUNSETIFF, struct.pack("16sH22x", ifname.encode(), flags))
    except OSError as error:
        os.close(fd)
        raise KernelError(f"The TUN device {ifname} cannot be made: {error.strerror}", "See dmesg.") from error
    return fd
