# SPDX-License-Identifier: Apache-2.0
"""Whether two consecutive events at the address of an skb belong to the same packet, as a table of data.

The kernel reuses an address as soon as its packet is freed, and not every packet ends with an event: GRO and TCP merge
a segment into an earlier one and release its skb. What is certain is which points can follow each other, and which
properties of a packet are constant.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

# A device and its namespace as one number, which saves a column. Both fit: inodes have 32 bits, the host is above them
# (hopscope.trace.host_numbers), and no namespace has more than sixteen million devices.
PLACE_STEP: Final = 1 << 24
PLACE: Final = f"(netns * {PLACE_STEP} + ifindex)"

# Points that are not on a packet's path: the driver's function may return after another CPU has finished the packet,
# and tcp.retransmit refers to the original, of which a clone is sent.
BESIDE: Final = ("tx.driver", "tcp.retransmit")
ENDS: Final = ("skb.free", "skb.drop")
# Points at which a packet's lifetime begins on this host.
BEGINNINGS: Final = ("rx.driver", "tx.neighbour", "tx.queue")

_ARRIVING: Final = ("rx.driver", "rx.core", "rx.ip")
_RECEIVED: Final = (*_ARRIVING, "rx.l4", "rx.tcp_queue")
SENDING: Final = ("tx.queue", "tx.enqueue", "tx.dequeue", "tx.start")
_WAITING: Final = ("tx.queue", "tx.enqueue", "tx.dequeue")

# The contents of a packet as one number, NULL where headers were not parsed: TCP's sequence number, which NAT
# preserves; for packets that occupy no sequence space, or are not TCP, the flow and IP identification (the hash of a
# datagram depends on whether its first bytes are in pages). The low part is the length of the payload.
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
# Headers are parsed where a packet enters a device; later points may not parse them. GRO may have appended other
# segments since. An IP identification is often 0: on lo, the next datagram would be equal, too.
_SAME_AS_KNOWN: Final = (
    f"(content >= known_content AND content - content % {_LEN_STEP} = known_content - known_content % {_LEN_STEP}"
    f" AND (content < {_SEQ_STEP * _LEN_STEP} OR {_OTHER_DEVICE}))"
)
# Encapsulation makes the payload longer, decapsulation shorter. Different bytes without such a change, at a reused
# address with a reused data buffer, are another packet.
_LONGER: Final = f"coalesce(content % {_LEN_STEP} >= from_content % {_LEN_STEP} OR {_SAME_BYTES}, TRUE)"
_SHORTER: Final = f"coalesce(content % {_LEN_STEP} <= from_content % {_LEN_STEP} OR {_SAME_BYTES}, TRUE)"
# An inner packet has a header of its own, at least IPv4's. A received packet may be freed without an event, and its
# address and data reused for another packet, on another device.
_INNER_BYTES: Final = 20
_INSIDE: Final = (
    f"coalesce(content % {_LEN_STEP} <= from_content % {_LEN_STEP} - {_INNER_BYTES} OR {_SAME_BYTES}, TRUE)"
)
_SAME_NETNS: Final = f"(place - place % {PLACE_STEP} = from_place - from_place % {PLACE_STEP})"

ALWAYS: Final = "TRUE"
# veth and lo pass the object itself on.
HANDED_OVER: Final = f"({_SAME_HEAD} AND (content IS NULL OR from_content IS NULL OR {_SAME_BYTES}))"
# A stacked device passes it to the lower one; headers may be added, for which its data may be moved.
STACKED: Final = f"({_OTHER_DEVICE} AND (({_SAME_HEAD} AND {_LONGER}) OR {_SAME_AS_KNOWN}))"
# Routed, bridged, translated, encapsulated: the data stays in place, unless it is shared with TCP's original, or there
# is no room for additional headers.
FORWARDED: Final = f"({_SAME_NETNS} AND ({_SAME_HEAD} OR {_SAME_AS_KNOWN}))"
# Bridged, or decapsulated for another device.
TAKEN_UP: Final = f"({_OTHER_DEVICE} AND {_SAME_HEAD} AND {_SHORTER})"
# Decapsulated by the socket of a tunnel.
TAKEN_OUT: Final = f"({_OTHER_DEVICE} AND {_SAME_HEAD} AND {_INSIDE})"
# Freed, copied, or seen again at the same point: the address may have been reused by an skb that is not recorded.
SAME: Final = f"({_SAME_HEAD} OR {_SAME_BYTES})"

CONDITIONS: Final = (ALWAYS, HANDED_OVER, STACKED, FORWARDED, TAKEN_UP, TAKEN_OUT, SAME)


@dataclass(frozen=True, slots=True)
class Rule:
    """After any of `before`, at the same address, `point` belongs to the same packet if `condition` holds."""

    point: str
    before: tuple[str, ...]
    condition: str


# An event that no rule allows begins a new lifetime.
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
    Rule("tx.neighbour", SENDING, STACKED),
    Rule("tx.neighbour", ("rx.core", "rx.ip"), FORWARDED),
    Rule("tx.queue", ("tx.neighbour",), SAME),
    Rule("tx.queue", SENDING, STACKED),
    Rule("tx.queue", ("rx.core", "rx.ip"), FORWARDED),
    Rule("tx.enqueue", _WAITING, ALWAYS),
    Rule("tx.enqueue", ("rx.core", "rx.ip"), FORWARDED),
    Rule("tx.dequeue", _WAITING, ALWAYS),
    Rule("tx.start", _WAITING, ALWAYS),
    Rule("tx.start", ("tx.start",), STACKED),
    Rule("tx.start", ("rx.core", "rx.ip"), FORWARDED),
    Rule("skb.free", (*_RECEIVED, "tx.neighbour", *SENDING, "rx.copy"), SAME),
    Rule("skb.drop", (*_RECEIVED, "tx.neighbour", *SENDING, "rx.copy"), SAME),
)


def transitions(points: Mapping[str, int]) -> list[tuple[int, int, int]]:
    """Return (previous point, point, condition), as numbers, for all permitted successions.

    Parameters
    ----------
    points
        Name → number in this trace; missing points are omitted.
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

    It uses ``head``, :data:`PLACE` as ``place``, :data:`CONTENT` as ``content``, and the same columns of the previous
    event, such as ``from_head``; ``known_content`` is the last known content before. A condition on unknown values does
    not hold. The first condition is separate: it applies to most rows, so that an engine need not try the others.
    """
    branches = " ".join(f"WHEN {each} THEN {text}" for each, text in enumerate(CONDITIONS) if each)
    return f"coalesce({number} = 0 OR CASE {number} {branches} ELSE FALSE END, FALSE)"
