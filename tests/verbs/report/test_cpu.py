# SPDX-License-Identifier: Apache-2.0
"""`report cpu` of traces in which everything is known, and beside what the kernel says of a process."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest

from hopscope.errors import UsageError
from hopscope.store.trace import Trace
from hopscope.trace.selection import Selection
from hopscope.verbs.report.cpu import cpu_over_time, cpu_stacks, cpu_time_between, report_cpu, report_of
from hopscope.verbs.report.pictures import draw_cpu
from tests.lab.command import hopscope, start
from tests.lab.traces import STARTED_NS, MadeTrace
from tests.waiting import TIMEOUT_S, eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.model.report import Report

MS: Final = 1_000_000
# When it may, uses a socket, computes for so much CPU time, says how much it used, and stays until it may end.
PROGRAM: Final = """
import socket, sys, time
sys.stdin.readline()
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
one.bind(("127.0.0.1", 0))
one.sendto(b"x", one.getsockname())
since = time.process_time_ns()
while time.process_time_ns() < since + int(sys.argv[1]):
    pass
one.recv(9)
time.sleep(0.01)  # what is after the last switch to another thread is not certain
print(time.process_time_ns() - since, flush=True)
sys.stdin.readline()
"""


def small() -> MadeTrace:
    """Return a trace of a thread that uses sockets and is interrupted, and of another one that does not."""
    made = MadeTrace()
    made.thread(7, "server")
    made.thread(8, "other")
    made.work("irq.enter", 0, subject=30, cpu=1)
    made.work("irq.exit", 1 * MS, subject=30, cpu=1)
    made.socket("tx.send", 10 * MS, tid=7)
    made.work("softirq.enter", 20 * MS, subject=3)
    made.work("irq.enter", 22 * MS, subject=30)
    made.work("irq.exit", 23 * MS, subject=30)
    made.work("softirq.exit", 30 * MS, subject=3)
    made.work("sched.switch", 50 * MS, tid=7, subject=8)  # who gets it now may leave it meanwhile, unseen
    made.work("sched.switch", 60 * MS, tid=8, subject=7)
    made.work("sched.switch", 70 * MS, tid=7, subject=0)
    made.work("softirq.enter", 80 * MS, subject=1)
    made.work("softirq.exit", 81 * MS, subject=1)
    made.work("softirq.enter", 100 * MS, subject=9, cpu=1)
    return made


def rows(report: Report) -> list[tuple[Any, ...]]:
    return [row[:-1] for row in report.rows()]


def test_the_innermost_has_the_time(tmp_path: Path) -> None:
    with Trace(small().write(tmp_path / "trace")) as trace:
        whole = report_cpu(trace, Selection())
        assert rows(whole) == [
            ("thread", "server (7)", 40 * MS), ("softirq", "NET_RX", 9 * MS), ("irq", "30", 2 * MS),
            ("softirq", "TIMER", 1 * MS),
        ]  # fmt: skip
        assert whole.column("share") == [pytest.approx(each / 100) for each in (40, 9, 2, 1)]
        assert rows(report_cpu(trace, Selection(), by="cpu"))[2:] == [
            ("0", "irq", "30", 1 * MS), ("0", "softirq", "TIMER", 1 * MS), ("1", "irq", "30", 1 * MS),
        ]  # fmt: skip
        interrupted = rows(report_cpu(trace, Selection(), by="process", limit=3))
        assert interrupted[1:] == [("server (7)", "softirq", "NET_RX", 9 * MS), ("-", "irq", "30", 1 * MS)]
        part = report_cpu(trace, Selection(from_s=0.0225, until_s=0.065))
        assert rows(part) == [
            ("thread", "server (7)", 25 * MS), ("softirq", "NET_RX", 7 * MS), ("irq", "30", MS // 2),
        ]  # fmt: skip
        assert "threads without sockets" in part.notes[0]


def test_a_cgroup_has_the_time_of_its_processes_and_what_interrupted_them(tmp_path: Path) -> None:
    made, digits = small(), "0123456789abcdef" * 4
    made.rows["threads"][0]["cgroup_path"] = f"/docker/{digits}"
    made.add("threads", time_ns=STARTED_NS - 1, tid=7, pid=7, comm="server", cgroup_path="/before")
    with Trace(made.write(tmp_path / "trace")) as trace:
        assert rows(report_cpu(trace, Selection(), by="cgroup")) == [
            ("container 0123456789ab", "thread", "server (7)", 40 * MS),
            ("container 0123456789ab", "softirq", "NET_RX", 9 * MS),
            ("-", "irq", "30", 1 * MS), ("-", "softirq", "TIMER", 1 * MS),
            ("container 0123456789ab", "irq", "30", 1 * MS),
        ]  # fmt: skip
        _, series = cpu_over_time(trace, Selection(), 10, by="cgroup")
        assert {name: sum(shares) for name, shares in series} == pytest.approx({
            "container 0123456789ab": 5.0, "-": 0.2,
        })  # fmt: skip
        both = cpu_time_between(trace, np.array([STARTED_NS + each * MS for each in (0, 25, 65)]))
        assert rows(report_of(trace, both.of_slice(1), by="cgroup"))[0][3] == 25 * MS


def test_over_time_and_as_a_flame_graph_it_is_the_same_time(tmp_path: Path) -> None:
    with Trace(small().write(tmp_path / "trace")) as trace:
        bounds_s, series = cpu_over_time(trace, Selection(), 10)
        assert bounds_s == pytest.approx([each / 100 for each in range(11)])
        assert dict(series)["thread"] == pytest.approx([0, 1, 0, 1, 1, 0, 1, 0, 0, 0])
        assert dict(series)["softirq NET_RX"] == pytest.approx([0, 0, 0.9, 0, 0, 0, 0, 0, 0, 0])
        stacks = {(each.part, *each.frames): each.samples for each in cpu_stacks(trace, Selection())}
        assert stacks["CPU 0", "server (7)", "NET_RX", "interrupt 30"] == MS
        assert stacks["CPU 1", "interrupt 30"] == MS
        assert sum(stacks.values()) == sum(report_cpu(trace, Selection()).column("time_ns"))
        assert "<title>interrupt 30\n1.00ms, 1.9%" in draw_cpu(trace, Selection())
        with pytest.raises(UsageError, match="does not say what CPUs did in this period"):
            draw_cpu(trace, Selection(from_s=0.09, until_s=0.095))


def test_what_is_not_certain_is_not_counted(tmp_path: Path) -> None:
    made = small()
    made.lose(40 * MS, 45 * MS)  # within the first run of the server
    with Trace(made.write(tmp_path / "lost")) as trace:
        assert rows(report_cpu(trace, Selection()))[0] == ("thread", "server (7)", 10 * MS)
    with Trace(MadeTrace().write(tmp_path / "empty")) as trace:
        assert "record with `-P cpu`" in report_cpu(trace, Selection()).notes[0]


@pytest.fixture
def cgroups(tmp_path: Path) -> Iterator[list[Path]]:
    """Make two cgroups of those that limit CPU time."""
    root = tmp_path / "cgroups"
    root.mkdir()
    lines = [line.split(":")[1] for line in Path("/proc/self/cgroup").read_text().splitlines()]
    controllers = next((each for each in lines if "cpu" in each.split(",")), "")
    how = ["-t", "cgroup", "-o", controllers] if controllers else ["-t", "cgroup2"]
    subprocess.run(["mount", *how, "none", root], check=True)
    made = [root / f"hopscope-test-{os.getpid()}-{number}" for number in range(2)]
    try:
        for each in made:
            each.mkdir()
        yield made
    finally:
        for each in made:
            each.rmdir()
        subprocess.run(["umount", root], check=True)


@pytest.mark.root
def test_a_cgroup_has_the_time_that_the_kernel_gives_its_processes(tmp_path: Path, cgroups: list[Path]) -> None:
    folder = tmp_path / "trace"
    child = start("record", "-P", "cpu", "-P", "messages", "-o", folder)
    eventually(lambda: child.poll() is not None or (folder / "hopscope.json").exists(), "never began")
    with contextlib.ExitStack() as stack:
        used_ns = {}
        for number, cgroup in enumerate(cgroups, start=1):
            argv = [sys.executable, "-c", PROGRAM, str(number * 200_000_000)]
            running = stack.enter_context(
                subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            (cgroup / "cgroup.procs").write_text(f"{running.pid}\n")
            print("go", file=running.stdin, flush=True)
            used_ns[f"/{cgroup.name}"] = int(running.stdout.readline())
        child.send_signal(signal.SIGINT)
        assert child.wait(TIMEOUT_S) == 0, child.communicate()
    with Trace(folder) as trace:
        whole = report_cpu(trace, Selection(), by="cgroup")
    for name, ns in used_ns.items():
        # What it ran before it was first seen is missing.
        assert ns * 0.95 <= sum(int(row[3]) for row in whole.rows() if row[0] == name) <= ns * 1.2


@pytest.mark.root
def test_a_process_has_the_time_that_the_kernel_gives_it(tmp_path: Path) -> None:
    done = hopscope(
        "record",
        "-P",
        "cpu",
        "-P",
        "messages",
        "-o",
        tmp_path / "trace",
        "--",
        sys.executable,
        "-c",
        PROGRAM,
        500_000_000,
    )
    assert done.returncode == 0, done.stderr
    used_ns = int(json.loads(done.stdout.splitlines()[0]))
    with Trace(tmp_path / "trace") as trace:
        whole = report_cpu(trace, Selection(), by="process")
        mine = max((row for row in whole.rows() if row[1] == "thread"), key=lambda row: int(row[3]))[0]
        # The clock of a process goes on in interrupts and softirqs; what it ran before it was first seen is missing.
        time_ns = sum(int(row[3]) for row in whole.rows() if row[0] == mine)
    assert used_ns * 0.95 <= time_ns <= used_ns * 1.2
