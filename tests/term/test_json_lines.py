# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from hopscope.term.json_lines import line, probes_to_json, to_json

if TYPE_CHECKING:
    from hopscope.model.snapshot import HostFact, PointStatus, Snapshot

DOCS = Path(__file__).parents[2] / "docs" / "json"


def validator(name: str) -> jsonschema.Draft202012Validator:
    schema = json.loads((DOCS / f"hopscope.{name}-1.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def hop(document: dict[str, Any], name: str) -> dict[str, Any]:
    return next(row for row in document["hops"] if row["hop"] == name)


@pytest.mark.parametrize("name", ["tcp", "full", "grouped", "empty"])
def test_output_is_one_line_that_follows_the_schema(name: str, request: pytest.FixtureRequest) -> None:
    text = line(to_json(request.getfixturevalue(f"{name}_snapshot")))
    assert "\n" not in text
    validator("rx").validate(json.loads(text))


def test_the_schema_refuses_what_is_not_documented(tcp_snapshot: Snapshot) -> None:
    document = to_json(tcp_snapshot)
    document["hops"][0]["undocumented"] = 1
    assert [error.validator for error in validator("rx").iter_errors(document)] == ["additionalProperties"]


def test_probes_follow_their_schema(point_statuses: list[PointStatus], host: list[HostFact]) -> None:
    document = json.loads(line(probes_to_json("6.18.0", point_statuses, host)))
    validator("probes").validate(document)
    assert document["points"][0]["ways"][0] == {
        "way": "fentry ip_rcv_core",
        "granted": False,
        "chosen": False,
        "reason": "errno 1 (Operation not permitted): the kernel is locked down (integrity)",
        "next_step": "Boot without lockdown= if you need it.",
        "differs": "",
    }
    assert document["points"][1]["chosen"] is None
    assert document["host"][0] == {"name": "rights", "value": "root", "ok": True, "next_step": ""}


def test_every_sample_is_in_a_bucket(full_snapshot: Snapshot) -> None:
    for row in to_json(full_snapshot)["hops"]:
        assert sum(bucket["count"] for bucket in row["buckets"]) == row["count"]


def test_buckets_of_known_values(full_snapshot: Snapshot) -> None:
    buckets = hop(to_json(full_snapshot), "rx.udp_read")["buckets"]
    assert buckets[0] == {"gt_s": None, "le_s": 2**-24, "count": 2}
    assert buckets[-1] == {"gt_s": 256.0, "le_s": None, "count": 2}
    for lower, upper in pairwise(buckets[1:-1]):
        assert lower["gt_s"] < lower["le_s"] <= upper["gt_s"]


def test_figures_of_a_hop(full_snapshot: Snapshot) -> None:
    row = hop(to_json(full_snapshot), "rx.udp_read")
    histogram = next(row for row in full_snapshot.hops if row.hop == "rx.udp_read").histogram
    assert (row["from"], row["to"], row["unit"]) == ("rx.udp_queue", "rx.udp_read", "packet")
    assert (row["count"], row["sum_ns"], row["max_ns"]) == (67, histogram.sum_ns, 320_123_456_789)
    assert row["mean_ns"] == pytest.approx(histogram.sum_ns / 67, abs=0.1)
    assert row["p50_ns"] == pytest.approx(51e6, rel=0.0905)
    assert row["p50_ns"] < row["p90_ns"] < row["p99_ns"] < row["p99_9_ns"] <= row["max_ns"]


def test_a_hop_without_samples_has_nulls_not_zeros(full_snapshot: Snapshot) -> None:
    row = hop(to_json(full_snapshot), "rx.udp_wake")
    assert (row["count"], row["sum_ns"], row["buckets"]) == (0, 0, [])
    assert [row[key] for key in ("mean_ns", "max_ns", "p50_ns", "p90_ns", "p99_ns", "p99_9_ns")] == [None] * 6


def test_the_rest_of_the_document(full_snapshot: Snapshot) -> None:
    document = to_json(full_snapshot)
    assert document["schema"] == "hopscope.rx/1"
    assert document["kind"] == "total"
    assert document["time"] == "2026-01-02T03:04:05.250000Z"
    assert (document["interval_s"], document["sampling_1_in"], document["lost"]) == (30.2, 32, 12)
    assert document["filters"] == {"interface": "eth0", "port": "443"}
    assert document["discarded"][0] == {
        "hop": "rx.tcp_read",
        "reason": "no_stamp",
        "count": 8,
        "meaning": "the packet came in before the run began",
    }
    assert document["plan"][0]["status"] == "refused"
    assert document["overhead"]["bpf_cpu_percent"] is None
    assert document["overhead"]["by_program"][1]["missed"] == 3


def test_the_group_is_an_object(grouped_snapshot: Snapshot) -> None:
    group = to_json(grouped_snapshot)["hops"][-1]["group"]
    assert group["interface"] == "lo"
    assert json.loads(line({"group": group}))["group"] == group
