# SPDX-License-Identifier: Apache-2.0
"""The error queue of a socket: stamps of sends, and what else the kernel puts there."""

from __future__ import annotations

import errno as errnos
import socket
import sys
import types
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from hopscope.errors import UsageError
from hopscope.timestamping import _abi
from hopscope.timestamping.flags import Stage
from hopscope.timestamping.tcp_stats import decode

if TYPE_CHECKING:
    from collections.abc import Mapping

_STAGES: Final = {
    _abi.SCM_TSTAMP_SND: Stage.SND,
    _abi.SCM_TSTAMP_SCHED: Stage.SCHED,
    _abi.SCM_TSTAMP_ACK: Stage.ACK,
    _abi.SCM_TSTAMP_COMPLETION: Stage.COMPLETION,
}
_FAMILIES: Final = {socket.AF_INET, socket.AF_INET6, socket.AF_PACKET}
_EXTENDED_ERRORS: Final = {
    (socket.SOL_IP, _abi.IP_RECVERR),
    (socket.IPPROTO_IPV6, _abi.IPV6_RECVERR),
    (_abi.SOL_PACKET, _abi.PACKET_TX_TIMESTAMP),
}
_NO_STATS: Final[Mapping[str, int]] = types.MappingProxyType({})
_SMALLEST_BYTES: Final = 1024  # what an empty packet takes of the buffer, rounded up


class Stamp(NamedTuple):
    """One stamp of one send.

    Attributes
    ----------
    stage
        Where the send was.
    packet_id
        With ``OPT_ID``, 32 bits: TCP the offset of the last byte, else the number of the datagram, or the id that it
        was sent with. 0 without ``OPT_ID``.
    time_ns
        CLOCK_REALTIME; for `Stage.SND_HARDWARE` the NIC's clock.
    stats
        With ``OPT_STATS``: TCP's own figures at that time, by the kernel's names.
    ifindex
        With ``OPT_CMSG`` and IP_PKTINFO (or IPV6_RECVPKTINFO) on the socket: the interface that it left by, else None.
    """

    stage: Stage
    packet_id: int
    time_ns: int
    stats: Mapping[str, int] = _NO_STATS
    ifindex: int | None = None


@dataclass(frozen=True, slots=True)
class NetworkError:
    """Something else in the error queue (``struct sock_extended_err``), for the application to deal with.

    An ICMP error (with IP_RECVERR), the end of a zero-copy send, a datagram that missed its SO_TXTIME, and whatever a
    newer kernel puts there.

    Attributes
    ----------
    errno
        Of ``sock_extended_err``, 0 where it is no error.
    origin, type, code, info, data
        As the kernel sets them: ``SO_EE_ORIGIN_*``, and by it the others. A zero-copy notification ends the sends
        numbered `info` to `data`.
    offender
        Address of the host that reported it, where one did.
    payload
        The first 256 bytes of what was sent.
    """

    errno: int
    origin: int
    type: int
    code: int
    info: int
    data: int
    offender: str | None
    payload: bytes


class ErrorQueue:
    """Reads the error queue of a socket in bulk. It never waits.

    Parameters
    ----------
    sock
        Stays the caller's.

    Raises
    ------
    UsageError
        Neither of IP nor a packet socket.
    """

    def __init__(self, sock: socket.socket) -> None:
        if sock.family not in _FAMILIES:
            # Local sockets, for one, would hand out data instead.
            raise UsageError("Stamps of sends are for sockets of IP and packet sockets", "Use one of these")
        self._sock = sock
        self._batch = _abi.Batch()

    def read(self) -> tuple[list[Stamp | NetworkError], bool]:
        """Take all that there is.

        Returns
        -------
        tuple
            What was there, in the kernel's order; and whether the queue was as good as full.

        A full queue (SO_RCVBUF, which received data that wait to be read count against as well) loses stamps. The
        kernel counts them nowhere: SO_RXQ_OVFL stays as it is (sock_queue_err_skb).

        Raises
        ------
        OSError
            The socket is closed.
        FormatError
            The kernel's statistics cannot be read.
        """
        before_bytes, limit_bytes = self._memory()
        found: list[Stamp | NetworkError] = []
        while messages := self._batch.read(self._sock.fileno()):
            found += [_decode(control, payload) for control, payload in messages]
        each_bytes = (before_bytes - self._memory()[0]) / len(found) if found else 0
        # The sizes differ, so the average does not tell whether one more would have had room: two must.
        return found, before_bytes + 2 * max(each_bytes, _SMALLEST_BYTES) > limit_bytes

    def _memory(self) -> tuple[int, int]:
        value = self._sock.getsockopt(socket.SOL_SOCKET, _abi.SO_MEMINFO, _abi.MEMINFO.size)
        used_bytes, limit_bytes = _abi.MEMINFO.unpack(value)
        return used_bytes, limit_bytes


def stamp_times(kind: int, value: bytes) -> tuple[int | None, int | None]:
    """Return the software and the hardware stamp of a ``SCM_TIMESTAMPING`` control message, None where there is none.

    Parameters
    ----------
    kind
        Type of the control message: ``SO_TIMESTAMPING_NEW`` or ``_OLD``.
    value
        Its data.
    """
    software_s, software_ns, _, _, hardware_s, hardware_ns = _abi.SCM_TIMESTAMPING[kind].unpack_from(value)
    return software_s * 10**9 + software_ns or None, hardware_s * 10**9 + hardware_ns or None


def _decode(control: list[_abi.ControlMessage], payload: bytes) -> Stamp | NetworkError:
    software_ns = hardware_ns = ifindex = None
    stats: Mapping[str, int] = _NO_STATS
    extended = b""
    for level, kind, value in control:
        if (level, kind) in _EXTENDED_ERRORS:
            extended = value
        elif level == socket.SOL_SOCKET and kind in _abi.SCM_TIMESTAMPING:
            software_ns, hardware_ns = stamp_times(kind, value)
        elif level == socket.SOL_SOCKET and kind == _abi.SCM_TIMESTAMPING_OPT_STATS:
            stats = decode(value)
        elif (level, kind) == (socket.SOL_IP, _abi.IP_PKTINFO):
            ifindex = _abi.IN_PKTINFO.unpack_from(value)[0]
        elif (level, kind) == (socket.IPPROTO_IPV6, _abi.IPV6_PKTINFO):
            ifindex = _abi.IN6_PKTINFO.unpack_from(value)[1]
    fields = _abi.SOCK_EXTENDED_ERR.unpack_from(extended) if extended else (0, 0, 0, 0, 0, 0, 0)
    errno, origin, kind, code, _, info, data = fields
    time_ns = software_ns or hardware_ns
    if errno == errnos.ENOMSG and origin == _abi.SO_EE_ORIGIN_TIMESTAMPING and info in _STAGES and time_ns:
        stage = _STAGES[info] if software_ns else Stage.SND_HARDWARE
        return Stamp(stage, data, time_ns, stats, ifindex)
    return NetworkError(errno, origin, kind, code, info, data, _offender(extended), payload)


def _offender(extended: bytes) -> str | None:
    address = extended[_abi.SOCK_EXTENDED_ERR.size :]
    family = int.from_bytes(address[:2], sys.byteorder)
    if family == socket.AF_INET:
        return socket.inet_ntop(socket.AF_INET, address[4:8])
    if family == socket.AF_INET6:
        return socket.inet_ntop(socket.AF_INET6, address[8:24])
    return None
