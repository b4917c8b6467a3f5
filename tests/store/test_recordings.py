# SPDX-License-Identifier: Apache-2.0
"""Where recordings go by default, and which of them is the last one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from hopscope.errors import UsageError
from hopscope.store import recordings
from hopscope.store.counts import event_counts
from hopscope.store.meta import FILE, Metadata
from hopscope.store.recordings import dated_folder, last_recording, recording_named, recordings_in, state_directory
from hopscope.store.writer import TraceWriter
from tests.lab.recordings import Recording
from tests.lab.small_trace import small
from tests.lab.traces import REALTIME_NS
from tests.store.columns import metadata

if TYPE_CHECKING:
    from pathlib import Path

_HOUR_NS = 3600 * 10**9


def recorded(folder: Path, *, hours: int = 0, **changes: object) -> Path:
    """Write a trace that began so many hours later, with other metadata."""
    small().write(folder)
    found = Metadata.read(folder)
    found.realtime_ns += hours * _HOUR_NS
    for name, value in changes.items():
        setattr(found, name, value)
    (folder / "hopscope.json").write_bytes(found.packed())
    return folder


@pytest.mark.parametrize(
    ("environ", "user", "expected"),
    [
        ({"HOPSCOPE_RECORDINGS": "/own", "STATE_DIRECTORY": "/unit"}, 0, "/own"),
        ({"STATE_DIRECTORY": "/unit:/other", "XDG_STATE_HOME": "/state"}, 0, "/unit/recordings"),
        ({"XDG_STATE_HOME": "/state"}, 0, "/var/lib/hopscope/recordings"),
        ({"XDG_STATE_HOME": "/state"}, 1000, "/state/hopscope/recordings"),
        ({"XDG_STATE_HOME": "relative", "HOME": "/home/a"}, 1000, "/home/a/.local/state/hopscope/recordings"),
    ],
)
def test_the_state_directory_is_that_of_the_environment_or_of_the_user(
    environ: dict[str, str], user: int, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HOPSCOPE_RECORDINGS", "STATE_DIRECTORY", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    assert str(state_directory()) == expected


def test_users_read_what_root_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOPSCOPE_RECORDINGS")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(recordings, "_OF_ROOT", tmp_path / "root")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    of_root = recorded(tmp_path / "root" / "a")
    assert (last_recording()[0].folder, recording_named("a")) == (of_root, of_root)
    own = recorded(state_directory() / "a", hours=1)
    assert (last_recording()[0].folder, recording_named("a")) == (own, own)


def test_recordings_that_begin_in_the_same_second_have_folders_of_their_own(
    state_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recordings.time, "gmtime", lambda: (2026, 11, 23, 4, 15, 0, 0, 327, 0))
    with dated_folder(0o600) as first, dated_folder(0o600) as second, dated_folder(0o600) as third:
        (first.path / "file").touch()
        (third.path / "file").touch()
        assert second.path.is_dir()
    assert [each.name for each in (first, second, third)] == [
        *("20261123-041500", "20261123-041500-2", "20261123-041500-3"),
    ]
    assert {each.name for each in state_directory.iterdir()} == {first.name, third.name}


def test_a_state_directory_that_cannot_be_made_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("HOPSCOPE_RECORDINGS", str(tmp_path / "file" / "state"))
    said = pytest.raises(UsageError, match=r"cannot be made in .*: Not a directory\. Give one with -o")
    with said, dated_folder(0o600):
        pass


def test_the_last_one_is_the_latest_that_can_be_opened(state_directory: Path) -> None:
    latest = recorded(state_directory / "a", hours=2)
    recorded(state_directory / "b", hours=1)
    assert last_recording() == (recordings_in(state_directory)[-1], [])
    recorded(state_directory / "c", hours=3)
    (state_directory / "c" / FILE).write_text("{")
    outside = recorded(state_directory.parent / "outside", hours=4)
    (state_directory / "link").symlink_to(outside)
    (state_directory / "folder").mkdir()
    with TraceWriter(state_directory / "d", metadata(realtime_ns=REALTIME_NS + 4 * _HOUR_NS)):
        last, later = last_recording()
        assert (last.folder, last.state) == (latest, "complete")
        assert {each.name: each.state for each in later} == {"c": "unreadable", "d": "being recorded"}
    assert last_recording()[0].name == "d"


def test_without_its_recorder_a_recording_is_cut_off(state_directory: Path) -> None:
    recorded(state_directory / "a", state="recording", ended_ns=None)
    recorded(state_directory / "b", state="stopped: the disk is full", hours=1)
    assert [(each.state, each.ended_ns) for each in recordings_in(state_directory)] == [
        ("cut off", None),
        ("disk full", REALTIME_NS + _HOUR_NS + 10 * 10**9),
    ]
    assert last_recording()[0].name == "b"


def test_where_there_is_none_the_sentence_says_where(state_directory: Path) -> None:
    with pytest.raises(UsageError, match=rf"there is no recording in {state_directory}\. Name a folder, or make one"):
        last_recording()
    with (
        TraceWriter(state_directory / "a", metadata()),
        pytest.raises(UsageError, match=r"can be opened: a is being recorded\. Name one"),
    ):
        last_recording()


@pytest.mark.parametrize("change", [{"options": []}, {"realtime_ns": 1 << 70}, {"host": "web"}, {"missed": "7"}])
def test_metadata_that_cannot_be_are_unreadable(change: dict[str, object], state_directory: Path) -> None:
    recorded(state_directory / "a", **change)
    (found,) = recordings_in(state_directory)
    assert (found.state, found.known) == ("unreadable", True)
    assert "is damaged" in found.problem


def test_events_of_several_hosts_are_those_of_all_parts(state_directory: Path) -> None:
    made = Recording(state_directory / "r", "web", "db")
    assert recordings_in(state_directory)[0].state == "being recorded"
    made.part("web", small())
    second = small()
    second.lose(5, 6, lost=7)
    made.part("db", second)
    made.writer.close()
    (found,) = recordings_in(state_directory)
    assert (found.state, found.hosts, len(found.traces)) == ("complete", ("web", "db"), 2)
    events = sum(len(small().rows[table]) for table in ("packets", "sockets", "cpu"))
    assert event_counts(found.traces) == (2 * events, 7)
