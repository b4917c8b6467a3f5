# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hopscope.store.schema import Column, Table
from hopscope.store.trace import Trace
from hopscope.trace import events as trace_events
from hopscope.trace.selection import Selection
from hopscope.verbs.report.event_lines import CSV_HEADING
from hopscope.verbs.report.events import event_report, write_events
from tests.lab.joined import JoinedTrace
from tests.lab.small_trace import small
from tests.lab.traces import STARTED_NS, MadeTrace, columns, write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hopscope.verbs.report import events


def lines(trace: Trace, form: events.Form, *, limit: int | None = None, **chosen: Any) -> list[str]:  # noqa: ANN401 # as of Selection
    out = io.BytesIO()
    write_events(trace, Selection(**chosen), form, out, limit=limit)
    return out.getvalue().decode().splitlines()


def test_every_event_is_a_line_in_order_of_time(trace: Trace) -> None:
    found = lines(trace, "text")
    (total,) = trace.rows(
        "SELECT (SELECT count(*) FROM packets) + (SELECT count(*) FROM sockets) + (SELECT count(*) FROM cpu)"
    )[0]
    assert len(found) == total
    times = [float(line.split()[0]) for line in found]
    assert times == sorted(times)
    assert found[0].split() == ["0.000000900", "[000]", "softirq.enter", "idle", "3"]
    assert found[1].endswith("eth0  10.0.0.1:40000 > 10.0.0.2:80  len 152 hdr 52 seq 0 skb 1000")
    assert found[-1].startswith("   1.000000000 [001] sched.switch   nginx-17 ")


def test_text_has_no_control_character_of_a_name(trace: Trace) -> None:
    assert not any("\x1b" in line for line in lines(trace, "text"))
    assert any('na"med?,-18' in line for line in lines(trace, "text"))


def test_json_has_every_event_with_null_for_what_it_lacks(trace: Trace) -> None:
    found = [json.loads(line) for line in lines(trace, "json")]
    received = next(each for each in found if each["point"] == "rx.received")
    assert received["comm"] == 'na"med?,'
    assert (received["len_bytes"], received["skb"], received["sock"]) == (52, None, 0x78)
    assert {each["schema"] for each in found} == {"hopscope.report.events/1"}


def test_csv_says_the_same_as_json(trace: Trace) -> None:
    rows = list(csv.DictReader(lines(trace, "csv")))
    objects = [json.loads(line) for line in lines(trace, "json")]
    texts = [{name: "" if value is None else str(value) for name, value in each.items()} for each in objects]
    assert rows == [{name: value for name, value in each.items() if name != "schema"} for each in texts]


def test_number_of_a_flow_is_a_string_in_json_and_a_number_in_a_report(trace: Trace) -> None:
    numbers = {flow for (flow,) in trace.rows("SELECT flow FROM flows")}
    written = [json.loads(line)["flow"] for line in lines(trace, "json")]
    assert {each for each in written if each is not None} == set(map(str, numbers))
    assert set(event_report(trace, Selection()).column("flow")) == {None, *numbers}


def test_order_of_events_of_two_hosts_within_the_bound_is_marked(tmp_path: Path) -> None:
    joined = JoinedTrace(bound_ns=2_000)
    for number, (host, at) in enumerate([(0, 10_000), (1, 10_002), (0, 11_999), (0, 50_000), (1, 52_001)]):
        joined.packet(host, "tx.queue", at, skb=8 * number)
    with Trace(joined.write(tmp_path / "trace")) as trace:
        assert [line[:1] for line in lines(trace, "text")] == ["~", "~", "~", " ", " "]
        bounds = [json.loads(line)["order_bound_ns"] for line in lines(trace, "json")]
        assert bounds == [2_000, 2_000, 2_000, None, None]
        assert event_report(trace, Selection()).column("order_bound_ns") == bounds
        assert [line.rpartition(",")[2] for line in lines(trace, "csv")[1:]] == ["2000"] * 3 + [""] * 2
        notes = event_report(trace, Selection()).notes
    assert notes == ["~: the order relative to events of other hosts within 2.00µs is not certain"]


@pytest.mark.parametrize(
    ("chosen", "points"),
    [
        ({"processes": ["16"]}, {"rx.driver", "rx.core", "rx.received", "sched.switch"}),
        ({"interfaces": ["eth1"]}, {"rx.driver", "rx.core"}),
        ({"ports": [53]}, {"rx.driver", "rx.core", "rx.received"}),
        ({"until_s": 1e-6}, {"softirq.enter"}),
    ],
)
def test_filters_apply_to_all_tables(chosen: dict[str, Any], points: set[str], trace: Trace) -> None:
    assert {line.split()[2] for line in lines(trace, "text", **chosen)} == points


OPENED = Table(
    "e_fs_open",
    "the kernel passes the tracepoint fs:open",
    tuple(
        Column(name, dtype, "")
        for name, dtype in (
            ("time_ns", np.int64), ("cpu", np.int16), ("tid", np.int32), ("ptr", np.int64), ("order", np.int32),
            ("path", "object"),
        )
    ),
)  # fmt: skip
PATHS = ['/a "b"', "/c\x1bd", "/e,f"]


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Trace]:
    """Return the small trace with a tracepoint's table, of three events at 1.2, 2.2 and 3.2 µs."""
    made = small()
    tables = {name: columns(rows, name) for name, rows in made.rows.items()}
    count = len(PATHS)
    tables[OPENED.name] = {
        "time_ns": STARTED_NS + 1_200 + 1_000 * np.arange(count),
        "cpu": np.zeros(count, np.int16),
        "tid": np.array([17, 18, 0], np.int32),
        "ptr": np.array([-(1 << 47), -11, 5]),
        "order": np.arange(count, dtype=np.int32),
        "path": np.array(PATHS, dtype=object),
    }
    with Trace(write(tmp_path / "own", tables, tables=[OPENED])) as trace:
        yield trace


def test_tracepoints_stand_among_the_others_with_their_fields(own: Trace) -> None:
    found = lines(own, "text")
    times = [float(line.split()[0]) for line in found]
    assert len(found) == 13 + len(PATHS)
    assert times == sorted(times)
    told = [line for line in found if "e_fs_open" in line]
    assert told[0].split(maxsplit=3)[3] == 'nginx-17               ptr ffff800000000000 order 0 path /a "b"'
    assert told[1].endswith(" ptr -11 order 1 path /c?d")
    assert told[2].split()[3:] == ["idle", "ptr", "5", "order", "2", "path", "/e,f"]


def test_programs_get_the_fields_of_tracepoints(own: Trace) -> None:
    objects = [json.loads(line) for line in lines(own, "json")]
    rows = [*csv.DictReader(lines(own, "csv"))]
    for found in (objects, rows):
        assert [each["fields"] for each in found if each["point"] == "e_fs_open"] == [
            'ptr=-140737488355328 order=0 path="/a \\"b\\""',
            'ptr=-11 order=1 path="/c?d"', 'ptr=5 order=2 path="/e,f"',
        ]  # fmt: skip
    assert {each["fields"] for each in objects if each["point"] != "e_fs_open"} == {None}
    assert {len(row) for row in rows} == {len(CSV_HEADING.split(","))}


@pytest.mark.parametrize(
    ("chosen", "count"),
    [
        ({"processes": ["16"]}, 1),
        ({"from_s": 2e-6, "until_s": 3e-6}, 1),
        ({"interfaces": ["eth0"]}, 0),
        ({"ports": [53]}, 0),
    ],
)
def test_filters_apply_to_tracepoints(chosen: dict[str, Any], count: int, own: Trace) -> None:
    assert sum("e_fs_open" in line for line in lines(own, "text", **chosen)) == count


def test_a_flow_has_all_events_of_its_packets(tmp_path: Path) -> None:
    made = MadeTrace()
    flow, other = made.flow("10.0.0.1:40000", "10.0.0.2:80"), made.flow("10.0.0.1:40001", "10.0.0.2:81")
    device = made.device("eth0", 2)
    for number, own_flow in enumerate((flow, other)):
        where = {"skb": 0x1000, "head": 0x40}
        made.packet("tx.queue", 1_000 * number + 1, flow=own_flow, **where, **device)
        made.packet("tx.start", 1_000 * number + 2, **where, **device)
        made.packet("tx.driver", 1_000 * number + 3, skb=0x1000, **device)
        made.packet("skb.free", 1_000 * number + 4, **where)
    made.socket("call.enter", 5)
    made.work("softirq.enter", 6, subject=3)
    with Trace(made.write(tmp_path / "flows")) as trace:
        found = lines(trace, "text", ports=[80])
        assert [line.split()[2] for line in found] == ["tx.queue", "tx.start", "tx.driver", "skb.free"]
        assert all(line.split()[0] < "0.000001000" for line in found)
        out = io.BytesIO()
        (note,) = write_events(trace, Selection(ports=[80]), "text", out)
        assert note.startswith("left out: 2 events without a flow")
        assert write_events(trace, Selection(), "text", out) == []


@pytest.mark.parametrize("limit", [1, 5, 100])
def test_slices_make_no_difference(limit: int, trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = lines(trace, "text", limit=limit)
    monkeypatch.setattr(trace_events, "_SLICE_ROWS", 2)
    monkeypatch.setattr(trace_events, "_GRAIN_NS", 100)
    assert lines(trace, "text", limit=limit) == whole
    assert len(whole) == min(limit, 13)
