# SPDX-License-Identifier: Apache-2.0
"""The packets of messages beside made-up traffic whose packets are known, and beside what real senders counted."""

from __future__ import annotations

import shutil
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from hopscope.errors import UsageError
from hopscope.store.trace import Trace
from hopscope.term.terminal import Terminal
from hopscope.trace.messages.path import BY_COLUMN, PACKET_COLUMNS
from hopscope.trace.selection import Selection
from hopscope.verbs.report.message_packets import message_packets
from hopscope.verbs.report.message_packets_text import render_message_packets
from hopscope.verbs.report.messages import messages, step_name
from tests.lab.command import complaint, hopscope, objects
from tests.lab.message_worlds import HEADERS, TELLS, WRAP, Packet, Sent, World
from tests.lab.traces import STARTED_NS, MadeTrace

RECORDINGS = Path(__file__).parents[2] / "recordings"
SIZES = [1, 53, 1009, 40_009, 331, 100_003, 7, 7, 5003]


def rows_of(trace: Trace, *, numbers: tuple[int, ...] = ()) -> dict[int, list[dict[str, Any]]]:
    """Return the rows of each message."""
    report = message_packets(trace, Selection(), numbers=numbers)
    names = [column.name for column in report.columns]
    found = defaultdict(list)
    for values in report.rows():
        row = dict(zip(names, values, strict=True))
        found[int(row["message"])].append(row)
    return found


def resent(packets: list[Packet]) -> list[Packet]:
    """Return the packets that carry bytes that were sent before."""
    sent = sorted((each for each in packets if "tx.queue" in each.times), key=lambda each: each.times["tx.queue"])
    return [
        each
        for place, each in enumerate(sent)
        if any(each.start < other.end and other.start < each.end for other in sent[:place])
    ]


def world(seed: int) -> tuple[MadeTrace, World]:
    made = MadeTrace()
    # Sequence numbers wrap in the middle.
    made_up = World(seed, made.flow("10.0.0.1:4000", "10.0.0.2:80") % 1000 + 1, WRAP - 60_000, SIZES)
    made_up.stream.flow = made.flow("10.0.0.1:4000", "10.0.0.2:80")
    made_up.stream.write(made)
    for row in made.rows["packets"]:
        row["head"] = row["skb"] + 64  # the same skb goes on at the receiver
    for packet in resent(made_up.stream.packets):
        told = {"flow": made_up.stream.flow, "seq": (made_up.stream.first + packet.start) % WRAP, "tcp_flags": 24}
        len_bytes = packet.end - packet.start + HEADERS
        at = packet.times["tx.start"] + 1
        made.packet("tcp.retransmit", at, skb=0x77, len_bytes=len_bytes, header_bytes=HEADERS, **told)
    return made, made_up


def expected(packets: list[Packet], again: list[Packet], sent: Sent, begins_ns: int) -> list[tuple[Any, ...]]:
    """Return bytes, kind and times of each packet that carries bytes of a message."""
    return [
        (
            max(packet.start, sent.start) - sent.start,
            min(packet.end, sent.end) - max(packet.start, sent.start),
            "retransmission" if packet in again else "segment",
            {point: STARTED_NS + at - begins_ns for point, at in packet.times.items()},
        )
        for packet in packets
        if packet.start < sent.end and packet.end > sent.start and set(packet.times) & {*TELLS}
    ]


@pytest.mark.parametrize("seed", range(5))
def test_every_packet_of_a_message_has_its_bytes_and_times(seed: int, tmp_path: Path) -> None:
    made, made_up = world(seed)
    again = resent(made_up.stream.packets)
    assert again
    with Trace(made.write(tmp_path / "trace")) as trace:
        found = rows_of(trace)
        known = trace.rows("SELECT message, start_byte, begins_ns, retransmits FROM messages ORDER BY start_byte")
    assert len(known) == len(SIZES)
    for (number, _, begins_ns, retransmits), sent in zip(known, made_up.stream.sends, strict=True):
        rows = [
            (
                row["start_byte"],
                row["len_bytes"],
                row["kind"],
                {
                    BY_COLUMN[name].point: row[step_name(name)]
                    for name in PACKET_COLUMNS
                    if row[step_name(name)] is not None
                },
            )
            for row in found[number]
        ]
        assert sorted(rows, key=str) == sorted(expected(made_up.stream.packets, again, sent, begins_ns), key=str)
        assert sum(row["kind"] == "retransmission" for row in found[number]) == retransmits


def test_a_datagram_has_its_fragments() -> None:
    """53 and 11 datagrams whole, 7 in three fragments each, as the sender counted them."""
    with Trace(RECORDINGS / "udp") as trace:
        found = rows_of(trace).values()
    kinds = Counter(tuple(row["kind"] for row in rows) for rows in found)
    assert kinds == {("datagram",): 53 + 11, ("fragment",) * 3: 7}
    assert all(sum(row["len_bytes"] for row in rows) == rows[0]["message_bytes"] for rows in found)


def test_on_two_hosts_each_has_its_points(tmp_path: Path) -> None:
    folder = shutil.copytree(RECORDINGS / "two-hosts", tmp_path / "two-hosts")
    done = hopscope("report", "messages", "--packets", "--json", "--protocol", "tcp", folder)
    seen: dict[int, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for row in objects(done.stdout):
        points = {name for name, value in row.items() if value is not None and name.startswith(("tx_", "rx_"))}
        seen[row["message"]][row["host"]] |= points
    both = [hosts for hosts in seen.values() if len(hosts) == 2]
    assert len(both) > 100
    for hosts in both:
        assert sorted({name[:2] for name in points} for points in hosts.values()) in (
            [{"rx"}, {"tx"}],
            [{"tx"}, {"rx"}],
        )


def test_people_see_a_waterfall_of_the_message_that_they_name(tmp_path: Path) -> None:
    made, _ = world(0)
    with Trace(made.write(tmp_path / "trace")) as trace:
        number = int(rows_of(trace).popitem()[0])
        report = message_packets(trace, Selection(), numbers=(number,))
        text = render_message_packets(report, Terminal(width=80, colour=False, unicode=False))
        assert text.startswith(f"message {number}: ")
        assert text.count("\n  tx.queue") + text.count("\n  rx.driver") == len(report)
        assert "#" in text
        assert set(report.column("message")) == {number}
        with pytest.raises(UsageError, match=f"There is no message 99 among the {len(SIZES)} messages"):
            message_packets(trace, Selection(), numbers=(99,))
        assert len(messages(trace, Selection())) == len(SIZES)
    plot = complaint(hopscope("report", "messages", "--packets", "--plot", tmp_path / "p.svg", tmp_path / "trace"), 2)
    assert "--plot and --packets cannot be combined" in plot
    assert "--message needs --packets" in complaint(
        hopscope("report", "messages", "--message", 1, tmp_path / "trace"), 2
    )
