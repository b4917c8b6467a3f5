# SPDX-License-Identifier: Apache-2.0
"""What an agent may send of a trace: nothing of it gets out of the folder, and what is wrong is one sentence."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from hopscope.agent.stream import Block
from hopscope.errors import FormatError
from hopscope.store.destination import Folder
from hopscope.store.meta import Metadata
from hopscope.store.trace import Trace
from hopscope.store.writer import TraceWriter
from hopscope.term.recording import Recording
from hopscope.verbs.record.protocol import Incoming, fields_of, heard, metadata_of, said, texts, until_ns
from tests.store.columns import metadata, rows
from tests.store.test_destination import Taken

if TYPE_CHECKING:
    from pathlib import Path

PARQUET = b"PAR1 anything PAR1"


def block(data: bytes, **head: Any) -> Block:  # noqa: ANN401 # JSON
    return Block(head, memoryview(bytearray(data)))


def everything(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_what_was_sent_in_order_is_a_trace(tmp_path: Path) -> None:
    taken = Taken()
    with TraceWriter(taken, metadata(), file_rows=100) as writer:
        writer.append("packets", rows("packets", 100))
        writer.append("flows", rows("flows", 23))
        writer.append("packets", rows("packets", 1, 100))
    with Incoming(metadata(), Folder(tmp_path / "t")) as incoming:
        for table, _, data in taken.given[1:-1]:
            incoming.take(block(data, table=table))
        incoming.take(block(b"one", capture=True))
        incoming.take(block(b"two", capture=True))
        assert Metadata.read(tmp_path / "t").state == "recording"
        incoming.take(block(metadata(missed=7, state="complete", ended_ns=1009).packed(), metadata="ended"))
    with Trace(tmp_path / "t") as trace:
        assert trace.rows("SELECT count(*), max(time_ns) FROM packets") == [(101, 100)]
        assert trace.rows("SELECT count(*) FROM flows") == [(23,)]
        assert (trace.metadata.state, trace.metadata.missed, trace.metadata.ended_ns) == ("complete", 7, 1009)
    assert (tmp_path / "t" / "capture.pcapng").read_bytes() == b"onetwo"


def test_without_its_end_it_is_not_complete(tmp_path: Path) -> None:
    with Incoming(metadata(state="complete", ended_ns=7), Folder(tmp_path / "t")):
        pass
    assert Metadata.read(tmp_path / "t").state == "recording"


@pytest.mark.parametrize(
    ("data", "head"),
    [
        (PARQUET, {"table": "../packets"}),
        (PARQUET, {"table": "/packets"}),
        (PARQUET, {"table": "unknown"}),
        (PARQUET, {"table": ""}),
        (PARQUET, {"table": 7}),
        (PARQUET, {"table": ["packets"]}),
        (b"nothing of it", {"table": "packets"}),
        (b"", {"table": "packets"}),
        (b"PAR1 cut off", {"table": "packets"}),
        (b"x", {"capture": "/etc/passwd"}),
        (b"x", {"capture": True, "name": "x"}),
        (b"x", {}),
        (b"x", {"metadata": "began"}),
        (b"x", {"metadata": "ended"}),
        (b"{}", {"metadata": "ended"}),
        (b"[]", {"metadata": "ended"}),
    ],
)
def test_other_blocks_are_refused_and_leave_nothing(tmp_path: Path, data: bytes, head: dict[str, Any]) -> None:
    with Incoming(metadata(), Folder(tmp_path / "t")) as incoming:
        before = everything(tmp_path)
        with pytest.raises(FormatError):
            incoming.take(block(data, **head))
        assert everything(tmp_path) == before


@pytest.mark.parametrize(
    "changes",
    [
        {"started_ns": "7"},
        {"started_ns": -7},
        {"started_ns": 1 << 63},
        {"ended_ns": 1.5},
        {"missed": True},
        {"version": 99},
        {"points": {"x": "y"}},
        {"points": 7},
        {"host": "name"},
        {"plan": [7]},
        {"tables": [{"name": "../x", "meaning": "", "columns": []}]},
        {"tables": [{"name": "packets", "meaning": "", "columns": []}]},
    ],
)
def test_what_a_trace_says_of_itself_is_checked(changes: dict[str, Any]) -> None:
    document = {**json.loads(metadata().packed()), **changes}
    with pytest.raises(FormatError, match="damaged"):
        metadata_of(block(json.dumps(document).encode(), metadata="began"), "began")


def test_how_far_it_is_goes_over_and_back() -> None:
    recording = Recording(elapsed_s=1.5, events=1009, lost=7, size_bytes=23)
    assert heard(fields_of(said(recording))) == recording


@pytest.mark.parametrize("changes", [{"events": -1}, {"lost": "7"}, {"size_bytes": 1 << 60}, {"elapsed_s": None}])
def test_how_far_it_is_may_be_nonsense(changes: dict[str, Any]) -> None:
    with pytest.raises(FormatError):
        heard(fields_of({**said(Recording(1.5, 1, 2, 3)), **changes}))


@pytest.mark.parametrize("time", [-1, 1 << 63, 1.5, "7", None])
def test_a_time_may_be_nonsense(time: object) -> None:
    with pytest.raises(FormatError):
        until_ns(fields_of({"until_ns": time}))


def test_sentences_of_an_agent_are_shown_as_text_alone() -> None:
    (shown, *_) = texts({"remarks": ["\x1b[2Jtrigger", *["more"] * 99]}, "remarks")
    assert "\x1b" not in shown
    assert shown.endswith("trigger")


def test_the_kernel_has_a_mask_among_its_reasons() -> None:
    reasons = {2: "NOT_SPECIFIED", 0xFFFF0000: "SUBSYS_MASK"}
    assert metadata_of(block(metadata(reasons=reasons).packed(), metadata="began"), "began").reasons == reasons
