# SPDX-License-Identifier: Apache-2.0
"""What questions of the page are answered: what reports and exports say, or a sentence."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hopscope.errors import HopscopeError
from hopscope.store.trace import Trace
from hopscope.term.report_lines import json_lines
from hopscope.trace.selection import Selection
from hopscope.verbs.export.recorded import timeline
from hopscope.verbs.report.cpu import report_cpu
from hopscope.verbs.report.hops import hops_over_time
from hopscope.verbs.report.messages import messages
from hopscope.verbs.web.answers import PARTS, Answers
from tests.verbs.web.served import RECORDINGS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Ask = Callable[[dict[str, Any]], Any]


class Answer(io.BytesIO):
    """One answer, as the server would get it."""

    head: dict[str, Any]

    def begin(self, head: dict[str, Any]) -> None:
        self.head = head


@pytest.fixture(scope="module")
def trace(hostile: Path) -> Iterator[Trace]:
    with Trace(hostile) as opened:
        yield opened


@pytest.fixture(scope="module")
def ask(trace: Trace) -> Ask:
    answers = Answers(trace, trace.folder)

    def asked(question: dict[str, Any]) -> Any:  # noqa: ANN401 # whatever is answered
        out = Answer()
        answers.answer(question, out)
        assert out.head["status"] == 200
        return json.loads(out.getvalue())

    return asked


@pytest.mark.parametrize(
    "question",
    [
        {"ask": "report", "name": "hops", "options": {"plot": "x.svg"}},
        {"ask": "report", "name": "hops", "options": {"port": [[1]]}},
        {"ask": "report", "name": "hops", "options": {"from": "1"}},
        {"ask": "report", "name": "hops", "options": []},
        {"ask": "report", "name": "../hops"},
        {"ask": "report", "name": "hops", "options": {"flow": ["--json"]}},
        {"ask": "heat", "options": {"port": ["x"]}},
        {"ask": "message", "begin_ns": "1"},
        {"ask": "timeline", "part": "all", "columns": 9},
        {"ask": "timeline", "part": "events", "columns": 0},
        {"ask": "timeline", "part": "events", "columns": 9, "from_ns": 5, "until_ns": 5},
        {"ask": "timeline", "part": "events", "columns": 9, "until_ns": 1 << 61},
        {"ask": "sql", "query": "SELECT * FROM read_text('/etc/passwd')"},
        {"ask": "sql", "query": "COPY packets TO 'x.csv'"},
        {"ask": "sql", "query": "SELECT nothing"},
        {"ask": "cpu", "by": "flow"},
        {"ask": "flame"},
        {"ask": "flame", "of": "cpu", "options": {"from": 0.0, "until": 0.0}},
        {"ask": "sql", "query": ""},
        {"ask": "__class__"},
        {},
    ],
    ids=str,
)
def test_a_wrong_question_gets_a_sentence(ask: Ask, question: dict[str, Any]) -> None:
    with pytest.raises(HopscopeError, match=r"^[^\n]{10,}$"):
        ask(question)


def test_a_recording_without_counters_has_no_findings_and_says_why() -> None:
    with Trace(RECORDINGS / "udp") as trace:
        out = Answer()
        Answers(trace, trace.folder).answer({"ask": "findings"}, out)
    found = json.loads(out.getvalue())
    assert (found["findings"], found["summary"]) == ([], None)
    assert "has no readings of the counters" in found["notes"][0]


def test_the_heat_map_is_the_histograms_of_the_report(ask: Ask, trace: Trace) -> None:
    answer = ask({"ask": "heat", "columns": 50})
    bounds_s, found = hops_over_time(trace, Selection(), 50)
    assert answer["bounds_s"] == bounds_s
    assert [hop["hop"] for hop in answer["hops"]] == [f"{before} → {point}" for (before, point), _ in found]
    for hop, (_, parts) in zip(answer["hops"], found, strict=True):
        assert hop["cells"] == [
            [column, slot, int(count)]
            for column, part in enumerate(parts)
            for slot, count in enumerate(part.counts)
            if count
        ]
        assert hop["p95_ns"] == [part.percentile(95) for part in parts]


@pytest.mark.parametrize("by", ["", "cpu", "process", "cgroup"])
def test_cpu_time_over_time_is_that_of_the_report(by: str, ask: Ask, trace: Trace) -> None:
    answer = ask({"ask": "cpu", "by": by})
    bounds = answer["bounds_s"]
    shown_s = sum(
        share * (until - from_)
        for each in answer["series"]
        for share, from_, until in zip(each["shares"], bounds, bounds[1:], strict=False)
    )
    report = report_cpu(trace, Selection(), by=by or None)
    assert shown_s == pytest.approx(sum(report.column("time_ns")) / 1e9)
    assert shown_s > 0
    assert len(answer["series"]) <= 6


TIMELINE = {"events": "timeline", "activity": "details", "messages": "details"}


@pytest.mark.parametrize("part", TIMELINE)
def test_each_column_of_the_timeline_counts_what_the_export_has_there(part: str, ask: Ask, trace: Trace) -> None:
    exported = ("events", "marks") if part == "events" else PARTS[part]
    found = timeline(trace, Selection(), limit=None, parts=exported)
    started_ns = found.started_ns
    texts = found.names.texts
    marks = np.sort(np.concatenate([
        each.time_ns for each in found.marks if len(each) and texts[int(each.category[0])] != "arrow"
    ] or [[]]))  # fmt: skip
    spans = [(begin, end) for each in found.slices for begin, end in zip(each.begin_ns, each.end_ns, strict=True)]
    whole = ask({"ask": TIMELINE[part], "part": part, "columns": 700})
    first, last = whole["extent_ns"]
    assert len(marks) + len(spans) > 30
    for from_ns, until_ns, columns in (
        (first, last, 700), (first, last, 3), (first, first + (last - first) // 3 + 1, 57), (last - 1000, last, 9),
    ):  # fmt: skip
        question = {"ask": TIMELINE[part], "part": part, "columns": columns, "from_ns": from_ns, "until_ns": until_ns}
        view = ask(question)
        edges = [started_ns + from_ns + -(-at * (until_ns - from_ns) // columns) for at in range(columns + 1)]
        per_column = np.bincount(view["marks"]["column"], view["marks"]["count"], minlength=columns)
        assert per_column.tolist() == np.diff(np.searchsorted(marks, edges)).tolist()
        inside = [begin for begin, end in spans if end > edges[0] and begin < edges[-1]]
        assert len(view["spans"]["strip"]) + sum(view["spans"]["cell_count"]) == len(inside)
        lengths = zip(view["spans"]["at"], view["spans"]["length"], strict=True)
        assert {started_ns + from_ns + at for at, _ in lengths} <= set(inside)


def test_events_of_the_timeline_have_the_flows_that_the_export_has(ask: Ask, trace: Trace) -> None:
    found = timeline(trace, Selection(), limit=None, parts=("events", "marks"))
    texts = found.names.texts
    known = [
        (at - found.started_ns, texts[name], texts[detail])
        for each in found.marks
        for at, name, detail in zip(each.time_ns.tolist(), each.name, each.detail, strict=True)
    ]
    question = {"ask": "timeline", "part": "events", "columns": 4_000}
    plain, named = ask(question), ask({**question, "flows": True})
    assert (plain["marks"]["has_flows"], named["marks"]["has_flows"]) == (True, False)
    marks = named["marks"]
    shown = [
        (named["from_ns"] + at, named["texts"][name], named["texts"][detail])
        for at, name, detail in zip(marks["at"], marks["name"], marks["detail"], strict=True)
    ]
    assert set(shown) <= set(known)
    flows = {flow for _, _, flow in shown if flow}
    assert flows
    first = min((at, flow) for at, _, flow in known if flow)
    assert ask({**question, "find": first[1], "after_ns": -1})["found"]["at_ns"] == first[0]


def test_the_timeline_has_an_arrow_for_each_message(ask: Ask, trace: Trace) -> None:
    known = [json.loads(line) for line in json_lines(messages(trace, Selection(), limit=None))]
    view = ask({"ask": "details", "part": "messages", "columns": 1})
    arrows = view["arrows"]
    ends = [
        (view["from_ns"] + begin, view["from_ns"] + end)
        for begin, end in zip(arrows["at"][0], arrows["at"][3], strict=True)
        if begin is not None and end is not None
    ]
    read = [(row["begin_ns"], row["begin_ns"] + row["total_ns"]) for row in known if row["sender"] and row["reader"]]
    assert sorted(ends) == sorted(read)
    assert len(read) > 10
    assert sum(arrows["count"]) == len(known)
