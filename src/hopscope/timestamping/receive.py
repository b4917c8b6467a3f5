# SPDX-License-Identifier: Apache-2.0
"""Receive, with the kernel's and the NIC's stamps of what arrived."""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass
from typing import Any, Final

from hopscope.timestamping import _abi
from hopscope.timestamping.errqueue import stamp_times

_CONTROL_BYTES: Final = 512


@dataclass(frozen=True, slots=True)
class Received:
    """What one call to receive brought.

    Attributes
    ----------
    data, address, flags
        As from `socket.recvmsg`.
    read_ns
        Right after the call, by the application's own clock: CLOCK_REALTIME.
    software_ns
        When the kernel had it from the driver (``RX_SOFTWARE``), CLOCK_REALTIME; None where it was not stamped. TCP:
        the packet of the last byte that was read. Over lo, TCP is stamped late, as IP hands it over.
    hardware_ns
        When the NIC had it (``RX_HARDWARE``), by the NIC's clock.
    ifindex, packet_len_bytes
        With ``OPT_PKTINFO`` and a stamp of the NIC: the interface that it came by (0 where the driver does not tell),
        and its length at layer 2.
    dropped
        With SO_RXQ_OVFL: datagrams that the full socket dropped so far (32 bits, wraps); 0 before the first, and where
        the option is not set.
    control
        All other control messages.
    """

    data: bytes
    address: Any
    flags: int
    read_ns: int
    software_ns: int | None
    hardware_ns: int | None
    ifindex: int | None
    packet_len_bytes: int | None
    dropped: int
    control: list[_abi.ControlMessage]


def receive(sock: socket.socket, size_bytes: int, flags: int = 0) -> Received:
    """Receive from a socket, as `socket.recv` does: it waits as the socket is set to.

    Raises
    ------
    OSError
        As from `socket.recv`.
    """
    data, control, out_flags, address = sock.recvmsg(size_bytes, _CONTROL_BYTES, flags)
    read_ns = time.time_ns()
    software_ns = hardware_ns = ifindex = packet_len_bytes = None
    dropped = 0
    rest = []
    for level, kind, value in control:
        if level == socket.SOL_SOCKET and kind in _abi.SCM_TIMESTAMPING:
            software_ns, hardware_ns = stamp_times(kind, value)
        elif (level, kind) == (socket.SOL_SOCKET, _abi.SCM_TIMESTAMPING_PKTINFO):
            ifindex, packet_len_bytes = _abi.SCM_TS_PKTINFO.unpack(value)
        elif (level, kind) == (socket.SOL_SOCKET, _abi.SO_RXQ_OVFL):
            (dropped,) = _abi.U32.unpack(value)
        else:
            rest.append((level, kind, value))
    return Received(
        data, address, out_flags, read_ns, software_ns, hardware_ns, ifindex, packet_len_bytes, dropped, rest
    )
