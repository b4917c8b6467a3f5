# SPDX-License-Identifier: Apache-2.0
"""All scenarios, and as many different cases of them as are asked for."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

from tests.lab.causes import arrival, healthy, loss, mixed, path, queue, reader, servers, tcp
from tests.lab.causes.case import Case

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.lab.causes.case import Plan, Scenario

_FIRST_PORT: Final = 20_000

SINGLE: Final[Mapping[str, Scenario]] = {
    "asleep": reader.asleep,
    "stopped": reader.stopped,
    "no CPU": reader.no_cpu,
    "no CPU for a while": reader.no_cpu_for_a_while,
    "throttled": reader.throttled,
    "computing": reader.computing,
    "computing, interrupted": reader.computing_interrupted,
    "window, far": tcp.window_far,
    "window, slow reader": tcp.window_of_a_slow_reader,
    "slow start": tcp.slow_start,
    "pacing": tcp.paced,
    "Nagle": tcp.nagle,
    "cork": tcp.corked,
    "more to come": tcp.more_to_come,
    "small queue": tcp.small_queue,
    "send buffer": tcp.send_buffer,
    "send lock": tcp.send_lock,
    "rate": queue.rate,
    "own ahead": queue.own,
    "others ahead": queue.others,
    "lost": loss.again,
    "lost, queue": loss.queue,
    "hole": loss.hole,
    "neighbour": path.neighbour,
    "netfilter": path.netfilter,
    "netfilter, sending": path.netfilter_sending,
    "softirq": arrival.softirq,
    "poller": arrival.poller,
    "GRO": arrival.gro,
    "application": path.application,
    "nginx, no CPU": servers.nginx_without_cpu,
    "redis, asleep": servers.redis_asleep,
    "redis, computing": servers.redis_computing,
    "PostgreSQL, locked": servers.postgres_locked,
    "receive buffer full": loss.full,
}
HEALTHY: Final[Mapping[str, Scenario]] = {
    "healthy, asking": healthy.asking,
    "healthy, streaming": healthy.streaming,
    "healthy, idle": healthy.idle,
    "healthy, nginx": servers.healthy("nginx"),
    "healthy, redis": servers.healthy("redis"),
    "healthy, PostgreSQL": servers.healthy("postgres"),
}
# Profile of the recording → scenarios whose cause it cannot tell.
_UNTOLD: Final = {
    "packets": ("asleep", "stopped", "no CPU for a while", "computing"),
    "tx": ("asleep", "no CPU for a while", "computing", "hole"),
    "rx": ("window, far", "slow start", "pacing", "cork", "neighbour"),
}
# What is the cause as far as a sender sees: a reader that does not read lets its window fill up; of those behind one
# that was lost, the sender does not see that they have arrived.
_SHOWN: Final = {
    **dict.fromkeys((("asleep", "tx"), ("no CPU for a while", "tx"), ("computing", "tx")), "receiver-window"),
    ("hole", "tx"): "retransmission",
}


def _without(name: str, profile: str) -> Scenario:
    def scenario(chance: Random) -> Plan:
        shows = _SHOWN.get((name, profile), "")
        return SINGLE[name](chance).but(record=("-P", profile), lacking=True, shows=shows)

    return scenario


LACKING: Final[Mapping[str, Scenario]] = {
    f"{name} (-P {profile})": _without(name, profile) for profile, names in _UNTOLD.items() for name in names
}
SCENARIOS: Final[Mapping[str, Scenario]] = {**SINGLE, **HEALTHY, **mixed.SCENARIOS, **LACKING}
# What kinds the cases are of, in turn.
_KINDS: Final[Sequence[Mapping[str, Scenario]]] = (
    *(SINGLE, HEALTHY, SINGLE, mixed.SCENARIOS, SINGLE),
    *(LACKING, SINGLE, HEALTHY, SINGLE, mixed.SCENARIOS),
)


def cases(count: int, seed: int = 1, only: str = "") -> Iterator[Case]:
    """Make cases; the n-th of a seed is always the same.

    Parameters
    ----------
    only
        Name of a scenario, if all are to be of it.
    """
    turns = {id(kind): _endless(list(kind)) for kind in _KINDS}
    for number in range(count):
        name = only or next(turns[id(_KINDS[number % len(_KINDS)])])
        yield case(name, number, seed)


def case(name: str, number: int, seed: int) -> Case:
    """Make the n-th case of a seed."""
    chance = Random(f"{seed} {number} {name}")  # noqa: S311 # no secret
    return Case(name, number, _FIRST_PORT + number, SCENARIOS[name](chance))


def _endless(names: Sequence[str]) -> Iterator[str]:
    while True:
        yield from names
