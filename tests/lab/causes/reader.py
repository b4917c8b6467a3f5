# SPDX-License-Identifier: Apache-2.0
"""Messages that have arrived, and whose reader sleeps, has no CPU, or does other things."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.lab.causes.case import Plan, ends

if TYPE_CHECKING:
    from random import Random

    from tests.lab.causes.actors.common import Options

READER: Final = "hs-reader"
_HOG: Final = "hs-hog"
_SIZES: Final = (64, 300, 1400, 8000)
_ASLEEP: Final = ("sleep", "poll", "futex")
# Of one case, without its set-up.
LENGTH_MS: Final = 500


def asleep(chance: Random) -> Plan:
    """It has seen the message, and sleeps before it reads; or it is always behind."""
    ms, wait = chance.uniform(2, 15), chance.random() < 0.5
    step = (chance.choice(_ASLEEP), ms)
    return Plan({"reader-asleep": 1}, READER, **_stepping(chance, [step], ms, wait=wait))


def stopped(chance: Random) -> Plan:
    """It is stopped (SIGSTOP) most of the time."""
    stops = {"stop": chance.uniform(20, 60), "rest": chance.uniform(3, 10)}
    pattern = [{"size": chance.choice(_SIZES), "gap": chance.uniform(3, 7)}]
    return Plan({"reader-asleep": 1}, READER, stops=stops, **ends(pattern, 100))


def no_cpu(chance: Random) -> Plan:
    """Others have its CPU, and keep it for as long as the scheduler lets them."""
    hogs: list[Options] = [{}] * chance.randint(2, 4)
    pattern = [{"size": chance.choice(_SIZES), "gap": chance.uniform(6, 15)}]
    # Of this policy, it does not take the CPU from others when it is woken up; what it computes, it has to give back.
    reader = {"policy": "batch", "nice": chance.randint(6, 12), "steps": [("spin", 0.2)]}
    return Plan({"reader-runnable": 1}, _HOG, hogs=hogs, before_others=False, **ends(pattern, 50, reader=reader))


def no_cpu_for_a_while(chance: Random) -> Plan:
    """One of higher priority begins to compute on its CPU when the message is sent."""
    ms = chance.uniform(2, 12)
    return Plan({"reader-runnable": 1}, _HOG, **poked(chance, [True], ms))


def throttled(chance: Random) -> Plan:
    """Its cgroup has used up its CPU time."""
    quota_us, period_us = 2000, chance.randint(30, 60) * 1000
    pattern = [{"size": chance.choice(_SIZES), "gap": period_us / 1e3 * chance.uniform(0.6, 0.8)}]
    more = ends(pattern, 16, reader={"steps": [("spin", 1.6)], "wait": True})
    return Plan({"reader-runnable": 1}, "cgroup /hopscope-causes-", before_others=False, most=(quota_us, period_us), **more)


def computing(chance: Random) -> Plan:
    """It has seen the message, and computes before it reads."""
    ms = chance.uniform(2, 12)
    return Plan({"reader-running": 1}, READER, **_stepping(chance, [("spin", ms)], ms))


def computing_interrupted(chance: Random) -> Plan:
    """The same, while one of higher priority takes the CPU for 0.2 ms every 5 ms."""
    ms = chance.uniform(6, 12)
    hog = {"run": 0.2, "rest": 4.8, "policy": "fifo", "priority": 10}
    return Plan({"reader-running": 1}, READER, hogs=[hog], **_stepping(chance, [("spin", ms)], ms))


def in_turn(chance: Random, first: str, second: str) -> Plan:
    """Seven messages wait for one of `sleep`, `spin` and `hog`, three for another, each for as long."""
    ms = chance.uniform(4, 9)
    causes = {"sleep": "reader-asleep", "spin": "reader-running", "hog": "reader-runnable"}
    turns = [first] * 7 + [second] * 3
    steps = [None if turn == "hog" else (turn, ms) for turn in turns]
    truth = {causes[first]: 0.7, causes[second]: 0.3}
    culprit = _HOG if first == "hog" else READER
    if "hog" in turns:
        return Plan(truth, culprit, **poked(chance, [turn == "hog" for turn in turns], ms, steps))
    return Plan(truth, culprit, **_stepping(chance, steps, ms, count=20 * round(LENGTH_MS / ms / 20)))


def poked(chance: Random, turns: list[bool], ms: float, steps: list[Any] | None = None) -> dict[str, Any]:
    """Return traffic some of whose messages, in turn, wake a hog that computes for so many ms."""
    size, gap = chance.choice(_SIZES), ms * chance.uniform(1.3, 1.6) + 1
    pattern = [{"size": size, "gap": gap, "poke": turn} for turn in turns]
    count = max(10, round(LENGTH_MS / gap / 10) * 10)
    more = ends(pattern, count, reader={"steps": steps or [], "wait": True})
    return more | {"hogs": [{"poked": True, "run": ms, "policy": "fifo", "priority": 10}]}


def _stepping(chance: Random, steps: list[Any], ms: float, *, wait: bool = True, count: int = 0) -> dict[str, Any]:
    gap = ms * (chance.uniform(1.15, 1.5) if wait else chance.uniform(0.5, 0.8))
    pattern = [{"size": chance.choice(_SIZES), "gap": gap} for _ in steps]
    return ends(pattern, count or round(LENGTH_MS / ms), reader={"steps": steps, "wait": wait})
