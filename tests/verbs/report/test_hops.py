# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hopscope.store.trace import Trace
from hopscope.trace.selection import Selection
from hopscope.verbs.report.hops import hop_heats, hop_times
from tests.lab.traces import NETNS, MadeTrace

if TYPE_CHECKING:
    from hopscope.model.report import Report


def crossing(packets: int = 10) -> MadeTrace:
    """Packets from a client to a server over veth: with number n, each hop takes n * 1000 ns more than the last."""
    made = MadeTrace()
    request = made.flow("10.0.0.1:40000", "10.0.0.2:80")
    made.flow("10.0.0.2:80", "10.0.0.1:40000")
    veth0, veth1 = made.device("veth0", 2), made.device("veth1", 2, NETNS + 1)
    client, server = made.thread(17, "client"), made.thread(18, "server")
    for number in range(1, packets + 1):
        at, step = number * 1_000_000, number * 1_000
        where = {"skb": 0x1000, "packet": number, "head": 0x40}
        made.packet("tx.queue", at, flow=request, tid=client, **where, **veth0)
        made.packet("tx.start", at + step, tid=client, **where, **veth0)
        made.packet("rx.driver", at + 3 * step, flow=request, tid=client, **where, **veth1)
        made.packet("tx.driver", at + 5 * step, tid=client, skb=0x1000, packet=number, **veth0)
        made.packet("rx.core", at + 6 * step, cpu=1, **where, **veth1)
        made.packet("skb.free", at + 10 * step, cpu=1, tid=server, **where)
    made.socket("tx.sent", 1, flow=request, tid=client)
    made.socket("rx.received", 2, flow=request, tid=server)
    return made


def report_of(
    made: MadeTrace,
    folder: Path,
    *,
    by: str | None = None,
    limit: int | None = None,
    **chosen: Any,  # noqa: ANN401 # as of Selection
) -> Report:
    with Trace(made.write(folder / "trace")) as trace:
        return hop_times(trace, Selection(**chosen), by=by, limit=limit)


def test_each_hop_has_its_count_and_times(tmp_path: Path) -> None:
    report = report_of(crossing(), tmp_path)
    assert report.column("hop") == [
        "tx.queue → tx.start", "tx.start → tx.driver", "tx.start → rx.driver", "rx.driver → rx.core",
        "rx.core → skb.free",
    ]  # fmt: skip
    assert report.column("count") == [10] * 5
    assert report.column("max_ns") == [10_000, 40_000, 20_000, 30_000, 40_000]
    assert report.column("sum_ns") == [55_000, 220_000, 110_000, 165_000, 220_000]
    assert report.column("moved") == [0, 0, 0, 1, 0]
    assert report.column("p50_ns")[0] == pytest.approx(5_000, rel=0.1)
    assert not report.notes


def test_later_time_on_another_cpu_is_no_negative_hop(tmp_path: Path) -> None:
    made = crossing()
    made.rows["packets"].reverse()  # as CPUs' rings are read one after the other
    report = report_of(made, tmp_path)
    assert report.column("count") == [10] * 5
    assert report.column("sum_ns") == [55_000, 220_000, 110_000, 165_000, 220_000]


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("cpu", {"0": 3, "1": 2}),
        ("interface", {"veth0": 2, "veth1": 3}),
        ("netns", {str(NETNS): 2, str(NETNS + 1): 3}),
        ("flow", {"10.0.0.1:40000 > 10.0.0.2:80": 5}),
        ("process", {"client (17)": 2, "server (18)": 3}),
    ],
)
def test_hops_are_told_apart(by: str, expected: dict[str, int], tmp_path: Path) -> None:
    report = report_of(crossing(), tmp_path, by=by)
    groups = report.column(by)
    assert {group: groups.count(group) for group in groups} == expected
    assert set(report.column("count")) == {10}
    assert report_of(crossing(), tmp_path / "again", by=by, limit=1).left_out == len(expected) - 1


@pytest.mark.parametrize(
    ("chosen", "hops", "count"),
    [
        ({"ports": [80]}, 5, 10),
        ({"ports": [81]}, 0, 0),
        ({"interfaces": ["veth0"]}, 2, 10),
        ({"processes": ["server"]}, 5, 10),
        ({"from_s": 0.0095}, 5, 1),
        ({"until_s": 0.0015}, 5, 1),
    ],
)
def test_hops_are_of_what_is_chosen(chosen: dict[str, Any], hops: int, count: int, tmp_path: Path) -> None:
    report = report_of(crossing(), tmp_path, **chosen)
    assert report.column("count") == [count] * hops


def test_hops_over_a_gap_are_left_out_and_counted(tmp_path: Path) -> None:
    made = crossing()
    made.lose(3_003_500, 3_005_500, lost=2)
    report = report_of(made, tmp_path)
    assert report.column("count") == [10, 9, 9, 10, 10]
    assert report.notes[1].startswith("left out: 2 hops")


def test_point_that_was_not_attached_is_said(tmp_path: Path) -> None:
    made = crossing()
    made.plan = [{"point": "rx.ip", "way": "fentry", "status": "unavailable", "reason": "no fentry here"}]
    assert report_of(made, tmp_path).notes == ["rx.ip not attached: no fentry here"]


@pytest.mark.parametrize("chosen", [{}, {"ports": (43423,)}, {"until_s": 0.6}])
def test_heat_maps_have_every_hop_of_the_table(chosen: dict[str, Any]) -> None:
    with Trace(Path(__file__).parents[2] / "recordings" / "tcp-rx") as trace:
        bounds_s, heats = hop_heats(trace, Selection(**chosen), 10)
        report = hop_times(trace, Selection(**chosen))
    assert len(bounds_s) == 11
    assert [(heat.name, heat.counts.sum()) for heat in heats] == list(
        zip(report.column("hop"), report.column("count"), strict=True)
    )
