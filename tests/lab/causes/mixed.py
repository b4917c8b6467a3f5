# SPDX-License-Identifier: Apache-2.0
"""Messages that are held by two causes, 70 % and 30 % of the time."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tests.lab.causes import loss, path, queue, tcp
from tests.lab.causes.case import Plan
from tests.lab.causes.reader import in_turn
from tests.lab.causes.world import DEVICE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from random import Random

    from tests.lab.causes.case import Scenario

_FIRST: Final = 0.7


def then_asleep(  # noqa: PLR0913 # what may be said of a cause
    chance: Random,
    cause: str,
    traffic: Callable[..., dict[str, Any]],
    culprit: str,
    *,
    held_of: int = 1,
    least_ms: int = 20,
) -> Plan:
    """One message of `held_of` is held for so long, then each waits for a reader that sleeps."""
    ms = chance.uniform(least_ms, 2 * least_ms)
    reader = {"wait": True, "steps": [("sleep", ms / held_of / _FIRST * (1 - _FIRST))]}
    return Plan({cause: _FIRST, "reader-asleep": 1 - _FIRST}, culprit, **traffic(chance, ms, **reader))


def nagle_then_asleep(chance: Random) -> Plan:
    """Every second message waits for an acknowledgement, then for a reader that sleeps."""
    reader = {"wait": True, "steps": [None, ("sleep", 17)]}
    return Plan({"nagle": _FIRST, "reader-asleep": 1 - _FIRST}, tcp.SENDER, **tcp.nagling(chance, **reader))


SCENARIOS: Final[Mapping[str, Scenario]] = {
    "asleep, running": partial(in_turn, first="sleep", second="spin"),
    "running, asleep": partial(in_turn, first="spin", second="sleep"),
    "asleep, runnable": partial(in_turn, first="sleep", second="hog"),
    "runnable, asleep": partial(in_turn, first="hog", second="sleep"),
    "running, runnable": partial(in_turn, first="spin", second="hog"),
    "runnable, running": partial(in_turn, first="hog", second="spin"),
    "cork, asleep": partial(then_asleep, cause="cork", traffic=tcp.corking, culprit=tcp.SENDER),
    "neighbour, asleep": partial(then_asleep, cause="neighbour", traffic=path.unresolved, culprit=DEVICE),
    "pacing, asleep": partial(then_asleep, cause="pacing", traffic=tcp.pacing, culprit=tcp.SENDER),
    "shaper, asleep": partial(then_asleep, cause="shaper", traffic=queue.alone, culprit=DEVICE, held_of=2),
    "others, asleep": partial(then_asleep, cause="queue-others", traffic=queue.behind, culprit=DEVICE),
    "retransmission, asleep": partial(
        then_asleep, cause="retransmission", traffic=loss.losing, culprit="network", held_of=3, least_ms=40
    ),
    "nagle, asleep": nagle_then_asleep,
}
