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

# A device and its namespace in one number: a column less to carry along. Both fit: inodes have 32 bits here, the host
# stands above them (hopscope.trace.host_numbers), and no namespace sees its sixteen millionth device.
PLACE_STEP: Final = 1 << 24
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

# A packet's bytes as one number, NULL where no headers were looked at. It is TCP's sequence number, which NAT leaves as
# it is; where a packet takes up none, or is not TCP, its flow and IP identification: what else a datagram's number has
# depends on whether its first bytes are in pages. Below it is the payload's length.
ID_STEP: Final = 1 << 16
_LEN_STEP: Final = 1 << 20
_SEQ_STEP: Final = 1 << 32
_MIXED_STEP: Final = 1 << 40
_MIXING: Final = 1_000_003
_FIN_SYN: Final = 3
_NUMBERED: Final = f"tcp_flags > 0 AND (len_bytes > header_bytes OR tcp_flags % {_FIN_SYN + 1} > 0)"
_ID: Final = f"CASE WHEN tcp_flags > 0 THEN seq ELSE seq % {ID_STEP} END"
_MIXED: Final = f"(flow % {_MIXED_STEP} + {_MIXED_STEP} + {_ID} * {_MIXING}) % {_MIXED_STEP}"
CONTENT: Final = (
    f"CASE WHEN flow <> 0 THEN CASE WHEN {_NUMBERED} THEN seq ELSE {_SEQ_STEP} + {_MIXED} END * {_LEN_STEP}"
    f" + CASE WHEN len_bytes > header_bytes THEN least(len_bytes - header_bytes, {_LEN_STEP - 1}) ELSE 0 END END"
)

_SAME_HEAD: Final = "(head = from_head AND head <> 0)"
_SAME_BYTES: Final = f"(content - content % {_LEN_STEP} = from_content - from_content % {_LEN_STEP})"
_OTHER_DEVICE: Final = "(place <> from_place)"
# Headers are looked at where a packet comes to a device; between there and here may be points that do not. GRO may have
# put other segments behind it since. An IP identification is often 0: on lo the next datagram would be the same, too.
_SAME_AS_KNOWN: Final = (
    f"(content >= known_content AND content - content % {_LEN_STEP} = known_content - known_content % {_LEN_STEP}"
    f" AND (content < {_SEQ_STEP * _LEN_STEP} OR {_OTHER_DEVICE}))"
)
# What was put around a packet makes its payload longer, what was taken off shorter. Other bytes that are not, at an
# address and with data that both were used again, are another packet.
_LONGER: Final = f"coalesce(content % {_LEN_STEP} >= from_content % {_LEN_STEP} OR {_SAME_BYTES}, TRUE)"
_SHORTER: Final = f"coalesce(content % {_LEN_STEP} <= from_content % {_LEN_STEP} OR {_SAME_BYTES}, TRUE)"
# What was inside had a header of its own, IPv4's at least. What was received as it is may be freed unseen, and its
# address and its data another packet's, on another device.
_INNER_BYTES: Final = 20
_INSIDE: Final = (
    f"coalesce(content % {_LEN_STEP} <= from_content % {_LEN_STEP} - {_INNER_BYTES} OR {_SAME_BYTES}, TRUE)"
)
_SAME_NETNS: Final = f"(place - place % {PLACE_STEP} = from_place - from_place % {PLACE_STEP})"

ALWAYS: Final = "TRUE"
# veth and lo hand the object itself over, as it is.
HANDED_OVER: Final = f"({_SAME_HEAD} AND (content IS NULL OR from_content IS NULL OR {_SAME_BYTES}))"
# A stacked device gives it to the one below; headers may be put before it, for which its data may be moved.
STACKED: Final = f"({_OTHER_DEVICE} AND (({_SAME_HEAD} AND {_LONGER}) OR {_SAME_AS_KNOWN}))"
# Routed, bridged, translated, encapsulated: its data stay where they are, unless TCP's original has them, too, or there
# is no room for what is added.
FORWARDED: Final = f"({_SAME_NETNS} AND ({_SAME_HEAD} OR {_SAME_AS_KNOWN}))"
# Bridged, or the outer headers are gone: what is left is for another device.
TAKEN_UP: Final = f"({_OTHER_DEVICE} AND {_SAME_HEAD} AND {_SHORTER})"
# The socket that it was for has taken the outer headers off.
TAKEN_OUT: Final = f"({_OTHER_DEVICE} AND {_SAME_HEAD} AND {_INSIDE})"
# Freed, copied, or seen again at the same point: much is that is no packet of these, at an address that one had.
SAME: Final = f"({_SAME_HEAD} OR {_SAME_BYTES})"

CONDITIONS: Final = (ALWAYS, HANDED_OVER, STACKED, FORWARDED, TAKEN_UP, TAKEN_OUT, SAME)


@dataclass(frozen=True, slots=True)
class Rule:
    """After any of `before`, at the same address, `point` is of the same packet if `condition` holds."""

    point: str
    before: tuple[str, ...]
    condition: str


# What no rule allows begins a life of its own.
RULES: Final = (
    Rule("rx.driver", SENDING, HANDED_OVER),
    Rule("rx.driver", ("rx.core", "rx.ip"), TAKEN_UP),
    Rule("rx.driver", ("rx.l4",), TAKEN_OUT),
    Rule("rx.core", ("rx.driver",), ALWAYS),
    Rule("rx.core", SENDING, HANDED_OVER),
    Rule("rx.core", ("rx.core", "rx.ip"), TAKEN_UP),
    Rule("rx.core", ("rx.l4",), TAKEN_OUT),
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

    It is about ``head``, :data:`PLACE` as ``place``, :data:`CONTENT` as ``content``, and the same of the event before,
    as ``from_head``; ``known_content`` is the last that was known before. Where a condition is about what is not known
    it does not hold. The first one stands by itself: it is that of most rows, and an engine need not try the others for
    them.
    """
    branches = " ".join(f"WHEN {each} THEN {text}" for each, text in enumerate(CONDITIONS) if each)
    return f"coalesce({number} = 0 OR CASE {number} {branches} ELSE FALSE END, FALSE)"
