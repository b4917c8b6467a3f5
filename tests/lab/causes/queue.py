# SPDX-License-Identifier: Apache-2.0
"""Packets that wait in the queueing discipline of a slow device, for its rate or for those ahead.

A token bucket lets them through. What each of them waits for follows from when they were sent, by arithmetic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.lab.causes.case import Plan, by_clock, ends
from tests.lab.causes.world import shaped

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from random import Random

    from tests.lab.causes.actors.common import Options
    from tests.lab.causes.case import Ran

# Ethernet, IPv4, and UDP, or TCP with time stamps.
_HEADERS: Final = {"udp": 42, "tcp": 66}
_OTHERS_BYTES: Final = 1400


def rate(chance: Random) -> Plan:
    """Nothing is ahead of a packet, and yet the rate does not let it through so soon."""
    return Plan({"shaper": 1}, "tbf", **alone(chance, chance.uniform(10, 30)))


def alone(chance: Random, ms: float, **reader: Any) -> dict[str, Any]:  # noqa: ANN401 - of the reader
    """Return traffic every second message of which waits about so many ms for tokens."""
    size = chance.randint(400, 1200)
    whole = size + _HEADERS["tcp"]
    # The first of two uses the bucket up.
    bit_s = round(whole * 8 / (ms * 1.25) * 1e3)
    pattern = [{"size": size, "gap": ms * 0.25}, {"size": size, "gap": ms * 2.6}]
    burst = whole + 20
    more = ends(pattern, 2 * max(6, round(250 / ms)), reader=reader)
    return more | {"prepare": [shaped(bit_s, burst)], "proof": _by_bucket(bit_s, burst, size, "tcp")}


def own(chance: Random) -> Plan:
    """Datagrams of the same flow are ahead."""
    size, at_once = chance.randint(500, 1200), chance.randint(8, 16)
    bit_s = chance.randint(2, 6) * 10**6
    ms = (size + _HEADERS["udp"]) * 8 / bit_s * 1e3
    pattern: list[Options] = [*[{"size": size}] * (at_once - 1), {"size": size, "gap": ms * at_once * 1.5}]
    count = at_once * max(5, round(400 / (ms * at_once * 1.5)))
    more = ends(pattern, count, reader={"udp": True}, sender={"udp": True, "sndbuf": 1 << 20})
    prepare = [shaped(bit_s, 2000)]
    return Plan({"queue-own": 0.8}, "tbf", prepare=prepare, proof=_by_bucket(bit_s, 2000, size, "udp"), **more)


def others(chance: Random) -> Plan:
    """Datagrams of another flow are ahead of a small message."""
    return Plan({"queue-others": 0.9}, "tbf", **behind(chance, chance.uniform(8, 30)))


def behind(chance: Random, ms: float, **reader: Any) -> dict[str, Any]:  # noqa: ANN401 - of the reader
    """Return traffic whose messages have about so many ms of others' datagrams ahead."""
    bit_s, size = chance.randint(5, 20) * 10**6, chance.randint(64, 600)
    count = max(4, round(ms * bit_s / 1e3 / 8 / (_OTHERS_BYTES + _HEADERS["udp"])))
    pattern = [{"size": size, "gap": ms * 1.5, "others": (count, _OTHERS_BYTES)}]
    more = ends(pattern, max(8, round(400 / (ms * 1.5))), reader=reader)
    return more | {"prepare": [shaped(bit_s, 2000)], "proof": _by_bucket(bit_s, 2000, size, "tcp")}


def _by_bucket(bit_s: int, burst: int, size: int, protocol: str) -> Callable[[Ran], Mapping[str, float]]:
    """Return what works out what each message waited for."""

    def proof(ran: Ran) -> Mapping[str, float]:
        packets = [(sent, size + _HEADERS[protocol], True) for sent, _, _ in ran.messages]
        for sent, count, len_bytes in ran.bursts:
            packets += [(sent, len_bytes + _HEADERS["udp"], False)] * count
        return by_clock(ran) | {
            cause: held_ns / ran.total_ns for cause, held_ns in waits_ns(sorted(packets), bit_s, burst).items()
        }

    return proof


def waits_ns(packets: list[tuple[int, int, bool]], bit_s: int, burst_bytes: int) -> dict[str, float]:
    """Return for how long our packets wait for what in a token bucket's queue.

    Parameters
    ----------
    packets
        When each comes, its length, and whether it is ours, in order.
    """
    waits = {"shaper": 0.0, "queue-own": 0.0, "queue-others": 0.0}
    ns_a_byte = 8e9 / bit_s
    full_ns, tokens_ns, left_ns = burst_bytes * ns_a_byte, burst_bytes * ns_a_byte, float(packets[0][0])
    heads: list[tuple[float, float, bool]] = []
    for came, len_bytes, ours in packets:
        head_ns = max(came, left_ns)
        tokens_ns = min(full_ns, tokens_ns + head_ns - left_ns)
        left_ns = head_ns + max(0.0, len_bytes * ns_a_byte - tokens_ns)
        tokens_ns = min(full_ns, tokens_ns + left_ns - head_ns) - len_bytes * ns_a_byte
        if ours:
            waits["shaper"] += left_ns - head_ns
            for begin, end, of_ours in heads:
                waits["queue-own" if of_ours else "queue-others"] += max(0.0, end - max(begin, came))
        heads.append((head_ns, left_ns, ours))
    return waits
