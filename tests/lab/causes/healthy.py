# SPDX-License-Identifier: Apache-2.0
"""Messages that nothing holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.lab.causes.case import Plan, ends

if TYPE_CHECKING:
    from random import Random


def asking(chance: Random) -> Plan:
    """Requests and answers at a moderate rate."""
    sizes = [chance.choice((64, 300, 1400, 8000, 32_000)) for _ in range(2)]
    pattern = [{"size": sizes[0], "reply": sizes[1], "gap": chance.uniform(2, 8)}]
    return Plan({}, "", **ends(pattern, 80))


def streaming(chance: Random) -> Plan:
    """A stream with plenty of room."""
    pattern = [{"size": chance.randint(1, 64) << 10, "gap": chance.uniform(2, 8)}]
    more = ends(pattern, 80, reader={"rcvbuf": 8 << 20}, sender={"sndbuf": 8 << 20})
    return Plan({}, "", **more)


def idle(chance: Random) -> Plan:
    """A message now and then."""
    pattern = [{"size": chance.randint(16, 1400), "gap": chance.uniform(50, 100)}]
    return Plan({}, "", **ends(pattern, 6))
