# SPDX-License-Identifier: Apache-2.0
"""``hopscope report`` and ``hopscope sql`` on traces made up here: they need no root."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import jsonschema
import pytest

from hopscope.store.meta import FILE, Metadata
from tests.lab.command import SCHEMAS, complaint, hopscope
from tests.lab.small_trace import small

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = small()
    made.lose(5, 6, lost=7)
    return made.write(tmp_path_factory.mktemp("report") / "trace")


def test_flows_are_shown_to_people_and_programs(folder: Path) -> None:
    done = hopscope("report", "flows", folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert "10.0.0.2:80 > 10.0.0.1:40000" in done.stdout
    assert done.stdout.splitlines()[-2].startswith("lost: 7 events")
    done = hopscope("report", "flows", "--json", "--port", "53", folder)
    assert [json.loads(line)["rx_packets"] for line in done.stdout.splitlines()] == [1]
    assert done.stderr.startswith("hopscope: lost: 7 events")


def test_packets_are_trees_or_rows(folder: Path) -> None:
    done = hopscope("report", "packets", folder, "--port", "53")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[0] == "[fd00::1]:5353 > [fd00::2]:53  100 bytes  700ns  at 0.000002 s"
    assert lines[2].split() == ["700ns", "+700ns", "1", "rx.core", "eth1", "len", "100", "seq", "0"]
    rows = hopscope("report", "packets", folder, "--csv", "--slowest").stdout.splitlines()
    of_packets = [row.split(",")[8] for row in rows if ",packet," in row]
    assert of_packets == [*["rx.driver", "rx.core"] * 2, *["tx.queue", "tx.start"] * 2]


def test_hops_are_shown(folder: Path) -> None:
    table = hopscope("report", "hops", folder).stdout
    assert [line.split()[:4] for line in table.splitlines()[1:3]] == [
        ["tx.queue", "→", "tx.start", "2"],
        ["rx.driver", "→", "rx.core", "2"],
    ]
    found = hopscope("report", "hops", "--json", "--group-by", "cpu", folder).stdout
    assert {(each["cpu"], each["hop"]) for each in map(json.loads, found.splitlines())} == {
        ("0", "tx.queue → tx.start"),
        ("0", "rx.driver → rx.core"),
        ("1", "rx.driver → rx.core"),
    }


def test_netdev_times_are_of_both_directions_or_one(folder: Path) -> None:
    both = [json.loads(line) for line in hopscope("report", "netdev-times", "--json", folder).stdout.splitlines()]
    assert {each["schema"] for each in both} == {f"hopscope.report.netdev-times.{way}/1" for way in ("rx", "tx")}
    assert len(hopscope("report", "netdev-times", "--rx", "--csv", folder).stdout.splitlines()) == 3


def test_drops_are_none(folder: Path) -> None:
    done = hopscope("report", "drops", folder)
    assert done.stdout.startswith("lost: 7 events, each of which may have been a drop")


def test_limit_of_a_table_is_said(folder: Path) -> None:
    assert "and 2 more (--limit)" in hopscope("report", "flows", "--limit", "1", folder).stdout
    assert "hopscope: 2 rows not shown (--limit)" in hopscope("report", "flows", "--csv", "--limit", "1", folder).stderr


def test_events_are_all_shown_unless_limited(folder: Path) -> None:
    assert len(hopscope("report", "events", folder).stdout.splitlines()) == 13
    assert len(hopscope("report", "events", "--limit", "4", folder).stdout.splitlines()) == 4


def test_killed_recording_is_shown_with_a_warning(folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder, tmp_path / "copy")
    killed = Metadata.read(copy)
    killed.state = "recording"
    (copy / FILE).write_bytes(killed.packed())
    done = hopscope("report", "summary", copy)
    assert done.returncode == 0
    assert "the recorder was killed or is still running" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    ["summary", "flows", "hops", "hops --by interface", "packets", "drops --stacks", "netdev-times", "events"],
)
def test_json_is_as_its_schema_says(arguments: str, tmp_path: Path) -> None:
    made = small()
    made.drop(50_000, skb=0x5000, reason=7)
    done = hopscope("report", *arguments.split(), "--json", made.write(tmp_path / "trace"))
    assert (done.returncode, done.stderr) == (0, "")
    objects = [json.loads(line) for line in done.stdout.splitlines()]
    assert objects
    for each in objects:
        jsonschema.validate(each, json.loads((SCHEMAS / f"{each['schema'].replace('/', '-')}.schema.json").read_text()))


def test_what_cannot_be_done_is_one_sentence(folder: Path, tmp_path: Path) -> None:
    assert "is not a trace" in complaint(hopscope("report", "summary", tmp_path), 1)
    assert "no process apache" in complaint(hopscope("report", "events", "--process", "apache", folder), 2)
    assert "--json and --csv cannot be combined" in complaint(hopscope("report", "flows", "--json", "--csv", folder), 2)
    assert "docs/trace.md describes the tables" in complaint(hopscope("sql", folder, "SELECT nothing FROM nowhere"), 2)


def test_query_comes_as_an_argument_or_from_the_standard_input(folder: Path, tmp_path: Path) -> None:
    query = "SELECT name, count(*) AS n FROM packets JOIN points USING (point) GROUP BY name ORDER BY name;\n"
    table = hopscope("sql", folder, query).stdout.splitlines()
    assert table[:2] == ["name            n", "rx.core         2"]
    (tmp_path / "query.sql").write_text(query)
    shell = ("sh", "-c", f'exec "$@" < {tmp_path / "query.sql"}', "sh")
    found = hopscope("sql", "--csv", folder, before=shell).stdout.splitlines()
    assert found[:2] == ["name,n", "rx.core,2"]
    tables = [json.loads(line) for line in hopscope("sql", "--json", folder, "--tables").stdout.splitlines()]
    assert {"packets", "reasons", "messages", "skb_lifetimes"} <= {each["name"] for each in tables}
    columns = hopscope("sql", "--csv", folder, "--tables", "messages").stdout.splitlines()
    assert columns[0] == "column,unit,meaning"
    assert "flow,,number of the flow (`flows`)" in columns
    assert "has no table named nothing" in complaint(hopscope("sql", folder, "--tables", "nothing"), 2)
    messages = hopscope("sql", "--csv", folder, "SELECT count(*) AS n FROM Messages").stdout
    assert messages.splitlines()[0] == "n"
    lives = hopscope("sql", "--json", folder, "SELECT count(DISTINCT packet) AS packets FROM lives").stdout
    assert json.loads(lives)["packets"] == 5
    assert complaint(hopscope("sql", folder, " "), 2).startswith("No query was given")
