# SPDX-License-Identifier: Apache-2.0
"""Messages whose packets NAT on the same host gives other addresses: they are followed to the read all the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from hopscope.store.trace import Trace
from hopscope.term.terminal import Terminal
from hopscope.trace.relation import build
from hopscope.trace.selection import Selection
from hopscope.verbs.report.messages_text import render_messages
from tests.lab.message_worlds import HEADERS, Stream, add_simple
from tests.lab.traces import STARTED_NS, TCP, UDP, MadeTrace, points
from tests.shared import first
from tests.trace.messages.test_tcp import in_order, table
from tests.verbs.report.test_messages import report

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

CLIENT, ROUTER, SERVER = "10.0.1.2:40000", "10.0.2.1:40000", "10.0.2.2:80"
SERVICE, THIRD = "10.0.1.1:8080", "10.0.3.2:9000"
COUNT, LEN_BYTES, FIRST = 23, 1009, 1000
# What a stream's packets are called, from the sender to the receiver.
WAYS = {
    "masquerade": ((CLIENT, SERVER), (ROUTER, SERVER)),
    "dnat": ((CLIENT, SERVICE), (CLIENT, SERVER)),
    "both": ((CLIENT, SERVICE), (ROUTER, SERVER)),
    "two in a row": ((CLIENT, SERVICE), (CLIENT, SERVER), (ROUTER, THIRD)),
}
SYN, DATA = 2, 24


def crossing(  # noqa: PLR0913 # what a test says of a packet
    made: MadeTrace,
    at: int,
    flows: Sequence[int],
    *,
    skb: int,
    seq: int,
    payload: int,
    flags: int = DATA,
    gone: int = 0,
    tid: int = 0,
) -> None:
    """Put down a packet that gets another flow at each router, where its data are moved; `gone`: so many events."""
    told = {"seq": seq, "header_bytes": HEADERS, "tcp_flags": flags}
    events: list[tuple[str, dict[str, int]]] = []
    for place, flow in enumerate(flows):
        own = {"flow": flow, "head": skb + 64 * place, **told}
        events += [("tx.queue", own), ("tx.start", {}), ("rx.driver", own), ("rx.core", {})]
    events += [("rx.l4", {}), ("rx.tcp_queue", {"flow": flows[-1], **told})]
    for step, (point, columns) in enumerate(events[gone:]):
        made.packet(point, at + 100 * (step + gone), skb=skb, len_bytes=payload + HEADERS, tid=tid, **columns)


def connection(  # noqa: PLR0913 # what a test says of a connection
    made: MadeTrace,
    flows: Sequence[int],
    at: int,
    *,
    count: int = COUNT,
    first: int = FIRST,
    syn: bool = True,
    output: bool = False,
) -> None:
    """Put down messages of 26 µs that are a packet each, of a connection that is translated on its way.

    `output`: no packet has the first flow.
    """
    seen = flows[1:] if output else flows
    sender = Stream(flows[0], first, made.thread(100, "client"), made.thread(200, "server"))
    for number in range(count):
        add_simple(sender, number, at + 100_000 + number * 100_000, LEN_BYTES)
    if syn:
        crossing(made, at, seen, skb=0x100, seq=first - 1, payload=0, flags=SYN, tid=sender.sender)
    for place, sent in enumerate(sender.sends):
        skb = 0x1000 + place % 7 * 0x1000
        at = sent.call + 3_000
        crossing(made, at, seen, skb=skb, seq=first + sent.start, payload=LEN_BYTES, tid=sender.sender)
    sender.packets = []
    receiver = Stream(flows[-1], first, 100, 200, reads=sender.reads, ready=sender.ready)
    sender.reads, sender.ready = [], []
    sender.write(made)
    receiver.write(made)


def flows_of(made: MadeTrace, way: str, protocol: int = TCP) -> list[int]:
    return [made.flow(source, destination, protocol) for source, destination in WAYS[way]]


def assert_followed(rows: Sequence[dict[str, Any]], flow: int, count: int = COUNT) -> None:
    assert len(rows) == count
    assert {(row["flow"], row["total_ns"], row["reader_tid"]) for row in rows} == {(flow, 26_000, 200)}
    assert all(row[name] for row in rows for name in ("driver_ns", "l4_ns", "tcp_ns", "ready_ns", "read_ns"))
    assert all(map(in_order, rows))


@pytest.mark.parametrize("syn", [True, False], ids=["from the begin", "from the middle"])
@pytest.mark.parametrize("way", WAYS)
def test_messages_are_followed_to_their_read(way: str, tmp_path: Path, *, syn: bool) -> None:
    made = MadeTrace()
    flows = flows_of(made, way)
    connection(made, flows, 1_000_000, syn=syn)
    assert_followed(table(made, tmp_path), flows[0])


def test_the_receiver_may_translate_as_it_delivers(tmp_path: Path) -> None:
    made = MadeTrace()
    before, after = flows_of(made, "dnat")
    connection(made, [before], 1_000_000)
    at_socket = points()["rx.tcp_queue"]
    received = [row for row in made.rows["packets"] if row["point"] == at_socket]
    for row in [*received, *(row for row in made.rows["sockets"] if row.get("sock") == 7)]:
        row["flow"] = after
    assert_followed(table(made, tmp_path), before)


@pytest.mark.parametrize("syn", [True, False], ids=["from the begin", "from the middle"])
@pytest.mark.parametrize("way", first(["two in a row", "dnat"]))
def test_what_the_sender_translates_for_itself_is_followed(way: str, tmp_path: Path, *, syn: bool) -> None:
    made = MadeTrace()
    flows = flows_of(made, way)
    connection(made, flows, 1_000_000, syn=syn, output=True)
    assert_followed(table(made, tmp_path), flows[0])
    found = report(made, tmp_path / "again")
    assert set(found.column("translated_to")) == {" > ".join(WAYS[way][-1])}


def test_a_service_used_again_by_another_socket_is_followed(tmp_path: Path) -> None:
    made = MadeTrace()
    first, after = flows_of(made, "dnat")
    other = made.flow(CLIENT, "10.0.1.9:8081")
    for number, flow in enumerate((first, other, first)):
        connection(made, [flow, after], 1_000_000 + number * 20_000_000, first=FIRST + 70 * number, output=True)
    rows = sorted(table(made, tmp_path), key=lambda row: row["begins_ns"])
    assert len(rows) == 3 * COUNT
    for place, flow in enumerate((first, other, first)):
        assert_followed(rows[place * COUNT : (place + 1) * COUNT], flow)


def test_what_is_sent_in_a_threads_call_by_chance_is_not_of_it(tmp_path: Path) -> None:
    made = MadeTrace()
    sent, passing = made.flow(CLIENT, SERVER), made.flow(SERVICE, THIRD)
    connection(made, [sent], 1_000_000)
    made.rows["packets"] = []  # of the socket's own none is recorded
    for number in range(200):
        at, seq = 1_103_000 + number * 11, FIRST + 5 if number == 77 else 2_000_000_000 + number
        crossing(made, at, [passing], skb=0x70000, seq=seq, payload=100, tid=100)
    assert translations(made, tmp_path) == []


def test_what_comes_back_is_followed_as_well(tmp_path: Path) -> None:
    made = MadeTrace()
    flows = flows_of(made, "both")
    replies = [made.flow(*reversed(ends)) for ends in reversed(WAYS["both"])]
    connection(made, flows, 1_000_000)
    connection(made, replies, 1_050_000, first=77_000)
    rows = table(made, tmp_path)
    for flow in (flows[0], replies[0]):
        assert_followed([row for row in rows if row["flow"] == flow], flow)
    assert len(rows) == 2 * COUNT


@pytest.mark.parametrize("way", first(WAYS))
def test_both_names_are_shown(way: str, tmp_path: Path) -> None:
    made = MadeTrace()
    connection(made, flows_of(made, way), 1_000_000)
    found = report(made, tmp_path, limit=1)
    before, after = (" > ".join(WAYS[way][place]) for place in (0, -1))
    assert (found.column("flow_name"), found.column("translated_to")) == ([before], [after])
    assert after in render_messages(found, Terminal(200), waterfall=False)
    waterfall = " ".join(render_messages(found, Terminal(200), waterfall=True).split())
    assert f"tcp {before}, as {after} after NAT, client (100) to server (200)" in waterfall


def test_either_name_chooses(tmp_path: Path) -> None:
    made = MadeTrace()
    in0, out0 = made.device("in0", 2), made.device("out0", 3)
    flows = flows_of(made, "both")
    connection(made, flows, 1_000_000)
    for row in made.rows["packets"]:
        row.update({flows[0]: in0, flows[1]: out0}.get(row.get("flow", 0), {}))
    folder = made.write(tmp_path / "trace")
    for chosen in (
        {"ports": [8080]}, {"ports": [80]}, {"processes": ["server"]}, {"interfaces": ["in0"]},
        {"interfaces": ["out0"]}, {"flows": [f"{ROUTER}>{SERVER}"]},
    ):  # fmt: skip
        with Trace(folder) as trace:
            build(trace, "messages", selection=Selection(**chosen))  # type: ignore[arg-type] # as they come
            assert trace.rows("SELECT count(*), count(read_ns) FROM messages") == [(COUNT, COUNT)]
    with Trace(folder) as trace:
        build(trace, "messages", selection=Selection(ports=[81]))
        assert trace.rows("SELECT count(*) FROM messages") == [(0,)]


def translations(made: MadeTrace, folder: Path) -> list[tuple[int, int]]:
    """Return (flow, of what it is the translation), in the order of time."""
    with Trace(made.write(folder / "trace")) as trace:
        build(trace, "messages", selection=Selection())
        return trace.rows("SELECT flow, original FROM flow_translations ORDER BY since_ns")


def test_a_tunnel_is_no_nat(tmp_path: Path) -> None:
    made = MadeTrace()
    inner, outer = made.flow(CLIENT, SERVER), made.flow("192.0.2.1:5000", "192.0.2.2:4789", UDP)
    by_tcp = made.flow("192.0.2.1:5001", "192.0.2.2:443")
    connection(made, [inner], 1_000_000, count=7)
    # Nobody is seen to read: so the search is not left out.
    made.rows["sockets"] = [row for row in made.rows["sockets"] if row.get("tid") == 100]
    for number in range(100):
        at, skb, seq = 5_000_000 + number * 10_000, 0x9000 + number % 3 * 0x100, FIRST + 7 * LEN_BYTES + number * 100
        told = {"flow": inner, "seq": seq, "tcp_flags": DATA, "header_bytes": HEADERS, "len_bytes": 100 + HEADERS}
        around = [
            {"flow": outer, "seq": number, "header_bytes": 42, "len_bytes": 208},
            {"flow": by_tcp, "seq": 5 * number, "tcp_flags": DATA, "header_bytes": HEADERS, "len_bytes": 300},
        ][number % 2]
        for step, (point, columns) in enumerate(
            [("tx.queue", told), ("tx.queue", around), ("rx.driver", around), ("rx.driver", told)]
        ):
            made.packet(point, at + step * 100, skb=skb, head=skb, **columns)
    assert translations(made, tmp_path) == []


def test_other_packets_at_the_address_are_no_nat(tmp_path: Path) -> None:
    made = MadeTrace()
    one, other = made.flow(CLIENT, SERVER), made.flow(ROUTER, THIRD)
    connection(made, [one], 1_000_000, count=7)
    made.rows["sockets"] = [row for row in made.rows["sockets"] if row.get("tid") == 100]
    # Resets of refused connections have no number; segments of as many bytes have others.
    for number in range(50):
        for place, flow in enumerate((one, other)):
            told = {"flow": flow, "header_bytes": HEADERS, "skb": 0x9000}
            at = 5_000_000 + number * 1_000 + place * 300
            made.packet("tx.queue", at, len_bytes=HEADERS, tcp_flags=20, **told)
            made.packet("rx.driver", at + 100, len_bytes=HEADERS, tcp_flags=20, **told)
            made.packet(
                "tx.queue", at + 200, len_bytes=HEADERS + 9, tcp_flags=DATA, seq=99 + 2 * number + place, **told
            )
    assert translations(made, tmp_path) == []


def test_the_ports_after_nat_are_used_again(tmp_path: Path) -> None:
    made = MadeTrace()
    other = made.flow("10.0.1.3:50000", SERVER)
    first, after = flows_of(made, "masquerade")
    connection(made, [first, after], 1_000_000)
    connection(made, [other, after], 20_000_000, first=FIRST + 50)
    connection(made, [after], 40_000_000, first=FIRST + 70)  # the router itself
    connection(made, [first, after], 60_000_000, first=FIRST + 90)
    rows = table(made, tmp_path)
    by_begin = sorted(rows, key=lambda row: row["begins_ns"])
    assert len(rows) == 4 * COUNT
    for place, flow in enumerate((first, other, after, first)):
        assert_followed(by_begin[place * COUNT : (place + 1) * COUNT], flow)
    found = report(made, tmp_path / "again")
    name = f"{ROUTER} > {SERVER}"
    assert sorted(map(str, found.column("translated_to"))) == sorted([name] * 3 * COUNT + ["None"] * COUNT)


def test_events_that_are_lost_turn_no_translation_round(tmp_path: Path) -> None:
    made = MadeTrace()
    flows = flows_of(made, "masquerade")
    connection(made, flows, 1_000_000)
    # The first of a packet's events are lost, and the same bytes are sent again at the same address.
    again = {"skb": 0x90000, "seq": FIRST + COUNT * LEN_BYTES, "payload": LEN_BYTES}
    crossing(made, 10_000_000, flows, gone=4, **again)
    crossing(made, 11_000_000, flows, **again)
    assert set(translations(made, tmp_path)) == {(flows[1], flows[0])}


def test_a_flow_that_is_read_is_not_searched_for(tmp_path: Path) -> None:
    made = MadeTrace()
    connection(made, [made.flow(CLIENT, SERVER)], 1_000_000)
    with Trace(made.write(tmp_path / "trace")) as trace:
        build(trace, "messages", selection=Selection())
        (view,) = trace.rows("SELECT sql FROM duckdb_views() WHERE view_name = 'original_packets'")
        assert "JOIN" not in view[0]
    assert report(made, tmp_path / "again").column("translated_to") == [None] * COUNT


def datagram(made: MadeTrace, at: int, flows: Sequence[int], number: int, more_bytes: int = 0) -> None:
    """Put down a datagram from the call that sends it to the one that receives it, translated once."""
    skb = 0x1000 + number % 5 * 0x100
    own = {"skb": skb, "head": skb + 64, "tid": 100, "len_bytes": 373}
    names = [{"flow": flow, "header_bytes": 42, "ifindex": place + 2} for place, flow in enumerate(flows)]
    events = [("tx.queue", names[0]), ("tx.start", {}), ("rx.driver", names[0]), ("rx.core", {})]
    events += [("tx.queue", names[1]), ("tx.start", {}), ("rx.driver", names[1]), ("rx.core", {}), ("rx.l4", {})]
    for step, (point, columns) in enumerate(events):
        longer = more_bytes if step > 3 else 0
        made.packet(point, at + 1_000 * (step + 1), **own | {"len_bytes": 373 + longer}, **columns)
    made.socket("rx.ready", at + 10_000, tid=100, sock=7, protocol=UDP)
    made.socket("tx.sent", at + 11_000, tid=100, sock=8, len_bytes=331, protocol=UDP)
    made.socket("rx.received", at + 22_000, tid=200, sock=7, len_bytes=331, protocol=UDP)


@pytest.mark.parametrize("way", first(["both", "masquerade", "dnat"]))
def test_datagrams_are_followed_and_named(way: str, tmp_path: Path) -> None:
    made = MadeTrace()
    flows = flows_of(made, way, UDP)
    for number in range(COUNT):
        datagram(made, 1_000_000 + number * 100_000, flows, number)
    found = report(made, tmp_path)
    assert found.column("until") == ["rx.received"] * COUNT
    assert found.column("translated_to") == [" > ".join(WAYS[way][-1])] * COUNT
    assert min(map(int, found.column("begin_ns"))) == 1_001_000  # type: ignore[arg-type] # of every message
    with Trace(tmp_path / "trace") as trace:
        build(trace, "messages", selection=Selection(flows=[">".join(WAYS[way][-1])]))
        assert trace.rows("SELECT count(*), min(begins_ns) FROM messages") == [(COUNT, STARTED_NS + 1_001_000)]


def test_a_tunnel_of_datagrams_is_no_nat(tmp_path: Path) -> None:
    made = MadeTrace()
    flows = [made.flow(CLIENT, SERVER, UDP), made.flow("192.0.2.1:5000", "192.0.2.2:4789", UDP)]
    for number in range(COUNT):
        datagram(made, 1_000_000 + number * 100_000, flows, number, more_bytes=50)
    assert report(made, tmp_path).column("translated_to") == [None] * COUNT
