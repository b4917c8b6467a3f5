# SPDX-License-Identifier: Apache-2.0
"""A folder that others rename, replace by a link, delete, or own, while it is written into."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

from hopscope.errors import DiskFullError, UsageError
from hopscope.store.folder import open_folder
from hopscope.store.trace import Trace
from hopscope.store.writer import TraceWriter
from tests.store.columns import metadata, rows

if TYPE_CHECKING:
    from pathlib import Path

_NOBODY = 65534


def write_more(writer: TraceWriter) -> None:
    writer.append("packets", rows("packets", 7))
    writer.append("flows", rows("flows", 7))
    writer.flush()


def modes(folder: Path) -> set[int]:
    return {stat.S_IMODE(path.stat().st_mode) for path in [folder, *folder.rglob("*")]}


def test_a_folder_that_is_moved_takes_everything_with_it(tmp_path: Path) -> None:
    given, moved, elsewhere = tmp_path / "t", tmp_path / "moved", tmp_path / "elsewhere"
    elsewhere.mkdir()
    with TraceWriter(given, metadata()) as writer:
        write_more(writer)
        given.rename(moved)
        given.symlink_to(elsewhere)
        write_more(writer)
    assert list(elsewhere.iterdir()) == []
    with Trace(moved) as trace:
        assert trace.warnings == []
        assert trace.rows("SELECT count(*) FROM packets") == [(14,)]


@pytest.mark.parametrize("table", ["packets", "flows"])
def test_no_link_is_followed_inside_of_it(tmp_path: Path, table: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    folder = open_folder(tmp_path / "t")
    writer = TraceWriter(folder, metadata())
    (tmp_path / "t" / table).symlink_to(elsewhere)
    with pytest.raises(DiskFullError, match="cannot be written"):
        write_more(writer)
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "t" / "capture.pcapng").symlink_to(victim)
    with pytest.raises(FileExistsError):
        folder.create("capture.pcapng")
    folder.close()
    assert list(elsewhere.iterdir()) == []
    assert victim.read_text() == "mine"


def test_a_folder_that_is_deleted_is_said(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path / "t", metadata())
    for path in (*(tmp_path / "t").iterdir(), tmp_path / "t"):
        path.rmdir() if path.is_dir() else path.unlink()
    said = rf"^{tmp_path}/t was deleted while it was written\. Record again"
    with pytest.raises(DiskFullError, match=said):
        write_more(writer)
    with pytest.raises(DiskFullError, match=said):
        writer.close()


def test_nobody_else_can_read_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.umask(0)
    try:
        with TraceWriter(tmp_path / "new" / "t", metadata()) as writer:
            write_more(writer)
            writer._destination.capture().close()
        with TraceWriter(open_folder(tmp_path / "shared", 0o640), metadata()) as writer:
            write_more(writer)
    finally:
        os.umask(before)
    assert modes(tmp_path / "new" / "t") == {0o700, 0o600}
    assert modes(tmp_path / "shared") == {0o750, 0o640}
    monkeypatch.setenv("SUDO_UID", "nobody")
    open_folder(tmp_path / "odd").close()


@pytest.mark.root
def test_it_belongs_to_whoever_ran_sudo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_UID", "12345")
    monkeypatch.setenv("SUDO_GID", "23456")
    with TraceWriter(tmp_path / "new" / "t", metadata()) as writer:
        write_more(writer)
    assert (tmp_path / "new").stat().st_uid == 0
    owners = {(path.stat().st_uid, path.stat().st_gid) for path in (tmp_path / "new").rglob("*")}
    assert owners == {(12345, 23456)}
    # His own links and folders are his to redirect.
    (tmp_path / "own").mkdir()
    (tmp_path / "link").symlink_to("own")
    for path in (tmp_path / "own", tmp_path / "link"):
        os.chown(path, 12345, 23456, follow_symlinks=False)
    with TraceWriter(tmp_path / "link", metadata()) as writer:
        write_more(writer)
    assert (tmp_path / "own" / "hopscope.json").exists()


@pytest.mark.root
@pytest.mark.parametrize("inside", ["", "t"])
def test_what_belongs_to_others_is_refused(tmp_path: Path, inside: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("elsewhere")
    for path in (tmp_path / "folder", tmp_path / "link"):
        os.chown(path, _NOBODY, -1, follow_symlinks=False)
    with pytest.raises(UsageError, match=r"link in .* is a link that belongs to user nobody, who .*Name a new folder"):
        open_folder(tmp_path / "link" / inside)
    if not inside:
        with pytest.raises(UsageError, match=r"folder belongs to user nobody, who could redirect .*Name a new folder"):
            open_folder(tmp_path / "folder")
    assert list((tmp_path / "elsewhere").iterdir()) == []
