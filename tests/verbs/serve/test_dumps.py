# SPDX-License-Identifier: Apache-2.0
"""Recordings of the flight recorder: within a size, the oldest go first, nobody else's, and no half of one stays."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hopscope.errors import HopscopeError, UsageError
from hopscope.store.meta import Metadata
from hopscope.store.trace import Trace
from hopscope.store.writer import TraceWriter
from hopscope.verbs.serve.dumps import MARK, Dumps

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MIB = 1 << 20


def metadata(number: int, **options: int) -> Metadata:
    return Metadata("0", number, number, {1: "rx.driver"}, options=options)


def rows(count: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield losses, which do not compress."""
    numbers = np.random.default_rng(7).integers(0, 1 << 50, count)
    period = dict.fromkeys(("from_ns", "until_ns", "lost"), numbers)
    yield "losses", {**period, "cpu": np.zeros(count, np.int16)}


def size_of(folder: Path) -> int:
    return sum(each.stat().st_size for each in folder.rglob("*") if each.is_file())


def test_the_oldest_make_room_and_nobody_elses(tmp_path: Path) -> None:
    with TraceWriter(tmp_path / "mine", metadata(0)) as writer:
        for each in rows(100_000):
            writer.append(*each)
    dumps = Dumps(tmp_path, 2 * MIB)
    for at in range(1, 9):
        last = dumps.write(metadata(at, **{MARK: 5}), rows(20_000), at + 1, MIB // 2)
    by_start = {Metadata.read(each).started_ns: each for each in tmp_path.iterdir()}
    mine, *starts = sorted(by_start)
    assert by_start[mine] == tmp_path / "mine"
    assert 1 < len(starts) < 8
    assert starts == list(range(9 - len(starts), 9))
    assert by_start[8] == last
    left = [by_start[each] for each in starts]
    sizes = [size_of(each) for each in left]
    assert dumps.stored_bytes() == sum(sizes) <= 2 * MIB
    assert sum(sizes) + sizes[0] > 2 * MIB - MIB // 2  # no more were deleted than had to be
    assert size_of(tmp_path / "mine") > 2 * MIB
    for each in left:
        with Trace(each) as trace:
            assert trace.rows("SELECT count(*) FROM losses") == [(20_000,)]


def test_they_are_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        folder = Dumps(tmp_path / "new", MIB).write(metadata(1, **{MARK: 5}), rows(10), 2, 1)
    finally:
        os.umask(before)
    modes = {each: stat.S_IMODE(each.stat().st_mode) for each in (folder, *folder.rglob("*"))}
    assert modes == {each: 0o700 if each.is_dir() else 0o600 for each in modes}


def test_what_cannot_be_written_is_said_before(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(UsageError, match="file is no directory, and recordings cannot be written there"):
            Dumps(place, MIB).check()
    Dumps(tmp_path / "not" / "yet", MIB).check()
    assert not (tmp_path / "not").exists()


@pytest.mark.root
def test_on_a_full_disk_nothing_stays_and_what_was_there_does(tmp_path: Path) -> None:
    script = f"""
import sys
sys.path[:0] = {sys.path!r}
from pathlib import Path
from hopscope.errors import HopscopeError
from hopscope.verbs.serve.dumps import Dumps
from tests.verbs.serve.test_dumps import MARK, metadata, rows
dumps = Dumps(Path({str(tmp_path)!r}), 100 << 20)
first = dumps.write(metadata(1, **{{MARK: 5}}), rows(1_000), 2, 0)
try:
    dumps.write(metadata(2, **{{MARK: 5}}), rows(200_000), 3, 0)
except HopscopeError as error:
    print(error.what)
print(list(Path({str(tmp_path)!r}).iterdir()) == [first])
"""
    mount = 'mount -t tmpfs -o size=1m none "$0" && exec "$@"'
    argv = ["unshare", "-m", "sh", "-c", mount, str(tmp_path), sys.executable, "-c", script]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    why, left = done.stdout.splitlines()
    assert why.endswith("cannot be written: No space left on device")
    assert left == "True", done.stderr


@pytest.mark.root
def test_a_directory_that_is_gone_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(HopscopeError, match="file cannot be read: Not a directory"):
        Dumps(tmp_path / "file", MIB).write(metadata(1), rows(1), 2, 0)
