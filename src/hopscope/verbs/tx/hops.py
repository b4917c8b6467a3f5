# SPDX-License-Identifier: Apache-2.0
"""The hops of ``tx`` as a table of data: where each begins and ends, and what its missing samples mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.bpf.layout import HopTxDiscard, HopTxHop
from hopscope.errors import UsageError
from hopscope.live.curves import MOST
from hopscope.live.hops import Hop, named

if TYPE_CHECKING:
    from collections.abc import Sequence

_TCP: Final = "message"
_UDP: Final = "datagram"
_HANDED: Final = ("tx.tcp", "tx.send")
_SENT: Final = ("tx.driver", "tx.qdisc")


def _tcp(hop: HopTxHop, name: str, starts: tuple[str, ...], ends: str, also: tuple[str, ...] = ()) -> Hop:
    return Hop(hop, name, starts, ends, _TCP, also, chain="tcp", protocol="tcp")


def _apart(hop: HopTxHop, name: str, starts: tuple[str, ...], ends: str, also: tuple[str, ...] = ()) -> Hop:
    """Return a hop of TCP that is a part of another, or the whole."""
    return Hop(hop, name, starts, ends, _TCP, also, protocol="tcp")


def _udp(hop: HopTxHop, name: str, starts: tuple[str, ...], chain: str | None = "udp") -> Hop:
    return Hop(hop, name, starts, name.replace("_total", "_driver"), _UDP, chain=chain, protocol="udp")


HOPS: Final = (
    _tcp(HopTxHop.HOP_TX_TCP, "tx.tcp", ("tx.send",), "tx.tcp"),
    _apart(HopTxHop.HOP_TX_TCP_SNDBUF, "tx.tcp_sndbuf", ("tx.send",), "tx.tcp"),
    _tcp(HopTxHop.HOP_TX_SCHED, "tx.sched", _HANDED, "tx.sched"),
    _apart(HopTxHop.HOP_TX_SCHED_CWND, "tx.sched_cwnd", _HANDED, "tx.sched"),
    _apart(HopTxHop.HOP_TX_SCHED_RWND, "tx.sched_rwnd", _HANDED, "tx.sched"),
    _apart(HopTxHop.HOP_TX_SCHED_NAGLE, "tx.sched_nagle", _HANDED, "tx.sched"),
    _apart(HopTxHop.HOP_TX_SCHED_CORK, "tx.sched_cork", _HANDED, "tx.sched"),
    _apart(HopTxHop.HOP_TX_SCHED_PACING, "tx.sched_pacing", _HANDED, "tx.sched"),
    _apart(HopTxHop.HOP_TX_SCHED_TSQ, "tx.sched_tsq", _HANDED, "tx.sched"),
    _apart(HopTxHop.HOP_TX_SCHED_OTHER, "tx.sched_other", _HANDED, "tx.sched"),
    _tcp(HopTxHop.HOP_TX_QDISC, "tx.qdisc", ("tx.sched",), "tx.qdisc"),
    _tcp(HopTxHop.HOP_TX_DRIVER, "tx.driver", ("tx.qdisc", "tx.sched"), "tx.driver"),
    _apart(HopTxHop.HOP_TX_NIC, "tx.nic", ("tx.driver",), "tx.nic"),
    _apart(HopTxHop.HOP_TX_HOST, "tx.host", ("tx.send", "tx.tcp"), "tx.driver"),
    _tcp(HopTxHop.HOP_TX_ACK, "tx.ack", _SENT, "tx.ack"),
    _apart(HopTxHop.HOP_TX_TOTAL, "tx.total", ("tx.send", "tx.tcp"), "tx.ack"),
    _udp(HopTxHop.HOP_TX_UDP, "tx.udp", ("tx.udp_send",)),
    _udp(HopTxHop.HOP_TX_UDP_QDISC, "tx.udp_qdisc", ("tx.udp",)),
    _udp(HopTxHop.HOP_TX_UDP_DRIVER, "tx.udp_driver", ("tx.udp_qdisc",)),
    _udp(HopTxHop.HOP_TX_UDP_FREE, "tx.udp_free", ("tx.udp_driver",), chain=None),
    _udp(HopTxHop.HOP_TX_UDP_TOTAL, "tx.udp_total", ("tx.udp_send",), chain=None),
)

# Those for which flows that are not selected need run nothing.
FLOW_HOPS: Final = {
    hop.name for hop in HOPS if hop.protocol == "tcp" and not hop.name.startswith(("tx.tcp", "tx.qdisc"))
}

MEANINGS: Final = {
    HopTxDiscard.HOP_TX_COALESCED: "its last byte left in a packet that the kernel did not stamp (it was split off)",
    HopTxDiscard.HOP_TX_NO_STAMP: "not seen at the hop before: the device gives no stamp, or its slot was taken",
    HopTxDiscard.HOP_TX_BACKWARDS: "the clock of another CPU is behind: the interval would be negative",
    HopTxDiscard.HOP_TX_MERGED: "shares its sample with the message before: too many are on the way in the socket",
    HopTxDiscard.HOP_TX_CLOSED: "the socket was closed before",
    HopTxDiscard.HOP_TX_NO_MEMORY: "no memory for the state of the socket, or 8,192 sockets are followed already",
    HopTxDiscard.HOP_TX_DROPPED: "dropped before the driver had it",
    HopTxDiscard.HOP_TX_NO_SEND: "the entry of its send call was not seen",
    HopTxDiscard.HOP_TX_UNSTAMPED: "all its bytes had left when its send call ended: then there is nothing to stamp",
    HopTxDiscard.HOP_TX_SPLIT: "cut in pieces below IP, as the device does not do that itself: they are not followed",
    HopTxDiscard.HOP_TX_FAST_OPEN: "sent with Fast Open: its bytes left in the SYN, which the kernel does not stamp",
    HopTxDiscard.HOP_TX_MPTCP: "a packet with data of an MPTCP connection: MPTCP is not followed",
}


def cdf_hops(text: str | None, hops: Sequence[str]) -> list[str]:
    """Return the hops named by ``--cdf``.

    Raises
    ------
    UsageError
        There is no such hop, it is not among those that ``--hop`` asks for, or they are too many for a plot.
    """
    names = list(dict.fromkeys(text.split(","))) if text else []
    if names:
        named(HOPS, names)
    if len(names) > MOST:
        raise UsageError(f"A plot has room for at most {MOST} curves", "Give fewer hops")
    for name in names:
        if hops and name not in hops:
            raise UsageError(f"{name} is not among the hops of --hop", f"Add --hop {name}")
    return names
