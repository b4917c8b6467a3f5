# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from hopscope.store.trace import Trace
from hopscope.term.terminal import Terminal
from hopscope.trace.names import cpu_names
from hopscope.trace.selection import Selection
from hopscope.verbs.report.packet_rows import packet_rows
from hopscope.verbs.report.packets import packet_trees
from hopscope.verbs.report.packets_text import render_trees
from tests.lab.joined import JoinedTrace
from tests.lab.packet_world import WAYS, World
from tests.lab.traces import MadeTrace

if TYPE_CHECKING:
    from pathlib import Path

    from hopscope.trace.packets.tree import PacketTree


def trees_of(
    made: MadeTrace,
    folder: Path,
    *,
    limit: int | None = None,
    slowest: bool = False,
    **chosen: Any,  # noqa: ANN401 # as of Selection
) -> list[PacketTree]:
    with Trace(made.write(folder / "trace")) as trace:
        return packet_trees(trace, Selection(**chosen), limit=limit, slowest=slowest)[0]


@pytest.mark.slow
@pytest.mark.parametrize("way", sorted(WAYS))
def test_packet_has_all_its_events_in_order(way: str, tmp_path: Path) -> None:
    world = World()
    world.begin(way, 0)
    world.finish()
    trees = trees_of(world.made, tmp_path)
    if len(WAYS[way]) == 1:
        assert trees == []  # a single event tells no way
        return
    (tree,) = trees
    assert [event.point for event in tree.events] == [step.point for step in WAYS[way]]
    looked_at = {step.flow for step in WAYS[way] if step.point in {"tx.queue", "rx.driver"}}
    assert len(tree.flow) == len(looked_at)
    ended = WAYS[way][-1].point in {"skb.free", "skb.drop"}
    assert [remark.split()[0] for remark in tree.remarks] == [
        *(["beginning"] if way == "segment" else []),
        *([] if ended else ["read" if WAYS[way][-1].point == "rx.tcp_queue" else "end"]),
    ]


def test_stacked_devices_are_nested(tmp_path: Path) -> None:
    world = World()
    world.begin("stacked", 0)
    world.finish()
    (tree,) = trees_of(world.made, tmp_path)
    assert [(event.point, event.device, event.depth) for event in tree.events] == [
        ("tx.queue", "vlan0", 0), ("tx.start", "vlan0", 0), ("tx.queue", "eth0", 1), ("tx.enqueue", "eth0", 1),
        ("tx.dequeue", "eth0", 1), ("tx.start", "eth0", 1), ("tx.driver", "eth0", 1), ("tx.driver", "vlan0", 0),
        ("skb.free", "", 0),
    ]  # fmt: skip


def test_segments_stand_below_what_was_cut(tmp_path: Path) -> None:
    world = World()
    for way in ("segmented", "segment", "segment", "sent", "segment"):
        world.begin(way, 1)
        for _ in WAYS[way]:
            world.go_on(0, cpu=1)
    trees = trees_of(world.made, tmp_path)
    assert [[kin.kind for kin in tree.kin] for tree in trees] == [["segment", "segment"], [], []]
    assert "beginning" in trees[2].remarks[0]  # another packet was sent in between


def test_clones_stand_below_the_packet_whose_data_they_share(tmp_path: Path) -> None:
    made = MadeTrace()
    for skb, at in ((1, 100), (2, 150), (3, 1_000)):
        made.packet("rx.core", at, skb=skb, head=9)
        made.packet("skb.free", at + 100, skb=skb, head=9)
    first, last = trees_of(made, tmp_path)
    assert [(kin.kind, kin.skb) for kin in first.kin] == [("clone", 2)]
    assert (last.skb, last.kin) == (3, [])


def test_what_ran_around_a_packet_is_shown(tmp_path: Path) -> None:
    made = MadeTrace()
    reader = made.thread(18, "server")
    made.work("softirq.enter", 10, subject=1)  # of timers
    for point, at, subject in (("irq.enter", 100, 24), ("softirq.raise", 110, 3), ("irq.exit", 120, 24)):
        made.work(point, at, subject=subject)
    made.work("softirq.enter", 130, subject=3)
    made.packet("rx.driver", 140, skb=1, head=9)
    made.packet("rx.l4", 150, skb=1, head=9)
    made.socket("rx.ready", 160)
    made.work("sched.wake", 165, subject=reader)
    made.work("napi.poll", 170, value=1, extra=64)
    made.work("softirq.exit", 180, subject=3)
    made.work("napi.poll", 190, value=0, extra=64)
    made.work("sched.switch", 300, cpu=1, subject=reader)
    made.packet("skb.free", 400, skb=1, head=9, cpu=1, tid=reader)
    (tree,) = trees_of(made, tmp_path)
    assert [(event.point, event.time_ns - tree.begins_ns) for event in tree.events] == [
        ("irq.enter", -40), ("softirq.raise", -30), ("softirq.enter", -10), ("rx.driver", 0), ("rx.l4", 10),
        ("rx.ready", 20), ("sched.wake", 25), ("napi.poll", 30), ("sched.switch", 160), ("skb.free", 260),
    ]  # fmt: skip
    assert len(tree.own) == 3


def test_slowest_come_first_and_the_limit_holds(tmp_path: Path) -> None:
    made = MadeTrace()
    for number, length in enumerate((50, 500, 5)):
        made.packet("rx.driver", 1_000 * number, skb=number, head=9 + number)
        made.packet("skb.free", 1_000 * number + length, skb=number, head=9 + number)
    assert [tree.skb for tree in trees_of(made, tmp_path, slowest=True)] == [1, 0, 2]
    assert [tree.skb for tree in trees_of(made, tmp_path / "again", limit=2)] == [0, 1]


def test_tree_as_text_and_as_rows(tmp_path: Path) -> None:
    world = World()
    world.begin("stacked", 0)
    world.finish()
    trees = trees_of(world.made, tmp_path)
    lines = render_trees(trees, 1_000_000_000_000, Terminal())
    assert lines[0] == "10.0.0.1:1 > 10.0.0.2:2  1,500 bytes  80.0ns  at 0.000000 s"
    assert lines[3] == " 20.0ns +10.0ns   0   tx.queue         eth0                   len 1500 seq 1000"
    assert max(map(len, lines)) <= 80
    report = packet_rows(trees)
    assert report.column("depth") == [0, 0, 1, 1, 1, 1, 1, 0, 0]
    assert report.column("offset_ns") == list(range(0, 90, 10))


def test_a_cpu_of_several_hosts_is_called_by_its_host(tmp_path: Path) -> None:
    joined = JoinedTrace()
    for host in range(2):
        joined.pass_on(host, ("rx.driver", "rx.core"), 1_000 + 10_000 * host, skb=8)
    with Trace(joined.write(tmp_path / "trace")) as trace:
        trees, _ = packet_trees(trace, Selection(), limit=None, slowest=False)
        lines = render_trees(trees, 0, Terminal(), cpu_names(trace))
    assert [line.split()[2] for line in lines if "rx.core" in line] == ["a:0", "b:0"]
