# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any

import pytest

from hopscope.analysis import events
from hopscope.analysis.events import write_events
from hopscope.analysis.selection import Selection

if TYPE_CHECKING:
    from hopscope.store.trace import Trace


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


@pytest.mark.parametrize("limit", [1, 5, 100])
def test_slices_make_no_difference(limit: int, trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = lines(trace, "text", limit=limit)
    monkeypatch.setattr(events, "_SLICE_ROWS", 2)
    monkeypatch.setattr(events, "_GRAIN_NS", 100)
    assert lines(trace, "text", limit=limit) == whole
    assert len(whole) == min(limit, 13)
