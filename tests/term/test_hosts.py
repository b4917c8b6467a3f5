# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hopscope.gate import passed
from hopscope.live.remote.codec import CODECS
from hopscope.model.hosts import Absence, HostReport, HostsSnapshot
from hopscope.term.hosts import absence_lines, absences_to_json, host_heading
from hopscope.term.table import render_table
from hopscope.term.terminal import Terminal
from hopscope.verbs.cpu.table import render_cpu
from tests.lab.command import assert_fits
from tests.lab.snapshots import STARTED_NS
from tests.verbs.cpu.test_table import by_cpu  # noqa: F401 # a fixture

if TYPE_CHECKING:
    from hopscope.model.cpu import CpuSnapshot
    from hopscope.model.snapshot import Snapshot

NOW_NS = STARTED_NS + 3_725 * 10**9


@pytest.mark.parametrize(
    ("until_ns", "said"),
    [
        (None, "b: missing since 03:04:05 UTC (1:02:05): The connection to b ended"),
        (STARTED_NS + 12 * 10**9, "b: missing from 03:04:05 to 03:04:17 UTC (0:00:12): The connection to b ended"),
    ],
)
def test_absence_says_since_when_how_long_and_why(until_ns: int | None, said: str) -> None:
    absence = Absence(STARTED_NS, until_ns, "The connection to b ended")
    assert absence_lines("b", [absence], NOW_NS, Terminal(100)) == [said]
    assert all(len(line) <= 40 for line in absence_lines("b", [absence], NOW_NS, Terminal(40)))
    assert [passed(line) for line in absence_lines("b", [absence], NOW_NS, Terminal(100, colour=True))] == [
        f"\x1b[33m{said}\x1b[0m"
    ]


def test_absences_follow_their_schema() -> None:
    document = absences_to_json("b", "total", [Absence(STARTED_NS, None, "x"), Absence(STARTED_NS, NOW_NS, "y")])
    assert_fits(document, "absences-1")
    assert [each["until"] for each in document["absences"]] == [None, "2026-01-02T04:06:10.250000Z"]


def test_name_of_a_host_stands_out() -> None:
    assert [passed(line) for line in host_heading("web1", Terminal(80, colour=True))] == ["\x1b[1mweb1\x1b[0m"]
    assert host_heading("*", Terminal(80)) == ["all hosts"]


def test_hosts_are_a_column_of_the_table(tcp_snapshot: Snapshot) -> None:
    lines = render_table(CODECS["rx"].apart({"web1": tcp_snapshot, "db2": tcp_snapshot}), Terminal(100)).splitlines()
    assert lines[1].startswith("host hop ")
    assert [line.split()[:2] for line in lines[2:4]] == [["web1", "rx.softirq"], ["db2", "rx.softirq"]]
    assert all(len(line) <= 100 for line in lines)


def test_cpus_of_a_host_stand_below_its_whole(by_cpu: CpuSnapshot) -> None:  # noqa: F811 # the fixture
    text = render_cpu(CODECS["cpu"].apart({"web1": by_cpu, "db2": by_cpu}), Terminal(100), limit=20, breakdown=False)
    rows = [line.split()[:2] for line in text.splitlines()[1:9]]
    assert rows[:2] == [["host", "cpu"], ["all", "all"]]
    assert rows[2:] == [[host, cpu] for host in ("web1", "db2") for cpu in ("all", "0", "1")]
    whole = {line.split()[0]: line.split()[2] for line in text.splitlines()[2:9] if line.split()[1] == "all"}
    assert whole == {"all": "205%", "web1": "103%", "db2": "103%"}
    added = CODECS["cpu"].added({"web1": by_cpu, "db2": by_cpu})
    assert [row.group for row in added.rows] == [{"host": "web1"}, {"host": "db2"}]
    assert added.total.ns == 2 * by_cpu.total.ns


def test_snapshots_of_those_that_are_there_are_found(tcp_snapshot: Snapshot) -> None:
    gone: HostReport[Snapshot] = HostReport("b", None, [Absence(0, None, "x")])
    assert HostsSnapshot("interval", 0, [HostReport("a", tcp_snapshot), gone]).found() == {"a": tcp_snapshot}
