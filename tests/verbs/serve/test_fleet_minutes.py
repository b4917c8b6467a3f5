# SPDX-License-Identifier: Apache-2.0
"""Histograms by minute: what is measured is written once, in bounded memory, and nobody waits for a disk."""

from __future__ import annotations

import os
import socket
import time
from typing import TYPE_CHECKING

import pytest

from hopscope.lab import Lab
from hopscope.model.drops import DropRow, DropSnapshot
from hopscope.model.histogram import Histogram
from hopscope.model.snapshot import HopRow, Overhead, Snapshot
from hopscope.store.fleet.fleet import Fleet
from hopscope.store.fleet.schema import MINUTES_OF_HOUR, NS_OF_MINUTE
from hopscope.verbs.serve import fleet_minutes
from hopscope.verbs.serve.fleet_minutes import Facts, Journal, Minutes, Reading, reading_of
from tests.lab.command import complaint, hopscope, only
from tests.lab.measure import ping, udp_pair, way
from tests.verbs.serve.served import serving
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

FIRST = 498_648 * MINUTES_OF_HOUR
NONE = Overhead(0, None, None, 0.0, 0)


def reading(minute: float, length_s: float = 15.0, facts: dict[str, str] | None = None, **hops: Histogram) -> Reading:
    from_ns = round(minute * NS_OF_MINUTE)
    found = {(f"rx.{name}", ""): histogram for name, histogram in hops.items()}
    return Reading(from_ns, from_ns + round(length_s * 1e9), "hops drops", found, {("X", "f"): 2}, 1, 0.5, facts or {})


def of(*values_us: int) -> Histogram:
    return Histogram.from_values([1000 * each for each in values_us])


def test_snapshots_become_a_reading_with_all_hops_and_drops() -> None:
    rows = [
        HopRow("rx.core", "a", "b", "packet", {"interface": name}, of(1, 2), cause=None) for name in ("eth0", "eth1")
    ]
    rows += [
        HopRow("rx.core", "a", "b", "frame", {}, of(3)),
        HopRow("rx.ip", "a", "b", "packet", {}, Histogram.empty()),
    ]
    rx = Snapshot("rx", "interval", 10**9, 2.0, rows, NONE, lost=3, sampling_1_in=4)
    drops = DropSnapshot("interval", 10**9, 2.5, [DropRow({"reason": "NO_SOCKET", "function": "f"}, 7)], 7, 2, NONE, [])
    found = reading_of({"rx": rx, "drops": drops, "cpu": None}, {"kernel": "6"})
    assert found == Reading(
        10**9,
        3_500_000_000,
        "hops drops",
        {
            ("rx.core", "interface=eth0"): of(1, 2),
            ("rx.core", "interface=eth1"): of(1, 2),
            ("rx.core (frame)", ""): of(3),
        },
        {("NO_SOCKET", "f"): 7},
        5,
        0.25,
        {"kernel": "6"},
    )
    assert reading_of({"cpu": None}, {}) is None


def test_readings_of_a_minute_add_up_and_gaps_stay_gaps(tmp_path: Path) -> None:
    minutes = Minutes(tmp_path, "a", "boot", 8)
    for at in (0, 0.25, 0.5, 0.75, 2):
        minutes.add(reading(FIRST + at, core=of(1, 5)))
    minutes.write()
    assert not list(tmp_path.rglob("written.json"))  # none of these ten minutes is over
    minutes.add(reading(FIRST + 11, core=of(7)))
    minutes.write()
    with Fleet(tmp_path) as fleet:
        assert fleet.rows("SELECT minute, measured_ns, lost FROM minutes ORDER BY minute") == [
            (FIRST, NS_OF_MINUTE, 4), (FIRST + 2, 15 * 10**9, 1)
        ]  # fmt: skip
        assert fleet.rows("SELECT minute, count, sum_ns, max_ns, coverage FROM hop_minutes ORDER BY minute") == [
            (FIRST, 8, 24_000, 5000, 0.5), (FIRST + 2, 2, 6000, 5000, 0.125)
        ]  # fmt: skip
        assert fleet.rows("SELECT CAST(sum(count) AS BIGINT) FROM drops") == [(10,)]
    minutes.write(everything=True)
    with Fleet(tmp_path) as fleet:
        assert fleet.rows("SELECT CAST(sum(count) AS BIGINT) FROM hop_hours") == [(11,)]


def test_facts_are_written_when_they_are_new_and_each_day(tmp_path: Path) -> None:
    minutes = Minutes(tmp_path, "a", "boot", 8)
    day = 24 * MINUTES_OF_HOUR
    for at, facts in ((0, {"kernel": "6", "mtu": "1500"}), (20, {"mtu": "9000"}), (day + 5, {})):
        minutes.add(reading(FIRST + at, facts=facts, core=of(1)))
        minutes.write(everything=True)
    with Fleet(tmp_path, from_hour=FIRST // MINUTES_OF_HOUR) as fleet:
        assert fleet.rows("SELECT minute, name, value FROM facts ORDER BY minute, name") == [
            (FIRST, "kernel", "6"), (FIRST, "mtu", "1500"), (FIRST + 20, "mtu", "9000"),
            (FIRST + day + 5, "kernel", "6"), (FIRST + day + 5, "mtu", "9000"),
        ]  # fmt: skip
    known = Facts()
    assert {"kernel", "hopscope", "machine"} <= known.new(None).keys()
    assert known.new(None) == {}


def test_what_cannot_be_written_is_kept_and_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fleet_minutes, "_MOST_MINUTES", 3)
    (tmp_path / "hist").write_text("in the way")
    minutes = Minutes(tmp_path, "a", "boot", 8)
    for at in range(5):
        minutes.add(reading(FIRST + at, facts={"kernel": "6"} if not at else {}, core=of(1)))
        minutes.write(everything=True)
    assert capsys.readouterr().err.count("it is tried again, and the last") == 1
    (tmp_path / "hist").unlink()
    minutes.write(everything=True)
    assert "are written to" in capsys.readouterr().err
    with Fleet(tmp_path) as fleet:
        assert fleet.rows("SELECT list(minute ORDER BY minute) FROM minutes") == [([FIRST + 2, FIRST + 3, FIRST + 4],)]
        assert fleet.rows("SELECT value FROM facts") == [("6",)]


def test_largest_groups_have_labels_and_the_others_are_added_up(tmp_path: Path) -> None:
    minutes = Minutes(tmp_path, "a", "boot", 2)
    found = reading(FIRST)
    found.hops = {("rx.core", f"interface=eth{number}"): of(*[1] * number) for number in range(1, 6)}
    minutes.add(found)
    minutes.write(everything=True)
    with Fleet(tmp_path) as fleet:
        assert fleet.rows("SELECT labels, count FROM hop_minutes ORDER BY count") == [
            ("interface=eth4", 4), ("interface=eth5", 5), ("other", 6)
        ]  # fmt: skip


def test_memory_is_bounded_and_no_sample_of_a_group_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    minutes = Minutes(tmp_path, "a", "boot", 2)
    found = reading(FIRST)
    found.hops = {("rx.core", f"cgroup=/{number}"): of(*[1] * (1 + number % 7)) for number in range(500)}
    minutes.add(found)
    assert len(minutes._minutes[FIRST].hops) == 9
    minutes.write(everything=True)
    with Fleet(tmp_path) as fleet:
        assert fleet.rows("SELECT CAST(sum(count) AS BIGINT) FROM hop_minutes") == [
            (sum(1 + number % 7 for number in range(500)),)
        ]
    monkeypatch.setattr(fleet_minutes, "_MOST_HISTOGRAMS", 20)
    for at in range(1, 6):
        minutes.add(reading(FIRST + at))
        minutes._minutes[FIRST + at].hops = dict.fromkeys(((str(number), "") for number in range(9)), of(1))
    assert sorted(minutes._minutes) == [FIRST + 3, FIRST + 4, FIRST + 5]


def test_who_measures_never_waits_for_who_writes() -> None:
    snapshot = Snapshot("rx", "interval", 0, 1.0, [HopRow("rx.core", "a", "b", "packet", {}, of(1))], NONE)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        journal = Journal(ours)
        for _ in range(2000):  # far more than the socket and the queue have room for; it would wait for ever
            journal.take({"rx": snapshot}, None)
        assert len(journal._waiting) <= fleet_minutes._MOST_READINGS


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--collect=cpu",), "--fleet keeps hops and drops, and neither is collected"),
        ((), "cannot be created"),
    ],
)
def test_fleet_that_cannot_be_is_one_sentence(words: tuple[str, ...], sentence: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert sentence in complaint(hopscope("serve", "--check", "--fleet", tmp_path / "file" / "fleet", *words), 2)


@pytest.mark.root
def test_service_writes_what_it_counts(tmp_path: Path) -> None:
    folder = tmp_path / "fleet"
    count = ("hopscope_receive_hop_seconds_count", 'hop="rx.udp_total",unit="packet"')
    began = time.time_ns() // NS_OF_MINUTE
    words = ("--collect=rx", "--collect=drops", "--collect=check", "-i", "0.2", f"--fleet={folder}")
    with Lab() as lab, serving(*only(lab), *words) as served:
        with udp_pair(way(lab, "veth-4")) as pair:
            assert ping(*pair, 23) == 23
        eventually(lambda: served.samples().get(count) == 23)
    ended = time.time_ns() // NS_OF_MINUTE
    with Fleet(folder) as fleet:
        assert fleet.rows("SELECT CAST(sum(count) AS BIGINT) FROM hop_hours WHERE hop = 'rx.udp_total'") == [(23,)]
        minutes = [minute for (minute,) in fleet.rows("SELECT minute FROM minutes WHERE measured = 'hops drops'")]
        assert minutes
        assert set(minutes) <= set(range(began, ended + 1))
        assert fleet.rows("SELECT host FROM facts WHERE name = 'kernel'") == [(os.uname().nodename,)]
