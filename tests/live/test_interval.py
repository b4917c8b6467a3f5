# SPDX-License-Identifier: Apache-2.0
"""How a run ends: by itself, by its command, by signals, by an output that nobody reads or that is full."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pytest

from hopscope.live.interval import Output, run
from hopscope.model.snapshot import Overhead, Snapshot
from tests import leftovers
from tests.lab.command import (
    HOPSCOPE,
    attached,
    complaint,
    ended,
    environ,
    hopscope,
    links,
    objects,
    programs,
    start,
    wait_gone,
)
from tests.waiting import TIMEOUT_S, eventually

if TYPE_CHECKING:
    from hopscope.model.snapshot import Kind, PlanRow

pytestmark = pytest.mark.root


def next_line(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline()


class Counting:
    """A collector of nothing, which is told to stop between the look at its counters and the report."""

    def __init__(self) -> None:
        self.looks: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.looks.append("detach")

    def plan(self) -> list[PlanRow]:
        return []

    def measure_cost(self, window_s: float) -> None:
        assert window_s < 1

    def interval(self) -> Snapshot:
        if not self.looks:
            os.kill(os.getpid(), signal.SIGTERM)
        return self._snapshot("interval")

    def total(self) -> Snapshot:
        return self._snapshot("total")

    def _snapshot(self, kind: Kind) -> Snapshot:
        self.looks.append(kind)
        return Snapshot("rx", kind, 0, 1.0, [], Overhead(0, None, None, 0.0, 0))


def test_stop_that_comes_after_the_look_has_another_look() -> None:
    collector = Counting()
    assert run(collector, Output("json"), interval_s=0.1, duration_s=None) == 0
    assert collector.looks == ["interval", "interval", "total", "detach"]


def test_one_report_is_its_own_total_but_for_programs() -> None:
    for style, looks in {"table": ["interval", "detach"], "json": ["interval", "total", "detach"]}.items():
        collector = Counting()
        collector.interval = lambda made=collector: made._snapshot("interval")  # type: ignore[method-assign,misc]
        assert run(collector, Output(style), interval_s=0.1, duration_s=0.1) == 0
        assert collector.looks == looks


class Hurried(Output):
    """An output that cannot wait for the next snapshot."""

    between_s = 0.02

    def between(self) -> None:
        calls.append("between")
        if len(calls) == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    def show(self, snapshot: Snapshot) -> None:
        calls.append(snapshot.kind)


calls: list[str] = []


def test_output_that_cannot_wait_is_called_within_the_interval() -> None:
    calls.clear()
    collector = Counting()
    collector.interval = lambda: collector._snapshot("interval")  # type: ignore[method-assign]
    assert run(collector, Hurried("table"), interval_s=600, duration_s=None) == 0
    assert calls == ["between"] * 3 + ["interval"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_the_run_with_a_total(number: signal.Signals) -> None:
    child = start("rx", "--interval", 0.2)
    while not next_line(child).startswith("cost: "):
        pass
    next_line(child)
    next_line(child)  # of the second report
    held = links(child), programs(child)
    assert all(held)
    child.send_signal(number)
    code, out, err = ended(child)
    assert (code, err) == (0, "")
    *_, last = [line for line in out.splitlines() if line.startswith("rx  ")]
    assert " total " in last
    wait_gone(*held)


def test_signal_in_the_first_interval_ends_the_run_with_what_was_seen() -> None:
    child = start("rx", "--interval", 60, "--json")
    eventually(lambda: attached(child), "nothing is attached")
    child.send_signal(signal.SIGINT)
    code, out, err = ended(child)
    assert (code, err) == (0, "")
    assert objects(out)[-1]["kind"] == "total"
    assert objects(out)[-1]["interval_s"] < 60


def test_sigkill_leaves_nothing_attached() -> None:
    child = start("rx", "--interval", 0.2)
    next_line(child)
    held = links(child), programs(child)
    assert all(held)
    child.kill()
    assert ended(child)[0] == -signal.SIGKILL
    wait_gone(*held)


def test_second_signal_ends_a_run_whose_output_blocks() -> None:
    child = start("rx", "--interval", 0.1, "--json")
    eventually(lambda: "pipe_write" in Path(f"/proc/{child.pid}/wchan").read_text() or blocked(child), "never blocks")
    held = links(child), programs(child)
    # What follows within a second is taken for the same Ctrl-C.
    eventually(lambda: child.send_signal(signal.SIGTERM) or child.poll() is not None, "goes on")
    assert child.wait(TIMEOUT_S) == -signal.SIGTERM
    ended(child)
    wait_gone(*held)


def blocked(child: subprocess.Popen[str]) -> bool:
    """Tell whether a process waits in write(2) on its standard output."""
    words = Path(f"/proc/{child.pid}/syscall").read_text().split()
    return words[:2] == ["1", "0x1"]


def test_command_that_ends_at_once_is_reported() -> None:
    done = hopscope("rx", "--", "true")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("rx  ")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "code"), [("exit 0", 0), ("exit 3", 3), ("kill -KILL $$", 137), ("kill -TERM $$", 143)]
)
def test_exit_code_of_the_command_is_passed_on(script: str, code: int) -> None:
    done = hopscope("rx", "--json", "--", "sh", "-c", script)
    assert (done.returncode, done.stderr) == (code, "")
    assert objects(done.stdout)[-1]["kind"] == "total"


def test_output_of_the_command_does_not_get_into_the_json() -> None:
    done = hopscope("rx", "--json", "-i", 600, "--", "echo", "from the command")
    assert [each["schema"] for each in objects(done.stdout)] == ["hopscope.rx/1"] * 2
    assert done.stderr == "from the command\n"
    done = hopscope("rx", "-i", 600, "--", "echo", "from the command")
    assert done.stdout.startswith("from the command\n")


def test_options_after_the_command_are_its_own() -> None:
    done = hopscope("rx", "--json", "--", sys.executable, "-c", "import sys; sys.exit(len(sys.argv))", "--json", "-d")
    assert done.returncode == 3


def test_command_is_ended_when_the_time_is_over() -> None:
    done = hopscope("rx", "--json", "--duration", 0.2, "--", "sleep", 300)
    assert (done.returncode, done.stderr) == (0, "")
    assert leftovers.descendants() == {}


def test_signal_ends_the_command_too() -> None:
    child = start("rx", "--json", "--interval", 0.2, "--", "sleep", 300)
    next_line(child)
    child.terminate()
    assert ended(child)[0] == 128 + signal.SIGTERM
    assert leftovers.descendants() == {}


def test_ctrl_c_of_the_terminal_lets_the_command_end_by_itself() -> None:
    script = "trap 'exit 7' INT; echo ready; while :; do sleep 0.05; done"
    child = start("rx", "--json", "--interval", 0.2, "--", "sh", "-c", script, start_new_session=True)
    assert child.stderr is not None
    assert child.stderr.readline() == "ready\n"
    next_line(child)
    os.killpg(child.pid, signal.SIGINT)
    assert ended(child)[0] == 7


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("no-such-command", "no-such-command cannot be started: No such file or directory"),
        ("/", "/ cannot be started: Permission denied"),
        ("", "An empty name cannot be started: "),
    ],
)
def test_command_that_cannot_be_started_is_one_sentence(command: str, reason: str) -> None:
    done = hopscope("rx", "--", command)
    assert complaint(done, 2).startswith(reason)
    assert done.stdout == ""


@pytest.mark.slow
@pytest.mark.parametrize("verb", [["rx", "--interval", "0.1"], ["rx", "--json", "--interval", "0.1"], ["demo", "-d1"]])
def test_closed_pipe_ends_the_run_in_silence(verb: list[str]) -> None:
    child = start(*verb)
    next_line(child)
    assert child.stdout is not None
    held = links(child), programs(child)
    child.stdout.close()
    assert child.stderr is not None
    assert child.stderr.read() == ""
    child.stderr.close()
    assert child.wait(TIMEOUT_S) == 141
    wait_gone(*held)
    assert leftovers.descendants() == {}


@pytest.mark.slow
@pytest.mark.parametrize("verb", [["rx"], ["rx", "--json"], ["probes"], ["--help"]])
def test_full_disk_is_one_sentence(verb: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        child = start(*verb, stdout=full)
        code, _, err = ended(child)
    assert code == 1
    said = "The output cannot be written: No space left on device. Redirect it elsewhere, or free some space"
    assert err == f"hopscope: {said}\n"


def test_closed_output_is_one_sentence() -> None:
    argv = ["sh", "-c", 'exec "$@" >&-', "sh", *HOPSCOPE, "rx"]
    done = subprocess.run(argv, stderr=subprocess.PIPE, text=True, timeout=TIMEOUT_S, check=False, env=environ())
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "Standard output is closed" in done.stderr
