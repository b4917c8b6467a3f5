# SPDX-License-Identifier: Apache-2.0
"""Recordings that somebody has meddled with, and the commands that read them."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from tests.fuzz.judge import judge
from tests.fuzz.values import ESCAPE, json_values, texts

if TYPE_CHECKING:
    from collections.abc import Callable

KEPT: Final = Path(__file__).resolve().parent.parent / "recordings"
NAMES: Final = (
    "tcp-rx",
    "udp",
    "tx",
    "drops",
    "events",
    "losses",
    "flight",
    "killed",
    "containers",
    "apart",
    "nat",
    "two-hosts",
)
COMMANDS: Final = (
    "report summary T", "report summary T --json", "report messages T", "report messages T --json --limit 0",
    "report messages T --csv", "report messages T --waterfall --limit 2", "report hops T",
    "report hops T --by process --json",
    "report flows T", "report packets T", "report packets T --slowest --json", "report requests T", "report network T",
    "report drops T --stacks", "report netdev-times T", "report events T --limit 20",
    "report events T --json --limit 20",
    "report tcp T", "report tcp T --history", "report tcp T --plot X", "report calls T", "report interrupts T",
    "report hops T --plot X", "report outliers T", "report counters T", "report moments T", "report compare T T2",
    "explain T", "explain T --json",
    "export perfetto T -o X", "export ctf T -o X", "export chrome T -o X", "export speedscope T -o X",
    "export folded T -o X", "export parquet T -o X", "export pcapng T -o X", "export csv T -o X", "export jsonl T -o X",
    "report cpu T", "report tls T", "report after net:net_dev_queue T",
    "check T", "verify T", "join T -o J", "join T T2 -o J", "recordings", "recordings --json", "sql T --tables",
    "sql T 'SELECT * FROM packets' --limit 5", "sql T 'SELECT * FROM messages' --json --limit 5",
    "sql T 'SELECT * FROM lives' --csv --limit 5", "sql T 'SELECT name, count(*) FROM flow_names GROUP BY ALL'",
)  # fmt: skip


@dataclass(frozen=True)
class Json:
    """A node of a JSON file becomes another value, has another name, is there twice, or is missing."""

    file: int
    node: int
    deed: str
    value: object

    def apply(self, folder: Path) -> None:
        """Do it."""
        file = _one(folder, "*.json", self.file)
        if not file:
            return
        try:
            document = json.loads(file.read_bytes())
        except ValueError:
            return  # meddled with before
        parents = list(_nodes(document)) if isinstance(document, dict | list) else []
        if not parents:
            return
        container, key = parents[self.node % len(parents)]
        if self.deed == "set":
            container[key] = self.value
        elif self.deed == "drop":
            del container[key]
        elif isinstance(container, dict):
            container[str(self.value)] = container[key]
        else:
            container.append(container[key])
        file.write_text(json.dumps(document))


@dataclass(frozen=True)
class Bytes:
    """A byte of a file is another one, or the file ends there."""

    file: int
    at: float
    value: int | None

    def apply(self, folder: Path) -> None:
        """Do it; a place from the end on is in the footer of a Parquet file."""
        if not (file := _one(folder, "*.*", self.file)):
            return
        data = bytearray(file.read_bytes())
        at = int(len(data) * abs(self.at)) if self.at >= 0 else max(len(data) + int(self.at), 0)
        at = min(at, len(data) - 1)
        if self.value is None:
            del data[at:]
        elif data:
            data[at] = self.value
        file.write_bytes(data)


@dataclass(frozen=True)
class Files:
    """A file is another one's copy, is gone, is empty, a folder, a link or a FIFO; or a strange one is there, too."""

    file: int
    deed: str
    other: int

    def apply(self, folder: Path) -> None:
        """Do it."""
        file, other = _one(folder, "*.*", self.file), _one(folder, "*.*", self.other)
        if not file or not other:
            return
        content = other.read_bytes()
        strange = file.with_name({"copy": "000002.parquet"}.get(self.deed, file.name))
        strange.unlink(missing_ok=True)
        makers: dict[str, Callable[[], object]] = {
            "swap": lambda: strange.write_bytes(content), "copy": lambda: strange.write_bytes(content),
            "empty": lambda: strange.write_bytes(b""), "folder": strange.mkdir, "fifo": lambda: os.mkfifo(strange),
            "link": lambda: strange.symlink_to("/dev/zero"), "gone": lambda: None,
        }  # fmt: skip
        makers[self.deed]()


# Each takes a column and returns another one in its place.
COLUMNS: Final[dict[str, Callable[[pa.ChunkedArray], Any]]] = {
    "least": lambda column: _filled(column, _extreme(column.type, least=True)),
    "most": lambda column: _filled(column, _extreme(column.type, least=False)),
    "zero": lambda column: _filled(column, ESCAPE if _is_text(column.type) else 0),
    "null": lambda column: pa.nulls(len(column), column.type),
    "text": lambda column: pa.array([ESCAPE] * len(column)),
    "list": lambda column: pa.array([[ESCAPE]] * len(column)),
    "double": lambda column: pa.array([float("nan")] * len(column)),
    "first": lambda column: column.take(pa.array([0] * len(column))) if len(column) else column,
    "backward": lambda column: column.take(pa.array(range(len(column) - 1, -1, -1), pa.int64())),
    "half-null": lambda column: pa.array(
        [value if at % 2 else None for at, value in enumerate(column.to_pylist())], column.type
    ),
}


@dataclass(frozen=True)
class Column:
    """A column of a table has other values or another type, or is not there; or the table is empty, or all is twice."""

    file: int
    column: int
    deed: str

    def apply(self, folder: Path) -> None:
        """Do it."""
        file = _one(folder, "*.parquet", self.file)
        if not file:
            return
        try:
            table = pq.read_table(file, use_threads=False, partitioning=None, memory_map=False)
        except (pa.ArrowException, OSError, ValueError):
            return  # meddled with before
        at = self.column % table.num_columns if table.num_columns else 0
        if self.deed == "no-rows":
            table = table.slice(0, 0)
        elif self.deed == "twice":
            table = pa.concat_tables([table, table])
        elif not table.num_columns:
            return
        elif self.deed == "gone":
            table = table.remove_column(at)
        elif self.deed == "renamed":
            table = table.rename_columns([ESCAPE if n == at else name for n, name in enumerate(table.column_names)])
        else:
            table = table.set_column(at, table.column_names[at], COLUMNS[self.deed](table.column(at)))
        pq.write_table(table, file, compression="zstd")


@dataclass(frozen=True)
class Named:
    """A column of a table has other values or another type in each of its files, or is not there."""

    table: str
    column: str
    deed: str

    def apply(self, folder: Path) -> None:
        """Do it."""
        for number, file in enumerate(_all(folder, "*.parquet")):
            names = pq.read_schema(file).names if file.parent.name == self.table else []
            if self.column in names:
                Column(number, names.index(self.column), self.deed).apply(folder)


@dataclass(frozen=True)
class Checksums:
    """The file of checksums has these lines."""

    text: str

    def apply(self, folder: Path) -> None:
        """Do it."""
        (folder / "checksums").write_bytes(self.text.encode(errors="surrogateescape"))


Edit = Json | Bytes | Files | Column | Named | Checksums


@dataclass(frozen=True)
class Case:
    """A recording with these changes, which a command reads."""

    name: str
    edits: tuple[Edit, ...]
    command: str

    def check(self) -> list[str]:
        """Return what is wrong."""
        with tempfile.TemporaryDirectory(prefix="fuzz-") as scratch:
            target = Path(scratch) / "target"
            trace = target / "T"
            shutil.copytree(KEPT / self.name, trace)
            shutil.copytree(KEPT / "tcp-rx", target / "T2")
            for edit in self.edits:
                edit.apply(trace)
            if self.command.startswith("recordings"):
                (target / "state").mkdir()
                trace.rename(target / "state" / "2026-11-22T10-00-00Z")
            return judge(_words(self.command), target, ends=True)


def _words(command: str) -> list[str]:
    whole = command.split("'")
    return [word for n, part in enumerate(whole) for word in ([part] if n % 2 else part.split())]


def _all(folder: Path, pattern: str) -> list[Path]:
    return sorted(file for file in folder.rglob(pattern) if file.is_file() and not file.is_symlink())


def _one(folder: Path, pattern: str, number: int) -> Path | None:
    files = _all(folder, pattern)
    return files[number % len(files)] if files else None


def _nodes(document: Any) -> Any:  # noqa: ANN401 # of JSON
    """Yield each place of a document, those near the top first, of a large dictionary or list the first ones only."""
    level = [document]
    while level:
        below = []
        for container in level:
            keys = list(container) if isinstance(container, dict) else list(range(len(container)))
            for key in keys if container is document else keys[:6]:
                yield container, key
                if isinstance(container[key], dict | list):
                    below.append(container[key])
        level = below


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind)


def _extreme(kind: pa.DataType, *, least: bool) -> object:
    if pa.types.is_integer(kind):
        bits, signed = kind.bit_width, pa.types.is_signed_integer(kind)
        return (-(1 << bits - 1) if signed else 0) if least else (1 << bits - signed) - 1
    if _is_text(kind):
        return "" if least else "x" * 20_000
    return not least if pa.types.is_boolean(kind) else float("-inf" if least else "inf")


def _filled(column: pa.ChunkedArray, value: object) -> Any:  # noqa: ANN401 # an array, or the column as it was
    try:
        return pa.array([value] * len(column), column.type)
    except (pa.ArrowException, TypeError, ValueError):
        return column


_places = st.integers(0, 300)
# These can be read, mostly: what is wrong is noticed later, or not at all.
_readable: st.SearchStrategy[Edit] = st.one_of(
    st.builds(
        Column, _places, _places, st.sampled_from(["least", "most", "zero", "null", "half-null", "first", "backward"])
    ),
    st.builds(Column, _places, st.just(0), st.sampled_from(["no-rows", "twice"])),
    st.builds(Files, _places, st.just("gone"), st.just(0)),
)
_unreadable: st.SearchStrategy[Edit] = st.one_of(
    st.builds(Json, st.integers(0, 2), _places, st.sampled_from(["set", "set", "drop", "more"]), json_values),
    st.builds(Column, _places, _places, st.sampled_from(["text", "list", "double", "gone", "renamed"])),
    st.builds(Bytes, _places, st.floats(0, 1) | st.integers(-600, -1), st.none() | st.integers(0, 255)),
    st.builds(Files, _places, st.sampled_from(["swap", "copy", "empty", "folder", "fifo", "link"]), _places),
    st.builds(Checksums, texts | texts.map(lambda text: f"BLAKE2b-256 ({text}) = {'0' * 64}\n")),
)
cases: st.SearchStrategy[Case] = st.builds(
    Case,
    st.sampled_from(NAMES),
    st.lists(_readable, min_size=1, max_size=6).map(tuple)
    | st.tuples(_unreadable)
    | st.lists(_readable | _unreadable, min_size=1, max_size=4).map(tuple),
    st.sampled_from(COMMANDS),
)


def _named() -> list[tuple[str, str, str]]:
    """Return recording, table and column of all columns that the kept recordings have."""
    found = {
        (name, file.parent.name, column)
        for name in NAMES
        for file in _all(KEPT / name, "*.parquet")
        for column in pq.read_schema(file).names
    }
    return sorted(found)


def columns() -> st.SearchStrategy[Case]:
    """Draw recordings of which one column, chosen by its name, has values that it cannot have."""
    return st.builds(
        lambda place, deed, command: Case(place[0], (Named(*place[1:], deed),), command),
        st.sampled_from(_named()),
        st.sampled_from([*COLUMNS, "gone"]),
        st.sampled_from(COMMANDS),
    )
