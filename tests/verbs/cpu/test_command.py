# SPDX-License-Identifier: Apache-2.0
"""``hopscope cpu`` on traffic whose answer is known: reports, options, files, and what is said when it goes wrong."""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING

import pytest

from hopscope.errors import KernelError
from hopscope.lab import Workload
from hopscope.lab.veth import SERVER_IPV4
from hopscope.verbs.cpu.pmu import HARDWARE, PmuCounters
from tests.lab.command import assert_fits, complaint, hopscope, links, objects, programs, start, wait_gone
from tests.shared import first
from tests.waiting import TIMEOUT_S, eventually

if TYPE_CHECKING:
    from pathlib import Path

    from hopscope.lab import Lab
    from tests.lab.command import Json

pytestmark = pytest.mark.root
DATAGRAMS = 500


def sending(kept_lab: Lab, port: int, rate: int = 1000, datagrams: int = DATAGRAMS) -> list[str]:
    """Return the words of a command that sends datagrams through the lab."""
    words = (SERVER_IPV4, port, "--count", datagrams, "--size", 100, "--rate", rate)
    client = [sys.executable, "-m", "hopscope.lab.traffic", "udp-send", *map(str, words)]
    return ["--", "nsenter", f"--net=/proc/{kept_lab.client.pid}/ns/net", *client]


def part(row: Json, name: str) -> Json:
    found: Json = next(each for each in row["parts"] if each["part"] == name)
    return found


@pytest.mark.parametrize("group", first(["process", "cpu", "cgroup", "interface"]))
def test_json_fits_the_schema_and_has_every_call(kept_lab: Lab, group: str) -> None:
    with Workload(kept_lab.server, "udp-sink", "--bind", SERVER_IPV4) as sink:
        done = hopscope("cpu", "--json", "--interval", 0.4, "--group-by", group, *sending(kept_lab, sink.port))
    assert done.returncode == 0, done.stderr
    *intervals, total = objects(done.stdout)
    assert intervals
    for each in (*intervals, total):
        assert_fits(each, "cpu-1")
        assert sum(row["ns"] for row in each["rows"]) == each["total"]["ns"]
    assert total["kind"] == "total"
    assert total["breakdown"] == []
    sent = [part(each["total"], "send") for each in intervals]
    whole = part(total["total"], "send")
    assert whole["runs"] == sum(each["runs"] for each in sent) >= DATAGRAMS
    assert whole["ns"] == sum(each["ns"] for each in sent)
    if group == "process":
        # Its first word is the name of the process, whose arguments say that it sends.
        assert any(part(row, "send")["runs"] == DATAGRAMS for row in total["rows"])


def test_the_table_has_the_sender_and_what_it_was_busy_with(kept_lab: Lab) -> None:
    with Workload(kept_lab.server, "udp-sink", "--bind", SERVER_IPV4) as sink:
        words = ("--interval", 60, "--group-by", "process", "--breakdown", "-F", 4000)
        done = hopscope("cpu", *words, *sending(kept_lab, sink.port))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.rstrip().splitlines()
    assert any(line.startswith("all ") for line in lines)
    assert any(line.startswith("part ") and "busy with" in line for line in lines)
    assert any(line.startswith("cost: ") for line in lines)


def test_files_have_the_stacks(kept_lab: Lab, tmp_path: Path) -> None:
    names = {kind: tmp_path / f"cpu.{kind}" for kind in ("folded", "flame", "speedscope")}
    files = [word for kind, path in names.items() for word in (f"--{kind}", path)]
    # As fast as it goes: a CPU of a virtual machine that is mostly idle has a tenth of its clock interrupts, or less.
    with Workload(kept_lab.server, "udp-sink", "--bind", SERVER_IPV4) as sink:
        done = hopscope("cpu", "--interval", 60, "-F", 10_000, *files, *sending(kept_lab, sink.port, 10**9, 100_003))
    assert done.returncode == 0, done.stderr
    folded = names["folded"].read_text().splitlines()
    assert any("udp_sendmsg" in line for line in folded)
    assert all(int(line.rpartition(" ")[2]) > 0 for line in folded)
    assert ET.parse(names["flame"]).getroot().tag.endswith("svg")  # noqa: S314 # our own
    profile = json.loads(names["speedscope"].read_text())
    assert sum(sum(each["weights"]) for each in profile["profiles"]) == sum(
        int(line.rpartition(" ")[2]) for line in folded
    )


def test_a_file_that_cannot_be_written_is_told_before_the_run(tmp_path: Path) -> None:
    done = hopscope("cpu", "-d", 1, "--flame", tmp_path / "no" / "such.svg")
    assert done.returncode == 2
    assert "such.svg" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--budget", "1", "-F", 9], "--budget measures a part, which --frequency cannot have"),
        (["--attach", "cpu.nothing=tp_btf:x"], "No probe point is named cpu.nothing"),
        (["--attach", "cpu.call=kprobe:x"], "cpu.call has no attach method kprobe:x"),
    ],
)
def test_wrong_words_get_one_sentence(words: list[str], said: str) -> None:
    assert said in complaint(hopscope("cpu", "-d", 1, *words), 2)


def has_counters() -> bool:
    try:
        with PmuCounters(HARDWARE):
            return True
    except KernelError:
        return False


def test_counters_are_shown_or_one_sentence_says_why_not() -> None:
    done = hopscope("cpu", "--counters", "--json", "-d", 0.3)
    if not has_counters():
        assert complaint(done, 1).startswith(
            "This machine has no hardware counters for cycles, instructions, cache_misses"
        )
        return
    assert done.returncode == 0, done.stderr
    for each in objects(done.stdout):
        assert_fits(each, "cpu-1")
        assert all(part["counters"] for part in each["total"]["parts"])


def test_nothing_is_left_when_it_is_killed() -> None:
    child = start("cpu", "--breakdown")
    eventually(lambda: len(links(child)) > 15, "it does not attach")
    held = links(child), programs(child)
    child.kill()
    child.wait(TIMEOUT_S)
    wait_gone(*held)


def test_the_plan_says_how_socket_calls_are_found() -> None:
    done = hopscope("cpu", "-d", 0.2, "--plan")
    assert done.returncode == 0, done.stderr
    assert "cpu.call" in done.stdout
