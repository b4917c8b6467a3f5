# SPDX-License-Identifier: Apache-2.0
"""``hopscope recordings`` on traces made up here, and the last of them where no TRACE is named: they need no root."""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING

import pytest

import hopscope as package
from hopscope.store.meta import FILE, Metadata
from hopscope.verbs.recordings.schema import schema
from hopscope.verbs.recordings.table import duration
from tests.lab.command import SCHEMAS, assert_fits, complaint, hopscope, objects
from tests.lab.small_trace import small

if TYPE_CHECKING:
    from pathlib import Path

DAY_NS = 86_400 * 10**9
EVENTS = sum(len(small().rows[table]) for table in ("packets", "sockets", "cpu"))


def recorded(folder: Path, days: float = 0) -> Path:
    """Write a recording of ten seconds that ended so many days ago."""
    made = small()
    made.lose(5, 6, lost=7)
    made.write(folder)
    metadata = Metadata.read(folder)
    assert metadata.ended_ns is not None
    metadata.realtime_ns = time.time_ns() - int(days * DAY_NS) - (metadata.ended_ns - metadata.started_ns)
    metadata.options = {"profiles": ["messages"], "filters": {"port": "443"}, "sampling_1_in": 1}
    metadata.missed = 2
    (folder / "hopscope.json").write_bytes(metadata.packed())
    return folder


@pytest.fixture
def week(state_directory: Path) -> list[str]:
    """Make recordings of the last three days, which end some minutes before they are as many days old."""
    return [recorded(state_directory / f"{days}-days", days - 0.01).name for days in (3, 2, 1)]


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_each_recording_is_a_line_the_last_one_last(week: list[str], state_directory: Path) -> None:
    done = hopscope("recordings", COLUMNS="120")
    assert (done.returncode, done.stderr) == (0, "")
    title, *lines, footer = done.stdout.splitlines()
    assert title.split() == ["name", "began", "(UTC)", "duration", "size", "events", "lost", "state", "options"]
    assert [line.split()[0] for line in lines] == week
    assert all(re.search(rf" 10\.0s +\S+ KiB +{EVENTS} +9  complete  messages port=443$", line) for line in lines)
    assert re.fullmatch(rf"3 recordings, \S+ KiB in {state_directory}", footer)
    assert max(map(len, hopscope("recordings").stdout.splitlines()[:-1])) <= 80


def test_json_fits_its_schema(week: list[str], state_directory: Path) -> None:
    (state_directory / week[0] / FILE).write_text("{")
    found = objects(hopscope("recordings", "--json").stdout)
    for each in found:
        assert_fits(each, "recordings-1")
    assert json.loads((SCHEMAS / "hopscope.recordings-1.schema.json").read_text()) == schema()
    by_name = {each["name"]: each for each in found}
    assert (by_name[week[0]]["state"], by_name[week[0]]["events"]) == ("unreadable", None)
    assert "cannot be read" in by_name[week[0]]["problem"]
    last = by_name[week[2]]
    size_bytes = sum(file.stat().st_size for file in (state_directory / week[2]).rglob("*") if file.is_file())
    assert (last["size_bytes"], last["events"], last["lost"], last["duration_s"]) == (size_bytes, EVENTS, 9, 10.0)


def test_what_is_older_is_deleted_and_then_the_oldest_until_the_rest_fits(
    week: list[str], state_directory: Path
) -> None:
    oldest, middle, last = week
    older = ("--delete", "--older-than", "60h")
    done = hopscope("recordings", *older, "--dry-run")
    assert done.stdout.startswith(f"would delete {oldest}, ")
    assert "\n1 recording, " in done.stdout
    assert names(state_directory) == set(week)
    (deleted,) = objects(hopscope("recordings", *older, "--json").stdout)
    assert (deleted["name"], deleted["deleted"], deleted["events"]) == (oldest, True, EVENTS)
    assert names(state_directory) == {middle, last}
    assert hopscope("recordings", *older).stdout.startswith("0 recordings, 0 B deleted; 2 recordings, ")
    (state_directory / last / "large").write_bytes(bytes(1 << 20))
    done = hopscope("recordings", "--delete", "--keep-size", "1.01M")
    assert (done.returncode, done.stderr) == (0, "")
    assert names(state_directory) == {last}


def test_what_is_no_recording_and_what_is_elsewhere_stays(week: list[str], state_directory: Path) -> None:
    outside = recorded(state_directory.parent / "outside", 9)
    (state_directory / "link").symlink_to(outside)
    (state_directory / week[0] / "out").symlink_to(outside)
    (state_directory / "folder").mkdir()
    (state_directory / "folder" / FILE).symlink_to(outside / FILE)
    (state_directory / "damaged").mkdir()
    (state_directory / "damaged" / FILE).write_text("{")
    (state_directory / ".deleted-x" / "interrupted").mkdir(parents=True)
    before = {path: path.lstat().st_mtime_ns for path in outside.rglob("*")}
    done = hopscope("recordings", "--delete", "--older-than", "0s", "--keep-size", "0M")
    assert (done.returncode, done.stderr.count("\n")) == (0, 1)
    assert "more than --keep-size: 1 recording cannot be deleted" in done.stderr
    assert names(state_directory) == {"link", "folder", "damaged"}
    assert {path: path.lstat().st_mtime_ns for path in outside.rglob("*")} == before
    for name, reason in (
        ("link", f"There is no recording link in {state_directory}"),
        ("folder", f"There is no recording folder in {state_directory}"),
        ("..", f"There is no recording .. in {state_directory}"),
        ("damaged", "damaged is not deleted: its metadata are damaged, so that it may be something else"),
        (outside, f"There is no recording {outside} in {state_directory}"),
    ):
        assert complaint(hopscope("recordings", "--delete", name), 2).startswith(reason)
    assert outside.is_dir()


def test_those_named_are_listed_or_deleted(week: list[str], state_directory: Path) -> None:
    listed = objects(hopscope("recordings", "--json", week[1], state_directory / week[2]).stdout)
    assert [each["name"] for each in listed] == week[1:]
    complaint(hopscope("recordings", "--delete", week[0], "none"), 2)
    assert names(state_directory) == set(week)
    assert hopscope("recordings", "--delete", week[0], f"{state_directory / week[1]}/").returncode == 0
    assert names(state_directory) == {week[2]}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--older-than", "7d"], "--older-than, --keep-size and --dry-run are for --delete"),
        (["--delete"], "--delete does not say what to delete"),
        (["--delete", "--dry-run"], "--delete does not say what to delete"),
        (["--delete", "a", "--older-than", "7d"], "Names cannot be combined with --older-than"),
        (["--delete", "--older-than", "7"], "'7' is not an age, e.g. 12h or 7d"),
        (["--delete", "--older-than", "7y"], "'7y' is not an age"),
        (["--delete", "--keep-size", "-1G"], "'-1G' is not a size, e.g. 500M or 10G"),
        (["none"], "There is no recording none in /"),
    ],
)
def test_wrong_use_is_one_sentence(words: list[str], said: str, state_directory: Path) -> None:
    assert said in complaint(hopscope("recordings", *words), 2)
    assert not state_directory.exists()


def test_an_empty_state_directory_is_said(state_directory: Path) -> None:
    done = hopscope("recordings")
    assert (done.returncode, done.stdout) == (0, f"0 recordings, 0 B in {state_directory}\n")


@pytest.mark.parametrize(
    ("seconds", "shown"), [(1.25, "1.25s"), (59.9, "59.9s"), (60, "1m00s"), (7503, "2h05m"), (180_000, "2d02h")]
)
def test_durations_have_two_units_at_most(seconds: float, shown: str) -> None:
    assert duration(round(seconds * 1e9)) == shown


@pytest.mark.parametrize(
    ("verb", "expected"),
    [
        (["report", "flows", "--csv"], "10.0.0.2:80"),
        (["sql", "SELECT count(*) FROM packets", "--csv"], "count_star()"),
        (["sql", "--tables"], "skb_lifetimes"),
        (["sql", "--tables", "packets"], "len_bytes"),
    ],
)
def test_without_a_trace_the_last_one_is_read(
    verb: list[str], expected: str, week: list[str], state_directory: Path
) -> None:
    done = hopscope(*verb)
    assert (done.returncode, done.stderr.splitlines()[0]) == (0, f"hopscope: reading {state_directory / week[2]}")
    assert expected in done.stdout


@pytest.mark.parametrize("verb", [["report", "summary"], ["sql", "--tables"], ["check"]])
def test_a_name_is_that_of_a_recording_where_there_is_no_such_folder(
    verb: list[str], week: list[str], state_directory: Path
) -> None:
    done = hopscope(*verb, week[0])
    assert done.stderr.splitlines()[0] == f"hopscope: reading {state_directory / week[0]}"


def test_one_argument_of_sql_is_the_recording_or_the_query(
    week: list[str], state_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(state_directory)
    done = hopscope("sql", week[0], "SELECT 1 AS one", "--csv")
    assert done.stdout == "one\n1\n"
    assert "reading" not in done.stderr  # there is such a path, which comes first
    assert "No query was given" in complaint(hopscope("sql", week[0]), 2)
    assert "No query was given" in complaint(hopscope("sql", "tarce"), 2)
    assert "tarce is not a trace" in complaint(hopscope("sql", "tarce", "SELECT 1"), 1)
    assert "no table named tarce" in hopscope("sql", "--tables", "tarce").stderr


def test_compare_takes_the_last_one_as_the_second(week: list[str], state_directory: Path) -> None:
    done = hopscope("report", "compare", week[0])
    assert done.returncode == 0
    assert [line for line in done.stderr.splitlines() if " reading " in line] == [
        f"hopscope: reading {state_directory / name}" for name in (week[0], week[2])
    ]
    assert hopscope("report", "compare", state_directory / week[2]).stderr.splitlines()[-1] == (
        "hopscope: TRACE is the last recording itself. Name what to compare it with, as TRACE2"
    )
    assert "Missing argument 'TRACE'" in complaint(hopscope("report", "compare"), 2)


def test_a_program_opens_the_last_one_too(week: list[str], state_directory: Path) -> None:
    with package.open() as recording:
        assert recording.path == state_directory / week[2]
        assert len(recording.report("flows")) == 3
    with package.open(week[0]) as recording:
        assert recording.path == state_directory / week[0]
