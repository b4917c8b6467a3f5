# SPDX-License-Identifier: Apache-2.0
"""The clocks of hosts that a real sshd leads to; the second one's CLOCK_MONOTONIC is ahead by 1,000 s."""

from __future__ import annotations

import json
import signal
import subprocess
from contextlib import ExitStack
from typing import TYPE_CHECKING

import jsonschema
import pytest

from tests.lab.bridged import Bridged
from tests.lab.command import SCHEMAS, end_started, hopscope, start
from tests.waiting import TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from tests.lab.command import Json

AHEAD_S = 1_000
SECOND = 1_000_000_000
NAMES = ("a", "b", "c")


class Hosts(Bridged):
    """Three hosts and who asks them."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        super().__init__(stack, folder, NAMES)
        agent = folder / "agent"
        agent.write_text(
            f"""#!/bin/sh
case "$SSH_CONNECTION" in
*" {self.address(1)} "*) exec unshare --time --fork --kill-child --monotonic {AHEAD_S} hopscope agent ;;
*) exec hopscope agent ;;
esac
"""
        )
        agent.chmod(0o755)
        self.options = ["--ssh", self.ssh, "--remote-command", agent]

    def words(self, names: Sequence[str], *options: object) -> list[object]:
        """Return the command line for some of them."""
        return ["clock", *self.options, *(word for name in names for word in ("--host", name)), *options]


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    with ExitStack() as stack:
        stack.callback(end_started)
        yield Hosts(stack, tmp_path)


pytestmark = pytest.mark.root


def documents(text: str) -> list[Json]:
    schema = json.loads((SCHEMAS / "hopscope.clock-1.schema.json").read_text(encoding="utf-8"))
    found = [json.loads(line) for line in text.splitlines()]
    for document in found:
        jsonschema.validate(document, schema)
    return found


def until(child: subprocess.Popen[str], condition: Callable[[Json], bool]) -> Json:
    """Read intervals until there is one of which that holds, and return it."""
    assert child.stdout
    for line in child.stdout:
        (document,) = documents(line)
        assert document["kind"] == "interval"
        if condition(document):
            return document
    raise AssertionError("it never came")


def whole(child: subprocess.Popen[str]) -> Json:
    """End it by Ctrl-C, and return its total."""
    assert child.stdout
    assert child.stderr
    child.send_signal(signal.SIGINT)
    total = documents(child.stdout.read())[-1]
    assert (child.wait(TIMEOUT_S), child.stderr.read()) == (0, "")
    assert total["kind"] == "total"
    return total


def are_good(document: Json) -> bool:
    return {row["state"] for row in document["pairs"]} == {"good"}


@pytest.mark.slow
def test_three_hosts_are_compared_and_the_one_that_is_ahead_is_found(hosts: Hosts) -> None:
    with start(*hosts.words(NAMES, "--json")) as child:
        for _ in range(5):
            last = until(child, are_good)
        total = whole(child)
    truth = {("a", "b"): AHEAD_S * SECOND, ("a", "c"): 0, ("b", "c"): -AHEAD_S * SECOND}
    assert [(row["first"], row["second"]) for row in total["pairs"]] == list(truth)
    for document in (last, total):
        for row in document["pairs"]:
            assert abs(row["offset_ns"] - truth[row["first"], row["second"]]) <= row["bound_ns"]
            assert abs(row["drift_ppb"]) <= row["drift_bound_ppb"]
    # They all have one wall clock, and there is no time namespace of that.
    for host in total["hosts"]:
        assert abs(host["realtime_ns"]) <= host["realtime_bound_ns"]
    (loop,) = total["loops"]
    assert abs(loop["off_ns"]) <= loop["bound_ns"]
    assert all(row["answered"] for row in total["pairs"])
    assert {row["stamps"] for row in total["pairs"]} == {"software"}  # there is no NIC


def test_the_table_ends_with_the_whole_on_ctrl_c(hosts: Hosts) -> None:
    with start(*hosts.words(("a", "b"), "-i", 0.5)) as child:
        assert child.stdout
        for line in child.stdout:
            if "good" in line:
                break
        child.send_signal(signal.SIGINT)
        seen = child.stdout.read()
        assert child.wait(TIMEOUT_S) == 0
    assert "total" in seen
    assert "wall clock - a's" in seen
    assert f"+{AHEAD_S:,}." in seen or f"+{AHEAD_S - 1:,}.999" in seen


@pytest.mark.slow
def test_an_agent_that_is_killed_ends_its_pairs_alone(hosts: Hosts) -> None:
    with start(*hosts.words(NAMES, "--json", "-i", 0.5)) as child:
        until(child, lambda document: all(row["offset_ns"] is not None for row in document["pairs"]))
        for pid in hosts.servers["c"].sessions():
            subprocess.run(["kill", "-9", str(pid)], check=True)
        until(child, lambda document: [row["state"] for row in document["pairs"]][1:] == ["failed", "failed"])
        later = until(child, lambda document: document["pairs"][0]["state"] == "good")
        assert "c left the comparison of clocks" in later["pairs"][1]["failure"]
        child.send_signal(signal.SIGINT)
        total = documents(child.stdout.read())[-1]
        assert child.wait(TIMEOUT_S) == 0
    assert total["pairs"][1]["offset_ns"] is not None


@pytest.mark.slow
def test_udp_that_is_blocked_is_said_in_a_sentence(hosts: Hosts) -> None:
    hosts.spaces[0].run(["ip", "rule", "add", "ipproto", "udp", "blackhole"], check=True)
    hosts.spaces[1].run(["ip", "rule", "add", "ipproto", "udp", "blackhole"], check=True)
    done = hopscope(*hosts.words(("a", "b"), "-d", 5, "-i", 5))
    assert done.returncode == 1
    said = " ".join(done.stdout.split())
    assert "No UDP packet comes through between a (10.9.0.1:" in said
    assert "let them through the firewall" in said
    assert "The clocks could not be compared" in done.stderr


@pytest.mark.slow
def test_ports_can_be_chosen(hosts: Hosts) -> None:
    port = 47_000
    hosts.spaces[0].run(["ip", "rule", "add", "ipproto", "udp", "sport", "1-46999", "blackhole"], check=True)
    hosts.spaces[0].run(["ip", "rule", "add", "ipproto", "udp", "sport", "47002-65534", "blackhole"], check=True)
    with start(*hosts.words(NAMES, "--json", "--port", port)) as child:
        until(child, are_good)
        assert are_good(whole(child))


def test_wrong_usage_is_said() -> None:
    for hosts_given, words in (
        (["--host", "x"], "At least two hosts are needed"),
        (
            ["--host", "local", "--host", "local,name=other"],
            "The address at which other hosts reach local is not known",
        ),
    ):
        done = hopscope("clock", *hosts_given)
        assert done.returncode == 2
        assert words in done.stderr


def test_this_host_can_take_part_in_it() -> None:
    words = ["--host", "local,name=x,address=127.0.0.1", "--host", "local,name=y,address=127.0.0.1"]
    with start("clock", *words, "--json") as child:
        until(child, are_good)
        (row,) = whole(child)["pairs"]
    assert abs(row["offset_ns"]) <= row["bound_ns"]
