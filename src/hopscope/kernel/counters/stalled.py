# SPDX-License-Identifier: Apache-2.0
"""TCP connections whose full-size segments do not arrive although their peer still answers."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import numpy as np

from hopscope.kernel.netlink import Netlink, attributes
from hopscope.kernel.sockets import tcp_info
from hopscope.kernel.sockets.table import MESSAGE, TCP, TIMERS, State

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.kernel.counters.text import Said
    from hopscope.kernel.sockets.table import Rows

_NETLINK_SOCK_DIAG: Final = 4
_SOCK_DIAG_BY_FAMILY: Final = 20
_INET_DIAG_INFO: Final = 2
# Of struct inet_diag_msg, what follows the first four bytes and identifies a socket: struct inet_diag_sockid.
_IDENTITY: Final = slice(4, 52)
_ON: Final = TIMERS.index("on")
# Timeouts in a row: single losses repair themselves before.
_TIMEOUTS: Final = 3
# Of tcp_info the kernel takes the socket's lock, so it is asked for few.
_MOST: Final = 32
_MOST_SIBLINGS: Final = 8


def full_size_stalled(rows: Rows) -> Iterator[Said]:
    """Yield ``tcp.full_size_stalled_sockets``, and of those the smallest MSS.

    A connection counts if at least three timeouts in a row had no answer, all that was retransmitted are segments of
    full size, and its peer is heard of: by SACK of a smaller segment, or later than on this connection on another one
    to the same address. Of many that wait for an answer, the first 32 are looked at.
    """
    message = rows["message"][rows["protocol"] == TCP]
    waiting = message[(message["timer"] == _ON) & (message["retrans"] >= _TIMEOUTS) & (message["wqueue"] > 0)]
    sizes: list[int] = []
    if len(waiting):
        with Netlink(_NETLINK_SOCK_DIAG) as netlink:
            sizes = list(_sizes(netlink, message, waiting[:_MOST]))
    yield "", "tcp.full_size_stalled_sockets", len(sizes)
    if sizes:
        yield "", "tcp.full_size_stalled_mss_bytes", min(sizes)


def _sizes(netlink: Netlink, message: Rows, waiting: Rows) -> Iterator[int]:
    """Yield the MSS of those connections that are waiting for segments of full size alone."""
    for each in waiting:
        info = _info(netlink, each)
        if info is None or not _only_full_size(info):
            continue
        if info["sacked"] or _heard_later(netlink, info, _siblings(message, each)):
            yield int(info["snd_mss"])


def _only_full_size(info: np.void) -> bool:
    retransmitted = int(info["total_retrans"])
    return retransmitted > 0 and int(info["bytes_retrans"]) >= retransmitted * int(info["snd_mss"])


def _siblings(message: Rows, one: np.void) -> Rows:
    """Return other connections to the same address that have no timeout."""
    same = (message["dst"] == one["dst"]).all(axis=1) & (message["family"] == one["family"])
    found: Rows = message[same & (message["state"] == State.ESTABLISHED) & (message["retrans"] == 0)]
    return found[:_MOST_SIBLINGS]


def _heard_later(netlink: Netlink, info: np.void, siblings: Rows) -> bool:
    others = (_info(netlink, each) for each in siblings)
    return any(other is not None and other["last_ack_recv"] < info["last_ack_recv"] for other in others)


def _info(netlink: Netlink, message: np.void) -> np.void | None:
    """Return the tcp_info of a socket; None if it is gone."""
    identity = message.tobytes()[_IDENTITY]
    ask = struct.pack("=4BI", int(message["family"]), TCP, 1 << _INET_DIAG_INFO - 1, 0, 0xFFFF_FFFF) + identity
    try:
        answer = netlink.ask(_SOCK_DIAG_BY_FAMILY, ask)
    except OSError:
        return None
    found = attributes(answer.body[MESSAGE.itemsize :]).get(_INET_DIAG_INFO) if answer else None
    if found is None:
        return None
    size = tcp_info.DTYPE.itemsize
    info: np.void = np.frombuffer(found[:size].ljust(size, b"\0"), tcp_info.DTYPE)[0]
    return info
