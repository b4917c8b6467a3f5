# SPDX-License-Identifier: Apache-2.0
"""An agent that is not to be trusted: it can lie in figures, and do nothing else to the folder and to who reads it."""

from __future__ import annotations

import json
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopscope.agent.stream import Block
from hopscope.errors import FormatError, HopscopeError
from hopscope.store.destination import Folder
from hopscope.store.meta import FILE, Metadata
from hopscope.store.schema import BY_NAME, Column, Table
from hopscope.store.trace import Trace
from hopscope.verbs.record.protocol import Incoming, metadata_of

if TYPE_CHECKING:
    from collections.abc import Iterator

OWN = Table("events_mine", "a table that only this trace has", (Column("n", np.dtype("<i8").name, "a number"),))
SOUND = Metadata(
    hopscope="0.1.0",
    started_ns=1,
    realtime_ns=2,
    points={1: "rx.core"},
    reasons={2: "NO_SOCKET"},
    host={"name": "b", "release": "6.1", "machine": "x86_64", "boot": "x"},
    plan=[{"point": "rx.core", "way": "fentry"}],
    options={"profiles": ["messages"]},
    tables=[OWN],
)
DOCUMENT: dict[str, Any] = json.loads(SOUND.packed())
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
NAMES = st.sampled_from(
    [
        *("../evil", "/evil", "..", ".", "", "packets/../../evil", "a\0b", "\x1b[2J", "hosts.json", FILE),
        *sorted(BY_NAME)[:3],
        OWN.name,
    ]
)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "inside" / "trace"
    assert {path.name for path in tmp_path.iterdir()} <= {"inside"}


def refused_or_opened(document: dict[str, Any], below: Path) -> None:
    """Have a trace begin with what an agent says of it; where that is believed, the trace can be read."""
    try:
        metadata = Metadata.unpacked(json.dumps(document).encode())
    except FormatError:
        return
    folder = below / "inside" / "trace"
    with Incoming(metadata, Folder(folder)):
        pass
    assert {path.name for path in folder.iterdir()} == {FILE}
    with Trace(folder) as trace:
        assert trace.rows("SELECT count(*) FROM packets") == [(0,)]
        assert "recorder was killed" in trace.warnings[0]


@settings(max_examples=40)
@given(st.dictionaries(st.sampled_from(sorted(DOCUMENT)), VALUES, min_size=1, max_size=2))
def test_whatever_an_agent_says_of_its_trace_is_refused_or_can_be_read(wrong: dict[str, Any]) -> None:
    below = Path(tempfile.mkdtemp())
    try:
        refused_or_opened({**DOCUMENT, **wrong}, below)
        assert {path.name for path in below.iterdir()} <= {"inside"}
    finally:
        shutil.rmtree(below)


@pytest.mark.parametrize(
    "wrong",
    [
        {"joined": {"notes": ["\x1b[2J"]}},
        {"joined": {"from": ["/etc"]}},
        {"joined": []},
        {"points": {"9" * 30: "x"}},
        {"points": {str(1 << 63): "x"}},
        {"points": {"1) UNION SELECT 1--": "x"}},
        {"hopscope": ["0.1.0"]},
        {"options": 7},
        {"started_ns": 1 << 63},
        {"started_ns": True},
        {"version": 99},
        *({"tables": [{**DOCUMENT["tables"][0], "name": name}]} for name in ("../evil", "/evil", "", "a b", "packets")),
        {"tables": [{**DOCUMENT["tables"][0], "columns": [{"name": 'n" FROM x', "dtype": "int64", "meaning": ""}]}]},
        {"tables": [{**DOCUMENT["tables"][0], "columns": [{"name": "n", "dtype": "complex128", "meaning": ""}]}]},
        {"tables": [{**DOCUMENT["tables"][0], "columns": []}]},
    ],
)
def test_what_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(FormatError):
        Metadata.unpacked(json.dumps({**DOCUMENT, **wrong}).encode())


def test_numbers_of_reasons_may_be_as_large_as_kernels_have_them() -> None:
    mask = {str(0xFFFF0000): "SUBSYS_MASK"}
    assert Metadata.unpacked(json.dumps({**DOCUMENT, "reasons": mask}).encode()).reasons == {0xFFFF0000: "SUBSYS_MASK"}


def test_names_that_would_end_a_string_of_sql_are_names(folder: Path) -> None:
    evil = "x'); DROP VIEW packets; --"
    metadata = Metadata.unpacked(json.dumps({**DOCUMENT, "points": {"1": evil}}).encode())
    with Incoming(metadata, Folder(folder)):
        pass
    with Trace(folder) as trace:
        assert trace.rows("SELECT name FROM points") == [(evil,)]
        assert trace.rows("SELECT count(*) FROM packets") == [(0,)]


HEADS = st.one_of(
    st.fixed_dictionaries({"table": NAMES | VALUES}),
    st.fixed_dictionaries({"metadata": st.sampled_from(["began", "ended"]) | VALUES}),
    st.just({"capture": True}),
    st.dictionaries(st.sampled_from(["table", "capture", "metadata", "path"]), VALUES | NAMES, max_size=3),
)
DATA = (
    st.binary(max_size=40) | st.binary(max_size=20).map(lambda data: b"PAR1" + data + b"PAR1") | st.just(SOUND.packed())
)


@pytest.mark.slow
@settings(max_examples=60)
@given(st.lists(st.tuples(HEADS, DATA), max_size=6))
def test_blocks_of_any_kind_write_tables_of_the_trace_or_are_refused(
    blocks: list[tuple[dict[str, Any], bytes]],
) -> None:
    below = Path(tempfile.mkdtemp())
    try:
        folder = below / "inside" / "trace"
        with Incoming(Metadata.unpacked(SOUND.packed()), Folder(folder)) as incoming:
            for head, data in blocks:
                with suppress(FormatError):
                    incoming.take(Block(head, memoryview(bytearray(data))))
        assert {path.name for path in below.iterdir()} <= {"inside"}
        assert {path.name for path in folder.iterdir()} <= {FILE, "capture.pcapng", "checksums", OWN.name, *BY_NAME}
        for path in folder.rglob("*/*"):
            assert path.suffix == ".parquet"
        with suppress(HopscopeError), Trace(folder) as trace:
            trace.rows(f"SELECT count(*) FROM {OWN.name}")
    finally:
        shutil.rmtree(below)


def test_metadata_that_is_too_long_or_of_another_kind_is_refused() -> None:
    for head, size in (({"metadata": "began"}, (16 << 20) + 1), ({"metadata": "ended"}, 10), ({}, 10)):
        with pytest.raises(FormatError, match="does not say how it began"):
            metadata_of(Block(head, memoryview(bytearray(size))), "began")
