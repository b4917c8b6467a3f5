# SPDX-License-Identifier: Apache-2.0
"""A recording may come from anybody: opening it reads that recording alone, and takes no more than it may."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pytest

from hopscope.errors import FormatError, UsageError
from hopscope.store.limits import raised
from hopscope.store.meta import FILE, Metadata
from hopscope.store.schema import BY_NAME
from hopscope.store.spill import Spill
from hopscope.store.trace import Trace
from hopscope.store.writer import TraceWriter
from tests.store.columns import metadata, rows

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS = 11
# Texts; and a number that no protocol has.
_OTHER = {"source": "''", "destination": "''", "protocol": "1099511627776"}


def written(folder: Path, first: int = 0) -> Path:
    with TraceWriter(folder, metadata()) as trace:
        trace.append("packets", rows("packets", ROWS, first))
        trace.append("flows", rows("flows", ROWS, first))
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return written(tmp_path / "trace")


@pytest.mark.parametrize(("name", "other"), [("g[1]x", "g1x"), ("a*", "ab"), ("a?", "ab"), ("a\\*", "a*"), ("**", "b")])
def test_a_path_is_never_a_pattern(tmp_path: Path, name: str, other: str) -> None:
    written(tmp_path / other, 50)
    with Trace(written(tmp_path / name)) as trace:
        assert trace.rows("SELECT min(time_ns), max(time_ns) FROM packets") == [(0, ROWS - 1)]


def test_a_path_says_nothing_of_values(tmp_path: Path) -> None:
    with Trace(written(tmp_path / "point=77" / "cpu=5")) as trace:
        assert trace.rows("SELECT count(DISTINCT point), count(DISTINCT cpu) FROM packets") == [(ROWS, ROWS)]


@pytest.mark.parametrize("name", ["*.parquet", "[0-9].parquet", "a b.parquet", "x'.parquet", "é.parquet", "\n.parquet"])
def test_a_part_has_a_plain_name(folder: Path, name: str) -> None:
    shutil.copy(folder / "packets" / "000001.parquet", folder / "packets" / name)
    with pytest.raises(FormatError, match="has a name that no recorder gives"):
        Trace(folder)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM read_text('{0}/packets/../../secret')",
        "SELECT * FROM glob('/etc/*')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT 1; COPY (SELECT 1) TO '{1}/out'",
        "COPY (SELECT 1) TO '{1}/out'",
        "WITH a AS (COPY (SELECT 1) TO '{1}/out') FROM a",
        "EXPLAIN ANALYZE COPY (SELECT 1) TO '{1}/out'",
        "ATTACH '{1}/out'",
        "EXPORT DATABASE '{1}/out'",
        "SET enable_external_access = true",
        "SET lock_configuration = false",
        "INSTALL httpfs",
        "LOAD httpfs",
        ";;;",
    ],
)
def test_a_query_reads_and_writes_nothing_else(folder: Path, tmp_path: Path, query: str) -> None:
    (tmp_path / "secret").write_text("x")
    with Trace(folder) as trace, trace.by_user(), pytest.raises(UsageError):
        trace.rows(query.format(folder, tmp_path))
    assert not (tmp_path / "out").exists()


def test_unrestricted_it_does_but_loads_no_extensions(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "others").write_text("a\n7\n")
    with Trace(folder, unrestricted=True) as trace, trace.by_user():
        trace.rows(f"COPY (SELECT count(*) AS n FROM packets) TO '{tmp_path}/out' (FORMAT csv)")
        assert trace.rows(f"SELECT a FROM read_csv('{tmp_path}/others')") == [(7,)]
        for query in ("INSTALL httpfs", "SELECT 1; LOAD httpfs"):
            with pytest.raises(UsageError, match="Extensions are never loaded"):
                trace.rows(query)
    assert (tmp_path / "out").read_text() == f"n\n{ROWS}\n"


def fifo(path: Path) -> None:
    os.mkfifo(path)


def link_to_endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def link_to_another(path: Path) -> None:
    other = path.with_name(f".{path.name}")
    other.write_bytes(b"PAR1")
    path.symlink_to(other)


@pytest.mark.parametrize("make", [fifo, link_to_endless, link_to_another, Path.mkdir])
@pytest.mark.parametrize("name", [FILE, "checksums", "packets/000001.parquet"])
def test_only_regular_files_are_opened(folder: Path, name: str, make: Callable[[Path], object]) -> None:
    (folder / name).unlink()
    make(folder / name)
    with pytest.raises(FormatError, match=f"{name} (is not a regular file|cannot be read)"):
        Trace(folder)


def test_more_rows_than_files_of_that_size_can_have(folder: Path) -> None:
    part = folder / "packets" / "000001.parquet"
    part.unlink()
    (folder / "checksums").unlink()
    columns = ", ".join(f'1::BIGINT AS "{column.name}"' for column in BY_NAME["packets"].columns)
    query = f"SELECT {columns} FROM range(3000000)"
    duckdb.execute(f"COPY ({query}) TO '{part}' (FORMAT parquet, COMPRESSION zstd)")
    with pytest.raises(FormatError, match=r"3,000,011 rows in [\d,]+ bytes, more than .* --limits 2"):
        Trace(folder)
    with raised(2), Trace(folder) as trace:
        assert trace.rows("SELECT count(*) FROM packets") == [(3_000_000,)]


def test_metadata_of_any_size_are_not_read(folder: Path) -> None:
    with (folder / FILE).open("r+b") as file:
        file.truncate(300 << 20)
    with pytest.raises(FormatError, match=r"has 314,572,800 bytes, more than 33,554,432"):
        Metadata.read(folder)


def test_a_damaged_part_is_named_whatever_is_wrong_with_it(folder: Path) -> None:
    part = folder / "flows" / "000001.parquet"
    columns = ", ".join(f'{_OTHER.get(column.name, "1")} AS "{column.name}"' for column in BY_NAME["flows"].columns)
    duckdb.execute(f"COPY (SELECT {columns}) TO '{part}' (FORMAT parquet)")
    (folder / "checksums").unlink()
    with Trace(folder) as trace:
        for whose in (contextlib.nullcontext(), trace.by_user()):
            with whose, pytest.raises(FormatError, match=f"{part} is damaged: Conversion Error"):
                trace.rows("SELECT sum(protocol) FROM flows")


def test_parts_that_are_gone_are_said(folder: Path) -> None:
    (folder / "flows" / "000001.parquet").unlink()
    with Trace(folder) as trace:
        assert trace.warnings == ["recorded files that are missing: 1, such as flows/000001.parquet"]


def test_temporary_files_are_private_and_go_with_their_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "elsewhere").mkdir(0o700)
    (tmp_path / "elsewhere" / "kept").touch()
    (tmp_path / "hopscope-spill-link").symlink_to(tmp_path / "elsewhere")
    program = (
        "from hopscope.store.spill import Spill; s = Spill(); (s.folder / 'x').touch(); print(s.folder, flush=True); "
        "input()"
    )
    argv = [sys.executable, "-c", program]
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ) as child:
        assert child.stdout
        left = Path(child.stdout.readline().strip())
        first = Spill()
        assert first.folder is not None
        assert stat.S_IMODE(first.folder.stat().st_mode) == 0o700
        assert left.exists()
        child.send_signal(signal.SIGKILL)
    second = Spill()
    assert (left.exists(), first.folder.exists()) == (False, True)
    first.close()
    second.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["elsewhere", "hopscope-spill-link"]
    assert (tmp_path / "elsewhere" / "kept").exists()
