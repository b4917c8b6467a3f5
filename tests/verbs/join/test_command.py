# SPDX-License-Identifier: Apache-2.0
"""Real recordings of two hosts, joined: the truth is known, as both are namespaces of this one."""

from __future__ import annotations

import json
import re
import shutil
from typing import TYPE_CHECKING

import numpy as np
import pytest

from bench.clock_hosts import Hosts
from bench.recorded_hosts import recorded, set_clock
from hopscope.clock import adjustment
from hopscope.lab import Tbf, Workload, shape
from hopscope.store.hosts import JOINED
from hopscope.store.meta import FILE, Metadata
from hopscope.store.trace import Trace
from hopscope.trace.clock_bounds import bounds_ns
from tests.lab.command import complaint, hopscope

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from bench.recorded_hosts import Columns

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
    with Hosts(2) as hosts, recorded(hosts, folder, "-P", "messages", "--counters", 1):
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


def kept(
    bound_ns: int, more_ns: int = 0, utc_s: int = 0, said_by: str = "adjtimex_bound_ns"
) -> Callable[[str, Columns], Columns]:
    """Return what makes a recording one of a host whose clock a daemon keeps, so well; CLOCK_TAI is later by that."""

    def values(table: str, columns: Columns) -> Columns:
        if table != "counters":
            return columns
        name, value = columns["name"].copy(), columns["value"].copy()
        ours = columns["source"] == "timekeeping"
        value[ours & (name == "synchronized")] = 1
        value[ours & (name == "max_error_ns")] = bound_ns
        value[ours & (name == "tai_minus_monotonic_ns")] += more_ns + utc_s * 10**9
        value[ours & (name == "tai_minus_utc_s")] += utc_s
        name[ours & (name == "max_error_ns")] = said_by
        return {**columns, "name": name, "value": value}

    return values


def nothing(table: str, columns: Columns) -> Columns:
    """Leave out the counters."""
    return {name: each[:0] for name, each in columns.items()} if table == "counters" else columns


def same(times_ns: np.ndarray) -> np.ndarray:
    return times_ns


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


def test_a_clock_that_is_kept_elsewhere_is_trusted_within_its_bound(
    original: Path, recording: Path, tmp_path: Path
) -> None:
    """The clock of b is ahead, and both hosts' CLOCK_TAI is one: the recordings of one kernel say so themselves."""
    ahead_ns, bounds = 1_000_000_123, (4_000, 9_000)
    set_clock(recording, "a", same, kept(bounds[0]))
    set_clock(recording, "b", lambda times_ns: times_ns + ahead_ns, kept(bounds[1], -ahead_ns))
    said = joined(recording, "-o", tmp_path / "out", "--clock", "tai")
    assert "contradict" not in said
    assert "b: error bound 13,000 ns (median)" in said
    assert_holds(tmp_path / "out", original / "b")
    with Trace(tmp_path / "out") as trace:
        assert trace.rows("SELECT DISTINCT host, offset_ns FROM clocks ORDER BY host") == [(0, 0), (1, ahead_ns)]
    joined(recording, "-o", tmp_path / "compared")
    with Trace(tmp_path / "compared") as trace:
        # What the probes say by themselves is within the bound, too.
        assert trace.rows(f"SELECT max(abs(offset_ns - {ahead_ns})) <= {sum(bounds)} FROM clocks WHERE host = 1") == [
            (True,)
        ]
    summary = " ".join(hopscope("report", "summary", tmp_path / "out").stdout.split())
    assert "ns (maximum); CLOCK_TAI is trusted, as adjtimex keeps it" in summary
    assert "clocks of a and b: checked using " in summary


def test_packets_that_contradict_a_trusted_clock_are_reported(recording: Path, tmp_path: Path) -> None:
    set_clock(recording, "a", same, kept(4_000))
    set_clock(recording, "b", same, kept(4_000, 5_000_000))
    said = joined(recording, "-o", tmp_path / "out", "--clock", "tai")
    found = re.search(r"b: packets contradict the trusted clock by ([\d,]+) ns more than both bounds allow", said)
    assert found, said
    assert 4_900_000 < int(found[1].replace(",", "")) < 5_000_000


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (lambda _, columns: columns, "The clock of b was not synchronized "),
        (kept(4_000, utc_s=37), "CLOCK_TAI is 37 s ahead of UTC on b and 0 s on a, as their kernels were told"),
        (kept(4_000, said_by="max_error_ns"), "Nobody said how far the clock of b could be off "),
        (nothing, "The recording of b does not say how its clocks were kept. `hopscope record` reads that with the"),
        (kept(-1_000), "adjtimex_bound_ns of b was -1,000 "),
        (kept((1 << 63) - 1), "adjtimex_bound_ns of b was 9,223,372,036,854,775,807 "),
        (kept(4_000, 10**18), "By CLOCK_TAI of b and a, their recordings are more than a day apart"),
    ],
    ids=["not synchronized", "another TAI", "no bound", "no counters", "negative", "overflow", "another year"],
)
def test_a_clock_that_nobody_vouches_for_is_refused(
    recording: Path, tmp_path: Path, values: Callable[[str, Columns], Columns], sentence: str
) -> None:
    if adjustment.read().synchronized or adjustment.read().tai_offset_s:
        pytest.skip("the clock of this machine is synchronized: it has to be told otherwise")
    set_clock(recording, "a", same, kept(4_000))
    set_clock(recording, "b", same, values)
    done = hopscope("join", recording, "-o", tmp_path / "out", "--clock", "tai")
    said = complaint(done, 2)
    assert sentence in said
    assert "join without --clock tai, by probes and packets" in said
    assert not (tmp_path / "out").exists()
