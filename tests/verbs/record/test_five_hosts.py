# SPDX-License-Identifier: Apache-2.0
"""More hosts than are all compared with each other: five on one bridge, each of which sends to the next."""

from __future__ import annotations

import re
import shlex
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

import pytest

from hopscope.store.hosts import Hosts
from hopscope.store.trace import Trace
from hopscope.trace.host_numbers import hosts as names_of
from hopscope.trace.relation import build
from hopscope.verbs.record.clocks import ends_of
from tests.lab.bridged import Bridged
from tests.lab.command import end_started, hopscope
from tests.lab.recorded_hosts import counted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.root
NAMES = ("a", "b", "c", "d", "e")
COUNTS = (23, 29, 31, 37, 41)
PAIRS = [(NAMES[first], NAMES[second]) for first, second in ends_of(len(NAMES))]


class Recorded(NamedTuple):
    """A recording, and what joining it said."""

    folder: Path
    said: str


def traffic(net: Bridged) -> str:
    """Return a shell's line that has each host send its count of datagrams to the next one."""
    lines = []
    for number, count in enumerate(COUNTS):
        there = net.address((number + 1) % len(NAMES))
        code = f"import socket\nfor _ in range({count}): socket.socket(type=2).sendto(bytes(100), ('{there}', 7777))"
        inside = ["nsenter", f"--net=/proc/{net.spaces[number].pid}/ns/net"]
        lines.append(shlex.join([*inside, sys.executable, "-c", code]))
    # The clocks have to have been compared for a while.
    return "; ".join([*lines, "sleep 4", *lines])


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    folder = tmp_path_factory.mktemp("five")
    with ExitStack() as stack:
        stack.callback(end_started)
        net = Bridged(stack, folder, NAMES)
        named = [word for name in NAMES for word in ("--host", name)]
        out = folder / "out"
        done = hopscope(
            "record", *named, "--ssh", net.ssh, "--netns", "self", "-o", out, "--", "sh", "-c", traffic(net)
        )
        assert done.returncode == 0, done.stderr
        joined = hopscope("join", out)
        assert joined.returncode == 0, joined.stderr
        yield Recorded(out, joined.stdout + joined.stderr)


def test_each_has_what_it_sent_and_what_it_got(recorded: Recorded) -> None:
    for number, name in enumerate(NAMES):
        assert counted(recorded.folder / name, "tx.start") == 2 * COUNTS[number]
        assert counted(recorded.folder / name, "rx.driver") == 2 * COUNTS[number - 1]


def test_each_is_compared_with_the_first_and_the_next_and_the_loops_close(recorded: Recorded) -> None:
    found = Hosts.read(recorded.folder)
    assert found.state == "complete"
    assert [(NAMES[first], NAMES[second]) for first, second in (pair.hosts for pair in found.pairs)] == PAIRS
    with Trace(recorded.folder / "joined") as trace:
        pairs = {(NAMES[pair["first"]], NAMES[pair["second"]]): pair for pair in trace.metadata.joined["pairs"]}
    assert [*pairs] == PAIRS
    for ends, pair in pairs.items():
        assert min(pair["probes"]) > 0, ends
        assert (pair["by_nics"], pair["breaks"], pair["contradictory"]) == (0, 0, 0), ends
    # What each pair is off from what all of them say: they are no tree, so that something is left.
    assert all(0 < pair["residual_ns"][0] <= pair["residual_ns"][1] for pair in pairs.values())


def test_all_clocks_are_one_within_the_bound(recorded: Recorded) -> None:
    with Trace(recorded.folder / "joined") as trace:
        # They are one clock of one kernel.
        rows = trace.rows("SELECT host, count(*), bool_and(low_ns <= 0 AND high_ns >= 0) FROM clocks GROUP BY host")
    assert sorted((host, holds) for host, count, holds in rows if count > 1) == [(host, True) for host in range(5)]


def test_names_have_their_host(recorded: Recorded) -> None:
    with Trace(recorded.folder / "joined") as trace:
        assert names_of(trace) == dict(enumerate(NAMES))
        build(trace, "flow_names", "device_names", "thread_names", "cpu_names", "netns_names")
        at = trace.rows(
            "SELECT DISTINCT h.name, d.name FROM packets p JOIN hosts h ON h.host = p.cpu // 1024 "
            "JOIN device_names d USING (netns, ifindex) JOIN points USING (point) "
            "WHERE points.name = 'rx.driver' AND d.name NOT LIKE 'lo@%' ORDER BY ALL"
        )
        senders = trace.rows(
            "SELECT h.name, f.destination, count(*) FROM packets p JOIN hosts h ON h.host = p.cpu // 1024 "
            "JOIN points USING (point) JOIN flows f USING (flow) "
            "WHERE points.name = 'tx.start' AND f.destination_port = 7777 GROUP BY ALL ORDER BY ALL"
        )
    assert at == [(name, f"eth0@{name}") for name in NAMES]
    assert senders == [
        (name, Bridged.address((number + 1) % len(NAMES)), 2 * COUNTS[number]) for number, name in enumerate(NAMES)
    ]


def test_what_was_found_is_said(recorded: Recorded) -> None:
    lines = recorded.said.splitlines()
    assert lines[0] == "a: the time axis"
    assert [line.partition(":")[0] for line in lines[1:5]] == [*NAMES[1:]]
    summary = " ".join(hopscope("report", "summary", recorded.folder).stdout.split())
    for first, second in PAIRS:
        assert re.search(
            rf"clocks of {first} and {second}: compared using [\d,]+ probes in one direction and [\d,]+ in the other "
            r"\(time-stamped by the kernels\)",
            summary,
        )
