# SPDX-License-Identifier: Apache-2.0
"""The hops of ``rx`` as a table of data: where each begins and ends, and what its discarded samples mean."""

from __future__ import annotations

from typing import Final

from hopscope.bpf.layout import HopRxDiscard, HopRxHop
from hopscope.live.hops import Hop
from hopscope.model.cause import BY_NAME
from hopscope.model.snapshot import COMMON_CHAIN, PACKET_UNIT, PARTS_OF_WAKE

# What the NIC received, before GRO makes one packet of several. The way to the driver is no part of the total.
FRAME_UNIT: Final = "frame"


def of_reader(hop: Hop) -> bool:
    """Tell whether it ends with the reader, so that the reading process is known."""
    return hop.name.endswith(("_wake", *PARTS_OF_WAKE, "_read", "_total"))


def of_packet(hop: Hop) -> bool:
    """Tell whether what it is of can be told to be wanted: a packet, or a frame that may become part of one."""
    return hop.unit in {PACKET_UNIT, FRAME_UNIT}


def _hop(hop: HopRxHop, name: str, starts: tuple[str, ...], ends: str, also: tuple[str, ...] = ()) -> Hop:
    """Return a hop of packets."""
    stem = name.removeprefix("rx.").partition("_")[0]
    protocol = stem if stem in {"tcp", "udp"} else None
    chain = None if name.endswith(("_total", *PARTS_OF_WAKE)) else protocol or COMMON_CHAIN
    part = name.rpartition("_")[2]
    cause = BY_NAME[f"reader-{part}"].name if part in PARTS_OF_WAKE else None
    return Hop(hop, name, starts, ends, PACKET_UNIT, also, chain, protocol, cause)


_BEFORE_IP: Final = ("rx.core", "rx.driver")
_BEFORE_L4: Final = ("rx.ip", *_BEFORE_IP)
_BEFORE_TCP_QUEUE: Final = ("rx.tcp", *_BEFORE_L4)
_BEFORE_UDP_QUEUE: Final = ("rx.udp", *_BEFORE_L4)

HOPS: Final = (
    Hop(HopRxHop.HOP_RX_SOFTIRQ, "rx.softirq", ("rx.softirq",), "rx.softirq", unit="softirq"),
    Hop(HopRxHop.HOP_RX_NAPI, "rx.napi", ("rx.softirq",), "rx.napi", unit="poll"),
    Hop(HopRxHop.HOP_RX_NIC, "rx.nic", ("rx.nic",), "rx.driver", unit=FRAME_UNIT),
    _hop(HopRxHop.HOP_RX_CORE, "rx.core", ("rx.driver",), "rx.core"),
    _hop(HopRxHop.HOP_RX_IP, "rx.ip", _BEFORE_IP, "rx.ip"),
    _hop(HopRxHop.HOP_RX_TCP, "rx.tcp", _BEFORE_L4, "rx.tcp"),
    _hop(HopRxHop.HOP_RX_TCP_QUEUE, "rx.tcp_queue", _BEFORE_TCP_QUEUE, "rx.tcp_queue"),
    _hop(HopRxHop.HOP_RX_TCP_ORDER, "rx.tcp_order", ("rx.tcp_queue",), "rx.tcp_queue", also=("rx.tcp_read",)),
    _hop(HopRxHop.HOP_RX_TCP_WAKE, "rx.tcp_wake", ("rx.tcp_queue",), "rx.wake", also=("rx.tcp_read",)),
    _hop(HopRxHop.HOP_RX_TCP_ASLEEP, "rx.tcp_asleep", ("rx.tcp_queue",), "rx.wake", also=("rx.tcp_read",)),
    _hop(HopRxHop.HOP_RX_TCP_RUNNABLE, "rx.tcp_runnable", ("rx.tcp_queue",), "rx.wake", also=("rx.tcp_read",)),
    _hop(HopRxHop.HOP_RX_TCP_READ, "rx.tcp_read", ("rx.wake", "rx.tcp_queue"), "rx.tcp_read", also=("rx.tcp_queue",)),
    _hop(HopRxHop.HOP_RX_TCP_TOTAL, "rx.tcp_total", ("rx.driver", "rx.core"), "rx.tcp_read", also=("rx.tcp_queue",)),
    _hop(HopRxHop.HOP_RX_UDP, "rx.udp", _BEFORE_L4, "rx.udp"),
    _hop(HopRxHop.HOP_RX_UDP_QUEUE, "rx.udp_queue", _BEFORE_UDP_QUEUE, "rx.udp_queue"),
    _hop(HopRxHop.HOP_RX_UDP_WAKE, "rx.udp_wake", ("rx.udp_queue",), "rx.wake", also=("rx.udp_read",)),
    _hop(HopRxHop.HOP_RX_UDP_ASLEEP, "rx.udp_asleep", ("rx.udp_queue",), "rx.wake", also=("rx.udp_read",)),
    _hop(HopRxHop.HOP_RX_UDP_RUNNABLE, "rx.udp_runnable", ("rx.udp_queue",), "rx.wake", also=("rx.udp_read",)),
    _hop(HopRxHop.HOP_RX_UDP_READ, "rx.udp_read", ("rx.wake", "rx.udp_queue", "rx.udp"), "rx.udp_read"),
    _hop(HopRxHop.HOP_RX_UDP_TOTAL, "rx.udp_total", ("rx.driver", "rx.core"), "rx.udp_read"),
)

MEANINGS: Final = {
    HopRxDiscard.HOP_RX_NO_STAMP: "not seen at the entry: in flight at the start, or its slot was taken meanwhile",
    HopRxDiscard.HOP_RX_NO_ENTRY: "reached the core past the hooks at the driver; counted from the core on",
    HopRxDiscard.HOP_RX_AGAIN: "the same data a second time: a copy to a further socket, or a bridge",
    HopRxDiscard.HOP_RX_BACKWARDS: "the clock of another CPU, or of the NIC, is off: the interval would be negative",
    HopRxDiscard.HOP_RX_MERGED: "shares its sample with the segment before: too many wait in the socket",
    HopRxDiscard.HOP_RX_DUPLICATE: "bytes that had arrived before (a retransmission)",
    HopRxDiscard.HOP_RX_UNSEEN: "read, but not seen arriving: older than the start, or missed by rx.tcp_closing",
    HopRxDiscard.HOP_RX_NO_MEMORY: "no memory for the state of the socket",
    HopRxDiscard.HOP_RX_OUTSIDE: "a poll outside the softirq: threaded NAPI, busy polling or netpoll",
    HopRxDiscard.HOP_RX_OUT_OF_ORDER: "arrived out of order, left out as asked",
    HopRxDiscard.HOP_RX_SKIPPED_STAGE: "the hook before did not run; its time is part of this hop",
    HopRxDiscard.HOP_RX_NO_NIC_STAMP: "the NIC did not stamp it, or its driver keeps the stamp to itself",
    HopRxDiscard.HOP_RX_NO_HISTORY: "read, but how long its reader was off the CPU is not known for all of the time",
    HopRxDiscard.HOP_RX_CLOCK_SET: "a NIC's clock was set in this interval or just before, or the NIC went away",
    HopRxDiscard.HOP_RX_MPTCP: "a segment of an MPTCP connection: MPTCP reads its data elsewhere, unseen",
}
