# SPDX-License-Identifier: Apache-2.0
"""Recordings for fleets, made up by tests: of any host, and of several hours."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from hopscope.store.fleet.hours import recorded, store
from hopscope.store.fleet.raw import Raw
from hopscope.store.meta import FILE, Metadata
from tests.lab.traces import REALTIME_NS, STARTED_NS, MadeTrace

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from hopscope.store.fleet.raw import Leaf
    from hopscope.verbs.fleet.raw.answer import Found
    from hopscope.verbs.fleet.raw.asked import Asked

SECOND: Final = 10**9
HOUR: Final = 3600 * SECOND
# When the first full hour is, since the start of a made trace.
FULL_HOUR: Final = HOUR - REALTIME_NS % HOUR


def change(folder: Path, **fields: object) -> None:
    """Have a trace say other things of itself."""
    (folder / FILE).write_bytes(replace(Metadata.read(folder), **fields).packed())  # type: ignore[arg-type]


def put(fleet: Path, *folders: Path) -> list[Leaf]:
    """Store recordings, and return what they became."""
    found = []
    for folder in folders:
        for each in recorded(folder)[0]:
            found += store(each, Raw(fleet)).leaves
    return found


def in_process(asked: Asked, leaves: Sequence[Leaf]) -> Found:
    """Answer a question here, which takes no time to start."""
    from hopscope.verbs.fleet.raw.answer import Found  # noqa: PLC0415 # they need pyarrow
    from hopscope.verbs.fleet.raw.parts import parts_of  # noqa: PLC0415
    from hopscope.verbs.fleet.raw.question import lines_of, note_lines  # noqa: PLC0415

    whole = parts_of(asked, [(leaf.host, leaf.name, str(leaf.folder)) for leaf in leaves])
    lines, count = lines_of(asked.asked, whole.rows, asked.limit)
    return Found(lines.to_pylist(), count, note_lines(whole.notes).to_pylist())


def host(name: str, boot: str = "") -> dict[str, str]:
    """Return what a recording says of its host."""
    return {"name": name, "boot": boot or f"boot-of-{name}", "release": "6.12.0", "machine": "x86_64"}


def long_trace(folder: Path, name: str, *, seed: int = 7, packets: int = 400, around: Iterable[int] = range(3)) -> Path:
    """Write a recording of three hours: packets at random, near full hours most of all, drops, losses and counters.

    `around`: near which full hours; after a quarter of an hour there is something in any case.
    """
    chance = random.Random(seed)  # noqa: S311 # the same each time
    made = MadeTrace(host=host(name))
    eth0 = made.device("eth0", 2)
    flow = made.flow("10.0.0.1:40000", "10.0.0.2:80")
    made.thread(17, "nginx", 15)
    made.reasons[5] = "NO_SOCKET"
    hours = [FULL_HOUR + number * HOUR for number in around]
    # Each address is used again and again, one packet after the other.
    times = sorted(
        [chance.choice(hours) + chance.randrange(-2 * SECOND, 2 * SECOND) for _ in range(packets)]
        + [900 * SECOND + chance.randrange(SECOND) for _ in range(packets // 4)]
    )
    for number, at in enumerate(times):
        where = {"skb": -4096 * (number + 1), "packet": number, "flow": flow, "len_bytes": 100, **eth0}
        steps = ("rx.driver", "rx.core", "rx.ip", "rx.l4", "rx.tcp_queue", "rx.copy")
        for point in steps:
            made.packet(point, at, cpu=chance.randrange(2), **where)
            at += chance.randrange(1, SECOND)  # noqa: PLW2901 # its next event
        if chance.random() < 0.1:
            made.drop(at, reason=5, location=-99, **where)
    made.add("symbols", address=-99, name="tcp_v4_rcv+0x12")
    for number, at in enumerate(range(0, 3 * HOUR, 61 * SECOND)):
        made.add("readings", time_ns=STARTED_NS + at, until_ns=STARTED_NS + at + 1)
        for counter, value in (("UdpInErrors", number * number), ("TcpRetransSegs", number // 9)):
            changed = counter == "UdpInErrors" or number % 9 == 0
            if changed:
                made.add("counters", time_ns=STARTED_NS + at, source="snmp", name=counter, value=value, present=1)
    made.lose(FULL_HOUR - SECOND, FULL_HOUR + SECOND, lost=7)
    made.lose(FULL_HOUR + HOUR - 5, FULL_HOUR + HOUR - 1, lost=3)
    made.write(folder)
    change(folder, ended_ns=STARTED_NS + 3 * HOUR)
    return folder
