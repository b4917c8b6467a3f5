# SPDX-License-Identifier: Apache-2.0
"""Real recordings of two hosts, joined: the truth is known, as both are namespaces of this one."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import numpy as np
import pytest

from bench.clock_hosts import Hosts
from bench.recorded_hosts import recorded, set_clock
from hopscope.lab import Tbf, Workload, shape
from hopscope.store.hosts import JOINED
from hopscope.store.meta import FILE, Metadata
from hopscope.store.trace import Trace
from hopscope.trace.clock_bounds import bounds_ns
from tests.lab.command import hopscope

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.root

# So many of either, of which a host sends no more in a second than that: the clocks are compared for some seconds.
MESSAGES, RATE = 800, 200


def talk(hosts: Hosts) -> None:
    """Let both hosts ask and answer, and one send datagrams."""
    address = hosts.address(1)
    here, there = hosts.namespaces
    with (
        Workload(there, "tcp-echo", "--bind", address) as echo,
        Workload(here, "tcp-rr", address, echo.port, "--rate", RATE, "--count", MESSAGES) as asking,
        Workload(there, "udp-sink", "--bind", address) as sink,
        Workload(here, "udp-send", address, sink.port, "--rate", RATE, "--count", MESSAGES, "--size", 200) as sending,
    ):
        for each in (asking, sending):
            assert each.result().messages == MESSAGES


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("original") / "r"
    with Hosts(2) as hosts, recorded(hosts, folder, "-P", "messages"):
        talk(hosts)
    return folder


@pytest.fixture
def recording(original: Path, tmp_path: Path) -> Path:
    shutil.copytree(original, tmp_path / "r")
    return tmp_path / "r"


@pytest.fixture
def shaped(tmp_path: Path) -> Iterator[Path]:
    with Hosts(2) as hosts:
        shape(hosts.namespaces[0], hosts.ifname(0, 1), Tbf(rate_bit_s=2_000_000, burst_bytes=2_000))
        with recorded(hosts, tmp_path / "r", "-P", "messages"):
            talk(hosts)
        yield tmp_path / "r"


def assert_holds(joined: Path, second: Path) -> None:
    """Check each event of the second host against its own clock, which is the first one's."""
    with Trace(joined) as trace, Trace(second) as truth:
        for table in ("packets", "sockets", "cpu"):
            found = np.sort(trace.columns(f"SELECT time_ns FROM {table} WHERE cpu >= 1024")["time_ns"])
            true = np.sort(truth.columns(f"SELECT time_ns FROM {table}")["time_ns"])
            assert len(found) == len(true) >= MESSAGES
            bound = bounds_ns(trace, 1, found)
            assert (bound >= 0).all()
            assert (np.abs(found - true) <= bound).all()


def drifting(folder: Path) -> Callable[[np.ndarray], np.ndarray]:
    started_ns = Metadata.read(folder / "a").started_ns
    return lambda times_ns: times_ns + 123 + np.rint((times_ns - started_ns) * 20e-6).astype(np.int64)


def joined(*arguments: object) -> str:
    done = hopscope("join", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.slow
def test_an_offset_and_a_drift_are_taken_off(original: Path, recording: Path, tmp_path: Path) -> None:
    set_clock(recording, "b", drifting(recording))
    said = joined(recording, "-o", tmp_path / "out")
    assert "a: the time axis" in said
    assert "b: error bound " in said
    assert "without probes" not in said
    assert_holds(tmp_path / "out", original / "b")


def test_packets_of_applications_alone_are_enough(original: Path, recording: Path, tmp_path: Path) -> None:
    set_clock(recording, "b", drifting(recording))
    said = joined(recording / "a", recording / "b", "-o", tmp_path / "out")
    assert "clocks of a and b: compared without probes; `hopscope record --host a --host b` records them" in said
    with Trace(tmp_path / "out") as trace:
        (pair,) = trace.metadata.joined["pairs"]
        # TCP both ways, and UDP.
        assert pair["probes"] == (0, 0)
        assert pair["packets"][0] > pair["packets"][1] > 100
    assert_holds(tmp_path / "out", original / "b")


def test_a_step_in_mid_recording_is_found(original: Path, recording: Path, tmp_path: Path) -> None:
    meta = Metadata.read(recording / "a")
    middle_ns = ((meta.ended_ns or 0) + meta.started_ns) // 2
    set_clock(recording, "b", lambda times_ns: np.where(times_ns < middle_ns, times_ns, times_ns + 1_000_000))
    joined(recording, "-o", tmp_path / "out")
    assert_holds(tmp_path / "out", original / "b")
    with Trace(tmp_path / "out") as trace:
        # On either side of it, times are as good as ever.
        bounds = np.sort(trace.columns("SELECT high_ns - offset_ns AS bound_ns FROM clocks WHERE host = 1")["bound_ns"])
        assert bounds[0] < 100_000 < bounds[-1]
        assert trace.metadata.joined["pairs"][0]["breaks"] == 1
    assert "changes of time or rate of one of the clocks: 1" in " ".join(
        hopscope("report", "summary", tmp_path / "out").stdout.split()
    )


@pytest.mark.slow
def test_a_slew_that_nobody_told_of_is_in_the_bound(original: Path, recording: Path, tmp_path: Path) -> None:
    """A time daemon lets one clock run faster for a second; single recordings do not know of it."""
    meta = Metadata.read(recording / "a")
    middle_ns = ((meta.ended_ns or 0) + meta.started_ns) // 2

    def slewed(times_ns: np.ndarray) -> np.ndarray:
        return times_ns + np.rint(np.clip(times_ns - middle_ns, 0, 1e9) * 200e-6).astype(np.int64)

    set_clock(recording, "b", slewed)
    for given in ([recording], [recording / "a", recording / "b"]):
        out = tmp_path / f"of {len(given)}"
        joined(*given, "-o", out)
        assert_holds(out, original / "b")
        with Trace(out) as trace:
            assert trace.metadata.joined["pairs"][0]["breaks"] > 0


@pytest.mark.slow
def test_a_queue_of_one_direction_is_in_the_bound(shaped: Path, tmp_path: Path) -> None:
    joined(shaped, "-o", tmp_path / "probes")
    joined(shaped / "a", shaped / "b", "-o", tmp_path / "packets")
    assert_holds(tmp_path / "probes", shaped / "b")
    assert_holds(tmp_path / "packets", shaped / "b")


def test_reports_open_a_recording_of_several_hosts(recording: Path) -> None:
    first = hopscope("report", "messages", recording, "--json", "--limit", 5)
    assert first.returncode == 0, first.stderr
    assert f"joining the hosts of {recording} to {recording / JOINED}" in first.stderr
    assert len([json.loads(line) for line in first.stdout.splitlines()]) == 5
    made = (recording / JOINED / FILE).stat().st_mtime_ns
    again = hopscope("sql", recording, "--csv", "SELECT name FROM hosts ORDER BY host")
    assert again.stdout.splitlines() == ["name", "a", "b"]
    assert "joining" not in again.stderr
    assert (recording / JOINED / FILE).stat().st_mtime_ns == made
    alone = hopscope("sql", recording / "b", "--csv", "SELECT count(*) AS n FROM hosts")
    assert alone.stdout.splitlines() == ["n", "0"]


def test_what_was_joined_before_more_came_is_joined_anew(recording: Path) -> None:
    joined(recording)
    with (recording / "a" / "more").open("w") as file:
        file.write("1")
    assert "joining the hosts" in hopscope("report", "summary", recording).stderr
    assert "joining the hosts" not in hopscope("report", "summary", recording).stderr
    assert sorted(path.name for path in recording.iterdir()) == ["a", "b", "checksums", "hosts.json", JOINED, "probes"]


def test_a_folder_that_cannot_be_written_is_joined_elsewhere(recording: Path) -> None:
    mount = f'mount --bind {recording} {recording} && mount -o remount,bind,ro {recording} && exec "$@"'
    done = hopscope("report", "summary", recording, before=("unshare", "-m", "sh", "-c", mount, "sh"))
    assert done.returncode == 0, done.stderr
    assert "in a temporary folder" in done.stderr
    assert "b: error bound " in done.stdout
    assert not (recording / JOINED).exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["a"], "No folder was given for the joined trace"),
        (["a", "b", "-o", "a"], "is not empty"),
        (["nowhere", "-o", "out"], "is not a trace"),
        ([".", "--without", "c"], "No host is named c. The hosts are a, b"),
        ([".", "--without", "a", "--without", "b"], "No hosts are left to join"),
    ],
)
def test_what_cannot_be_joined_is_said_in_one_sentence(recording: Path, arguments: list[str], said: str) -> None:
    places = [recording / word if word in {"a", "b", "out", "nowhere", "."} else word for word in arguments]
    if "--without" in arguments:  # a host, and no folder
        places = [recording, *arguments[1:]]
    done = hopscope("join", *places)
    assert done.returncode != 0
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
