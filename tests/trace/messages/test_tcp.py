# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import tempfile
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from hopscope.bpf.layout import HopLimit
from hopscope.store.trace import Trace
from hopscope.trace.causes.blame import cause_totals
from hopscope.trace.messages.path import STEPS
from hopscope.trace.relation import build
from hopscope.trace.selection import Selection
from tests.lab.message_worlds import WRAP, Packet, Read, Sent, Stream, World, expected, simple
from tests.lab.traces import STARTED_NS, MadeTrace

if TYPE_CHECKING:
    from collections.abc import Sequence

# A failing world is as small as it is; making it smaller would take minutes, as each is a trace on disk.
MADE: dict[str, Any] = {"deadline": None, "phases": (Phase.explicit, Phase.reuse, Phase.generate)}
COLUMNS = [step.column for step in STEPS]


def table(made: MadeTrace, folder: Path, **selected: Any) -> list[dict[str, Any]]:  # noqa: ANN401 # as of Selection
    """Return the messages of a trace in the order of their flows and bytes."""
    with Trace(made.write(folder / "trace")) as trace:
        build(trace, "messages", selection=Selection(**selected))
        names = trace.names("SELECT * FROM messages")
        rows = trace.rows("SELECT * FROM messages ORDER BY flow, connection, start_byte, begins_ns")
    return [dict(zip(names, row, strict=True)) for row in rows]


def in_order(row: dict[str, Any]) -> bool:
    """Whether each point comes later than the one before that was seen."""
    seen = [row[column] for column in COLUMNS if row[column] is not None]
    return all(one < other for one, other in pairwise(seen))


@pytest.mark.parametrize("count", [1, 23, 1009])
def test_each_send_call_is_a_message(count: int, tmp_path: Path) -> None:
    made = MadeTrace()
    stream = simple(made, made.flow("10.0.0.1:4000", "10.0.0.2:80"), count, 1009)
    stream.write(made)
    rows = table(made, tmp_path)
    assert len(rows) == count
    for row, sent in zip(rows, stream.sends, strict=True):
        offsets = {column: None if row[column] is None else row[column] - STARTED_NS - sent.call for column in COLUMNS}
        assert offsets == {
            "call_ns": 0, "send_ns": 1_000, "first_ns": None, "neighbour_ns": None, "queue_ns": 3_000,
            "enqueue_ns": None, "dequeue_ns": None,
            "start_ns": 4_000, "driver_ns": 5_000, "core_ns": 6_000, "ip_ns": None, "l4_ns": 7_000, "tcp_ns": 8_000,
            "order_ns": None, "ready_ns": 9_000, "wake_ns": 10_000, "switch_ns": 20_000, "copy_ns": 23_000,
            "read_ns": 24_000, "received_ns": 26_000,
        }  # fmt: skip
        assert (row["len_bytes"], row["total_ns"], row["retransmits"]) == (1009, 26_000, 0)
        assert (row["sender_tid"], row["reader_tid"]) == (100, 200)


def test_what_waits_for_missing_bytes_waits_for_the_stream(tmp_path: Path) -> None:
    """The first of three messages takes 50 ms more to come, and the others are handed on with it.

    The sender, which has no acknowledgement of them, sends them again: they had arrived all the same.
    """
    made, late = MadeTrace(), 50_000_000
    stream = simple(made, made.flow("10.0.0.1:4000", "10.0.0.2:80"), 3, 100)
    first = stream.packets[0].times
    first |= {point: at + late for point, at in first.items() if point.startswith("rx.")}
    stream.ready = [first["rx.tcp_queue"] + 1_000]
    for number, read in enumerate(stream.reads):
        at = stream.ready[0] + 1_000 + 10_000 * number
        read.copy, read.read, read.received = at + 3_000, at + 4_000, at + 5_000
        read.wake = read.switch = 0
    stream.write(made)
    for packet in stream.packets[1:]:
        again = {"flow": stream.flow, "seq": stream.first + packet.start, "len_bytes": 100, "tcp_flags": 24}
        made.packet("tcp.retransmit", late // 2 + packet.times["tx.queue"], skb=0x9, **again)
    rows = table(made, tmp_path)
    assert [row["order_ns"] for row in rows] == [None, *[STARTED_NS + first["rx.tcp_queue"]] * 2]
    assert all(in_order(row) for row in rows)
    with Trace(tmp_path / "trace") as trace:
        build(trace, "messages", "message_causes")
        held = cause_totals(trace)
    assert held["stream-hole"] == sum(
        first["rx.tcp_queue"] - packet.times["rx.tcp_queue"] for packet in stream.packets[1:]
    )
    assert held["stack"] + held["backlog"] < 100_000


SIZES = st.one_of(
    st.lists(st.integers(1, 300), min_size=1, max_size=12),
    st.lists(st.integers(1 << 20, 1 << 29), min_size=30, max_size=45),  # 4 GiB and more
)


@pytest.mark.slow
@settings(max_examples=40, **MADE)
@given(
    worlds=st.lists(st.tuples(st.integers(0, 10_000), SIZES), min_size=1, max_size=3),
    first=st.one_of(st.just(0), st.just(WRAP - 1), st.integers(0, WRAP - 1)),
)
def test_messages_are_found_in_any_packets(worlds: list[tuple[int, list[int]]], first: int) -> None:
    streams = [World(seed, 10 + place, first, sizes).stream for place, (seed, sizes) in enumerate(worlds)]
    check(streams, set())


@pytest.mark.slow
@settings(max_examples=30, **MADE)
@given(seed=st.integers(0, 10_000), sizes=SIZES, every=st.integers(2, 9))
def test_what_is_lost_is_missing(seed: int, sizes: list[int], every: int) -> None:
    stream = World(seed, 10, WRAP - 5, sizes).stream
    passed = [(point, at) for packet in stream.packets for point, at in packet.times.items()]
    lost = {
        each for place, each in enumerate(passed) if place % every == 0 and each[0] in {"tx.start", "rx.core", "rx.l4"}
    }
    check([stream], lost)


def check(streams: Sequence[Stream], lost: set[tuple[str, int]]) -> None:
    made = MadeTrace()
    for stream in streams:
        stream.write(made, lost)
    with tempfile.TemporaryDirectory() as folder:
        rows = table(made, Path(folder))
    truth = [(stream, sent) for stream in streams for sent in stream.sends]
    assert len(rows) == len(truth)
    for row, (stream, sent) in zip(rows, truth, strict=True):
        wanted = expected(stream, sent, lost)
        assert {column: row[column] for column in wanted} == wanted
        assert (row["call_ns"], row["send_ns"]) == (STARTED_NS + sent.call, STARTED_NS + sent.send)
        assert row["len_bytes"] == sent.end - sent.start
        assert in_order(row)


@pytest.mark.slow
@settings(max_examples=30, **MADE)
@given(seed=st.integers(0, 10_000), sizes=SIZES, every=st.integers(2, 5))
def test_whatever_is_lost_no_stage_is_negative(seed: int, sizes: list[int], every: int) -> None:
    stream = World(seed, 10, 77, sizes).stream
    passed = [(point, at) for packet in stream.packets for point, at in packet.times.items()]
    passed += [(name, at) for each in stream.sends for name, at in (("call.enter", each.call), ("tx.send", each.send))]
    passed += [(name, at) for r in stream.reads for name, at in (("rx.read", r.read), ("rx.received", r.received))]
    passed += [("tx.sent", each.sent) for each in stream.sends[::2]]
    made = MadeTrace()
    stream.write(made, set(passed[::every]))
    with tempfile.TemporaryDirectory() as folder:
        rows = table(made, Path(folder))
    assert len(rows) <= len(stream.sends)
    assert all(in_order(row) for row in rows)


def test_the_end_of_a_call_may_be_missing(tmp_path: Path) -> None:
    made = MadeTrace()
    stream = simple(made, 10, 3, 100)
    stream.write(made, {("tx.sent", stream.sends[1].sent)})
    rows = table(made, tmp_path)
    assert [(row["len_bytes"], row["sent_ns"] is None, row["total_ns"]) for row in rows] == [
        (100, False, 26_000),
        (100, True, 26_000),
        (100, False, 26_000),
    ]


def test_the_read_of_another_message_is_not_taken(tmp_path: Path) -> None:
    made = MadeTrace()
    stream = simple(made, 10, 3, 100)
    stream.write(made, {("rx.read", stream.reads[1].read)})
    rows = table(made, tmp_path)
    assert [row["read_ns"] is None for row in rows] == [False, True, False]
    assert rows[1]["total_ns"] == 9_000  # up to rx.ready


def test_the_return_of_another_call_is_not_taken(tmp_path: Path) -> None:
    made = MadeTrace()
    stream = simple(made, 10, 3, 100)
    stream.write(made, {("rx.received", stream.reads[1].received)})
    rows = table(made, tmp_path)
    assert [row["received_ns"] is None for row in rows] == [False, True, False]
    assert [row["read_ns"] is None for row in rows] == [False, False, False]


def test_a_port_used_again_is_another_connection(tmp_path: Path) -> None:
    made = MadeTrace()
    flow = made.flow("10.0.0.1:4000", "10.0.0.2:80")
    for number, first in enumerate((1000, 1050)):  # the same bytes, nearly
        stream = Stream(flow, first, made.thread(100, "client"), made.thread(200, "server"))
        for place in range(5):
            at = number * 1_000_000 + 1_000 + place * 100_000
            stream.sends.append(Sent(place * 50, place * 50 + 50, at, at + 1, at + 99))
            times = dict(zip(("tx.queue", "rx.driver", "rx.l4"), (at + 10, at + 20, at + 30), strict=True))
            stream.packets.append(Packet(place * 50, place * 50 + 50, 0x100, times))
            stream.reads.append(Read(place * 50, place * 50 + 50, 0, 0, at + 40, at + 50, at + 60))
        made.packet("tx.queue", number * 1_000_000 + 500, skb=1, flow=flow, seq=first - 1, tcp_flags=2)
        stream.write(made)
    rows = table(made, tmp_path)
    assert [row["total_ns"] for row in rows] == [60] * 10
    assert [row["connection"] for row in rows] == [1] * 5 + [2] * 5


def test_what_stands_in_the_place_of_headers_of_what_is_freed_begins_no_connection(tmp_path: Path) -> None:
    made = MadeTrace()
    flow = made.flow("10.0.0.1:4000", "10.0.0.2:80")
    stream = simple(made, flow, 23, 1009)
    stream.write(made)
    at = stream.sends[11].call + 500
    made.packet("skb.free", at, skb=77, head=78, flow=flow, seq=99, tcp_flags=2, len_bytes=40, header_bytes=40)
    rows = table(made, tmp_path)
    assert len(rows) == 23
    assert {row["connection"] for row in rows} == {0}


def test_retransmissions_are_counted(tmp_path: Path) -> None:
    made = MadeTrace()
    stream = simple(made, 10, 5, 1000)
    stream.write(made)
    for at, start, len_bytes in ((1_150_000, 1_500, 1_000), (1_160_000, 1_200, 10), (1_170_000, 0, 4_000)):
        where = {"flow": 10, "seq": 1000 + start, "len_bytes": len_bytes, "tcp_flags": 24}
        made.packet("tcp.retransmit", at, skb=0x9, **where)
    assert [row["retransmits"] for row in table(made, tmp_path)] == [1, 3, 2, 1, 0]


def test_what_a_queue_dropped_was_lost_until_the_packet_that_took_its_place(tmp_path: Path) -> None:
    """The kernel reports a retransmission after that packet has left the queue."""
    made, flow, late = MadeTrace(), 10, 50_000
    begins = {"flow": flow, "seq": 1000, "len_bytes": 140, "header_bytes": 40, "tcp_flags": 24}
    made.socket("tx.send", 0, flow=flow, seq=1000, len_bytes=100, tid=100, protocol=6)
    made.socket("tx.sent", 9_000, flow=flow, seq=1100, len_bytes=100, tid=100, protocol=6)
    for at, skb in ((1_000, 7), (late, 8)):
        made.packet("tx.queue", at, skb=skb, head=skb, **begins)
        made.packet("tx.enqueue", at + 100, skb=skb, head=skb)
    made.packet("tx.dequeue", late + 200, skb=8, head=8)
    made.packet("tx.start", late + 300, skb=8, head=8)
    made.packet("tcp.retransmit", late + 400, skb=9, **begins)
    with Trace(made.write(tmp_path / "trace")) as trace:
        build(trace, "messages", "message_causes")
        held = cause_totals(trace)
    assert held["retransmission"] == late + 200 - 1_100


def test_a_window_is_full_for_a_loss_in_the_pause_around_a_retransmission(tmp_path: Path) -> None:
    made, flow, ms = MadeTrace(), 10, 1_000_000
    sent = {"flow": flow, "len_bytes": 140, "header_bytes": 40, "tcp_flags": 24}
    limit = int(HopLimit.HOP_LIMIT_CONGESTION_WINDOW)
    made.socket("tx.limit", 1 * ms, flow=flow, value=limit, protocol=6)
    for at, seq in ((0, 1000), (2 * ms, 1100), (40 * ms, 1000), (41 * ms, 1200), (43 * ms, 1300)):
        made.packet("tx.queue", at, skb=at, head=at, seq=seq, **sent)
    made.packet("tcp.retransmit", 40 * ms + 10, skb=9, seq=1000, **sent)
    made.socket("tx.limit", 44 * ms, flow=flow, value=int(HopLimit.HOP_LIMIT_NONE), protocol=6)
    with Trace(made.write(tmp_path / "trace")) as trace:
        build(trace, "tcp_limits")
        rows = trace.rows("SELECT state, time_ns FROM tcp_limits ORDER BY time_ns")
    assert [(state, (at - STARTED_NS) / ms) for state, at in rows] == [
        ("congestion_window", 1), ("retransmission", 2), ("congestion_window", 41), ("none", 44)
    ]  # fmt: skip


def test_a_segment_that_gso_cut_begins_at_the_driver(tmp_path: Path) -> None:
    made = MadeTrace()
    stream = Stream(10, 0, 100, 200)
    stream.sends.append(Sent(0, 2_000, 1_000, 1_001, 1_900))
    stream.packets.append(Packet(0, 2_000, 0x100, {"tx.queue": 1_100}))
    stream.packets.append(Packet(0, 1_000, 0x200, {"tx.start": 1_200, "rx.driver": 1_210}))
    stream.packets.append(Packet(1_000, 2_000, 0x300, {"tx.start": 1_220, "rx.driver": 1_230}))
    stream.write(made)
    (row,) = table(made, tmp_path)
    assert [row[name] - STARTED_NS for name in ("queue_ns", "start_ns", "driver_ns")] == [1_100, 1_220, 1_230]


def test_an_address_used_again_is_another_packet(tmp_path: Path) -> None:
    made = MadeTrace()
    stream = simple(made, 10, 20, 100)
    for packet in stream.packets:
        packet.skb = 0x1000
    stream.write(made)
    assert [row["start_ns"] - row["call_ns"] for row in table(made, tmp_path)] == [4_000] * 20


def test_a_message_is_chosen_by_time_flow_and_process(tmp_path: Path) -> None:
    made = MadeTrace()
    one, other = made.flow("10.0.0.1:4000", "10.0.0.2:80"), made.flow("10.0.0.3:4001", "10.0.0.2:81")
    simple(made, one, 4, 100).write(made)
    stream = simple(made, other, 3, 100)
    stream.sender, stream.reader = made.thread(300, "curl"), made.thread(400, "nginx")
    stream.write(made)
    folders = iter(range(9))
    count = lambda **selected: len(table(made, tmp_path / str(next(folders)), **selected))  # noqa: E731
    assert count() == 7
    assert count(ports=[81]) == 3
    assert count(processes=["curl"]) == 3
    assert count(processes=["server"]) == 4
    assert count(until_s=0.00115) == 4
