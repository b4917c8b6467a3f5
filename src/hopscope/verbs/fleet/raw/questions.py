# SPDX-License-Identifier: Apache-2.0
"""All questions on recordings of a fleet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.verbs.fleet.raw.counted import COUNTERS, DROPS, FINDINGS, FLOWS, HOSTS_RECORDED
from hopscope.verbs.fleet.raw.timed import CAUSES, HOPS, MESSAGES, PACKETS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hopscope.verbs.fleet.raw.question import Question

QUESTIONS: Final[Mapping[str, Question]] = {
    each.name: each for each in (HOSTS_RECORDED, HOPS, DROPS, COUNTERS, FINDINGS, FLOWS, PACKETS, MESSAGES, CAUSES)
}
