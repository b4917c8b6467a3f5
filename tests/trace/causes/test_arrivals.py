# SPDX-License-Identifier: Apache-2.0
"""What a packet waited for before the stack's core took it, in made-up traces; live ones are in test_causes.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hopscope.store.trace import Trace
from hopscope.trace.relation import build
from hopscope.trace.selection import Selection
from hopscope.verbs.explain.analysis import explain
from tests.lab.traces import UDP, MadeTrace

if TYPE_CHECKING:
    from pathlib import Path

    from hopscope.verbs.explain.explanation import Explanation

CLIENT, SERVER, SOMEBODY = 100, 200, 300
MS = 1_000_000
# The core takes the packet so long after the driver.
LATE_NS = 5 * MS
CPU = 1
TIMER = 1


def explained(made: MadeTrace, folder: Path) -> tuple[Explanation, dict[str, int]]:
    """Return what is said of a datagram that the core of CPU 1 takes late, and the time of each cause."""
    flow = made.flow("10.0.0.1:4000", "10.0.0.2:53", UDP)
    made.socket("call.enter", 1_000, tid=CLIENT)
    for point, at in (("tx.queue", 2_000), ("tx.start", 3_000), ("rx.driver", 4_000)):
        told = {"flow": flow, "header_bytes": 42, "seq": 1}
        made.packet(point, at, skb=0x1000, head=0x1040, tid=CLIENT, len_bytes=142, **told)
    made.socket("tx.sent", 5_000, tid=CLIENT, sock=8, len_bytes=100, protocol=UDP)
    core = 4_000 + LATE_NS
    for point, at in (("rx.core", core), ("rx.l4", core + 1_000)):
        made.packet(point, at, skb=0x1000, head=0x1040, cpu=CPU, tid=SOMEBODY, len_bytes=142)
    made.socket("rx.ready", core + 2_000, cpu=CPU, tid=SOMEBODY, sock=7, protocol=UDP)
    made.socket("rx.received", core + 3_000, cpu=CPU, tid=SERVER, sock=7, len_bytes=100, protocol=UDP)
    made.write(folder)
    with Trace(folder) as trace:
        explanation = explain(trace, Selection())
        build(trace, "message_causes")
        ((total_ns,),) = trace.rows("SELECT total_ns FROM messages")
    held = {each.cause: each.time_ns for each in explanation.causes}
    assert sum(held.values()) == total_ns == LATE_NS + 6_000
    return explanation, held


def waits(made: MadeTrace, wait_ns: int, *, cpu: int = CPU, other: int | None = None) -> None:
    """Put down that the softirq of a CPU was pending until just before the core took the packet."""
    made.work(
        "softirq.wait", 4_000 + LATE_NS, cpu=cpu, subject=3, value=wait_ns, extra=0 if other is None else other + 1
    )


def test_only_what_it_waited_itself_for_its_own_cpu_counts(tmp_path: Path) -> None:
    made = MadeTrace()
    waits(made, 9 * MS)
    waits(made, 9 * MS, cpu=0)
    explanation, held = explained(made, tmp_path)
    assert explanation.finding == "softirq-wait"
    assert (held["softirq-wait"], held.get("backlog", 0)) == (LATE_NS, 0)


@pytest.mark.parametrize(
    ("other", "said"), [(TIMER, "the softirq TIMER ran meanwhile"), (None, "thread 300 had the CPU")]
)
def test_another_softirq_is_told_from_a_thread(tmp_path: Path, other: int | None, said: str) -> None:
    made = MadeTrace()
    waits(made, 4 * MS, other=other)
    made.work("sched.turn", 4_000 + LATE_NS, cpu=CPU, tid=SOMEBODY, value=20 * MS)
    explanation, held = explained(made, tmp_path)
    assert held["softirq-wait"] == 4 * MS
    (cause,) = [each for each in explanation.causes if each.cause == "softirq-wait"]
    assert said in cause.sentence


def test_what_gro_kept_is_no_wait_for_the_softirq_too(tmp_path: Path) -> None:
    made = MadeTrace()
    made.work("gro.hold", 4_000 + LATE_NS, cpu=CPU, subject=0x1000, value=LATE_NS)
    waits(made, MS)
    explanation, held = explained(made, tmp_path)
    assert (held["gro"], held["softirq-wait"]) == (LATE_NS - MS, MS)
    assert explanation.finding == "gro"
