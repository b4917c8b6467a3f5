# SPDX-License-Identifier: Apache-2.0
"""Where recordings of a fleet are: whatever hosts are called, nothing is outside of its directory, or half there."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopscope.errors import DiskFullError, UsageError
from hopscope.store.fleet.raw import Raw, hour_ns, hour_of

if TYPE_CHECKING:
    from pathlib import Path

HOUR = "2026-11-26T19"


def _put(folder: Path) -> None:
    (folder / "hopscope.json").write_text("{}")


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("web-1.example", "host=web-1.example"),
        ("..", "host=.."),
        ("../../etc/passwd", "host=..%2F..%2Fetc%2Fpasswd"),
        ("a=b/boot=c", "host=a%3Db%2Fboot%3Dc"),
        ("a b\n\x1b[31m", "host=a%20b%0A%1B%5B31m"),
        ("Grüße*?", "host=Gr%C3%BC%C3%9Fe%2A%3F"),
        ("a%2Fb", "host=a%252Fb"),
    ],
)
def test_a_name_is_one_folder(name: str, folder: str, tmp_path: Path) -> None:
    raw = Raw(tmp_path)
    leaf = raw.add(name, "b", HOUR, _put)
    assert leaf.folder == tmp_path / "raw" / folder / "boot=b" / f"hour={HOUR}"
    assert raw.leaves() == ([leaf], [])
    assert leaf.name == f"{folder}/boot=b/hour={HOUR}"


@given(st.text(min_size=1, max_size=40))
def test_any_name_is_found_again(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    folder = tmp_path_factory.mktemp("fleet")
    Raw(folder).add(name, name, HOUR, _put)
    ((leaf,), foreign) = Raw(folder).leaves()
    assert (leaf.host, leaf.boot, foreign) == (name, name, [])


@pytest.mark.parametrize("name", ["", "x" * 300, "\udcff"])
def test_what_cannot_be_a_folder_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be the name of a host"):
        Raw(tmp_path).add(name, "b", HOUR, _put)


def test_recordings_of_an_hour_are_numbered(tmp_path: Path) -> None:
    raw = Raw(tmp_path)
    for number in range(1, 12):
        assert raw.add("a", "b", HOUR, _put).number == number
    leaves, _ = raw.leaves()
    assert [leaf.number for leaf in leaves] == list(range(1, 12))
    assert raw.of_boot("a", "b") == leaves
    assert raw.of_boot("a", "c") == []


def test_what_is_no_recording_is_named(tmp_path: Path) -> None:
    raw = Raw(tmp_path)
    leaf = raw.add("a", "b", HOUR, _put)
    boot = leaf.folder.parent
    (boot / "hour=2026-13-45T99").mkdir()
    (boot / "notes").write_text("")
    (boot / f"hour={HOUR}.7").symlink_to(leaf.folder)
    (boot.parent.parent / "host=%2f").mkdir()  # as no recorder writes it
    (boot.parent.parent / "host=%2f" / "boot=b").mkdir()
    (boot.parent.parent / "host=%2f" / "boot=b" / f"hour={HOUR}").mkdir()
    (boot / ".coming-x").mkdir()
    leaves, foreign = raw.leaves()
    assert leaves == [leaf]
    assert foreign == [
        f"host=%2f/boot=b/hour={HOUR}",
        "host=a/boot=b/hour=2026-11-26T19.7",
        "host=a/boot=b/hour=2026-13-45T99",
        "host=a/boot=b/notes",
    ]


def test_nothing_stays_of_what_failed(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        _put(folder)
        raise OSError(28, "No space left on device")

    raw = Raw(tmp_path)
    with pytest.raises(DiskFullError, match="No space left"):
        raw.add("a", "b", HOUR, fail)
    assert raw.leaves() == ([], [])
    assert os.listdir(tmp_path / "raw" / "host=a" / "boot=b") == []  # noqa: PTH208


def test_what_a_killed_writer_left_goes_with_the_next_one(tmp_path: Path) -> None:
    boot = tmp_path / "raw" / "host=a" / "boot=b"
    (boot / ".coming-1").mkdir(parents=True)
    _put(boot / ".coming-1")
    Raw(tmp_path).add("a", "b", HOUR, _put)
    assert os.listdir(boot) == [f"hour={HOUR}"]  # noqa: PTH208


def test_a_fleet_without_recordings_says_what_makes_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="fleet add --raw"):
        Raw(tmp_path).leaves()


def test_hours() -> None:
    assert hour_of(hour_ns(HOUR)) == hour_of(hour_ns(HOUR) + 3600 * 10**9 - 1) == HOUR
    assert hour_of(hour_ns(HOUR) - 1) == "2026-11-26T18"
