# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from typing import TYPE_CHECKING

import jsonschema
import pytest

from hopscope.kernel.tracepoints import Tracepoints
from hopscope.probes.catalogue import POINTS
from hopscope.store.meta import Metadata
from tests.lab.command import complaint, hopscope, objects, schema

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.root


def test_text_has_every_point_with_its_ways_and_the_host() -> None:
    done = hopscope("probes", COLUMNS="400")
    assert (done.returncode, done.stderr) == (0, "")
    for point in POINTS.values():
        assert f"\n{point.name}  {point.marks}\n" in done.stdout
        for way in point.ways:
            assert way.name in done.stdout
    host = done.stdout.partition("\nhost\n")[2]
    for name in ("rights", "libbpf", "kernel BTF", "clock source"):
        assert f"  {name} " in host


def test_events_are_listed_with_the_fields_that_are_then_recorded() -> None:
    pattern = ("probes", "--events", "tcp:tcp_pr*")
    (found,) = objects(hopscope(*pattern, "--json").stdout)
    jsonschema.validate(found, schema("probes.events-1"))
    assert found["event"] == "tcp:tcp_probe"
    with Tracepoints(["tcp:tcp_probe"]) as tracepoints:
        recorded = {column.meaning for column in tracepoints.tables[0].columns}
    declared = [field["declaration"] for field in found["fields"]]
    assert {*declared} <= recorded
    assert hopscope(*pattern).stdout.splitlines() == ["tcp:tcp_probe", *(f"    {each}" for each in declared)]
    assert "Did you mean tcp:tcp_probe" in complaint(hopscope("probes", "--events", "tcp:tcp_prob"), 2)


@pytest.mark.slow
def test_json_fits_the_schema_and_says_what_the_verbs_then_do(tmp_path: Path) -> None:
    (found,) = objects(hopscope("probes", "--json").stdout)
    jsonschema.validate(found, schema("probes-1"))
    assert [point["point"] for point in found["points"]] == list(POINTS)
    chosen = {point["point"]: point["chosen"] for point in found["points"]}
    plan = [row for words in (["rx"], ["tx"], ["cpu", "--breakdown"], ["cpu", "--sampled"]) for row in _plan(words)]
    attached = {row["point"]: row["way"] for row in plan if row["status"] == "attached"}
    assert attached | _recorded(tmp_path / "trace") == {point: way for point, way in chosen.items() if way}
    for point in found["points"]:
        for way in point["ways"]:
            assert way["granted"] or way["reason"]
            assert way["chosen"] == (way["way"] == point["chosen"])


def _recorded(folder: Path) -> dict[str, str]:
    done = hopscope("record", "-P", "all", "-d", 0.1, "-o", folder)
    assert done.returncode == 0, done.stderr
    plan = Metadata.read(folder).plan
    return {f"record.{row['point']}": row["way"] for row in plan if row["status"] == "attached"}


def _plan(words: list[str]) -> list[dict[str, str]]:
    report = json.loads(hopscope(*words, "--json", "-d", 0.1).stdout.splitlines()[-1])
    plan: list[dict[str, str]] = report["plan"]
    return plan
