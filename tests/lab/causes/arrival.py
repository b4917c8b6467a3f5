# SPDX-License-Identifier: Apache-2.0
"""Packets that have come, but that nobody takes: the softirq or the thread that polls has no CPU, or GRO keeps them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.lab.causes.case import READER_CPU, SENDER_CPU, Plan, by_clock, ends
from tests.lab.causes.world import keeping, receiving_on, threaded_on

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

    from tests.lab.causes.case import Ran
    from tests.lab.causes.world import Prepare

_WAIT: Final = "softirq-wait"
_HOG: Final = "hs-hog"


def softirq(chance: Random) -> Plan:
    """One on the CPU that receives has softirqs disabled most of the time."""
    hog = {"masks": True, "policy": "fifo", "priority": 1}
    return _late(chance, hog, receiving_on(READER_CPU))


def poller(chance: Random) -> Plan:
    """A thread polls the device, and one of higher priority has its CPU most of the time."""
    return _late(chance, {"policy": "fifo", "priority": 10}, threaded_on(READER_CPU))


def _late(chance: Random, hog: dict[str, Any], prepare: Prepare) -> Plan:
    run, rest = chance.uniform(8, 30), chance.uniform(2, 4)
    hogs = [hog | {"run": run, "rest": rest, "cause": _WAIT}]
    udp = chance.random() < 0.5
    # What TCP has to send while nothing is acknowledged would wait for that, too.
    gap = chance.uniform(2, 9) if udp else run + rest * chance.uniform(0.5, 1.5)
    pattern = [{"size": chance.randint(64, 1400), "gap": gap}]
    count = max(12, round(600 / max(run, gap)))
    more = ends(pattern, count, reader={"cpu": SENDER_CPU, "udp": udp}, sender={"udp": udp})
    return Plan({_WAIT: 0.9}, _HOG, hogs=hogs, prepare=[prepare], **more)


def gro(chance: Random) -> Plan:
    """GRO may keep a datagram for so long, and nothing comes that it could be merged with."""
    ms = chance.uniform(4, 25)
    pattern = [{"size": chance.randint(64, 1200), "gap": ms * chance.uniform(1.3, 1.6) + 1}]
    more = ends(pattern, max(10, round(300 / ms)), reader={"udp": True, "gro": True}, sender={"udp": True})

    def proof(ran: Ran) -> Mapping[str, float]:
        kept = sum(min(ms * 1e6, read - sent) for sent, read, _ in ran.messages)
        return by_clock(ran) | {"gro": kept / ran.total_ns if ran.median_ns >= ms * 1e6 else 0}

    return Plan({"gro": 0.9}, "server0", prepare=[keeping(ms)], proof=proof, **more)
