# SPDX-License-Identifier: Apache-2.0
"""So many messages sent, so many counted at each hop, however they are read."""

from __future__ import annotations

import ctypes
import os
import socket
from typing import TYPE_CHECKING

import pytest

from hopscope.lab import Lab, Workload
from hopscope.lab._libc import Iovec, Mmsghdr
from tests.lab.measure import (
    TCP_DATA_HOPS,
    UDP_DATA_HOPS,
    NetworkPath,
    Tcpdump,
    assert_each,
    counts,
    discarded,
    limit,
    ping,
    run,
    tcp_pair,
    udp_datagrams_read,
    udp_pair,
    way,
)

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.root

UDP_PACKET_HOPS = ("rx.core", "rx.ip", *UDP_DATA_HOPS)
# Longer than a pure acknowledgement with its headers, shorter than any message of 100 bytes.
DATA = "greater 150"


def test_23_tcp_messages_are_23_at_each_hop(lab: Lab, path: NetworkPath) -> None:
    with tcp_pair(path) as (sender, receiver), run(lab) as rx:
        port = receiver.getsockname()[1]
        with Tcpdump(path, f"tcp and dst port {port} and {DATA}") as tcpdump:
            assert ping(sender, receiver, 23) == 23
        assert_each(rx.interval(), TCP_DATA_HOPS, 23)
    assert tcpdump.packets == 23


def test_1009_datagrams_are_1009_at_each_hop(lab: Lab, path: NetworkPath) -> None:
    with udp_pair(path) as (sender, receiver), run(lab) as rx:
        with Tcpdump(path, f"udp and dst port {receiver.getsockname()[1]}") as tcpdump:
            assert ping(sender, receiver, 1009) == 1009
        assert_each(rx.interval(), UDP_PACKET_HOPS, 1009)
    assert tcpdump.packets == udp_datagrams_read(path) == 1009


def test_both_directions_of_a_conversation_are_counted(lab: Lab, either: NetworkPath) -> None:
    with tcp_pair(either) as (left, right), run(lab) as rx:
        for _ in range(23):
            assert ping(left, right, 1) + ping(right, left, 1) == 2
        assert_each(rx.interval(), TCP_DATA_HOPS, 46)


def test_an_interval_counts_only_its_own(lab: Lab, either: NetworkPath) -> None:
    with udp_pair(either) as (sender, receiver), run(lab) as rx:
        for messages in (23, 0, 7):
            assert ping(sender, receiver, messages) == messages
            assert_each(rx.interval(), UDP_PACKET_HOPS, messages)
        assert_each(rx.total(), UDP_PACKET_HOPS, 30)


def test_acknowledgements_and_handshakes_are_no_data(lab: Lab, either: NetworkPath) -> None:
    with run(lab) as rx:
        with tcp_pair(either):
            pass
        snapshot = rx.interval()
    assert_each(snapshot, TCP_DATA_HOPS, 0)
    assert counts(snapshot)["rx.tcp"] > 0


def test_a_burst_that_tcp_merges_counts_each_segment(lab: Lab, either: NetworkPath) -> None:
    with tcp_pair(either) as (sender, receiver), run(lab) as rx:
        for _ in range(23):
            sender.send(b"m" * 100)
        left = 23 * 100
        while left:
            left -= len(receiver.recv(left))
        assert_each(rx.interval(), TCP_DATA_HOPS, 23)


def test_a_message_read_in_pieces_counts_once(lab: Lab, veth: NetworkPath) -> None:
    with tcp_pair(veth) as (sender, receiver), run(lab) as rx:
        for _ in range(23):
            sender.send(b"0123456789")
            assert b"".join(receiver.recv(1) for _ in range(10)) == b"0123456789"
        assert_each(rx.interval(), TCP_DATA_HOPS, 23)


@pytest.mark.parametrize("reader", ["plain", "peek", "splice"])
def test_each_way_to_read_tcp_counts_200_messages_once(lab: Lab, either: NetworkPath, reader: str) -> None:
    with run(lab) as rx:
        with Workload(either.receiver, "tcp-sink", "--bind", either.host, "--reader", reader) as sink:
            Workload(
                either.sender, "tcp-send", either.host, sink.port, "--size", 100, "--count", 200, "--rate", 2000
            ).result()
            summary = sink.result()
        snapshot = rx.interval()
    assert summary.len_bytes == 200 * 100
    assert (summary.peeks > 0) == (reader == "peek")
    assert_each(snapshot, TCP_DATA_HOPS, 200)


def test_peeked_datagrams_count_once(lab: Lab, either: NetworkPath) -> None:
    with udp_pair(either) as (sender, receiver), run(lab) as rx:
        for _ in range(200):
            sender.send(b"datagram")
            assert receiver.recv(100, socket.MSG_PEEK) == receiver.recv(100) == b"datagram"
        assert_each(rx.interval(), UDP_PACKET_HOPS, 200)
    assert udp_datagrams_read(either) == 200


def recv(sock: socket.socket) -> int:
    return len(sock.recv(100))


def recvfrom(sock: socket.socket) -> int:
    return len(sock.recvfrom(100)[0])


def recvmsg(sock: socket.socket) -> int:
    return len(sock.recvmsg(100)[0])


def read(sock: socket.socket) -> int:
    return len(os.read(sock.fileno(), 100))


def recv_truncated(sock: socket.socket) -> int:
    # MSG_TRUNC: the length that the datagram had.
    return sock.recv_into(bytearray(1), 1, socket.MSG_TRUNC)


def recvmmsg(sock: socket.socket) -> int:
    buffer = ctypes.create_string_buffer(100)
    iovec = Iovec(ctypes.addressof(buffer), 100)
    headers = (Mmsghdr * 4)()
    for header in headers:
        header.hdr.iov, header.hdr.iovlen = ctypes.pointer(iovec), 1
    assert ctypes.CDLL(None).recvmmsg(sock.fileno(), headers, 4, socket.MSG_DONTWAIT, None) == 1
    return int(headers[0].len)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way_to_read", "len_bytes"),
    [(each, 23) for each in (recv, recvfrom, recvmsg, recvmmsg, read, recv_truncated)] + [(recv, 0), (recvmmsg, 0)],
)
def test_each_way_to_read_udp_counts(
    lab: Lab, veth: NetworkPath, way_to_read: Callable[[socket.socket], int], len_bytes: int
) -> None:
    with udp_pair(veth) as (sender, receiver), run(lab) as rx:
        for _ in range(23):
            sender.send(bytes(len_bytes))
            assert way_to_read(receiver) == len_bytes
        assert_each(rx.interval(), UDP_PACKET_HOPS, 23)


def test_recvmmsg_counts_each_datagram_of_a_batch(lab: Lab, either: NetworkPath) -> None:
    buffer = ctypes.create_string_buffer(100)
    iovec = Iovec(ctypes.addressof(buffer), 100)
    headers = (Mmsghdr * 23)()
    for header in headers:
        header.hdr.iov, header.hdr.iovlen = ctypes.pointer(iovec), 1
    with udp_pair(either) as (sender, receiver), run(lab) as rx:
        for _ in range(23):
            sender.send(b"datagram")
        assert ctypes.CDLL(None).recvmmsg(receiver.fileno(), headers, 23, 0, None) == 23
        assert_each(rx.interval(), UDP_PACKET_HOPS, 23)


def test_looking_at_the_error_queue_is_no_read(lab: Lab, veth: NetworkPath) -> None:
    so_timestamping, tx_software_and_report = 37, 1 << 1 | 1 << 4
    with udp_pair(veth) as (sender, receiver), run(lab) as rx:
        receiver.setsockopt(socket.SOL_SOCKET, so_timestamping, tx_software_and_report)
        for _ in range(23):
            receiver.sendto(b"stamped", sender.getsockname())
            sender.send(b"datagram")
            assert receiver.recvmsg(100, 1000, socket.MSG_ERRQUEUE)[1]
            assert receiver.recv(100) == b"datagram"
        found = rx.interval()
    # The stamped ones arrive at the sender, which does not read them.
    assert counts(found)["rx.udp_queue"] == 46
    assert counts(found)["rx.udp_read"] == counts(found)["rx.udp_total"] == 23
    assert discarded(found) == {}


def test_an_empty_queue_is_no_read(lab: Lab, veth: NetworkPath) -> None:
    with udp_pair(veth) as (sender, receiver), run(lab) as rx:
        for _ in range(23):
            with pytest.raises(BlockingIOError):
                receiver.recv(100, socket.MSG_DONTWAIT)
            assert ping(sender, receiver, 1) == 1
        assert_each(rx.interval(), UDP_PACKET_HOPS, 23)


def test_a_full_buffer_drops_and_what_is_read_counts(lab: Lab, veth: NetworkPath) -> None:
    with udp_pair(veth) as (sender, receiver), run(lab) as rx:
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        for _ in range(1009):
            sender.send(bytes(100))
        had = 0
        while True:
            try:
                had += len(receiver.recv(200, socket.MSG_DONTWAIT)) == 100
            except BlockingIOError:
                break
        found = counts(rx.interval())
    assert 0 < had < 1009
    assert (found["rx.udp"], found["rx.udp_queue"], found["rx.udp_read"], found["rx.udp_total"]) == (
        1009,
        had,
        had,
        had,
    )


@pytest.mark.parametrize("family", ["veth-4", "veth-6"])
def test_fragments_are_packets_and_the_datagram_is_one(lab: Lab, family: str) -> None:
    with udp_pair(way(lab, family)) as (sender, receiver), run(lab) as rx:
        assert ping(sender, receiver, 23, 4000) == 23
        snapshot = rx.interval()
    found = counts(snapshot)
    assert found["rx.core"] == found["rx.ip"] == 3 * 23
    assert {hop: found[hop] for hop in UDP_DATA_HOPS} == dict.fromkeys(UDP_DATA_HOPS, 23)
    assert discarded(snapshot) == {}


def test_splicing_out_of_udp_counts(lab: Lab, veth: NetworkPath) -> None:
    pipe_out, pipe_in = os.pipe()
    try:
        with udp_pair(veth) as (sender, receiver), run(lab) as rx:
            for _ in range(23):
                sender.send(b"datagram")
                assert os.splice(receiver.fileno(), pipe_in, 100) == 8
                assert os.read(pipe_out, 100) == b"datagram"
            assert_each(rx.interval(), UDP_PACKET_HOPS, 23)
    finally:
        os.close(pipe_out)
        os.close(pipe_in)


def test_a_reader_that_waits_in_the_kernel_counts(lab: Lab, either: NetworkPath) -> None:
    with run(lab) as rx:
        with Workload(either.receiver, "udp-sink", "--bind", either.host, "--count", 200) as sink:
            Workload(either.sender, "udp-send", either.host, sink.port, "--count", 200, "--rate", 2000).result()
            assert sink.result().messages == 200
        assert_each(rx.interval(), UDP_PACKET_HOPS, 200)


def test_two_sockets_in_turn_are_not_confused(lab: Lab, either: NetworkPath) -> None:
    with udp_pair(either) as (sender, receiver), udp_pair(either) as (other_sender, other), run(lab) as rx:
        limit(other)
        for _ in range(23):
            for each in (sender, other_sender, sender):
                each.send(b"datagram")
            for each in (other, receiver, receiver):
                assert each.recv(100) == b"datagram"
        assert_each(rx.interval(), UDP_PACKET_HOPS, 69)
