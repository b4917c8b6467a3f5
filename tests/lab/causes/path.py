# SPDX-License-Identifier: Apache-2.0
"""Packets that wait for the next hop's address, or are compared with many rules; and requests that wait for answers."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any, Final

from tests.lab.causes.case import Plan, by_clock, ends
from tests.lab.causes.reader import READER
from tests.lab.causes.world import DEVICE, asking, firewall

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

    from tests.lab.causes.case import Ran

# One message of so many is compared with one rule alone.
_LET_BY: Final = 4


def neighbour(chance: Random) -> Plan:
    """The next hop's address has been forgotten, and who knows it answers late."""
    return Plan({"neighbour": 1}, DEVICE, **unresolved(chance, chance.uniform(5, 40)))


def unresolved(chance: Random, ms: float, **reader: Any) -> dict[str, Any]:  # noqa: ANN401 - of the reader
    """Return traffic each message of which waits so many ms for the next hop's address."""
    pattern = [{"size": chance.randint(64, 1400), "neighbour": ms, "gap": chance.uniform(1, 5) + ms / 2}]
    return ends(pattern, max(6, round(300 / ms)), reader=reader) | {"prepare": [asking]}


def netfilter(chance: Random) -> Plan:
    """The receiver compares each packet with thousands of rules."""
    return _compared(chance, chance.choice(("input", "prerouting")))


def netfilter_sending(chance: Random) -> Plan:
    """The sender does."""
    return _compared(chance, chance.choice(("output", "postrouting")))


def _compared(chance: Random, hook: str) -> Plan:
    count = chance.randint(18_000, 25_000)
    rules = [f"ip saddr 10.{number >> 8 & 127}.{number & 255}.7 drop" for number in range(count)]
    pattern = [{"size": chance.randint(64, 500), "gap": chance.uniform(2, 4)} for _ in range(_LET_BY - 1)]
    pattern.append({"size": chance.randint(900, 1400), "gap": chance.uniform(2, 4)})
    more = ends(pattern, 100)
    prepare = [firewall(hook, "meta length > 800 accept", *rules)]
    # Before and after the rules of each version of IP.
    return Plan({"netfilter": 0.65}, hook, prepare=prepare, links=4, proof=_beyond_usual, **more)


def _beyond_usual(ran: Ran) -> Mapping[str, float]:
    # What large messages take, which the first rule lets by, is what all take but for the rules.
    times_ns = [read - sent for sent, read, _ in ran.messages]
    usual_ns = statistics.median(times_ns[_LET_BY - 1 :: _LET_BY])
    compared = [time for number, time in enumerate(times_ns, 1) if number % _LET_BY]
    beyond_ns = (statistics.median(compared) - usual_ns) * len(compared)
    return by_clock(ran) | {"netfilter": max(0, beyond_ns / ran.total_ns)}


def application(chance: Random) -> Plan:
    """The server sleeps or computes before it answers."""
    step = (chance.choice(("sleep", "spin")), chance.uniform(3, 12))
    pattern = [{"size": chance.randint(64, 1400), "reply": chance.randint(64, 1400)}]
    more = ends(pattern, round(400 / step[1]), reader={"before_reply": step})
    return Plan({"application": 1}, READER, proof=_of_requests, **more)


def _of_requests(ran: Ran) -> Mapping[str, float]:
    # From the first request to the last: they come one after the other.
    whole_ns = ran.messages[-1][1] - ran.messages[0][0]
    answered = ran.intervals["application"][:-1]
    return {"application": sum(end - begin for begin, end in answered) / whole_ns}
