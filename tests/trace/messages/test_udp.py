# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from hopscope.store.trace import Trace
from hopscope.trace.relation import build
from tests.lab.traces import STARTED_NS, UDP, MadeTrace
from tests.trace.messages.test_tcp import in_order, table

CLIENT, SERVER = 100, 200
RECORDINGS = Path(__file__).parents[2] / "recordings"


def send(  # noqa: PLR0913 # what a test says of a datagram
    made: MadeTrace, number: int, at: int, *, flow: int, len_bytes: int = 331, arrives: bool = True
) -> None:
    """Put down a datagram on its way to the socket's queue; the reader is told 8 µs after the call."""
    skb = 0x1000 + number % 5 * 0x100
    made.socket("call.enter", at, tid=CLIENT)
    told = {"flow": flow, "header_bytes": 42, "seq": number % 65536}
    for offset, point in enumerate(("tx.queue", "tx.start", "rx.driver", "rx.core", "rx.l4")):
        columns = told if point in {"tx.queue", "rx.driver"} else {}
        made.packet(
            point, at + 2_000 + 1_000 * offset, skb=skb, head=skb + 64, tid=CLIENT, len_bytes=len_bytes + 42, **columns
        )
    if arrives:
        made.socket("rx.ready", at + 8_000, tid=CLIENT, sock=7, protocol=UDP)
    else:
        made.drop(at + 8_000, skb=skb, head=skb + 64, tid=CLIENT)
    made.socket("tx.sent", at + 9_000, tid=CLIENT, sock=8, len_bytes=len_bytes, protocol=UDP)


def receive(made: MadeTrace, at: int, *, len_bytes: int = 331, flags: int = 0) -> None:
    """Put down that the reader receives a datagram."""
    made.socket("rx.received", at, tid=SERVER, sock=7, len_bytes=len_bytes, protocol=UDP, value=flags)


@pytest.mark.parametrize("count", [1, 101, 1009])
def test_each_datagram_is_a_message(count: int, tmp_path: Path) -> None:
    made = MadeTrace()
    flow = made.flow("10.0.0.1:4000", "10.0.0.2:53", UDP)
    for number in range(count):
        at = 1_000 + number * 100_000
        send(made, number, at, flow=flow)
        made.work("sched.wake", at + 8_500, subject=SERVER)
        made.work("sched.switch", at + 20_000, subject=SERVER)
        receive(made, at + 22_000)
    rows = table(made, tmp_path)
    assert len(rows) == count
    for number, row in enumerate(sorted(rows, key=lambda row: row["begins_ns"])):
        begin = STARTED_NS + 1_000 + number * 100_000
        seen = {name: at - begin for name, at in row.items() if name.endswith("_ns") and name != "total_ns" and at}
        assert seen == {
            "call_ns": 0, "queue_ns": 2_000, "start_ns": 3_000, "driver_ns": 4_000, "core_ns": 5_000, "l4_ns": 6_000,
            "ready_ns": 8_000, "sent_ns": 9_000, "wake_ns": 8_500, "switch_ns": 20_000, "received_ns": 22_000,
            "begins_ns": 0, "ends_ns": 22_000,
        }  # fmt: skip
        whose = (row["total_ns"], row["len_bytes"], row["sender_tid"], row["reader_tid"])
        assert whose == (22_000, 331, CLIENT, SERVER)


def test_a_queue_gives_datagrams_in_order(tmp_path: Path) -> None:
    made = MadeTrace()
    flow = made.flow("10.0.0.1:4000", "10.0.0.2:53", UDP)
    for number in range(5):
        send(made, number, 1_000 + number * 20_000, flow=flow, len_bytes=100 + number)
    for number in range(5):
        receive(made, 500_000 + number * 1_000, len_bytes=100 + number)
    rows = sorted(table(made, tmp_path), key=lambda row: row["begins_ns"])
    assert [row["received_ns"] - STARTED_NS for row in rows] == [500_000 + number * 1_000 for number in range(5)]


def test_datagrams_from_before_the_recording_are_not_taken(tmp_path: Path) -> None:
    made = MadeTrace()
    flow = made.flow("10.0.0.1:4000", "10.0.0.2:53", UDP)
    for number in range(3):
        receive(made, 100 + number)
    for number in range(3):
        send(made, number, 1_000 + number * 20_000, flow=flow)
        receive(made, 15_000 + number * 20_000)
    assert [row["total_ns"] for row in table(made, tmp_path)] == [14_000] * 3


def test_a_peek_is_no_read(tmp_path: Path) -> None:
    made = MadeTrace()
    flow = made.flow("10.0.0.1:4000", "10.0.0.2:53", UDP)
    for number in range(3):
        at = 1_000 + number * 100_000
        send(made, number, at, flow=flow)
        receive(made, at + 10_000, flags=2)
        receive(made, at + 20_000)
    assert [row["total_ns"] for row in table(made, tmp_path)] == [20_000] * 3


def test_a_dropped_datagram_was_not_read(tmp_path: Path) -> None:
    made = MadeTrace()
    flow = made.flow("10.0.0.1:4000", "10.0.0.2:53", UDP)
    for number in range(7):
        at = 1_000 + number * 100_000
        send(made, number, at, flow=flow, arrives=number != 3)
        if number != 3:
            receive(made, at + 20_000)
    rows = sorted(table(made, tmp_path), key=lambda row: row["begins_ns"])
    assert [row["received_ns"] is None for row in rows] == [number == 3 for number in range(7)]
    assert [row["dropped_ns"] is not None for row in rows] == [number == 3 for number in range(7)]
    assert all(in_order(row) for row in rows)


def test_a_datagram_in_fragments_is_one() -> None:
    """53 and 11 datagrams whole, 7 in three fragments each, as the sender counted them."""
    with Trace(RECORDINGS / "udp") as trace:
        build(trace, "messages")
        rows = trace.rows(
            "SELECT len_bytes, count(*), count(received_ns), count(first_ns), count(l4_ns) FROM messages GROUP BY 1"
        )
    assert sorted(rows) == [(97, 11, 11, 0, 11), (331, 53, 53, 0, 53), (4001, 7, 7, 7, 7)]
