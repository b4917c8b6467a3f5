# SPDX-License-Identifier: Apache-2.0
"""Batches come to be and go away at once, and no row counts twice."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from hopscope.errors import FormatError, UsageError
from hopscope.model.histogram import Histogram
from hopscope.store.fleet import batches, schema
from hopscope.store.fleet.batches import add_rows, batches_of, compact, identity, keep
from hopscope.store.fleet.fleet import Fleet
from hopscope.store.fleet.place import Place
from hopscope.verbs.fleet.add import rows_of
from tests.waiting import TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Mapping

HOUR = 498_648
NEVER = 10**9


def add(place: Place, host: str, hour: int, hops: Mapping[tuple[str, int, str], Histogram], **more: object) -> bool:
    minutes = {minute: (60 * 10**9, "hops", 0, 1.0) for _, minute, _ in hops}
    return add_rows(place, hour, identity(host, hour, *more.values()), rows_of(host, "boot", hops, minutes, {}, {}))


def one(minute: int, *values_ns: int) -> dict[tuple[str, int, str], Histogram]:
    return {("hop", minute, ""): Histogram.from_values(values_ns)}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def hours(place: Place) -> dict[tuple[str, int], Histogram]:
    with Fleet(place.folder) as fleet:
        found: dict[tuple[str, int], Histogram] = {}
        for host, hour, slots, counts, sum_ns, max_ns in fleet.rows(
            "SELECT host, hour, slots, counts, sum_ns, max_ns FROM hop_hours"
        ):
            dense = np.zeros(258, np.int64)
            dense[slots] = counts
            key = host, hour
            found[key] = found.get(key, Histogram.empty()) + Histogram(dense, sum_ns, max_ns)
        return found


def test_hours_are_the_exact_sums_of_minutes_before_and_after_packing(place: Place) -> None:
    random = np.random.default_rng(1)
    truth: dict[tuple[str, int], Histogram] = {}
    for host in ("a", "b"):
        for hour in (HOUR, HOUR + 1):
            for part in range(3):
                values = {minute: random.integers(1, 10**10, 50) for minute in range(hour * 60 + part, hour * 60 + 5)}
                add(
                    place,
                    host,
                    hour,
                    {("hop", key, ""): Histogram.from_values(each) for key, each in values.items()},
                    part=part,
                )
                for each in values.values():
                    truth[host, hour] = truth.get((host, hour), Histogram.empty()) + Histogram.from_values(each)
    assert hours(place) == truth
    assert compact(place, before_hour=HOUR + 1, grace_s=0) == (1, 6)
    assert hours(place) == truth
    assert compact(place, before_hour=NEVER, grace_s=0) == (1, 6)
    assert hours(place) == truth
    assert len(place.names()[0]) == 2


def test_batch_is_added_once_also_after_it_was_packed(place: Place) -> None:
    assert add(place, "a", HOUR, one(HOUR * 60, 1000))
    assert not add(place, "a", HOUR, one(HOUR * 60, 1000))
    add(place, "b", HOUR, one(HOUR * 60, 1000))
    compact(place, before_hour=NEVER, grace_s=0)
    assert not add(place, "a", HOUR, one(HOUR * 60, 1000))
    assert sum(each.count for each in hours(place).values()) == 2


def test_late_batch_joins_a_pack_and_what_was_replaced_does_not_count(place: Place) -> None:
    for host in "abc":
        add(place, host, HOUR, one(HOUR * 60, 1000))
        compact(place, before_hour=NEVER, grace_s=3600)
    names = batches_of(place)
    assert [name.kind for name in names.counted] == ["pack"]
    assert len(names.replaced) == 4  # three parts and the first pack
    assert sum(each.count for each in hours(place).values()) == 3
    compact(place, before_hour=NEVER, grace_s=0)
    assert not batches_of(place).replaced
    assert sum(each.count for each in hours(place).values()) == 3


def test_many_batches_become_several_packs_and_then_one(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "_MOST_AT_ONCE", 3)
    for host in "abcdefg":
        add(place, host, HOUR, one(HOUR * 60, 1000))
    assert compact(place, before_hour=NEVER, grace_s=0) == (2, 6)
    assert sum(each.count for each in hours(place).values()) == 7
    assert compact(place, before_hour=NEVER, grace_s=0) == (1, 3)
    assert sum(each.count for each in hours(place).values()) == 7


@pytest.mark.parametrize("rounds", [8, pytest.param(200, marks=pytest.mark.slow)])
def test_killed_at_random_moments_every_row_counts_once(rounds: int, tmp_path: Path) -> None:
    folder = tmp_path / "fleet"
    folder.mkdir()
    script = Path(__file__).with_name("killed.py")
    done = subprocess.run(
        [sys.executable, script, folder, str(rounds), "7"],
        capture_output=True, text=True, check=False, timeout=TIMEOUT_S + 3 * rounds,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > rounds // 2


def test_what_a_killed_writer_left_is_overlooked_and_swept(place: Place) -> None:
    add(place, "a", HOUR, one(HOUR * 60, 1000))
    day = next((place.folder / "hist").iterdir())
    left = day / ".coming-00-0123456789abcdef-00000000"
    shutil.copytree(next(day.iterdir()), left)
    assert sum(each.count for each in hours(place).values()) == 1
    os.utime(left, (1, 1))
    compact(place, before_hour=NEVER)
    assert not left.exists()


def test_batch_that_is_being_copied_does_not_count(place: Place) -> None:
    for host in "ab":
        add(place, host, HOUR, one(HOUR * 60, 1000))
    folder = place.folder / "hist" / place.names()[0][0].path
    names = sorted(each.name for each in folder.iterdir())
    assert names[-1] == "written.json"  # as rsync and others copy them
    (folder / names[-1]).unlink()
    assert sum(each.count for each in hours(place).values()) == 1


def test_another_version_is_named_and_all_of_another_is_an_error(place: Place) -> None:
    add(place, "a", HOUR, one(HOUR * 60, 1000))
    add(place, "b", HOUR, one(HOUR * 60, 1000))
    first, second = (place.folder / "hist" / name.path for name in place.names()[0])
    first.rename(first.with_name(first.name.replace("v1-", "v2-")))
    with Fleet(place.folder) as fleet:
        assert "1 batch of" in fleet.notes[0]
        assert "of version 2" in fleet.notes[0]
        assert fleet.rows("SELECT count(*) FROM hop_hours") == [(1,)]
    second.rename(second.with_name(second.name.replace("v1-", "v2-")))
    with pytest.raises(FormatError, match=r"2 batches of .* of version 2, .* newer one"):
        Fleet(place.folder)


@pytest.mark.parametrize("table", ["hop_hours", "minutes"])
def test_truncated_file_is_named(table: str, place: Place) -> None:
    add(place, "a", HOUR, one(HOUR * 60, 1000))
    file = place.file(place.names()[0][0], table)
    file.write_bytes(file.read_bytes()[:-9])
    with (
        pytest.raises(FormatError, match=rf"{table}\.parquet is damaged: .*Restore it, or remove"),
        Fleet(place.folder) as fleet,
    ):
        fleet.rows(f"SELECT * FROM {table}")


def test_damaged_pack_is_named(place: Place) -> None:
    for host in "ab":
        add(place, host, HOUR, one(HOUR * 60, 1000))
    compact(place, before_hour=NEVER, grace_s=0)
    (document,) = place.folder.rglob("written.json")
    document.write_bytes(b"{")
    with pytest.raises(FormatError, match=r"written\.json is damaged"):
        Fleet(place.folder)


def test_truncated_batch_stops_packing_of_its_hour_and_nothing_is_lost(place: Place) -> None:
    for host in "ab":
        add(place, host, HOUR, one(HOUR * 60, 1000))
    file = place.file(place.names()[0][0], "minutes")
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(FormatError, match=r"minutes\.parquet is damaged"):
        compact(place, before_hour=NEVER, grace_s=0)
    assert len(place.names()[0]) == 2


def test_retention_by_age_and_by_size_takes_the_oldest(place: Place) -> None:
    for hour in range(HOUR, HOUR + 4):
        for host in "ab":
            add(place, host, hour, one(hour * 60, 1000))
    compact(place, before_hour=HOUR + 2, grace_s=3600)  # what was replaced goes with its pack
    assert keep(place, since_hour=HOUR + 1) == (3, 0)
    assert {name.number for name in place.names()[0]} == {HOUR + 1, HOUR + 2, HOUR + 3}
    sizes = [place.size_bytes(name) for name in place.names()[0] if name.number > HOUR + 1]
    keep(place, since_hour=None, most_bytes=sum(sizes))
    assert {name.number for name in place.names()[0]} == {HOUR + 2, HOUR + 3}
    keep(place, since_hour=None, most_bytes=0)
    assert not place.names()[0]


def test_recordings_go_before_histograms(place: Place) -> None:
    for hour in range(HOUR, HOUR + 2):
        add(place, "a", hour, one(hour * 60, 1000))
    for host, name in (
        ("a", "2026-11-20T00"),
        ("b", "2026-11-20T00.2"),
        ("b", "2026-11-20T01"),
        ("b", "2026-11-20T02"),
    ):
        folder = place.folder / "raw" / f"host={host}" / "boot=1" / f"hour={name}" / "packets"
        folder.mkdir(parents=True)
        (folder / "000001.parquet").write_bytes(b"0" * 1000)
    kept = sum(map(place.size_bytes, place.names()[0]))

    def left() -> list[str]:
        return [folder.name for _, folder in place.recordings()]

    assert keep(place, since_hour=None, raw_since_hour=HOUR + 1) == (0, 2)
    assert left() == ["hour=2026-11-20T01", "hour=2026-11-20T02"]
    assert not (place.folder / "raw" / "host=a").exists()
    assert keep(place, since_hour=None, most_bytes=kept + 1000) == (0, 1)
    assert left() == ["hour=2026-11-20T02"]
    assert keep(place, since_hour=None, most_bytes=kept - 1) == (1, 1)
    assert left() == []


def test_one_process_packs_at_a_time(place: Place) -> None:
    add(place, "a", HOUR, one(HOUR * 60, 1000))
    with place.alone(), pytest.raises(UsageError, match="is being compacted by another process"):
        compact(place, before_hour=NEVER)


def test_last_day_is_read_unless_other_times_are_asked_for(place: Place) -> None:
    for hour in (HOUR - 100, HOUR - 23, HOUR):
        add(place, "a", hour, one(hour * 60, 1000))
    with Fleet(place.folder) as fleet:
        assert fleet.rows("SELECT list(hour ORDER BY hour) FROM hop_hours") == [([HOUR - 23, HOUR],)]
    with Fleet(place.folder, from_hour=HOUR - 100) as fleet:
        assert fleet.rows("SELECT count(*) FROM hop_hours") == [(3,)]
    with pytest.raises(UsageError, match="has nothing of that time: it has 2026-11-15 20:00 to"):
        Fleet(place.folder, until_hour=HOUR - 500)


def test_clock_that_is_far_ahead_does_not_hide_the_last_day(place: Place) -> None:
    ahead = int(time.time()) // 3600 + 1000
    for hour in (HOUR, ahead):
        add(place, f"host-{hour}", hour, one(hour * 60, 1000))
    with Fleet(place.folder) as fleet:
        assert fleet.rows("SELECT hour FROM hop_hours") == [(HOUR,)]
        assert "1 of 2 batches are of hours that have not come yet" in fleet.notes[0]
    with Fleet(place.folder, from_hour=ahead) as fleet:
        assert fleet.rows("SELECT hour FROM hop_hours") == [(ahead,)]


def test_page_has_the_tables() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "fleet.md").read_text()
    assert schema.page().strip() in page, "hopscope.store.fleet.schema.page() returns them"
