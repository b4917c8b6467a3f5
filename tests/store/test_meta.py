# SPDX-License-Identifier: Apache-2.0
"""What a trace says of itself: kept as it was, and refused with a reason where it is of another version or damaged."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopscope.errors import FormatError
from hopscope.store.meta import FILE, Metadata
from hopscope.store.schema import VERSION, Column, Table
from tests.store.columns import metadata

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def change(folder: Path, **values: Any) -> None:  # noqa: ANN401 - JSON
    document = json.loads((folder / FILE).read_text())
    document.update({"checksum": ..., **values})
    (folder / FILE).write_text(json.dumps({name: value for name, value in document.items() if value is not ...}))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    given = metadata(reasons={2: "NOT_SPECIFIED"}, plan=[{"point": "rx.core"}], options={"a": [1]})
    (tmp_path / "hopscope.json").write_bytes(given.packed())
    return tmp_path


def sentence(folder: Path) -> str:
    with pytest.raises(FormatError) as caught:
        Metadata.read(folder)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_what_is_written_is_read(folder: Path) -> None:
    found = Metadata.read(folder)
    assert found == metadata(reasons={2: "NOT_SPECIFIED"}, plan=[{"point": "rx.core"}], options={"a": [1]})
    assert [path.name for path in folder.iterdir()] == [FILE]


@pytest.mark.parametrize("version", [VERSION - 1, VERSION + 1, None, "1"])
def test_another_version_says_what_can_read_it(folder: Path, version: object) -> None:
    change(folder, version=version, hopscope="9.8")
    said = sentence(folder)
    assert f"version {version}, this hopscope reads version {VERSION}" in said
    assert "Open it with hopscope 9.8" in said


def test_what_a_later_one_of_this_version_says_besides_is_left_out(folder: Path) -> None:
    change(folder, colour="blue")
    assert Metadata.read(folder).hopscope == "0.1"


@pytest.mark.parametrize("field", ["hopscope", "started_ns", "realtime_ns", "points"])
def test_a_field_that_must_be_there(folder: Path, field: str) -> None:
    change(folder, **{field: ...})
    assert "is damaged" in sentence(folder)


@pytest.mark.parametrize("value", [7, [], "x", {"x": "rx.core"}, None])
def test_a_field_of_another_type(folder: Path, value: object) -> None:
    change(folder, points=value)
    assert "is damaged" in sentence(folder)


STRANGE = (None, True, -1, 7, 0.5, 2**70, "x", "x" * 30_000, [], {}, [1], [None], [[]], [{}], {"a": 1}, {"1": None})


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("value", STRANGE, ids=lambda value: repr(value)[:20])
def test_a_field_has_its_declared_type_or_is_damaged(folder: Path, value: object, *, inside: bool) -> None:
    whole = Metadata.read(folder)
    pair = {"first": 0, "second": 1, "probes": [0, 1], "packets": [1, 2], "residual_ns": [0.5, 1], "by_nics": None}
    whole.joined = {"from": ["a"], "files": "x", "pairs": [pair], "notes": ["n"], "alone": {1: [2]}}  # type: ignore[typeddict-item] # as JSON has it
    whole.tables = [Table("e_x", "m", (Column("a", "int8", "m"),))]
    (folder / FILE).write_bytes(whole.packed())
    text = (folder / FILE).read_text()
    document = json.loads(text)
    places = [(name,) for name in document if name not in {"format", "version", "checksum"}]
    if inside:
        places = [place for name in document for place in _inside(document[name], (name,))]
    for place in places:
        changed = json.loads(text)
        del changed["checksum"]
        part = changed
        for step in place[:-1]:
            part = part[step]
        part[place[-1]] = value
        (folder / FILE).write_text(json.dumps(changed))
        found = None
        with contextlib.suppress(FormatError):
            found = Metadata.read(folder)
        if found is None:
            assert len(sentence(folder)) < 500
            continue
        assert type(found.started_ns) is type(found.missed) is int
        assert all(type(each) is str for row in (found.host, *found.plan) for each in row.values())
        assert all({"first", "second", "probes"} <= pair.keys() for pair in found.joined.get("pairs", []))
        (folder / FILE).write_bytes(found.packed())
        assert Metadata.read(folder) == found


def _inside(value: Any, place: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:  # noqa: ANN401 - JSON
    steps = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for step in steps:
        yield (*place, step)
        yield from _inside(value[step], (*place, step))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"format": "other"}', "\udcff"])
def test_what_is_no_trace(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_bytes(text.encode(errors="surrogateescape"))
    assert str(tmp_path) in sentence(tmp_path)


def test_folders_that_are_none(tmp_path: Path) -> None:
    assert "is not a trace: it has no" in sentence(tmp_path)
    assert "is not a trace: it has no" in sentence(tmp_path / "missing")
    (tmp_path / "file").write_text("")
    assert "is a file, not a trace" in sentence(tmp_path / "file")


@given(share=st.floats(0, 1, exclude_max=True))
def test_cut_anywhere_it_is_refused(tmp_path_factory: pytest.TempPathFactory, share: float) -> None:
    folder = tmp_path_factory.mktemp("cut")
    (folder / "hopscope.json").write_bytes(metadata().packed())
    whole = (folder / FILE).read_bytes()
    (folder / FILE).write_bytes(whole[: int(share * len(whole))])
    assert str(folder) in sentence(folder)
