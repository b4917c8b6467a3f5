# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hopscope.store.trace import Trace
from hopscope.term.terminal import Terminal
from hopscope.trace.messages.path import STEPS
from hopscope.trace.selection import Selection
from hopscope.verbs.report.messages import messages, step_name
from hopscope.verbs.report.messages_text import render_messages
from tests.lab.message_worlds import Packet, Sent, Stream, add_simple, simple
from tests.lab.traces import UDP, MadeTrace
from tests.trace.messages.test_udp import receive, send

if TYPE_CHECKING:
    from pathlib import Path

    from hopscope.model.report import Report


def report(made: MadeTrace, folder: Path, limit: int | None = None, **more: Any) -> Report:  # noqa: ANN401 # as of write
    with Trace(made.write(folder / "trace", **more)) as trace:
        return messages(trace, Selection(), limit=limit)


def slow_and_fast() -> MadeTrace:
    """Return a trace of 23 messages, the eighth of which is 5 ms late at the reader."""
    made = MadeTrace()
    stream = simple(made, made.flow("10.0.0.1:4000", "10.0.0.2:80"), 7, 1009)
    add_simple(stream, 7, 1_700_000, 1009)
    late = stream.reads[-1]
    late.switch, late.copy, late.read, late.received = (
        at + 5_000_000 for at in (late.switch, late.copy, late.read, late.received)
    )
    for number in range(8, 23):
        add_simple(stream, number, 10_000_000 + number * 100_000, 1009)
    stream.write(made)
    return made


def test_the_slowest_comes_first_and_who_held_it(tmp_path: Path) -> None:
    found = report(slow_and_fast(), tmp_path, limit=3)
    assert (len(found), found.left_out) == (3, 20)
    assert found.column("total_ns") == [5_026_000, 26_000, 26_000]
    assert found.column("blame") == ["reader-runnable"] * 3
    assert found.column("blame_ns") == [5_010_000, 10_000, 10_000]
    assert found.column("begin_ns")[0] == 1_700_000
    assert found.column("sender") == ["client (100)"] * 3
    assert "reader-runnable" in found.heading[0]
    assert found.heading[0].startswith("23 messages;")


def test_offsets_are_since_the_begin(tmp_path: Path) -> None:
    found = report(slow_and_fast(), tmp_path)
    row = dict(zip([column.name for column in found.columns], list(found.rows())[-1], strict=True))
    assert {step.column: row[step_name(step.column)] for step in STEPS if row[step_name(step.column)] is not None} == {
        "call_ns": 0, "send_ns": 1_000, "queue_ns": 3_000, "start_ns": 4_000, "driver_ns": 5_000, "core_ns": 6_000,
        "l4_ns": 7_000, "tcp_ns": 8_000, "ready_ns": 9_000, "wake_ns": 10_000, "switch_ns": 20_000, "copy_ns": 23_000,
        "read_ns": 24_000, "received_ns": 26_000,
    }  # fmt: skip


def test_what_is_missing_has_a_reason(tmp_path: Path) -> None:
    made = slow_and_fast()
    made.plan = [
        {"point": step.point, "status": "unavailable" if step.point == "rx.ip" else "attached"} for step in STEPS
    ]
    found = report(made, tmp_path)
    usual = "tx.enqueue: no queue on the device; tx.dequeue: no queue on the device; rx.ip: not attached"
    assert set(found.column("missing")) == {usual}


def test_what_was_lost_is_said_to_be(tmp_path: Path) -> None:
    made = slow_and_fast()
    made.rows["packets"] = [row for row in made.rows["packets"] if row["time_ns"] != 1_000_000_000_000 + 1_106_000]
    made.lose(1_105_500, 1_107_000, lost=1)
    found = report(made, tmp_path)
    reasons = dict(zip(found.column("begin_ns"), found.column("missing"), strict=True))
    assert "rx.core: events were lost" in reasons[1_100_000]
    assert "lost" not in reasons[1_200_000]
    assert any(note.startswith("lost: 1 event,") for note in found.notes)


def test_a_message_to_another_host_ends_at_the_driver(tmp_path: Path) -> None:
    made = MadeTrace()
    stream = Stream(made.flow("10.0.0.1:4000", "10.0.0.2:80"), 5, 100, 200)
    stream.sends.append(Sent(0, 100, 1_000, 1_100, 1_900))
    stream.packets.append(Packet(0, 100, 0x100, {"tx.queue": 1_200, "tx.start": 1_300}))
    stream.write(made)
    found = report(made, tmp_path)
    assert found.column("until") == ["tx.start"]
    assert found.column("total_ns") == [300]
    assert "rx.received: " in str(found.column("missing")[0])
    assert found.notes[0].startswith("1 of 1 message was not read on this host")


def test_retransmission_is_to_blame_where_there_was_one(tmp_path: Path) -> None:
    made = MadeTrace()
    stream = simple(made, made.flow("10.0.0.1:4000", "10.0.0.2:80"), 1, 1009)
    first = stream.packets[0]
    again = {point: at + 200_000_000 for point, at in first.times.items()}
    stream.packets.append(Packet(first.start, first.end, 0x9000, again))
    first.times = {point: first.times[point] for point in ("tx.queue", "tx.start")}
    read = stream.reads[0]
    read.wake, read.switch, read.copy, read.read, read.received = (
        at + 200_000_000 for at in (read.wake, read.switch, read.copy, read.read, read.received)
    )
    stream.ready = [at + 200_000_000 for at in stream.ready]
    stream.write(made)
    made.packet(
        "tcp.retransmit", 201_000_000, skb=1, flow=stream.flow, seq=1000, len_bytes=1009, header_bytes=0, tcp_flags=24
    )
    found = report(made, tmp_path)
    assert found.column("blame") == ["retransmission"]
    assert found.column("blame_ns") == [200_001_000]


def test_without_sends_there_is_no_message_and_a_reason(tmp_path: Path) -> None:
    made = slow_and_fast()
    made.plan = [
        {"point": "tx.sent", "status": "unavailable", "reason": "errno 1"},
        {"point": "tx.queue", "status": "attached"},
    ]
    found = report(made, tmp_path, left_out=["tx.send", "tx.sent"])
    assert not len(found)
    assert found.notes[0].startswith("no messages: they require")
    assert "tx.sent (errno 1)" in found.notes[0]


def test_a_waterfall_fits_and_says_what_is_missing(tmp_path: Path) -> None:
    found = report(slow_and_fast(), tmp_path, limit=1)
    text = render_messages(found, Terminal(80), waterfall=True)
    lines = text.split("\n")
    assert max(map(len, lines)) <= 80
    (switch,) = [line for line in lines if line.startswith("sched.switch")]
    assert switch.split()[1] == "5.01ms"
    assert switch.split()[2].strip("█") == ""
    assert len(switch.split()[2]) > 30
    assert switch.endswith("reader-runnable")
    assert "and 22 more (--limit)" in text
    assert render_messages(found, Terminal(80, unicode=False), waterfall=True).isascii()


def test_the_table_has_a_line_a_message(tmp_path: Path) -> None:
    found = report(slow_and_fast(), tmp_path, limit=3)
    lines = render_messages(found, Terminal(120), waterfall=False).split("\n")
    assert [line.split()[1] for line in lines if line.startswith("0.0")] == ["5.03ms", "26.0µs", "26.0µs"]


def test_dropped_datagram_is_said_to_be_dropped_with_the_reason(tmp_path: Path) -> None:
    made = MadeTrace(reasons={2: "SOCKET_RCVBUFF"})
    flow = made.flow("10.0.0.1:4000", "10.0.0.2:53", UDP)
    for number in range(3):
        at = 1_000 + number * 100_000
        send(made, number, at, flow=flow, arrives=number != 1)
        if number == 0:
            receive(made, at + 20_000)
    found = report(made, tmp_path)
    assert found.column("until").count("dropped: SOCKET_RCVBUFF") == 1
    assert found.notes[0].startswith("1 of 3 messages was not read on this host")
    assert found.notes[1] == "dropped: 1 datagram (1 SOCKET_RCVBUFF)"
