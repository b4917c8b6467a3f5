# SPDX-License-Identifier: Apache-2.0
"""`report interrupts` beside what the kernel counts in /proc, and of traces in which everything is known."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, Final

import pytest

from hopscope.store.trace import Trace
from hopscope.trace.selection import Selection
from hopscope.verbs.report.interrupts import interrupts
from tests.lab.command import hopscope
from tests.lab.traces import STARTED_NS, MadeTrace

if TYPE_CHECKING:
    from pathlib import Path

    from hopscope.model.report import Report

# Reads the kernel's counts, has datagrams received and a disk written to, and reads them again.
PROGRAM: Final = """
import json, os, socket, sys, tempfile, time
def look():
    before = time.monotonic_ns()
    texts = [open(f"/proc/{name}").read() for name in ("interrupts", "softirqs")]
    return before, texts, time.monotonic_ns()
first = look()
receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
receiver.bind(("127.0.0.1", 0))
for _ in range(300):
    receiver.sendto(bytes(100), receiver.getsockname())
    receiver.recv(100)
with open(sys.argv[1], "wb") as file:
    for _ in range(20):
        file.write(bytes(4096))
        os.fsync(file.fileno())
print(json.dumps([first, look()]))
"""
HANDLER, OTHER = -4096, -8192


def counted(texts: list[str]) -> dict[tuple[str, str], int]:
    """Return how often each numbered interrupt, and each softirq, came to all CPUs together."""
    found = {}
    for kind, text in zip(("irq", "softirq"), texts, strict=True):
        heading, *lines = text.splitlines()
        for line in lines:
            label, *words = line.split()
            if kind == "softirq" or label[:-1].isdigit():
                found[kind, label[:-1]] = sum(map(int, words[: len(heading.split())]))
    return found


def counts(report: Report) -> dict[tuple[str, str], int]:
    rows = zip(*map(report.column, ("kind", "number", "name", "count")), strict=True)
    return {(str(kind), str(number if kind == "irq" else name)): int(str(count)) for kind, number, name, count in rows}


@pytest.mark.root
def test_counts_and_names_are_those_of_proc(tmp_path: Path) -> None:
    folder = tmp_path / "trace"
    watched = (sys.executable, "-c", PROGRAM, tmp_path / "written")
    done = hopscope("record", "-P", "cpu", "-o", folder, "--", *watched)
    assert done.returncode == 0, done.stderr
    looks = json.loads(done.stdout.splitlines()[0])
    (_, texts, seen_ns), (looked_ns, later, _) = looks
    before, after = counted(texts), counted(later)
    with Trace(folder) as trace:

        def between(from_ns: int, until_ns: int) -> Report:
            first_ns = trace.metadata.started_ns
            return interrupts(trace, Selection(from_s=(from_ns - first_ns) / 1e9, until_s=(until_ns - first_ns) / 1e9))

        inside, around = between(seen_ns, looked_ns), between(looks[0][0], looks[1][2])
        whole = interrupts(trace, Selection())
    least, most = counts(inside), counts(around)
    for key in most.keys() - {("poll", each) for _, each in most}:
        assert least.get(key, 0) <= after[key] - before[key] <= most[key], key
    assert least["softirq", "NET_RX"] >= 300
    names = {line.split()[0][:-1]: line for line in later[0].splitlines()[1:]}
    for kind, number, name, handler, handled in zip(
        *map(whole.column, ("kind", "number", "name", "handler", "handled")), strict=True
    ):
        if kind == "irq":
            assert names[str(number)].endswith(f"  {name}")
            assert handler
            assert handled is not None


def small() -> MadeTrace:
    """Return a trace with a shared interrupt, of which one handler is lost in part, and two softirqs."""
    made = MadeTrace()
    made.add("symbols", address=HANDLER, name="e1000_intr+0x0")
    made.add(
        "counters", time_ns=STARTED_NS, source="interrupt", subject="11 eth0, ahci", name="cpu 0", value=5, present=1
    )
    for number, other in enumerate((0, 0, 1)):
        at = 1_000_000 * number
        made.work("irq.enter", at, subject=11, value=HANDLER)
        made.work("irq.exit", at + 2_000, subject=11, value=1 - other)
        made.work("irq.enter", at + 2_100, subject=11, value=OTHER)
        made.work("irq.exit", at + 2_500, subject=11, value=other)
    made.work("softirq.raise", 100, subject=3)  # the first of all may have been raised before
    made.work("softirq.enter", 3_000, subject=3)
    made.work("softirq.raise", 4_000, subject=3)  # runs once more
    made.work("softirq.raise", 4_500, subject=3)
    made.work("softirq.raise", 4_600, subject=1)
    made.work("napi.poll", 5_000, subject=-7, value=64, extra=64, **made.device("eth0", 2))
    made.work("napi.poll", 6_000, subject=-8, value=3, extra=64)
    made.work("softirq.exit", 7_000, subject=3)
    made.work("softirq.enter", 9_000, subject=3)
    made.work("softirq.exit", 9_500, subject=3)
    made.work("softirq.raise", 9_600, subject=3, cpu=1)
    return made


def values(report: Report, *names: str) -> list[tuple[Any, ...]]:
    return list(zip(*map(report.column, names), strict=True))


def test_each_handler_of_a_shared_interrupt_has_a_row(tmp_path: Path) -> None:
    with Trace(small().write(tmp_path / "trace")) as trace:
        report = interrupts(trace, Selection())
        assert values(report, "kind", "name", "handler", "count", "sum_ns", "max_ns")[:2] == [
            ("irq", "eth0, ahci", "e1000_intr", 3, 6_000, 2_000),
            ("irq", "eth0, ahci", None, 3, 1_200, 400),
        ]
        assert report.column("handled")[:2] == [pytest.approx(2 / 3), pytest.approx(1 / 3)]
        assert values(report, "name", "count", "packets", "packets_per_poll", "full")[3:] == [
            ("backlog", 1, 3, 3.0, 0),
            ("eth0", 1, 64, 64.0, 1),
        ]
        assert interrupts(trace, Selection(), limit=2).left_out == 3


def test_a_softirq_waits_from_its_first_raise_on(tmp_path: Path) -> None:
    made = small()
    with Trace(made.write(tmp_path / "trace")) as trace:
        report = interrupts(trace, Selection())
        found = values(report, "name", "cpus", "count", "sum_ns", "delay_max_ns", "handled")
        assert found[2] == ("NET_RX", 1, 2, 4_500, 5_000, None)
    # What is missing in between may have been another end or beginning.
    made.lose(8_000, 8_500)
    made.lose(0, 10_000, cpu=1)
    with Trace(made.write(tmp_path / "lost")) as trace:
        report = interrupts(trace, Selection())
        assert values(report, "name", "count", "sum_ns", "delay_max_ns")[2] == ("NET_RX", 2, 4_500, None)
        assert any(note.startswith("lost: 2 events") for note in report.notes)


def test_a_trace_without_them_says_how_to_record_them(tmp_path: Path) -> None:
    with Trace(MadeTrace().write(tmp_path / "empty")) as trace:
        report = interrupts(trace, Selection())
        assert len(report) == 0
        assert "record with `-P cpu`" in report.notes[0]
