# SPDX-License-Identifier: Apache-2.0
"""Messages that are lost on the way, and those behind them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.lab.causes.case import Plan, by_clock, ends, overlap
from tests.lab.causes.reader import READER
from tests.lab.causes.world import dropping_first, firewall, route, settings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

    from tests.lab.causes.actors.common import Options
    from tests.lab.causes.case import Ran

# Of a queue that is filled: packets of its bucket and of itself, their size, and its rate.
_BUCKET: Final = 2
_QUEUED: Final = 12
_OTHERS_BYTES: Final = 1400
_RATE_BIT_S: Final = 20_000_000
# Nothing but its timer tells the sender of a loss.
_TIMER_ONLY: Final = settings(tcp_sack=0, tcp_recovery=0, tcp_reordering=250, tcp_max_reordering=300)


# Who is to be named for what is lost there.
_CULPRITS: Final = {"network": "network", "firewall": "NETFILTER_DROP"}


def again(chance: Random) -> Plan:
    """Messages with nothing behind them are lost: the sender's timer has to run out."""
    where = chance.choice(("network", "firewall"))
    return Plan({"retransmission": 1}, _CULPRITS[where], **losing(chance, chance.randint(30, 80), where))


def losing(chance: Random, ms: float, where: str = "network", **reader: Any) -> dict[str, Any]:  # noqa: ANN401 - of the reader
    """Return traffic each third message of which is lost and sent again after so many ms."""
    size = chance.randint(64, 1200)
    more = ends([{"size": size, "gap": ms * 1.5}], max(9, 3 * round(240 / ms)), reader=reader)
    prepare = [route("rto_min", f"{ms:.0f}ms")]
    if where == "firewall":
        prepare.append(firewall("input", f"tcp dport != 22 meta length > {size} numgen inc mod 4 == 2 drop"))
    wire = {"wire": {"delay": [0, 0], "lose": (3, 3)}} if where == "network" else {}
    return more | {"prepare": prepare, "proof": _late} | wire


def queue(chance: Random) -> Plan:
    """A queue that is full drops what is at its head: every third message, as others' datagrams follow it."""
    ms, size = chance.randint(40, 80), chance.randint(700, 1200)
    burst = (_QUEUED + chance.randint(4, 12), _OTHERS_BYTES)
    pattern: list[Options] = [{"size": size, "gap": ms}, {"size": size, "gap": ms}]
    pattern.append({"size": size, "others": (_BUCKET + 4, _OTHERS_BYTES), "behind": burst, "gap": ms * 2})
    more = ends(pattern, 15)
    prepare = [route("rto_min", f"{ms}ms"), dropping_first(_RATE_BIT_S, _BUCKET * (_OTHERS_BYTES + 42), _QUEUED)]
    return Plan({"retransmission": 1}, "QDISC_DROP", prepare=prepare, proof=_late, **more)


def _late(ran: Ran) -> Mapping[str, float]:
    # What was sent again waited for the timer, however late that was, and for what the reader did.
    slowest = sorted(ran.messages, key=lambda message: message[0] - message[1])[: ran.sender["retransmits"]]
    others = [interval for intervals in ran.intervals.values() for interval in intervals]
    held_ns = sum(read - sent - overlap((sent, read), others) for sent, read, _ in slowest)
    return by_clock(ran) | {"retransmission": held_ns / ran.total_ns}


def full(chance: Random) -> Plan:
    """The receive buffer of a UDP socket is full, as its reader sleeps: most datagrams are dropped."""
    ms = chance.uniform(10, 30)
    # Bytes of the kernel's own count: some 20 datagrams of the smallest size.
    reader = {"udp": True, "rcvbuf": 16 << 10, "steps": [("sleep", ms)]}
    more = ends(
        [{"size": chance.randint(64, 200), "gap": chance.uniform(1, 2)}], 200, reader=reader, sender={"udp": True}
    )
    return Plan({"reader-asleep": 1}, READER, **more)


def hole(chance: Random) -> Plan:
    """A message is lost, and those behind it wait in the receiving socket."""
    ms, gap = chance.randint(50, 90), chance.uniform(2, 4)
    more = ends([{"size": chance.randint(64, 1200), "gap": gap}], 140, sender={"sndbuf": 4 << 20})
    prepare = [_TIMER_ONLY, route("rto_min", f"{ms}ms", "initcwnd", "100")]
    wire = {"delay": [0, 0], "lose": (60, 10)}
    return Plan({"stream-hole": 0.9}, "network", wire=wire, prepare=prepare, proof=_behind, **more)


def _behind(ran: Ran) -> Mapping[str, float]:
    # Of those that wait together, the first is the one that was lost.
    times_ns = [read - sent for sent, read, _ in ran.messages]
    slowest_ns = sorted(times_ns)[-ran.lost :]
    return by_clock(ran) | {
        "stream-hole": 1 - sum(slowest_ns) / ran.total_ns - _usual(times_ns),
        "retransmission": sum(slowest_ns) / ran.total_ns,
    }


def _usual(times_ns: list[int]) -> float:
    # What those that nothing holds take.
    return min(times_ns) * len(times_ns) / sum(times_ns)
