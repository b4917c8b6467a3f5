# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from hopscope.errors import FormatError, UsageError
from hopscope.model.histogram import Histogram
from hopscope.model.runs import hop_histogram, last_total
from hopscope.model.snapshot import HopRow, Overhead, Snapshot
from hopscope.term.json_lines import line, to_json

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hopscope.model.snapshot import Kind

ONE = Histogram.from_values([0, 61, 5_000, 5_000, 270 * 10**9])
OTHER = Histogram.from_values([7_000] * 3)


def text_of(kind: Kind, *histograms: Histogram, verb: str = "tx") -> str:
    rows = [HopRow("tx.ack", "a", "b", "message", {"cpu": str(cpu)}, each) for cpu, each in enumerate(histograms)]
    rows.append(HopRow("tx.nic", "a", "b", "message", {}, Histogram.empty()))
    return line(to_json(Snapshot(verb, kind, 0, 1.0, rows, Overhead(0, None, None, 0.0, 0)))) + "\n"


@pytest.fixture
def file(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "run.jsonl"
        path.write_text(text)
        return path

    return write


@pytest.mark.parametrize("verb", ["rx", "tx"])
def test_histogram_comes_back_as_it_went(verb: str, file: Callable[[str], Path]) -> None:
    path = file(text_of("interval", OTHER, verb=verb) + text_of("total", ONE, verb=verb))
    assert hop_histogram(path, last_total(path), "tx.ack") == ONE


def test_groups_are_added_up(file: Callable[[str], Path]) -> None:
    path = file(text_of("total", ONE, OTHER))
    assert hop_histogram(path, last_total(path), "tx.ack") == ONE + OTHER


def test_last_total_counts_whatever_stands_around_it(file: Callable[[str], Path]) -> None:
    messages = '{"schema":"hopscope.tx.slowest/1","kind":"total"}\n{"schema":"hopscope.tx.message/1"}\n'
    path = file(text_of("total", OTHER) + text_of("total", ONE) + messages + text_of("interval", OTHER))
    assert hop_histogram(path, last_total(path), "tx.ack") == ONE


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "contains no total"),
        (text_of("interval", ONE), "contains no total"),
        (text_of("total", ONE)[:-40], "is cut off in line 1"),
        (text_of("interval", ONE) + text_of("total", ONE)[:90], "is cut off in line 2"),
        ("hello\n" + text_of("total", ONE), "Line 1 of .* is not JSON"),
        ("[1, 2]\n", "Line 1 of .* was not written by hopscope"),
        ('{"schema":"other","kind":"total"}\n', "contains no total"),
        ("\0" * 9, "is cut off in line 1"),
    ],
)
def test_file_without_a_total_is_refused(text: str, said: str, file: Callable[[str], Path]) -> None:
    with pytest.raises(FormatError, match=said) as raised:
        last_total(file(text))
    assert raised.value.next_step


def test_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.parquet"
    path.write_bytes(b"PAR1\xff\xfe\xfd")
    with pytest.raises(FormatError, match="is not text"):
        last_total(path)


def test_file_that_cannot_be_read_is_said_to_be(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="none cannot be read: No such file or directory"):
        last_total(tmp_path / "none")
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        last_total(tmp_path)


@pytest.mark.parametrize(("hop", "said"), [("tx.sched", "no hop tx.sched"), ("tx.nic", "no samples of tx.nic")])
def test_hop_that_is_not_there_is_refused_with_those_that_are(hop: str, said: str, file: Callable[[str], Path]) -> None:
    path = file(text_of("total", ONE))
    with pytest.raises(UsageError, match=rf"{said}\. It has tx\.ack$"):
        hop_histogram(path, last_total(path), hop)


def changed(change: Callable[[Any], None]) -> str:
    document = json.loads(text_of("total", ONE))
    change(document)
    return json.dumps(document) + "\n"


@pytest.mark.parametrize(
    "change",
    [
        lambda document: document.pop("hops"),
        lambda document: document["hops"][0].pop("buckets"),
        lambda document: document["hops"][0]["buckets"][1].update(le_s=0.3),
        lambda document: document["hops"][0]["buckets"][1].update(count=-1),
        lambda document: document["hops"][0]["buckets"][1].update(count="many"),
        lambda document: document["hops"][0].update(count=6),
        lambda document: document["hops"][0].update(sum_ns="much"),
        lambda document: document.update(hops=[3]),
    ],
)
def test_total_that_does_not_fit_its_schema_is_refused(
    change: Callable[[Any], None], file: Callable[[str], Path]
) -> None:
    path = file(changed(change))
    with pytest.raises(FormatError, match="no valid histograms"):
        hop_histogram(path, last_total(path), "tx.ack")
