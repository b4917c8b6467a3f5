# SPDX-License-Identifier: Apache-2.0
"""``hopscope rx`` on traffic whose answer is known: its tables, histograms, JSON and options."""

from __future__ import annotations

import contextlib
import re
import sys
from typing import TYPE_CHECKING

import jsonschema
import pytest

from hopscope.lab import Workload
from hopscope.lab.veth import SERVER_IPV4
from hopscope.probes.catalogue import RX
from hopscope.probes.resolve import Resolver
from tests.lab.command import complaint, count_of, ended, hopscope, objects, only, schema, start
from tests.lab.measure import ping, tcp_pair, udp_pair, way
from tests.shared import first

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.lab import Lab
    from tests.lab.command import Json

pytestmark = pytest.mark.root
MESSAGES = 23


@contextlib.contextmanager
def requests(kept_lab: Lab, count: int) -> Iterator[list[str]]:
    """Yield a command that sends so many requests through the lab and waits for their replies."""
    with Workload(kept_lab.server, "tcp-echo", "--bind", SERVER_IPV4) as echo:
        client = [sys.executable, "-m", "hopscope.lab.traffic", "tcp-rr", SERVER_IPV4, echo.port, "--count", count]
        yield ["--", "nsenter", f"--net=/proc/{kept_lab.client.pid}/ns/net", *map(str, client)]


def rows(table: str) -> dict[str, list[str]]:
    """Return the words behind each hop's name."""
    words = [line.split() for line in table.splitlines() if line.strip().startswith("rx.")]
    return {first: rest for first, *rest in words}


def test_table_has_a_line_for_each_hop_with_its_count(kept_lab: Lab) -> None:
    with requests(kept_lab, MESSAGES) as command:
        done = hopscope("rx", *only(kept_lab), "--interval", 60, *command)
    assert (done.returncode, done.stderr) == (0, "")
    heading, filters, titles = done.stdout.splitlines()[1:4]  # behind the command's own line
    assert heading.startswith("rx  ")
    assert filters == f"only netns={kept_lab.client.inode}, {kept_lab.server.inode}"
    assert titles.split()[:8] == ["hop", "share", "count", "mean", "p50", "p99", "p99.9", "max"]
    assert rows(done.stdout)["rx.tcp_total"][0] == str(2 * MESSAGES)
    assert all(len(line) <= 80 for line in done.stdout.splitlines()[1:])
    assert done.stdout.splitlines()[-2].startswith("cost: ")


def test_histogram_adds_up_to_its_count(kept_lab: Lab) -> None:
    with requests(kept_lab, MESSAGES) as command:
        done = hopscope("rx", "--histogram", *only(kept_lab), "--hop", "rx.tcp_total", "--interval", 60, *command)
    assert (done.returncode, done.stderr) == (0, "")
    assert "rx.tcp_total  (rx.driver → rx.tcp_read, by packet)" in done.stdout
    assert f"count {2 * MESSAGES}, sum " in done.stdout
    buckets = re.findall(r"^ *\(\S+ \S+, \S+ \S+\] +(\d+) \|", done.stdout, re.MULTILINE)
    assert len(buckets) > 1
    assert sum(map(int, buckets)) == 2 * MESSAGES


def assert_adds_up(intervals: list[Json], total: Json) -> None:
    """The total is the sum of the intervals, hop by hop and bucket by bucket."""
    for row in total["hops"]:
        parts = [
            part
            for each in intervals
            for part in each["hops"]
            if (part["hop"], part["group"]) == (row["hop"], row["group"])
        ]
        assert row["count"] == sum(part["count"] for part in parts)
        assert row["sum_ns"] == sum(part["sum_ns"] for part in parts)
        assert row["max_ns"] == max((part["max_ns"] for part in parts if part["count"]), default=None)
        assert row["count"] == sum(bucket["count"] for bucket in row["buckets"])
        for bucket in row["buckets"]:
            same = [other["count"] for part in parts for other in part["buckets"] if other["le_s"] == bucket["le_s"]]
            assert bucket["count"] == sum(same)
    for discard in total["discarded"]:
        same = [
            other["count"]
            for each in intervals
            for other in each["discarded"]
            if (other["hop"], other["reason"]) == (discard["hop"], discard["reason"])
        ]
        assert discard["count"] == sum(same)


@pytest.mark.parametrize("group", first([None, "process", "netns", "interface", "protocol", "cpu", "cgroup"], 2))
def test_json_lines_fit_the_schema_and_add_up(kept_lab: Lab, group: str | None) -> None:
    path = way(kept_lab, "veth-4")
    grouping = ["--group-by", group] if group else []
    with udp_pair(path) as (udp_sender, udp_reader), tcp_pair(path) as (tcp_sender, tcp_reader):
        child = start("rx", "--json", *only(kept_lab), "--interval", 0.2, *grouping)
        assert child.stdout is not None
        lines = [child.stdout.readline()]
        for _ in range(2):
            ping(udp_sender, udp_reader, MESSAGES)
            ping(tcp_sender, tcp_reader, MESSAGES)
            lines.append(child.stdout.readline())
        lines.append(child.stdout.readline())  # the last messages may have come after the line before
        child.terminate()
        code, rest, err = ended(child)
    assert (code, err) == (0, "")
    *intervals, total = objects("".join(lines) + rest)
    for each in (*intervals, total):
        jsonschema.validate(each, schema("rx-1"))
    assert [each["kind"] for each in intervals] == ["interval"] * len(intervals)
    assert total["kind"] == "total"
    assert_adds_up(intervals, total)
    for hop in ("rx.udp_total", "rx.tcp_total", "rx.udp_queue", "rx.tcp_queue", "rx.udp_read", "rx.tcp_read"):
        assert count_of(total, hop) == 2 * MESSAGES, hop
    assert {name for row in total["hops"] for name in row["group"]} == ({group} if group else set())
    assert total["filters"] == {"netns": f"{kept_lab.client.inode}, {kept_lab.server.inode}"}


def test_names_of_hops_and_points_are_the_same_in_every_line(kept_lab: Lab) -> None:
    done = hopscope("rx", "--json", "--interval", 0.2, "--duration", 0.6)
    lines = objects(done.stdout)
    names = [[(row["hop"], row["from"], row["to"], row["unit"]) for row in line["hops"]] for line in lines]
    assert len(lines) == 4
    assert all(each == names[0] for each in names)
    assert {row["point"] for row in lines[0]["plan"]} == {"rx.nic", *(point.name for point in RX)}
    del kept_lab


def test_json_has_a_total_even_after_one_interval() -> None:
    done = hopscope("rx", "--json", "--duration", 0.2)
    assert [each["kind"] for each in objects(done.stdout)] == ["interval", "total"]


def test_duration_and_interval_say_how_many_reports() -> None:
    done = hopscope("rx", "--hop", "rx.core", "--interval", 0.2, "--duration", 0.5)
    headings = [line for line in done.stdout.splitlines() if line.startswith("rx  ")]
    assert len(headings) == 4
    assert [("total" in line) for line in headings] == [False, False, False, True]


def test_only_the_hops_asked_for_are_shown(kept_lab: Lab) -> None:
    with requests(kept_lab, MESSAGES) as command:
        done = hopscope("rx", "--json", *only(kept_lab), "--hop", "rx.tcp_read", "--hop", "rx.ip", *command)
    assert [row["hop"] for row in objects(done.stdout)[-1]["hops"]] == ["rx.ip", "rx.tcp_read"]


@pytest.mark.slow
@pytest.mark.parametrize("point", [point for point in RX if len(point.ways) > 1], ids=lambda point: point.name)
def test_forced_way_is_attached_or_refused_in_one_sentence(point: object) -> None:
    (point,) = [each for each in RX if each is point]
    resolver = Resolver()
    for each in point.ways:
        done = hopscope("rx", "--json", "--duration", 0.1, "--attach", f"{point.name}={each.name}")
        if resolver.judge(each).granted:
            plan = objects(done.stdout)[-1]["plan"]
            attached = [row["way"] for row in plan if row["point"] == point.name and row["status"] == "attached"]
            assert (done.returncode, attached) == (0, [each.name])
        else:
            said = complaint(done, 1)
            assert said.startswith(f"{point.name} cannot be attached using {each.name}: ")
            assert done.stdout == ""


def test_plan_names_a_way_for_each_point_and_the_reason_against_better_ones() -> None:
    done = hopscope("rx", "--plan", "--duration", 0.1)
    plan, _, _ = done.stdout.partition("\n\n")
    lines = plan.splitlines()
    assert [line for line in lines if not line.startswith(" ")] == ["rx.nic", *(point.name for point in RX)]
    attached = [line for line in lines if line.startswith("  attached ") and "/dev/ptp" not in line]
    assert len(attached) == len(RX)
    refused = [line for line in lines if line.startswith("  unavailable ")]
    assert all(": " in line for line in refused)


def test_two_runs_at_once_see_the_same(kept_lab: Lab) -> None:
    with udp_pair(way(kept_lab, "veth-4")) as (sender, reader):
        both = [start("rx", "--json", *only(kept_lab), "--interval", 0.2) for _ in range(2)]
        for child in both:
            assert child.stdout is not None
            child.stdout.readline()
        ping(sender, reader, MESSAGES)
        both[0].terminate()
        results = [ended(both[0])]
        ping(sender, reader, MESSAGES)
        both[1].terminate()
        results.append(ended(both[1]))
    assert [(code, err) for code, _, err in results] == [(0, ""), (0, "")]
    totals = [objects(out)[-1] for _, out, _ in results]
    for hop in ("rx.core", "rx.ip", "rx.udp", "rx.udp_queue", "rx.udp_read", "rx.udp_total"):
        assert [count_of(total, hop) for total in totals] == [MESSAGES, 2 * MESSAGES], hop
