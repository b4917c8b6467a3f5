# SPDX-License-Identifier: Apache-2.0
"""What is printed of several hosts, where one was late: no root and no host is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hopscope.live.hosts import HostsOutput
from hopscope.live.interval import Reports
from hopscope.live.remote.codec import CODECS
from hopscope.live.remote.fleet import Fleet
from hopscope.model.hosts import Absence, HostReport, HostsSnapshot
from hopscope.model.snapshot import Overhead, Snapshot

if TYPE_CHECKING:
    from hopscope.model.snapshot import Kind


class Shown(Reports[Snapshot]):
    """An output that remembers what it was to show."""

    def __init__(self) -> None:
        super().__init__("table")
        self.kinds: list[str] = []

    def show(self, snapshot: Snapshot) -> None:
        self.kinds.append(snapshot.kind)


def results(kind: Kind, *hosts: str, late: tuple[str, ...] = ()) -> HostsSnapshot[Snapshot]:
    found = Snapshot("rx", kind, 0, 1.0, [], Overhead(0, None, None, 0.0, 0))
    absences = [Absence(0, None, "it has not answered yet")]
    reports = [HostReport(host, None, absences) if host in late else HostReport(host, found) for host in hosts]
    return HostsSnapshot(kind, 0, reports)


@pytest.mark.parametrize("late", [(), ("b",), ("a", "b")])
def test_who_was_late_in_the_only_interval_is_shown_with_its_total(late: tuple[str, ...]) -> None:
    outputs, added = {"a": Shown(), "b": Shown()}, Shown()
    output = HostsOutput("table", fleet=Fleet([]), codec=CODECS["rx"], outputs=outputs, apart=None, added=added)
    output.show(results("interval", "a", "b", late=late))
    output.show(results("total", "a", "b"))
    assert {host: each.kinds for host, each in outputs.items()} == {
        host: ["total" if host in late else "interval"] for host in outputs
    }
    assert added.kinds == ["total"]


@pytest.mark.parametrize(("late", "kinds"), [((), ["interval"]), (("b",), ["interval", "total"])])
def test_table_of_all_hosts_is_shown_again_where_one_was_late(late: tuple[str, ...], kinds: list[str]) -> None:
    outputs, together = {"a": Shown(), "b": Shown()}, Shown()
    output = HostsOutput("table", fleet=Fleet([]), codec=CODECS["rx"], outputs=outputs, apart=together, added=Shown())
    output.show(results("interval", "a", "b", late=late))
    output.show(results("total", "a", "b"))
    assert together.kinds == kinds
