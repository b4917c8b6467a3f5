# SPDX-License-Identifier: Apache-2.0
"""Two real hosts with a clock each, of which one knows the other by ssh: ``python -m vmtest --pair`` boots them."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest

from hopscope.recorded.joined import make_joined
from hopscope.store.hosts import JOINED
from hopscope.store.trace import Trace
from hopscope.trace.clock_bounds import bounds_ns
from hopscope.trace.host_numbers import host_of_cpu, hosts
from tests.lab.command import HOPSCOPE, objects
from tests.lab.sshd import PORT as SSH_PORT
from tests.lab.sshd import client
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.lab.command import Json

SHARED = os.environ.get("HOPSCOPE_PAIR")
OURS, THEIRS = "10.91.0.1", "10.91.0.2"
BOOT_ID = "/proc/sys/kernel/random/boot_id"
TRAFFIC = [sys.executable, "-m", "hopscope.lab.traffic"]
PORT, EXCHANGES, LEN_BYTES = 5001, 101, 64
# Nothing takes so long, also where every CPU is emulated.
TIMEOUT_S = 900

pytestmark = [pytest.mark.root, pytest.mark.skipif(not SHARED, reason="needs a second host: vmtest boots two")]


class Server(NamedTuple):
    """The other host's sshd."""

    folder: Path
    address: str = THEIRS
    port: int = SSH_PORT


@pytest.fixture(scope="module")
def ssh(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the command line of an ssh that knows the other host as b."""
    folder = Path(str(SHARED))
    eventually((folder / "ready").exists, "the other host is not there")
    return client(tmp_path_factory.mktemp("ssh"), {"b": Server(folder / "sshd")})


class Recorded(NamedTuple):
    """A recording of both: its folder, both joined, and what b recorded, by its own clock."""

    folder: Path
    joined: Trace
    theirs: Trace


@pytest.fixture(scope="module")
def recorded(ssh: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    """Record both hosts while one asks and the other answers, and join that."""
    out = tmp_path_factory.mktemp("recorded") / "out"
    answer = [*TRAFFIC, "tcp-echo", "--bind", THEIRS, "--port", str(PORT), "--limit", str(TIMEOUT_S)]
    ask = [*TRAFFIC, "tcp-rr", THEIRS, str(PORT), "--count", str(EXCHANGES), "--rate", "20", "--limit", str(TIMEOUT_S)]
    both = ["--host", f"local,name=a,address={OURS}", "--host", f"b,address={THEIRS}", "--ssh", ssh]
    with subprocess.Popen([*shlex.split(ssh), "b", *answer], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        assert server.stdout.readline() == f"ready {PORT}\n"
        command = [*HOPSCOPE, "record", "-o", str(out), "-P", "messages", "--netns", "self", *both, "--", *ask]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        server.kill()
        assert done.returncode == 0, done.stderr
    make_joined(out)
    summary = subprocess.run([*HOPSCOPE, "report", "summary", str(out)], capture_output=True, text=True, check=True)
    Path(str(SHARED), "summary.txt").write_text(summary.stdout)  # for people: it stays beside the results
    with Trace(out / JOINED) as joined, Trace(out / "b") as theirs:
        yield Recorded(out, joined, theirs)


def test_they_are_two(ssh: str) -> None:
    done = subprocess.run([*shlex.split(ssh), "b", "cat", BOOT_ID], capture_output=True, text=True, check=True)
    assert done.stdout.strip() != Path(BOOT_ID).read_text().strip()


class Step(NamedTuple):
    """When each message was at a point, and how far that may be off; -1 by a host's own clock."""

    times_ns: np.ndarray[tuple[int], np.dtype[np.int64]]
    bounds_ns: np.ndarray[tuple[int], np.dtype[np.int64]]


def step(trace: Trace, table: str, point: str, host: str) -> Step:
    """Return when each request (at a: sent, at b: received), or each reply, was at a point of a host."""
    number = {name: number for number, name in hosts(trace).items()}.get(host, 0)
    request = f"destination = '{THEIRS}' AND destination_port = {PORT}"
    reply = f"source = '{THEIRS}' AND source_port = {PORT}"
    payload = "len_bytes - header_bytes" if table == "packets" else "len_bytes"
    found = trace.columns(f"""
        SELECT time_ns FROM {table} JOIN flows USING (flow) JOIN points USING (point)
        WHERE points.name = '{point}' AND {request if (host == "a") == point.startswith("tx") else reply}
        AND {host_of_cpu("cpu")} = {number} AND {payload} = {LEN_BYTES} ORDER BY time_ns""")
    times_ns = np.asarray(found["time_ns"], np.int64)
    return Step(times_ns, bounds_ns(trace, number, times_ns))


# The way of a request and its reply: table, point, host.
WAY = (
    ("sockets", "tx.send", "a"),
    ("packets", "tx.start", "a"),
    ("packets", "rx.driver", "b"),
    ("sockets", "rx.received", "b"),
    ("sockets", "tx.send", "b"),
    ("packets", "tx.start", "b"),
    ("packets", "rx.driver", "a"),
    ("sockets", "rx.received", "a"),
)


def test_cause_comes_before_effect_all_the_way(recorded: Recorded) -> None:
    way = [step(recorded.joined, *place) for place in WAY]
    assert [len(each.times_ns) for each in way] == [EXCHANGES] * len(WAY)
    for before, after in pairwise(way):
        assert (before.bounds_ns >= 0).all()
        assert (after.times_ns - before.times_ns >= -(before.bounds_ns + after.bounds_ns)).all()
    # And no request before the reply to the one before it, which is of one clock.
    assert (way[0].times_ns[1:] > way[-1].times_ns[:-1]).all()


def test_the_ways_add_up_to_what_each_clock_says(recorded: Recorded) -> None:
    left, there, back, came = (step(recorded.joined, *WAY[number]) for number in (1, 2, 5, 6))
    # By a's clock alone, less what b's clock alone says that the request took there: no bound is in that.
    at_theirs_ns = np.subtract(*(step(recorded.theirs, *WAY[number]).times_ns for number in (5, 2)))
    network_ns = came.times_ns - left.times_ns - at_theirs_ns
    assert (at_theirs_ns > 0).all()
    assert (network_ns > 0).all()
    both_ways_ns = (there.times_ns - left.times_ns) + (came.times_ns - back.times_ns)
    assert (np.abs(both_ways_ns - network_ns) <= there.bounds_ns + back.bounds_ns).all()


def report(name: str, folder: Path) -> list[Json]:
    command = [*HOPSCOPE, "report", name, "--json", "--port", str(PORT), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    return objects(done.stdout)


def test_every_message_is_followed_from_host_to_host(recorded: Recorded) -> None:
    messages = report("messages", recorded.folder)
    ways = [(each["sender_host"], each["receiver_host"]) for each in messages]
    assert {way: ways.count(way) for way in ways} == {("a", "b"): EXCHANGES, ("b", "a"): EXCHANGES}
    assert {(each["len_bytes"], each["until"]) for each in messages} == {(LEN_BYTES, "rx.received")}
    for each in messages:
        unsure = "network: order within the clocks' bound" in each["missing"]
        assert unsure == (each["network_ns"] is None), each
        assert unsure or each["network_ns"] > each["network_bound_ns"] >= 0, each


def test_nothing_is_lost_between_them(recorded: Recorded) -> None:
    flows = [row for row in report("network", recorded.folder) if row["flow"] is not None]
    assert {(row["from_host"], row["to_host"], row["lost"]) for row in flows} == {("a", "b", 0), ("b", "a", 0)}
    assert min(row["sent"] for row in flows) >= EXCHANGES


def test_the_clocks_differ_and_by_how_much_is_known(recorded: Recorded) -> None:
    found = recorded.joined.columns("SELECT offset_ns, low_ns, high_ns FROM clocks WHERE host = 1")
    assert len(found["offset_ns"]) > 4
    assert (np.abs(found["offset_ns"]) > found["high_ns"] - found["low_ns"]).all()  # they booted at other times
