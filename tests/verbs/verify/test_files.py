# SPDX-License-Identifier: Apache-2.0
"""No bit of a recording's files changes without `hopscope verify` finding the file."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from hopscope.errors import HopscopeError
from hopscope.store.capture import FILE as CAPTURE
from hopscope.store.document import CHECKSUM
from hopscope.store.meta import Metadata
from hopscope.store.writer import TraceWriter
from hopscope.verbs.verify.files import checked
from tests.lab.command import complaint, hopscope
from tests.store.columns import metadata, rows

if TYPE_CHECKING:
    from collections.abc import Iterator

RECORDINGS = Path(__file__).resolve().parents[2] / "recordings"
FLIPS = 12


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with TraceWriter(tmp_path / "trace", metadata()) as trace:
        trace.append("packets", rows("packets", 50))
        trace.append("flows", rows("flows", 50))
        with trace._destination.capture() as capture:  # type: ignore[attr-defined] # of every destination for recorders
            capture.write(b"frames")
    return tmp_path / "trace"


def damaged(folder: Path) -> set[Path]:
    try:
        return {file.path for file in checked(folder) if file.problem}
    except HopscopeError as error:
        return {file for file in files(folder) if str(file) in str(error)}


def files(folder: Path) -> Iterator[Path]:
    return (file for file in folder.rglob("*") if file.is_file())


def test_each_bit_counts(folder: Path) -> None:
    assert damaged(folder) == set()
    for file in sorted(files(folder)):
        whole = file.read_bytes()
        for bit in np.linspace(0, 8 * len(whole) - 1, FLIPS, dtype=int):
            changed = bytearray(whole)
            changed[bit // 8] ^= 1 << bit % 8
            file.write_bytes(changed)
            found = damaged(folder)
            # Of JSON, blanks may change, and for a checksum with another name that file is missing.
            assert found & {file} or (file.name == "checksums" and found) or same_values(file, whole), (file, bit)
        file.write_bytes(whole)


def same_values(file: Path, whole: bytes) -> bool:
    """Tell whether only blanks of a JSON file have changed."""
    return file.suffix == ".json" and file.read_bytes().split() == whole.split()


def test_the_checksums_are_those_of_b2sum(folder: Path) -> None:
    done = subprocess.run(["b2sum", "-c", "checksums"], cwd=folder, capture_output=True, text=True, check=True)
    assert sorted(done.stdout.splitlines()) == [
        f"{CAPTURE}: OK",
        "flows/000001.parquet: OK",
        "packets/000001.parquet: OK",
    ]


def test_what_is_said_of_a_recording(folder: Path) -> None:
    done = hopscope("verify", folder)
    assert (done.returncode, done.stdout.splitlines()[1:]) == (0, [])
    assert done.stdout.startswith("checked 4 files, ")
    part = folder / "packets" / "000001.parquet"
    part.write_bytes(part.read_bytes()[:-1])
    (folder / CAPTURE).unlink()
    done = hopscope("verify", folder)
    first, second, last = done.stdout.splitlines()
    assert done.returncode == 1
    assert first == f"{folder / CAPTURE}: is missing"
    assert second == f"{part}: does not match its checksum"
    assert last.endswith("2 files damaged")
    assert "is not a trace" in complaint(hopscope("verify", folder / "packets"), 1)


def test_recordings_from_before_there_were_checksums(tmp_path: Path) -> None:
    shutil.copytree(RECORDINGS / "tx", tmp_path / "trace")
    found = list(checked(tmp_path / "trace"))
    assert not any(file.problem or file.by_checksum for file in found)
    assert "(the recording has no checksums)" in hopscope("verify", tmp_path / "trace").stdout
    part = tmp_path / "trace" / "cpu" / "000001.parquet"
    data = bytearray(part.read_bytes())
    data[100:200] = bytes(100)
    part.write_bytes(data)
    assert damaged(tmp_path / "trace") == {part}


def test_metadata_that_were_changed_on_purpose(folder: Path) -> None:
    path = folder / "hopscope.json"
    path.write_text(path.read_text().replace('"0.1"', '"0.2"'))
    with pytest.raises(HopscopeError, match="do not match its checksum"):
        Metadata.read(folder)
    lines = path.read_text().replace('"ended_ns"', '"ended_ns"').splitlines()
    kept = [line for line in lines if CHECKSUM not in line]
    kept[-2] = kept[-2].rstrip(",")
    path.write_text("\n".join(kept))
    assert Metadata.read(folder).hopscope == "0.2"
