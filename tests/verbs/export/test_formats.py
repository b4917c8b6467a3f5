# SPDX-License-Identifier: Apache-2.0
"""What is exported, read by the formats' own readers, is what the reports say."""

from __future__ import annotations

import csv
import functools
import io
import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import duckdb
import jsonschema
import pytest

from hopscope.store.meta import Metadata
from tests.lab.command import hopscope, printed
from tests.shared import first
from tests.term.test_speedscope import SCHEMA
from tests.verbs.export.trace_processor import answers

if TYPE_CHECKING:
    from collections.abc import Callable

Exported: TypeAlias = "Callable[..., tuple[Path, str]]"
RECORDINGS: Final = Path(__file__).parents[2] / "recordings"
_SUMS: Final = "SELECT category, count(*) AS n, sum(dur) AS ns FROM slice GROUP BY category"
_ARROWS: Final = """
    SELECT o.name AS f, i.name AS t, count(*) AS n
    FROM flow JOIN slice o ON o.id = slice_out JOIN slice i ON i.id = slice_in
    WHERE extract_arg(o.arg_set_id, 'debug.number') = extract_arg(i.arg_set_id, 'debug.number') GROUP BY f, t"""
_NUMBER: Final = {"type": "number"}
_PHASES: Final = {
    "X": ["ts", "dur"],
    "i": ["ts", "s"],
    "C": ["ts", "args"],
    "M": ["args"],
    **{phase: ["ts", "id"] for phase in "stf"},
}
# What the document on the format says of each phase that we have.
TRACE_EVENTS: Final = {
    "type": "object",
    "required": ["traceEvents"],
    "properties": {
        "displayTimeUnit": {"enum": ["ms", "ns"]},
        "otherData": {"type": "object"},
        "traceEvents": {
            "type": "array",
            "items": {
                "required": ["ph", "pid", "tid", "name"],
                "properties": {
                    "ph": {"enum": [*_PHASES]},
                    "pid": {"type": "integer"},
                    "tid": {"type": "integer"},
                    "ts": _NUMBER,
                    "dur": {"type": "number", "minimum": 0},
                    "args": {"type": "object"},
                    "id": {"type": "string"},
                    "s": {"enum": ["g", "p", "t"]},
                },
                "allOf": [
                    {"if": {"properties": {"ph": {"const": phase}}}, "then": {"required": required}}
                    for phase, required in _PHASES.items()
                ],
            },
        },
    },
}
_INTERVALS: Final = ("irq", "softirq", "thread", "message", "stage", "loss")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """Return what exports a kept recording, once, and returns the file and what was said."""
    folder = tmp_path_factory.mktemp("exported")

    @functools.cache
    def export(form: str, name: str, *words: str) -> tuple[Path, str]:
        path = folder / f"{name}{''.join(words)}.{form}"
        done = hopscope("export", form, RECORDINGS / name, "-o", path, *words)
        assert done.returncode == 0, done.stderr
        return path, done.stderr

    return export


def report(name: str, what: str, *words: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in printed("report", what, "--json", RECORDINGS / name, *words).splitlines()]


def events(name: str, *words: str) -> str:
    return printed("report", "events", "--csv", RECORDINGS / name, *words)


@pytest.mark.parametrize("name", first(["two-hosts", "tcp-rx", "losses"]))
def test_perfetto_has_the_messages_events_and_losses_of_the_reports(name: str, exported: Exported) -> None:
    path, _ = exported("perfetto", name)
    found = answers(
        path.read_bytes(),
        (
            _SUMS,
            "SELECT name, ts, dur, extract_arg(arg_set_id, 'debug.of') AS flow FROM slice WHERE category = 'message'",
            "SELECT name, count(*) AS n FROM slice WHERE category IN ('packet', 'socket', 'cpu') GROUP BY name",
            "SELECT count(DISTINCT extract_arg(arg_set_id, 'debug.number')) AS n FROM slice WHERE category = 'arrow'",
            _ARROWS,
            "SELECT sum(extract_arg(arg_set_id, 'debug.number')) AS n FROM slice WHERE category = 'loss'",
            "SELECT name, value FROM stats WHERE severity = 'error' AND value > 0",
            "SELECT count(*) AS n FROM slice WHERE dur < 0",
        ),
    )
    sums = {category: (count, ns) for category, count, ns in found[0]}
    messages = report(name, "messages")
    started_ns = Metadata.read(_trace(name)).started_ns
    assert sorted(found[1]) == sorted(
        (f"message held by {each['blame']}", each["begin_ns"] + started_ns, each["total_ns"], each["flow_name"])
        for each in messages
    )
    assert sums["stage"][1] == sums["message"][1] == sum(each["total_ns"] for each in messages)
    points = {each["point"]: each["events"] for each in report(name, "summary") if each["point"]}
    ends = {"softirq.enter", "softirq.exit", "irq.enter", "irq.exit", "sched.switch", "sched.wake"}
    assert dict(found[2]) == {point: count for point, count in points.items() if point not in ends}
    for kind in ("irq", "softirq"):
        whole = min(points.get(f"{kind}.enter", 0), points.get(f"{kind}.exit", 0))
        assert sums.get(kind, (0, 0))[0] == whole
    arrows = {(start, end): count for start, end, count in found[4]}
    assert set(arrows) == {("send", "transmit"), ("transmit", "receive"), ("receive", "read")} - (
        {("receive", "read")} if name == "losses" else set()
    )
    assert set(arrows.values()) == {len(messages)} == {found[3][0][0]}
    assert (found[5][0][0] or 0) == lost_events(name)
    assert found[6] == []
    assert found[7] == [(0,)]


def _trace(name: str) -> Path:
    return RECORDINGS / name / "joined" if (RECORDINGS / name / "joined").is_dir() else RECORDINGS / name


def lost_events(name: str) -> int:
    query = "SELECT coalesce(sum(lost), 0) AS lost FROM losses"
    return int(json.loads(printed("sql", "--json", RECORDINGS / name, query))["lost"])


@functools.cache
def read_ctf(path: Path) -> subprocess.CompletedProcess[str]:
    words = ["babeltrace2", "--clock-cycles", "--no-delta", str(path)]
    return subprocess.run(words, capture_output=True, text=True, check=True)


@pytest.mark.parametrize("name", first(["events", "losses", "two-hosts", "tcp-rx"], 3))
def test_babeltrace2_reads_every_event_of_a_ctf(name: str, exported: Exported) -> None:
    path, _ = exported("ctf", name)
    done = read_ctf(path)
    lines = (line.partition(": {")[0] for line in done.stdout.splitlines())
    seen = Counter((int(line[1:21]), line.split()[-1]) for line in lines)
    rows = csv.DictReader(io.StringIO(events(name)))
    assert seen == Counter((int(row["time_ns"]), row["point"]) for row in rows)
    if name == "losses":
        assert f"discarded {lost_events(name)} events" in done.stderr


def test_fields_of_a_ctf_are_those_of_the_events(exported: Exported) -> None:
    path, _ = exported("ctf", "events")
    done = read_ctf(path)
    rows = list(csv.DictReader(io.StringIO(events("events"))))
    texts = {field for row in rows for field in row["fields"].split() if '="' in field}
    assert texts
    for name, _, value in (each.partition("=") for each in texts):
        assert f"{name} = {value}" in done.stdout
    queued = next(row for row in rows if row["point"] == "tx.queue")
    line = next(line for line in done.stdout.splitlines() if " tx.queue: " in line)
    for name in ("tid", "flow", "len_bytes", "netns"):
        assert f" {name} = {queued[name]}," in line
    for name, column in (("comm", "comm"), ("interface", "interface"), ("flow_name", "flow_name")):
        assert f'{name} = ( "{queued[column]}' in line


def test_chrome_and_speedscope_have_the_intervals_of_perfetto(exported: Exported) -> None:
    perfetto, _ = exported("perfetto", "tcp-rx")
    chrome, _ = exported("chrome", "tcp-rx")
    speedscope, _ = exported("speedscope", "tcp-rx")
    ((wanted, arrows), (found, same)) = (
        answers(each.read_bytes(), (_SUMS, "SELECT count(*) AS n FROM flow")) for each in (perfetto, chrome)
    )
    assert {row for row in found if row[0] in _INTERVALS} == {row for row in wanted if row[0] in _INTERVALS}
    assert same == arrows
    document = json.loads(chrome.read_text())
    phases = Counter(each["ph"] for each in document["traceEvents"])
    assert phases["i"] == sum(count for category, count, _ in wanted if category not in _INTERVALS)
    assert {"pid", "tid", "ts", "name"} <= {
        name for each in document["traceEvents"] if each["ph"] == "X" for name in each
    }

    profiles = json.loads(speedscope.read_text())
    jsonschema.Draft202012Validator(SCHEMA).validate(profiles)
    frames = [each["name"] for each in profiles["shared"]["frames"]]
    spent: Counter[str] = Counter()
    for profile in profiles["profiles"]:
        stack: list[tuple[int, int]] = []
        for event in profile["events"]:
            if event["type"] == "O":
                stack.append((event["frame"], event["at"]))
            else:
                frame, begun = stack.pop()
                assert frame == event["frame"]
                spent[frames[frame]] += event["at"] - begun
        assert not stack
    sums = {category: ns for category, _, ns in wanted}
    assert sum(spent.values()) == sums["irq"] + sums["softirq"] + sums["thread"]


def test_folded_stacks_are_those_of_the_drops(exported: Exported) -> None:
    path, _ = exported("folded", "drops")
    found: Counter[tuple[str, str]] = Counter()
    for line in path.read_text().splitlines():
        stack, _, count = line.rpartition(" ")
        _, reason, *frames = stack.split(";")
        found[reason, " < ".join(reversed(frames))] += int(count)
    wanted: Counter[tuple[str, str]] = Counter()
    for row in report("drops", "drops", "--stacks"):
        wanted[row["reason"], row["stack"]] += row["drops"]
    assert found == wanted


@pytest.mark.parametrize("name", first(["events", "two-hosts"]))
def test_rows_are_those_of_the_report(name: str, exported: Exported) -> None:
    for form, option in (("csv", "--csv"), ("jsonl", "--json")):
        path, _ = exported(form, name, "--protocol", "udp")
        assert path.read_text() == printed("report", "events", option, RECORDINGS / name, "--protocol", "udp")
    path, _ = exported("parquet", name)
    rows = duckdb.sql(f"SELECT * FROM '{path}'")
    listed = list(csv.reader(io.StringIO(events(name))))
    assert rows.columns == listed[0]
    assert [["" if each is None else str(each) for each in row] for row in rows.fetchall()] == listed[1:]


def test_what_a_viewer_cannot_show_is_left_out_and_said(exported: Exported) -> None:
    path, said = exported("jsonl", "tcp-rx", "--limit", "100")
    assert len(path.read_text().splitlines()) == 100
    path, said = exported("perfetto", "tcp-rx", "--limit", "1000")
    times = sorted(each["time_ns"] for each in report("tcp-rx", "events"))
    assert "hopscope: left out: 15,354 events, all from " in said
    ((last_ns,),) = answers(path.read_bytes(), ("SELECT max(ts) AS t FROM slice WHERE category IN ('packet', 'cpu')",))[
        0:1
    ][0]
    assert last_ns < times[1000]
