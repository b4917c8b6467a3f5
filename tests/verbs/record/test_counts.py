# SPDX-License-Identifier: Apache-2.0
"""Exact counts of ``record`` on every path: packets at each point, bytes, flags, and what the kernel itself counted."""

from __future__ import annotations

import socket
import struct
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from hopscope.trace.packets.continues import ID_STEP
from tests.lab.measure import (
    PATH_NAMES,
    NetworkPath,
    Tcpdump,
    in_thread,
    ping,
    tcp_pair,
    udp_datagrams_read,
    udp_pair,
    way,
)
from tests.verbs.record.measure import ACK, FIN, PSH, SYN, anyone, covered, payload
from tests.waiting import eventually

if TYPE_CHECKING:
    from hopscope.lab import Lab, Namespace
    from tests.verbs.record.measure import Seen

pytestmark = pytest.mark.root

DATAGRAMS = 1009
MESSAGES = 23
LEN_BYTES = 997
# The same packet object passes these one after the other, in the lab's veth and on lo.
ON_THE_WAY = ("tx.queue", "tx.start", "rx.driver", "rx.core", "rx.l4")
UDP_HEADERS = {socket.AF_INET: 28, socket.AF_INET6: 48}
ETHERNET = 14
# include/net/tcp_states.h
ESTABLISHED, SYN_SENT, SYN_RECV, FIN_WAIT1, FIN_WAIT2, CLOSED, CLOSE_WAIT, LAST_ACK, LISTEN = 1, 2, 3, 4, 5, 7, 8, 9, 10


@pytest.fixture(params=PATH_NAMES)
def path(request: pytest.FixtureRequest, kept_lab: Lab) -> NetworkPath:
    return way(kept_lab, request.param)


@pytest.fixture
def veth(kept_lab: Lab) -> NetworkPath:
    return way(kept_lab, "veth-4")


def devices(path: NetworkPath) -> tuple[str, str]:
    """Return the names of the devices that packets leave and reach."""
    return ("lo", "lo") if path.ifname == "lo" else ("client0", "server0")


def received(namespace: Namespace, ifname: str) -> tuple[int, int]:
    """Return the bytes and packets that a device has received, as /proc/net/dev has them."""
    lines = namespace.call(Path("/proc/thread-self/net/dev").read_text).splitlines()
    (words,) = [line.split() for line in lines if line.split()[0] == f"{ifname}:"]
    return int(words[1]), int(words[2])


def test_datagrams_at_each_point(seen: Seen, path: NetworkPath) -> None:
    leaves, reaches = devices(path)
    sending = NetworkPath(path.receiver, path.sender, path.host, leaves)
    before, read = received(path.receiver, reaches), udp_datagrams_read(path)
    with udp_pair(path) as (sender, receiver), Tcpdump(path, "udp") as arrived, Tcpdump(sending, "udp") as left:
        assert ping(sender, receiver, DATAGRAMS, LEN_BYTES) == DATAGRAMS
        flow = seen.take().flow_of(sender)
        of_reader = seen.flow(anyone(path.host), receiver.getsockname(), socket.IPPROTO_UDP)
    # Without the headers' flow, but there is nothing else on these devices.
    expected = dict.fromkeys((*ON_THE_WAY, "tx.driver", "tx.sent", "rx.ready", "rx.received"), DATAGRAMS)
    counts = seen.counts()
    del counts["skb.free"]  # where the reader runs on the CPU that made the packet, the kernel says nothing of its end
    assert counts == expected
    assert seen.counts(flow=flow)["tx.sent"] == seen.counts(flow=of_reader)["rx.received"] == DATAGRAMS
    assert arrived.packets == left.packets == DATAGRAMS
    after = received(path.receiver, reaches)
    assert after[1] - before[1] == DATAGRAMS
    arriving = seen.at("rx.driver")
    assert after[0] - before[0] == arriving["len_bytes"].sum() + (0 if reaches == "lo" else ETHERNET * DATAGRAMS)
    assert udp_datagrams_read(path) - read == DATAGRAMS


def test_a_datagram_is_one_packet_all_the_way(seen: Seen, path: NetworkPath) -> None:
    leaves, reaches = devices(path)
    with udp_pair(path) as (sender, receiver):
        assert ping(sender, receiver, DATAGRAMS, LEN_BYTES) == DATAGRAMS
        flow = seen.take().flow_of(sender)
    stages = [seen.at(point).by_time() for point in ON_THE_WAY]
    for stage in stages[1:]:
        assert np.array_equal(stage["skb"], stages[0]["skb"])
        assert np.array_equal(stage["head"], stages[0]["head"])
    # One at a time: the reader has each before the next is sent.
    times = [stage["time_ns"] for stage in (*stages, seen.at("rx.ready").by_time(), seen.at("rx.received").by_time())]
    every = np.array(times).T.ravel()
    assert (np.diff(every) > 0).all()
    assert (seen.at("tx.driver").by_time()["time_ns"] > stages[1]["time_ns"]).all()
    for point in ("tx.queue", "rx.driver"):
        packets = seen.at(point)
        assert set(payload(packets)) == {LEN_BYTES}
        assert set(packets["flow"]) == {flow}
        assert set(packets["tcp_flags"]) == {0}
        assert set(packets["header_bytes"] - UDP_HEADERS[path.family]) == {ETHERNET if point == "tx.queue" else 0}
    for point, name, namespace in (
        ("tx.queue", leaves, path.sender),
        ("tx.start", leaves, path.sender),
        ("tx.driver", leaves, path.sender),
        ("rx.driver", reaches, path.receiver),
        ("rx.core", reaches, path.receiver),
        ("rx.l4", reaches, path.receiver),
    ):
        assert seen.devices(seen.at(point)) == {(name, namespace.inode)}, point


def test_datagrams_have_their_number(seen: Seen, veth: NetworkPath) -> None:
    with udp_pair(veth) as (sender, receiver):
        assert ping(sender, receiver, MESSAGES) == MESSAGES
        seen.take()
    numbers = seen.at("tx.queue").by_time()["seq"]
    # IPv4 counts the datagrams of a connected socket up, from anywhere.
    assert set(np.diff(numbers % ID_STEP)) <= {1, 1 - ID_STEP}
    assert np.array_equal(seen.at("rx.driver").by_time()["seq"], numbers)


@pytest.mark.parametrize("name", ["veth-4", "veth-6", "lo-4"])
def test_datagrams_are_told_apart_by_their_first_bytes(seen: Seen, kept_lab: Lab, name: str) -> None:
    path = way(kept_lab, name)
    payloads = [b"", b"7 bytes", b"8 bytes.", b"8 bytes, and", b"8 bytes. more", bytes(8), bytes(1009)]
    with udp_pair(path) as (sender, receiver):
        for each in payloads:
            sender.send(each)
            assert receiver.recv(2048) == each
        seen.take()
    left, came = (seen.at(point).by_time()["seq"] // ID_STEP for point in ("tx.queue", "rx.driver"))
    assert np.array_equal(left, came)
    assert [int(key) > 0 for key in left] == [len(each) >= 8 for each in payloads]
    assert left[2] == left[4]
    assert left[5] == left[6]
    assert len(set(left[2:].tolist())) == 3
    if path.family == socket.AF_INET6:
        assert not (seen.at("tx.queue")["seq"] % ID_STEP).any()


def test_segments_at_each_point(seen: Seen, path: NetworkPath) -> None:
    with tcp_pair(path) as (sender, receiver), Tcpdump(path, "tcp") as arrived:
        seen.forget()
        before = tcp_counts(sender), tcp_counts(receiver)
        assert ping(sender, receiver, MESSAGES, LEN_BYTES) == MESSAGES
        eventually(lambda: bool(tcp_counts(sender)["bytes_acked"] - before[0]["bytes_acked"] == MESSAGES * LEN_BYTES))
        sent, got = tcp_counts(sender), tcp_counts(receiver)
        seen.take()
        flow, back = seen.socket_flows(sender)
    data, acks = seen.at("tx.queue", flow=flow), seen.at("tx.queue", flow=back)
    assert len(data) == sent["data_segs_out"] - before[0]["data_segs_out"] == MESSAGES
    assert len(acks) == got["segs_out"] - before[1]["segs_out"]
    assert set(payload(data)) == {LEN_BYTES}
    assert set(payload(acks)) == {0}
    assert set(data["tcp_flags"]) == {PSH | ACK}
    assert set(acks["tcp_flags"]) == {ACK}
    for point in ON_THE_WAY:
        skbs = set(zip(*(seen.at(point)[name] for name in ("skb", "head")), strict=True))
        assert len(seen.at(point)) == len(data) + len(acks), point
        assert skbs == set(zip(*(seen.at("tx.queue")[name] for name in ("skb", "head")), strict=True))
    counted = seen.counts(flow=flow)
    sockets = ("tx.send", "tx.sent", "rx.ready", "rx.read", "rx.received")
    assert {point: counted[point] for point in sockets} == dict.fromkeys(sockets, MESSAGES)
    assert counted["rx.tcp_queue"] == MESSAGES
    assert seen.at("rx.copy")["len_bytes"].sum() == MESSAGES * LEN_BYTES
    assert arrived.packets == len(data) + len(acks)


def test_numbers_of_a_stream_fit_together(seen: Seen, path: NetworkPath) -> None:
    with tcp_pair(path) as (sender, receiver):
        seen.forget()
        assert ping(sender, receiver, MESSAGES, LEN_BYTES) == MESSAGES
        seen.take()
        flow, _ = seen.socket_flows(sender)
    sends, sent = seen.at("tx.send", flow=flow).by_time(), seen.at("tx.sent", flow=flow).by_time()
    segments = seen.at("tx.queue", flow=flow).by_time()
    reads, got = seen.at("rx.read", flow=flow).by_time(), seen.at("rx.received", flow=flow).by_time()
    first = int(sends["seq"][0])
    steps = (first + LEN_BYTES * np.arange(MESSAGES + 1)) % (1 << 32)
    for rows, expected in (
        (sends, steps[:-1]),
        (segments, steps[:-1]),
        (seen.at("rx.driver", flow=flow).by_time(), steps[:-1]),
        (seen.at("rx.tcp_queue", flow=flow).by_time(), steps[:-1]),
        (sent, steps[1:]),
        (reads, steps[1:]),
        (got, steps[1:]),
    ):
        assert np.array_equal(rows["seq"], expected)
    for rows in (sends, sent, got):
        assert set(rows["len_bytes"]) == {LEN_BYTES}
    assert len(set(sends["sock"]) | set(sent["sock"])) == len(set(reads["sock"]) | set(got["sock"])) == 1
    assert set(sends["sock"]).isdisjoint(reads["sock"])
    assert set(sends["netns"]) == {path.sender.inode}
    assert set(reads["netns"]) == {path.receiver.inode}
    # The way of each message, from call to call.
    every = np.array(
        [rows["time_ns"] for rows in (sends, segments, seen.at("rx.ready", flow=flow).by_time(), reads, got)]
    )
    assert (np.diff(every, axis=0) > 0).all()
    assert (sent["time_ns"] > sends["time_ns"]).all()


def test_a_large_transfer_adds_up_at_each_point(seen: Seen, path: NetworkPath) -> None:
    total = 4_000_037
    with tcp_pair(path) as (sender, receiver):
        seen.forget()
        with in_thread(lambda: sender.sendall(bytes(total))):
            left = total
            while left:
                left -= len(receiver.recv(1 << 20))
                seen.take()
        eventually(lambda: bool(tcp_counts(sender)["bytes_acked"] >= total))
        counted = tcp_counts(sender)
        seen.take()
        flow, back = seen.socket_flows(sender)
    for point in ("tx.queue", "rx.driver"):
        segments = seen.at(point, flow=flow)
        # On a busy machine TCP may send some bytes again, to be sure.
        assert payload(segments).sum() == counted["bytes_sent"], point
        assert covered(segments["seq"], payload(segments)) == total, point
        assert set(payload(seen.at(point, flow=back))) == {0}
    again = seen.at("tcp.retransmit", flow=flow)
    assert again["len_bytes"].sum() == counted["bytes_sent"] - total
    assert seen.at("tx.sent", flow=flow)["len_bytes"].sum() == total
    assert seen.at("rx.received", flow=flow)["len_bytes"].sum() == total
    assert seen.at("rx.copy")["len_bytes"].sum() == total


def test_the_flags_of_a_connections_life(seen: Seen, path: NetworkPath) -> None:
    with tcp_pair(path) as (sender, receiver):
        ends = sender.getsockname(), sender.getpeername()
        assert ping(sender, receiver, 1) == 1
        sender.shutdown(socket.SHUT_WR)
        assert receiver.recv(1) == b""
        receiver.shutdown(socket.SHUT_WR)
        assert sender.recv(1) == b""
    seen.take()
    flow, back = (seen.flow(*each, socket.IPPROTO_TCP) for each in (ends, ends[::-1]))
    for point in ("tx.queue", "rx.driver"):
        there, here = seen.at(point, flow=flow).by_time(), seen.at(point, flow=back).by_time()
        assert [flags for flags in there["tcp_flags"] if flags & (SYN | FIN | PSH)] == [SYN, PSH | ACK, FIN | ACK]
        assert [flags for flags in here["tcp_flags"] if flags & (SYN | FIN | PSH)] == [SYN | ACK, FIN | ACK]
        assert payload(there).sum() == 100
    # The socket has no port yet when it begins to connect.
    assert states(seen, flow) == [
        (SYN_SENT, ESTABLISHED),
        (ESTABLISHED, FIN_WAIT1),
        (FIN_WAIT1, FIN_WAIT2),
        (FIN_WAIT2, CLOSED),
    ]
    assert states(seen, back) == [
        (LISTEN, SYN_RECV),
        (SYN_RECV, ESTABLISHED),
        (ESTABLISHED, CLOSE_WAIT),
        (CLOSE_WAIT, LAST_ACK),
        (LAST_ACK, CLOSED),
    ]


def states(seen: Seen, flow: int) -> list[tuple[int, int]]:
    """Return the steps of a socket from state to state."""
    return [divmod(int(value), 256) for value in seen.at("tcp.state", flow=flow).by_time()["value"]]


def test_directions_of_two_flows_at_once(seen: Seen, veth: NetworkPath) -> None:
    with udp_pair(veth) as there, udp_pair(NetworkPath(veth.receiver, veth.sender, "10.77.0.1", "client0")) as back:
        for _ in range(MESSAGES):
            assert ping(*there, 3, 100) + ping(*back, 1, 200) == 4
        flows = [seen.take().flow_of(sender) for sender, _ in (there, back)]
    for flow, count, len_bytes, device in zip(
        flows, (3 * MESSAGES, MESSAGES), (100, 200), ("server0", "client0"), strict=True
    ):
        rows = seen.at("rx.driver", flow=flow)
        assert (len(rows), set(payload(rows))) == (count, {len_bytes})
        assert {name for name, _ in seen.devices(rows)} == {device}
    assert set(seen.rows("packets")["netns"]) <= {0, veth.sender.inode, veth.receiver.inode}


def test_what_a_call_says_when_it_fails(seen: Seen, veth: NetworkPath) -> None:
    with udp_pair(veth) as (sender, receiver):
        receiver.setblocking(False)  # noqa: FBT003 - its only parameter
        for _ in range(MESSAGES):
            with pytest.raises(BlockingIOError):
                receiver.recv(10)
        assert ping(sender, receiver, 7, 1000) == 7
        sender.send(bytes(1000))
        assert len(receiver.recv(10, socket.MSG_PEEK)) == 10
        assert len(receiver.recv(10)) == 10
        seen.take()
    rows = seen.at("rx.received").by_time()
    assert rows["len_bytes"].tolist() == [-11] * MESSAGES + [1000] * 7 + [10, 10]
    assert (rows["value"][-2:] & socket.MSG_PEEK).tolist() == [socket.MSG_PEEK, 0]


def tcp_counts(sock: socket.socket) -> dict[str, int]:
    """Return the socket's own counters (struct tcp_info, include/uapi/linux/tcp.h)."""
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    fields = {
        "segs_out": ("=I", 136),
        "data_segs_out": ("=I", 156),
        "bytes_acked": ("=Q", 120),
        "bytes_sent": ("=Q", 200),
    }
    return {name: struct.unpack_from(kind, info, at)[0] for name, (kind, at) in fields.items()}
