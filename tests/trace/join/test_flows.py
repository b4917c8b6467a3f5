# SPDX-License-Identifier: Apache-2.0
"""Flows of several hosts that are called the same: what is between hosts stays whole, what is not is not mixed up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hopscope.store.trace import Trace
from hopscope.trace.join.flows import flows_of
from hopscope.trace.relation import build
from hopscope.trace.selection import Selection
from hopscope.verbs.report.messages import messages
from hopscope.verbs.report.network import network
from hopscope.verbs.report.requests import requests
from tests.lab.recordings import SECOND, Recording
from tests.lab.traces import TCP, UDP, MadeTrace

if TYPE_CHECKING:
    from pathlib import Path

    from hopscope.model.report import Report

CLIENT, SERVER = 100, 200
ASKED, ANSWERED = 331, 113
HEADERS = 42
MS = 1_000_000
COUNT = 13
INSIDE = ("172.17.0.2:4000", "172.17.0.3:53")


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    return Recording(tmp_path / "r", "a", "b")


def rows(found: Report) -> list[dict[str, object]]:
    names = [column.name for column in found.columns]
    return [dict(zip(names, row, strict=True)) for row in found.rows()]


def datagram(made: MadeTrace, at: int, flow: int, number: int, *, asks: bool) -> None:
    """Put down a datagram from one namespace of a host to another one; its sockets leave their peers open."""
    skb, len_bytes, sock = 0x1000 + 0x100 * asks, ASKED if asks else ANSWERED, 7 + asks
    reader, sender = (SERVER, CLIENT) if asks else (CLIENT, SERVER)
    for offset, point in enumerate(("tx.queue", "tx.start", "rx.driver", "rx.core", "rx.l4")):
        told = {"flow": flow, "seq": number, "header_bytes": HEADERS} if point in {"tx.queue", "rx.driver"} else {}
        made.packet(point, at + 1_000 * offset, skb=skb, head=64, tid=sender, len_bytes=len_bytes + HEADERS, **told)
    made.socket("rx.ready", at + 8_000, tid=sender, sock=sock, protocol=UDP)
    made.socket("rx.received", at + 20_000, tid=reader, sock=sock, len_bytes=len_bytes, protocol=UDP)


def asking(made: MadeTrace, *, took_ns: int) -> None:
    """Put down requests inside of a host that are answered so long after they were sent."""
    forth, back = made.flow(*INSIDE, UDP), made.flow(*INSIDE[::-1], UDP)
    for number in range(COUNT):
        # Those of the other host are sent while these are not answered yet.
        at = MS * (1 + number) + took_ns // 2
        datagram(made, at, forth, 65536 + number + 1, asks=True)
        datagram(made, at + took_ns - 20_000, back, 65536 + number + 1, asks=False)


def test_datagrams_inside_of_hosts_are_of_each_alone(recording: Recording) -> None:
    took_ns = {"a": 300_000, "b": 500_000}
    for name, took in took_ns.items():
        made = MadeTrace()
        asking(made, took_ns=took)
        recording.part(name, made)
    recording.probe("a", "b")
    with recording.joined() as trace:
        assert [row["packets"] for row in trace.metadata.joined["pairs"]] == [(0, 0)]
        found = rows(messages(trace, Selection()))
        assert len(found) == 4 * COUNT
        assert {(row["network_ns"], row["network_bound_ns"], row["until"]) for row in found} == {
            (None, None, "rx.received")
        }
        asked = rows(requests(trace, Selection()))
        assert len(asked) == 2 * COUNT
        assert len({row["flow"] for row in asked}) == 2
        assert sorted(row["total_ns"] for row in asked) == [took_ns["a"]] * COUNT + [took_ns["b"]] * COUNT
        assert not rows(network(trace, Selection()))


def segment(made: MadeTrace, at: int, flow: int, seq: int, *, leaves: bool) -> None:
    """Put down a segment that goes out, or comes in to a socket, by a device of the host."""
    told = {"flow": flow, "seq": seq, "header_bytes": 66, "tcp_flags": 24, "len_bytes": ASKED + 66}
    points = ("tx.queue", "tx.start") if leaves else ("rx.driver", "rx.core", "rx.l4", "rx.tcp_queue")
    for offset, point in enumerate(points):
        own = told if point in {"tx.queue", "rx.driver", "rx.tcp_queue"} else {"len_bytes": ASKED + 66}
        made.packet(point, at + 1_000 * offset, skb=0x1000 * (1 + leaves), head=64, **own)


def client(made: MadeTrace, ends: tuple[str, str], first: int, at: int) -> None:
    """Put down a client's end: it asks, and reads what comes."""
    forth, back = made.flow(*ends), made.flow(*ends[::-1])
    made.thread(CLIENT, "client")
    for number in range(COUNT):
        now, seq = at + MS * number, first + ASKED * number
        own = {"tid": CLIENT, "sock": 9, "protocol": TCP}
        made.socket("tx.send", now, flow=forth, seq=seq, len_bytes=ASKED, **own)
        segment(made, now + 5_000, forth, seq, leaves=True)
        made.socket("tx.sent", now + 9_000, flow=forth, seq=seq + ASKED, len_bytes=ASKED, **own)
        segment(made, now + 200_000, back, seq, leaves=False)
        made.socket("rx.read", now + 210_000, flow=back, seq=seq + ASKED, **own)
        made.socket("rx.received", now + 211_000, flow=back, seq=seq + ASKED, len_bytes=ASKED, **own)


def test_clients_with_the_same_address_have_each_their_own_connection(recording: Recording) -> None:
    """Containers of two hosts, both behind NAT, talk to a third host that was not recorded."""
    ends = ("172.17.0.2:4000", "192.0.2.1:80")
    for place, name in enumerate("ab"):
        made = MadeTrace()
        client(made, ends, first=1_000, at=MS + 300_000 * place)
        recording.part(name, made)
    recording.probe("a", "b")
    with recording.joined() as trace:
        assert [row["packets"] for row in trace.metadata.joined["pairs"]] == [(0, 0)]
        found = rows(messages(trace, Selection()))
        assert len(found) == 2 * COUNT
        assert {(row["sender_host"], row["receiver_host"], row["until"]) for row in found} == {
            ("a", None, "tx.start"),
            ("b", None, "tx.start"),
        }
        asked = rows(requests(trace, Selection()))
        assert len(asked) == 2 * COUNT
        assert len({row["flow"] for row in asked}) == 2
        assert not rows(network(trace, Selection()))
        # Whose a flow is, and what comes back to it, is of one host.
        build(trace, "flow_owners")
        owners = trace.rows("SELECT flow, sends, name FROM flow_owners ORDER BY name, sends")
        assert [name for *_, name in owners] == ["client (100)@a"] * 2 + ["client (100)@b"] * 2
        assert len({flow for flow, *_ in owners}) == 4


def test_what_is_between_hosts_stays_whole_beside_the_same_inside_of_one(tmp_path: Path) -> None:
    ends = ("10.0.0.1:4000", "10.0.0.2:80")
    recording = Recording(tmp_path / "r", "a", "b", "c")
    here, there, inside = MadeTrace(), MadeTrace(), MadeTrace()
    for made in (here, inside):
        client(made, ends, first=1_000, at=MS)
    for made in (there, inside):
        forth = made.flow(*ends)
        made.flow(*ends[::-1])
        for number in range(COUNT):
            at, seq = MS * (1 + number) + 50_000, 1_000 + ASKED * number
            segment(made, at, forth, seq, leaves=False)
            own = {"flow": forth, "tid": SERVER, "sock": 8, "protocol": TCP, "seq": seq + ASKED}
            made.socket("rx.read", at + 9_000, **own)
            made.socket("rx.received", at + 10_000, len_bytes=ASKED, **own)
    for name, made in zip("abc", (here, there, inside), strict=True):
        recording.part(name, made)
    for pair in ("ab", "ac", "bc"):
        recording.probe(*pair)
    with recording.joined() as trace:
        found = rows(messages(trace, Selection()))
        ways = [(row["sender_host"], row["receiver_host"]) for row in found]
        assert sorted(ways) == [("a", "b")] * COUNT + [("c", "c")] * COUNT
        assert {row["until"] for row in found} == {"rx.received"}


def test_a_datagram_to_a_group_is_the_same_wherever_it_comes(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "r", "a", "b", "c")
    for place, name in enumerate("abc"):
        made = MadeTrace()
        flow = made.flow("10.0.0.1:5353", "224.0.0.251:5353", UDP)
        own = {"flow": flow, "seq": 65537, "header_bytes": HEADERS, "len_bytes": ASKED + HEADERS}
        for offset, point in enumerate(("rx.driver", "rx.core", "rx.l4") if place else ("tx.queue", "tx.start")):
            told = own if point in {"tx.queue", "rx.driver"} else {}
            made.packet(point, MS + 50_000 * place + 1_000 * offset, skb=0x1000, head=64, **told)
        recording.part(name, made)
    for pair in ("ab", "ac", "bc"):
        recording.probe(*pair)
    with recording.joined() as trace:
        assert trace.rows("SELECT count(DISTINCT flow) FROM flows") == [(1,)]


@pytest.mark.parametrize(("delivered", "receives"), [(range(5), True), ((2,), False)])
def test_who_sends_datagrams_on_is_no_receiver(delivered: tuple[int, ...], receives: bool, tmp_path: Path) -> None:  # noqa: FBT001
    """Of one of its packets the events were lost: what comes to UDP at its address seems to be another one."""
    made = MadeTrace()
    flow = made.flow(*INSIDE, UDP)
    for number in range(5):
        at = number * SECOND
        made.packet("rx.driver", at, skb=1, flow=flow, seq=65537 + number)
        made.packet("rx.core", at + 1_000, skb=1)
        if not receives:
            made.packet("tx.queue", at + 2_000, skb=1, flow=flow, seq=65537 + number)
        if number in delivered:
            made.packet("rx.l4", at + MS, skb=1)
    with Trace(made.write(tmp_path / "t")) as trace:
        assert flows_of([trace]).received == ({flow} if receives else set())
