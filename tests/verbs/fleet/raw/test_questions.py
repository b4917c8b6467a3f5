# SPDX-License-Identifier: Apache-2.0
"""Questions on recordings of a fleet: parts add up in any order, and of one host they say what its reports say."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from hopscope import __version__
from hopscope.store.trace import Trace
from hopscope.trace.selection import Selection
from hopscope.verbs.fleet.raw.asked import Asked
from hopscope.verbs.fleet.raw.asking import ask
from hopscope.verbs.fleet.raw.parts import part_of
from hopscope.verbs.fleet.raw.question import (
    NOTES_SHARE,
    SHARES,
    Merged,
    lines_of,
    merged,
    none,
    packed,
    shares,
    sorted_lines,
    unpacked,
)
from hopscope.verbs.fleet.raw.questions import QUESTIONS
from hopscope.verbs.fleet.raw.spark import _lines, _parts
from hopscope.verbs.report.counters import counter_history
from hopscope.verbs.report.drops import drop_reasons
from hopscope.verbs.report.flows import flows
from hopscope.verbs.report.hops import hop_times
from hopscope.verbs.report.messages import messages
from tests.lab.fleets import in_process, put
from tests.shared import first

if TYPE_CHECKING:
    from collections.abc import Callable

    from hopscope.model.report import Report, Value
    from hopscope.store.fleet.raw import Leaf

RECORDINGS = Path(__file__).parents[3] / "recordings"
KEPT = ("drops", "killed", "tcp-rx", "two-hosts")
ASKED = [Asked(name, by_host) for name in QUESTIONS for by_host in (False, True)]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Leaf]]:
    folder = tmp_path_factory.mktemp("fleet")
    return folder, put(folder, *(RECORDINGS / name for name in KEPT))


@pytest.fixture(scope="module")
def parts(fleet: tuple[Path, list[Leaf]]) -> Callable[[Asked], list[Merged]]:
    known: dict[str, list[Merged]] = {}

    def of(asked: Asked) -> list[Merged]:
        if asked.question not in known:
            known[asked.question] = [part_of(asked, leaf.host, leaf.name, leaf.folder) for leaf in fleet[1]]
        return known[asked.question]

    return of


def _sorted(whole: Merged) -> list[list[tuple[Any, ...]]]:
    found = [[tuple(row.values()) for row in table.to_pylist()] for table in (whole.rows, whole.notes)]
    return [sorted(rows, key=repr) for rows in found]


@pytest.mark.parametrize("asked", ASKED, ids=lambda asked: f"{asked.question}{'-by-host' * asked.by_host}")
def test_parts_add_up_in_any_order_and_grouping(asked: Asked, parts: Callable[[Asked], list[Merged]]) -> None:
    question, found = asked.asked, parts(asked)
    whole = merged(question, found)
    assert _sorted(whole)[0]
    chance = random.Random(asked.question)  # noqa: S311 # the same each time
    for _ in range(3):
        left = [*found, none(question)]
        chance.shuffle(left)
        while len(left) > 1:
            count = chance.randrange(2, len(left) + 1)
            left = [*left[count:], merged(question, left[:count])]
        assert _sorted(left[0]) == _sorted(whole)


@pytest.mark.parametrize("limit", first([3, None]))
@pytest.mark.parametrize("asked", ASKED, ids=lambda asked: f"{asked.question}{'-by-host' * asked.by_host}")
def test_shares_make_the_lines_of_the_whole(
    asked: Asked, limit: int | None, parts: Callable[[Asked], list[Merged]]
) -> None:
    question = asked.asked
    whole = merged(question, parts(asked))
    lines, count = lines_of(question, whole.rows, limit)
    found = {share: unpacked(packed(rows)) for share, rows in shares(question, whole).items()}
    assert found.pop(NOTES_SHARE).equals(whole.notes)
    each = [lines_of(question, rows, limit) for rows in found.values()]
    assert sum(of_share for _, of_share in each) == count
    assert sorted_lines(question, [table for table, _ in each], limit) == lines.to_pylist()
    if question.spread and count > 10:
        assert len(found) > 1


@pytest.mark.parametrize("limit", [2, None])
@pytest.mark.parametrize("asked", ASKED[::3], ids=lambda asked: f"{asked.question}{'-by-host' * asked.by_host}")
def test_what_executors_do_comes_to_the_same(asked: Asked, limit: int | None, fleet: tuple[Path, list[Leaf]]) -> None:
    """As Spark has it, without Spark: three executors read, two make lines, of which the driver gets the first ones."""
    asked, question = replace(asked, limit=limit), asked.asked
    listed = [(leaf.host, leaf.name, str(leaf.folder)) for leaf in fleet[1]]
    names = ("host", "name", "folder")
    given = [
        pa.RecordBatch.from_pydict(dict(zip(names, zip(*listed[first::3], strict=True), strict=True)))
        for first in range(3)
    ]
    parts = [row for batch in given for each in _parts(iter([batch]), asked, __version__) for row in each.to_pylist()]
    assert {row["share"] for row in parts} <= {*range(SHARES), NOTES_SHARE}
    found = []
    for place in range(2):
        batches = [pa.RecordBatch.from_pylist([row]) for row in parts if row["share"] % 2 == place]
        found += [row for each in _lines(iter(batches), asked) for row in each.to_pylist()]
    lines = [unpacked(row["data"]) for row in found if row["share"] != NOTES_SHARE]
    if limit:
        assert max(table.num_rows for table in lines) <= limit
    whole = in_process(asked, fleet[1])
    assert sorted_lines(question, lines, limit) == whole.lines
    assert sum(row["count"] for row in found) == whole.count
    (notes,) = [unpacked(row["data"]).to_pylist() for row in found if row["share"] == NOTES_SHARE]
    assert notes == whole.notes


def _hop(row: dict[str, Value]) -> tuple[Value, ...]:
    return tuple(value for name, value in row.items() if name not in {"host", "hosts", "most_host"})


def _chosen(*names: str) -> Callable[[dict[str, Value]], tuple[Value, ...]]:
    return lambda row: tuple(row[name] for name in names)


_FLOW = ("flow", "flow_name", "protocol", "tx_packets", "tx_bytes", "rx_packets", "rx_bytes", "retransmits", "drops")
_MESSAGE = ("total_ns", "blame", "blame_ns", "len_bytes", "retransmits", "flow_name", "sender", "reader", "protocol")
_SAME: dict[str, tuple[Callable[..., Report], Callable[[dict[str, Value]], tuple[Value, ...]]]] = {
    "hops": (hop_times, _hop),
    "counters": (counter_history, _chosen("layer", "name", "subject", "netns", "sign", "count", "peak_per_s", "anew")),
    "flows": (flows, _chosen(*_FLOW)),
    "messages": (messages, _chosen(*_MESSAGE)),
}


@pytest.mark.parametrize("name", first(["drops", "containers", "losses", "tcp-rx"]))
@pytest.mark.parametrize("question", _SAME)
def test_of_one_recording_an_answer_is_its_report(question: str, name: str, tmp_path: Path) -> None:
    report, chosen = _SAME[question]
    (leaf,) = put(tmp_path, RECORDINGS / name)
    asked = Asked(question, most=10_000)
    part = part_of(asked, leaf.host, leaf.name, leaf.folder)
    lines, _ = lines_of(asked.asked, part.rows, None)
    names = [column.name for column in asked.asked.columns]
    with Trace(RECORDINGS / name) as trace:
        whole = report(trace, Selection())
        reported = sorted((chosen(row) for row in whole.named_rows()), key=repr)
    values = [dict(zip(names, asked.asked.values(line), strict=True)) for line in lines.to_pylist()]
    found = sorted((chosen(_rounded(row)) for row in values), key=repr)
    assert found == reported


def _rounded(row: dict[str, Value]) -> dict[str, Value]:
    """Round as reports do."""
    return {name: float(f"{value:.6g}") if isinstance(value, float) else value for name, value in row.items()}


def test_drops_are_those_of_all_flows_and_devices(tmp_path: Path) -> None:
    put(tmp_path, RECORDINGS / "drops", RECORDINGS / "two-hosts")
    whole: dict[Value, int] = {}
    for folder in (RECORDINGS / "drops", RECORDINGS / "two-hosts" / "a", RECORDINGS / "two-hosts" / "b"):
        with Trace(folder) as trace:
            for row in drop_reasons(trace, Selection()).named_rows():
                whole[row["reason"]] = whole.get(row["reason"], 0) + int(row["drops"] or 0)
    found: dict[Value, int] = {}
    for row in ask(tmp_path, Asked("drops"), (), in_process).report.named_rows():
        found[row["reason"]] = found.get(row["reason"], 0) + int(row["drops"] or 0)
    assert found == whole


def test_flows_have_both_ends(tmp_path: Path) -> None:
    put(tmp_path, RECORDINGS / "two-hosts")
    rows = list(ask(tmp_path, Asked("flows"), (), in_process).report.named_rows())
    both = [row for row in rows if row["hosts"] == 2]
    assert both
    of_a = {
        row["flow"]: row for row in ask(tmp_path, Asked("flows", by_host=True), ["a"], in_process).report.named_rows()
    }
    of_b = {
        row["flow"]: row for row in ask(tmp_path, Asked("flows", by_host=True), ["b"], in_process).report.named_rows()
    }
    for row in both:
        for name in ("tx_packets", "rx_packets", "rx_bytes"):
            assert row[name] == of_a[row["flow"]][name] + of_b[row["flow"]][name]  # type: ignore[operator] # numbers
