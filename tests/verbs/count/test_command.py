# SPDX-License-Identifier: Apache-2.0
"""`count` beside programs that know how many calls they make, and beside perf, which counts by itself."""

from __future__ import annotations

import re
import shutil
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import jsonschema
import pytest

from hopscope.libbpf.perf_event import KPROBE_PMU
from tests.lab.command import complaint, hopscope, objects, schema

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.root

needs_kprobes = pytest.mark.skipif(
    not KPROBE_PMU.exists(), reason="this kernel has no kprobes (CONFIG_KPROBE_EVENTS=y makes them)"
)
CALLS: Final = 1009
PROCESSES: Final = 3
# Makes a call in each of some processes, which have names of their own.
PROGRAM: Final = f"""
import os, sys
from pathlib import Path
name, call = sys.argv[1:]
call = eval("lambda: " + call)
for number in range({PROCESSES}):
    pid = os.fork()
    if not pid:
        Path("/proc/self/comm").write_text(f"{{name}}{{number}}")
        for _ in range({CALLS}):
            call()
        os._exit(0)
    os.waitpid(pid, 0)
    print(pid)
"""


def counted(call: str, *words: object, name: str = "caller") -> tuple[list[dict[str, Any]], str]:
    """Return the lines about a run of the program, and what it printed."""
    done = hopscope("count", *words, "--json", "--", sys.executable, "-c", PROGRAM, name, f"os.{call}")
    assert done.returncode == 0, done.stderr
    found = objects(done.stdout)
    for each in found:
        jsonschema.validate(each, schema("count-1"))
    assert found[-1]["kind"] == "total"
    return found, done.stderr


def groups(line: dict[str, Any]) -> Counter[str]:
    return Counter({each["group"]: each["count"] for each in line["events"][0]["groups"]})


# Calls that hardly any program makes; and each of these tests, which run beside each other, makes another one.
@pytest.mark.parametrize(
    ("by", "call"),
    [
        (None, "sched_get_priority_max(0)"),
        ("cpu", "sched_get_priority_min(0)"),
        ("cgroup", "sched_getparam(0)"),
        *((by, "sched_getscheduler(0)") for by in ("comm", "pid", "tid")),
    ],
)
def test_each_call_is_counted_once_for_whom_it_is_of(by: str | None, call: str) -> None:
    event, mine = f"syscalls:sys_enter_{call.partition('(')[0]}", f"by, {by} "
    lines, printed = counted(call, event, "-i", 0.1, *(["-g", by] if by else []), name=mine)
    assert {line["events"][0]["event"] for line in lines} == {event}
    assert (lines[-1]["overhead"] is None) == (by in {None, "cpu"})
    if by is None:
        counts = [line["events"][0]["count"] for line in lines]
        assert counts[-1] == sum(counts[:-1]) == PROCESSES * CALLS
        return
    assert sum(map(groups, lines[:-1]), Counter()) == groups(lines[-1])
    if by in {"cpu", "cgroup"}:
        assert groups(lines[-1]).total() == lines[-1]["events"][0]["count"] == PROCESSES * CALLS
        return
    pids = [f" ({pid})" for pid in printed.split()] if by != "comm" else [""] * PROCESSES
    found = {name: count for name, count in groups(lines[-1]).items() if name.startswith(mine)}
    assert found == {f"{mine}{number}{pid}": CALLS for number, pid in enumerate(pids)}


def test_what_a_filter_leaves_out_is_not_counted() -> None:
    event = "syscalls:sys_enter_sched_rr_get_interval"
    lines, printed = counted("sched_rr_get_interval(os.getppid())", f"{event}:common_pid > 0 && pid == 1", "-g", "cpu")
    assert lines[-1]["events"][0]["count"] == 0
    lines, printed = counted("sched_rr_get_interval(os.getppid())", f"{event}:pid > 1")
    assert (lines[-1]["events"][0]["count"], len(printed.split())) == (PROCESSES * CALLS, PROCESSES)


def test_groups_beyond_the_limit_are_counted_as_others() -> None:
    event = "syscalls:sys_enter_getpgid"
    lines, _ = counted("getpgid(0)", event, "-g", "pid", "--max-groups", 1)
    found = groups(lines[-1])
    assert len(found) == 2
    assert found["other"] >= (PROCESSES - 1) * CALLS
    assert found.total() >= PROCESSES * CALLS
    others = f"{found['other']:,} events counted as `other`: the limit of 1 group is reached (--max-groups)"
    assert lines[-1]["notes"] == [others]


def test_perf_counts_as_many(tmp_path: Path) -> None:
    if not shutil.which("perf"):
        pytest.skip("perf is not installed: apt-get install linux-perf")
    program, event = shutil.copy2("/bin/ls", tmp_path / "ls-of-this-one"), "raw_syscalls:sys_enter"
    perf = ("perf", "stat", "-x,", "-e", event, program, "/proc")
    done = hopscope("count", event, "-g", "comm", "--limit", 0, "--json", "--", *perf)
    assert done.returncode == 0, done.stderr
    (by_perf,) = [int(line.split(",")[0]) for line in done.stderr.splitlines() if f",{event}," in line]
    assert groups(objects(done.stdout)[-1])["ls-of-this-one"] == by_perf > 0


def test_people_get_a_table() -> None:
    done = hopscope("count", "sched:sched_process_exec", "-d", 0.1, COLUMNS="80")
    assert done.returncode == 0, done.stderr
    heading, titles, row = done.stdout.splitlines()[:3]
    assert heading.startswith("count  ")
    assert titles.split() == ["count", "/s", "event"]
    assert row.endswith("  sched:sched_process_exec")
    done = hopscope("count", "sched:sched_stat_*", "-d", 0.1, "-g", "comm")
    assert "nanoseconds" not in done.stdout
    done = hopscope("count", "sched:sched_stat_*", "-d", 0.1)
    assert "the kernel adds nanoseconds here" in done.stdout.replace("\n  ", " ")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "Missing argument 'EVENT...'"),
        (["tcp:tcp_prob"], "Did you mean tcp:tcp_probe"),
        (["tcp_probe"], "'tcp_probe' is not the name of a tracepoint"),
        (["tcp:tcp_probe:nothing > 1"], "tcp:tcp_probe has no field nothing"),
        (
            ["net:net_dev_queue:len > 1", "-g", "comm"],
            "The filter of net:net_dev_queue cannot be combined with -g comm",
        ),
    ],
)
def test_what_cannot_be_counted_is_said(words: list[str], sentence: str) -> None:
    assert sentence in complaint(hopscope("count", *words), 2)


@pytest.mark.skipif(KPROBE_PMU.exists(), reason="this kernel has kprobes")
def test_without_kprobes_a_sentence_says_so() -> None:
    done = hopscope("count", "function:__x64_sys_getppid", "-d", 0.1)
    assert "This kernel has no kprobes, which probes on functions need. Use tracepoints" in complaint(done, 1)


@needs_kprobes
@pytest.mark.parametrize("kind", ["function", "return"])
@pytest.mark.parametrize("by", [None, "cpu", "comm", "pid"])
def test_each_call_of_a_function_is_counted_once(by: str | None, kind: str) -> None:
    event = f"{kind}:__x64_sys_getppid"
    lines, printed = counted("getppid()", event, "-i", 0.5, *(["-g", by] if by else []), name="getter")
    counts = [line["events"][0]["count"] for line in lines]
    assert counts[-1] == sum(counts[:-1])
    if by in {None, "cpu"}:
        # Others may call it, too.
        assert PROCESSES * CALLS <= counts[-1] < PROCESSES * CALLS + CALLS
        return
    assert sum(map(groups, lines[:-1]), Counter()) == groups(lines[-1])
    pids = [f" ({pid})" for pid in printed.split()] if by == "pid" else [""] * PROCESSES
    found = {name: count for name, count in groups(lines[-1]).items() if name.startswith("getter")}
    assert found == {f"getter{number}{pid}": CALLS for number, pid in enumerate(pids)}


@needs_kprobes
def test_bpftrace_counts_as_many_calls_of_a_function(tmp_path: Path) -> None:
    if not shutil.which("bpftrace"):
        pytest.skip("bpftrace is not installed: apt-get install bpftrace")
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    program = "kprobe:__x64_sys_getppid { @[comm] = count(); }"
    bpftrace = ("bpftrace", "-e", program, "-c", f"{sys.executable} {script} getter os.getppid()")
    event = "function:__x64_sys_getppid"
    done = hopscope("count", event, "-g", "comm", "-i", 5, "--limit", 0, "--json", "--", *bpftrace)
    assert done.returncode == 0, done.stderr
    said = re.findall(r"^@\[(getter\d)\]: (\d+)$", done.stderr, re.MULTILINE)
    theirs = {name: int(count) for name, count in said}
    ours = {name: count for name, count in groups(objects(done.stdout)[-1]).items() if name.startswith("getter")}
    assert ours == theirs == {f"getter{number}": CALLS for number in range(PROCESSES)}


@needs_kprobes
def test_values_of_a_function_are_not_counted() -> None:
    for by in ([], ["-g", "comm"]):
        said = complaint(hopscope("count", "function:udp_sendmsg if len > 3", *by), 2)
        assert (
            "function:udp_sendmsg is counted without values, a stack or a filter. Count function:udp_sendmsg, or"
            in said
        )


def test_a_command_keeps_its_exit_code() -> None:
    done = hopscope("count", "net:*", "--", "sh", "-c", "exit 7")
    assert done.returncode == 7, done.stderr
