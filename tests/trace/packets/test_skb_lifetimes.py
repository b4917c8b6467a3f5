# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import tempfile
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopscope.store.trace import Trace
from hopscope.trace.relation import build
from tests.lab.packet_world import WAYS, World
from tests.lab.traces import MadeTrace

if TYPE_CHECKING:
    from collections.abc import Iterable

CPUS = 3
ACTIONS = st.one_of(
    st.tuples(st.just("begin"), st.sampled_from(sorted(WAYS)), st.integers(0, CPUS - 1), st.booleans()),
    st.tuples(st.just("go on"), st.integers(0, 99), st.integers(0, CPUS - 1), st.booleans()),
    st.tuples(st.just("catch up")),
    st.tuples(st.just("free"), st.integers(0, CPUS - 1)),
)
LOSSES = st.tuples(st.just("lose"), st.integers(1, 60))


def world_of(actions: Iterable[tuple[object, ...]]) -> World:
    world = World()
    for what, *arguments in actions:
        if what == "begin":
            way, cpu, again = arguments
            world.begin(way, cpu, again=again)
        elif what == "go on" and world.on_the_way:
            which, cpu, late = arguments
            world.go_on(which, cpu=cpu, late=late)
        elif what == "catch up":
            world.catch_up()
        elif what == "free":
            world.free_another(*arguments)
        elif what == "lose":
            world.lose_next(*arguments)
    world.finish()
    return world


def found(made: MadeTrace, left_out: Iterable[str] = ()) -> list[tuple[int, int, str, bool]]:
    """Return (packet as found, packet in truth, point, whether its life goes on there) of each event."""
    with tempfile.TemporaryDirectory() as folder, Trace(made.write(Path(folder) / "trace", left_out=left_out)) as trace:
        build(trace, "skb_lifetimes")
        rows = trace.rows(
            "SELECT packet, time_ns, cpu, skb, p.name, from_point IS NOT NULL FROM skb_lifetimes"
            " JOIN points p USING (point)"
            " ORDER BY time_ns"
        )
    return [(packet, made.truth[time, cpu, skb, name], name, goes_on) for packet, time, cpu, skb, name, goes_on in rows]


def pairs(events: list[tuple[int, int, str, bool]]) -> set[tuple[int, int]]:
    return {(packet, truth) for packet, truth, *_ in events}


@pytest.mark.slow
@given(st.lists(ACTIONS, max_size=120))
@settings(max_examples=25)
def test_each_packet_is_one_life_and_each_life_one_packet(actions: list[tuple[object, ...]]) -> None:
    world = world_of(actions)
    events = found(world.made)
    assert len(events) == len(world.made.truth)
    same = pairs(events)
    assert len(same) == len({packet for packet, _ in same}) == len({truth for _, truth in same})


@pytest.mark.slow
@given(st.lists(st.one_of(ACTIONS, LOSSES), max_size=120))
@settings(max_examples=25)
def test_lost_events_part_lives_but_never_join_them(actions: list[tuple[object, ...]]) -> None:
    world = world_of(actions)
    events = found(world.made)
    same = pairs(events)
    assert len(same) == len({packet for packet, _ in same})
    # What does not go on begins in the middle, or after a gap: it is seen not to be a whole life.
    parts: dict[int, list[tuple[int, str]]] = {}
    for packet, truth, point, goes_on in events:
        if not goes_on:
            parts.setdefault(truth, []).append((packet, point))
    for begun in parts.values():
        assert len(begun) == 1 or world.lost_ns


@pytest.mark.slow
@pytest.mark.parametrize("absent", [["rx.l4"], ["tx.driver"], ["tx.enqueue", "tx.dequeue"], ["rx.tcp_queue"]])
@given(st.lists(ACTIONS, max_size=80))
@settings(max_examples=8)
def test_points_that_are_not_attached_part_no_lives(absent: list[str], actions: list[tuple[object, ...]]) -> None:
    same = pairs(found(world_of(actions).made, absent))
    assert len(same) == len({packet for packet, _ in same}) == len({truth for _, truth in same})


def test_whatever_had_an_address_before_is_another_packet() -> None:
    world = World()
    for way in [way for both in product(sorted(WAYS), repeat=2) for way in both]:
        world.begin(way, 0)
        world.finish()
    same = pairs(found(world.made))
    assert len(same) == len({packet for packet, _ in same}) == len({truth for _, truth in same})


def test_late_return_of_a_driver_belongs_to_the_packet_before() -> None:
    made = MadeTrace()
    device = made.device("lo", 1)
    for number, at in ((1, 0), (2, 100)):
        made.packet("tx.queue", at + 10, skb=8, packet=number, head=9, cpu=number, **device)
        made.packet("tx.start", at + 20, skb=8, packet=number, head=9, cpu=number, **device)
        made.packet("rx.driver", at + 30, skb=8, packet=number, head=9, cpu=number, **device)
        made.packet("skb.free", at + 40, skb=8, packet=number, head=9, cpu=0)
    made.packet("tx.driver", 135, skb=8, packet=1, cpu=1, **device)
    made.packet("tx.driver", 150, skb=8, packet=2, cpu=2, **device)
    assert len(pairs(found(made))) == 2


@pytest.mark.parametrize(
    ("first", "second", "lives"),
    [
        # To another host's namespace, or read without an event (Linux 6.18); then both addresses are used again.
        (("tx.queue", "tx.start", 120), ("tx.queue", "tx.start", 100), 2),
        (("rx.driver", "rx.l4", 100), ("rx.driver", "rx.core", 120), 2),
        (("rx.driver", "rx.l4", 120), ("rx.driver", "rx.core", 120), 2),
        (("rx.driver", "rx.l4", 120), ("rx.driver", "rx.core", 101), 2),
        # A tunnel: its headers are put before the packet, or taken off.
        (("tx.queue", "tx.start", 120), ("tx.queue", "tx.start", 178), 1),
        (("rx.driver", "rx.l4", 178), ("rx.driver", "rx.core", 120), 1),
    ],
)
def test_what_is_longer_or_shorter_without_a_tunnel_is_another_packet(
    first: tuple[str, str, int], second: tuple[str, str, int], lives: int
) -> None:
    made = MadeTrace()
    flows = [made.flow(f"10.0.{number}.1:7", f"10.0.{number}.2:9", 17) for number in (1, 2)]
    for number, (*points, payload) in enumerate((first, second)):
        device = made.device(f"eth{number}", number + 1)
        columns = {"flow": flows[number], "seq": 7 + number, "len_bytes": payload + 28, "header_bytes": 28}
        for nth, point in enumerate(points):
            made.packet(point, 100 * number + nth, skb=8, packet=number, head=9, **device, **columns)
    assert len({packet for packet, *_ in found(made)}) == lives


def test_packet_number_does_not_depend_on_the_order_of_rows() -> None:
    world = world_of([("begin", way, 0, False) for way in sorted(WAYS)])
    before = found(world.made)
    world.made.rows["packets"].reverse()
    assert found(world.made) == before


def test_trace_without_packets_has_no_lives() -> None:
    assert found(MadeTrace()) == []
