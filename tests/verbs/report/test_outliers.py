# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from hopscope.store.trace import Trace
from hopscope.term.terminal import Terminal
from hopscope.trace.selection import Selection
from hopscope.verbs.report.outliers import outliers
from hopscope.verbs.report.outliers_text import render_outliers
from tests.lab.message_worlds import CARRIED, Packet, Read, Sent, Stream
from tests.lab.traces import MadeTrace
from tests.shared import first

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hopscope.model.report import Report

EVERY = 1_000_000


def busy(made: MadeTrace, count: int, late: Callable[[int], dict[str, int]], seed: int = 5) -> Stream:
    """Return a stream of messages whose stages take 1 to 4 µs by chance, and by `late` (number → point → ns) longer."""
    chance = Random(seed)  # noqa: S311 # no secret
    stream = Stream(
        made.flow("10.0.0.1:4000", "10.0.0.2:80"), 9, made.thread(100, "client"), made.thread(200, "server")
    )
    for number in range(count):
        clock = number * EVERY
        longer = late(number)

        def then(point: str, longer: dict[str, int] = longer) -> int:
            nonlocal clock
            clock += round(1_000 * 4 ** chance.random()) + longer.get(point, 0)
            return clock

        call, send = clock, then("tx.send")
        stream.sends.append(Sent(number * 100, number * 100 + 100, call, send, call + 500_000))
        times = {point: then(point) for point in CARRIED}
        stream.packets.append(Packet(number * 100, number * 100 + 100, 0x100, times))
        stream.ready.append(then("rx.ready"))
        reads = [then(point) for point in ("sched.wake", "sched.switch", "rx.copy", "rx.read", "rx.received")]
        stream.reads.append(Read(number * 100, number * 100 + 100, *reads))
    return stream


def found(made: MadeTrace, folder: Path) -> Report:
    with Trace(made.write(folder / "trace")) as trace:
        return outliers(trace, Selection())


@pytest.mark.parametrize("seed", first([1, 2, 3]))
def test_a_homogeneous_trace_has_none(seed: int, tmp_path: Path) -> None:
    made = MadeTrace()
    busy(made, 2_000, lambda _: {}, seed).write(made)
    report = found(made, tmp_path)
    assert not len(report)
    assert report.notes == ["no outliers among 2,000 messages: usual paths, usual durations"]


def test_an_interrupt_that_holds_the_softirq_up_is_named(tmp_path: Path) -> None:
    made = MadeTrace()
    stream = busy(made, 1_500, lambda number: {"rx.core": 300_000} if number % 131 == 7 else {})
    stream.write(made)
    for number in range(1_500):
        made.work("irq.enter", number * EVERY + 600_000, subject=27)  # the timer, all the time
        if number % 131 == 7:
            made.work("irq.enter", stream.packets[number].times["rx.driver"] + 1_000, subject=31)
    report = found(made, tmp_path)
    assert report.column("where") == ["rx.driver → rx.core"]
    assert report.column("messages") == [12]
    assert report.column("what") == ["time"]
    assert report.column("blame") == ["backlog"]
    assert report.column("worst_ns")[0] == pytest.approx(302_000, abs=3_000)
    different = str(report.column("different")[0])
    assert different.startswith("interrupt 31 at the same time ")
    assert "27" not in different


def test_another_flow_in_the_way_is_named(tmp_path: Path) -> None:
    made = MadeTrace()
    other = made.flow("10.0.0.9:9", "10.0.0.2:9")
    stream = busy(made, 1_500, lambda number: {"tx.start": 400_000} if number % 149 == 3 else {})
    stream.write(made)
    for number in range(3, 1_500, 149):
        for place in range(40):
            at = stream.packets[number].times["tx.queue"] + 1_000 + place * 9_000
            made.packet("tx.queue", at, skb=0x9000, flow=other, len_bytes=1500, header_bytes=66, tcp_flags=16)
    report = found(made, tmp_path)
    assert report.column("where") == ["tx.queue → tx.start"]
    assert "packets of flow 10.0.0.9:9 > 10.0.0.2:9 at the same time" in str(report.column("different")[0])


def test_the_cpu_that_is_slow_is_named(tmp_path: Path) -> None:
    made = MadeTrace()
    stream = busy(made, 1_500, lambda number: {"rx.l4": 200_000} if number % 100 == 1 else {})
    stream.write(made)
    core = {number for number, name in enumerate(made.rows["packets"])}
    assert core
    for row in made.rows["packets"]:
        number = (row["time_ns"] - 1_000_000_000_000) // EVERY
        row["cpu"] = 3 if number % 100 == 1 else number % 3
    report = found(made, tmp_path)
    assert report.column("where") == ["rx.core → rx.l4"]
    assert "CPU 3 at rx.core" in str(report.column("different")[0])


def test_another_way_is_told_by_what_is_missing(tmp_path: Path) -> None:
    made = MadeTrace()
    stream = busy(made, 1_500, lambda _: {})
    for number in (100, 700, 1_300):
        del stream.packets[number].times["rx.tcp_queue"]
    stream.write(made)
    report = found(made, tmp_path)
    assert report.column("what") == ["way"]
    assert report.column("where") == ["-rx.tcp_queue"]
    assert report.column("messages") == [3]


@pytest.mark.parametrize("widely", [lambda chance: round(1_000 * 4 ** (4 * chance.random())), lambda _: 0])
def test_single_message_that_took_far_longer_is_listed(widely: Callable[[Random], int], tmp_path: Path) -> None:
    """However much the wait for a CPU varies: here from 1 µs to 256 µs."""
    made = MadeTrace()
    chance = Random(3)  # noqa: S311 # no secret
    busy(made, 3_000, lambda number: {"sched.switch": 250_000_000 if number == 2_999 else widely(chance)}).write(made)
    report = found(made, tmp_path)
    assert (report.column("what"), report.column("where")) == (["time"], ["sched.wake → sched.switch"])
    assert report.column("messages") == [1]
    assert report.column("worst_ns")[0] == pytest.approx(250_000_000, rel=0.01)
    assert report.column("worst_at_ns")[0] // EVERY == 2_999


def test_message_far_out_at_a_stage_with_two_usual_times_is_listed(tmp_path: Path) -> None:
    made = MadeTrace()
    late = {0: 400_000, 1: 0, 2: 0, 3: 0}
    busy(made, 1_000, lambda number: {"sched.switch": 250_000_000 if number == 999 else late[number % 4]}).write(made)
    report = found(made, tmp_path)
    assert (report.column("messages"), report.column("worst_at_ns")[0] // EVERY) == ([1], 999)
    assert any("has two usual durations: 25%" in note for note in report.notes)


def test_two_usual_times_are_no_outliers(tmp_path: Path) -> None:
    made = MadeTrace()
    busy(made, 1_000, lambda number: {"sched.switch": 400_000} if number % 4 == 0 else {}).write(made)
    report = found(made, tmp_path)
    assert not len(report)
    assert any("has two usual durations: 25%" in note for note in report.notes)


def test_few_messages_say_nothing(tmp_path: Path) -> None:
    made = MadeTrace()
    busy(made, 23, lambda _: {}).write(made)
    assert found(made, tmp_path).notes[0].startswith("23 messages: too few")


def test_what_is_different_stands_below(tmp_path: Path) -> None:
    made = MadeTrace()
    stream = busy(made, 1_500, lambda number: {"rx.core": 300_000} if number % 131 == 7 else {})
    stream.write(made)
    for number in range(7, 1_500, 131):
        made.work("irq.enter", stream.packets[number].times["rx.driver"] + 1_000, subject=31)
    text = render_outliers(found(made, tmp_path), Terminal(80))
    assert "\n      with interrupt 31 at the same time" in text
    assert "held by" in text
    assert max(map(len, text.split("\n"))) <= 80
