# SPDX-License-Identifier: Apache-2.0
"""Whether two events that follow each other at one skb's address are of the same packet: a table of data.

The kernel uses an address again as soon as its packet is gone, and not every packet goes with an event: GRO and TCP
merge a segment into an earlier one and forget its skb. What is certain is which points can follow which, and what of a
packet stays the same on the way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

# A device and its namespace in one number: a column less to carry along. Both fit, as inodes have 32 bits here.
PLACE_STEP: Final = 1 << 31
PLACE: Final = f"(netns * {PLACE_STEP} + ifindex)"

# Points that are beside a packet's way: the driver's function may return when another CPU is done with the packet
# already, and what is retransmitted is the original, of which a clone goes out.
BESIDE: Final = ("tx.driver", "tcp.retransmit")
ENDS: Final = ("skb.free", "skb.drop")
# Where a packet's life begins on this host, if it was seen to.
BEGINNINGS: Final = ("rx.driver", "tx.queue")

_ARRIVING: Final = ("rx.driver", "rx.core", "rx.ip")
_RECEIVED: Final = (*_ARRIVING, "rx.l4", "rx.tcp_queue")
SENDING: Final = ("tx.queue", "tx.enqueue", "tx.dequeue", "tx.start")
_WAITING: Final = ("tx.queue", "tx.enqueue", "tx.dequeue")

_SAME_HEAD: Final = "(head = from_head AND head <> 0)"
# Headers are looked at where a packet comes to a device; elsewhere there is neither flow nor sequence number.
_SAME_BYTES: Final = "(flow = from_flow AND flow <> 0 AND seq = from_seq)"
_OTHER_DEVICE: Final = "(place <> from_place)"
_SAME_NETNS: Final = f"(place - place % {PLACE_STEP} = from_place - from_place % {PLACE_STEP})"

ALWAYS: Final = "TRUE"
# veth and lo hand the object itself over, as it is.
HANDED_OVER: Final = f"({_SAME_HEAD} AND (flow = from_flow OR flow = 0 OR from_flow = 0))"
# A stacked device gives it to the one below; headers may be put before it, for which its data may be moved.
STACKED: Final = f"({_OTHER_DEVICE} AND ({_SAME_HEAD} OR {_SAME_BYTES}))"
# Routed, bridged, translated, encapsulated: its data stay where they are, unless there is no room for what is added.
FORWARDED: Final = f"({_SAME_NETNS} AND ({_SAME_HEAD} OR {_SAME_BYTES}))"
# Bridged, or the outer headers are gone: what is left is for another device.
TAKEN_UP: Final = f"({_OTHER_DEVICE} AND {_SAME_HEAD})"
# Freed, copied, or seen again at the same point: much is that is no packet of these, at an address that one had.
SAME: Final = f"({_SAME_HEAD} OR {_SAME_BYTES})"

CONDITIONS: Final = (ALWAYS, HANDED_OVER, STACKED, FORWARDED, TAKEN_UP, SAME)


@dataclass(frozen=True, slots=True)
class Rule:
    """After any of `before`, at the same address, `point` is of the same packet if `condition` holds."""

    point: str
    before: tuple[str, ...]
    condition: str


# What no rule allows begins a life of its own.
RULES: Final = (
    Rule("rx.driver", SENDING, HANDED_OVER),
    Rule("rx.driver", ("rx.core", "rx.ip", "rx.l4"), TAKEN_UP),
    Rule("rx.core", ("rx.driver",), ALWAYS),
    Rule("rx.core", SENDING, HANDED_OVER),
    Rule("rx.core", ("rx.core", "rx.ip", "rx.l4"), TAKEN_UP),
    Rule("rx.ip", ("rx.driver", "rx.core"), ALWAYS),
    Rule("rx.ip", SENDING, HANDED_OVER),
    Rule("rx.l4", _ARRIVING, ALWAYS),
    Rule("rx.l4", SENDING, HANDED_OVER),
    Rule("rx.l4", ("rx.l4",), SAME),
    Rule("rx.tcp_queue", (*_ARRIVING, "rx.l4"), ALWAYS),
    Rule("rx.tcp_queue", SENDING, HANDED_OVER),
    Rule("rx.tcp_queue", ("rx.tcp_queue",), SAME),
    Rule("rx.copy", (*_RECEIVED, *SENDING, "rx.copy"), SAME),
    Rule("tx.queue", SENDING, STACKED),
    Rule("tx.queue", ("rx.core", "rx.ip"), FORWARDED),
    Rule("tx.enqueue", _WAITING, ALWAYS),
    Rule("tx.enqueue", ("rx.core", "rx.ip"), FORWARDED),
    Rule("tx.dequeue", _WAITING, ALWAYS),
    Rule("tx.start", _WAITING, ALWAYS),
    Rule("tx.start", ("tx.start",), STACKED),
    Rule("tx.start", ("rx.core", "rx.ip"), FORWARDED),
    Rule("skb.free", (*_RECEIVED, *SENDING, "rx.copy"), SAME),
    Rule("skb.drop", (*_RECEIVED, *SENDING, "rx.copy"), SAME),
)


def transitions(points: Mapping[str, int]) -> list[tuple[int, int, int]]:
    """Return (number of the point before, number of the point, number of the condition) of all that may follow.

    Parameters
    ----------
    points
        Name → number, in the trace at hand; what it does not have is left out.
    """
    return [
        (points[before], points[rule.point], CONDITIONS.index(rule.condition))
        for rule in RULES
        if rule.point in points
        for before in rule.before
        if before in points
    ]


def holds(number: str) -> str:
    """Return the expression in SQL for whether the condition whose number is in this column holds.

    It is about columns of ``packets``, :data:`PLACE` as ``place``, and the same of the event before, as ``from_head``.
    The first condition stands by itself: it holds for most rows, and an engine need not try the others for them.
    """
    branches = " ".join(f"WHEN {each} THEN {text}" for each, text in enumerate(CONDITIONS) if each)
    return f"({number} = 0 OR CASE {number} {branches} ELSE FALSE END)"
