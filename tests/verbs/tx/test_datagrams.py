# SPDX-License-Identifier: Apache-2.0
"""Datagrams sent: each send call is one message at every hop, with its length, however it is sent."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import socket
import struct
from typing import TYPE_CHECKING

import pytest

from tests.lab.measure import (
    TIMEOUT_S,
    NetworkPath,
    Tcpdump,
    all_discarded,
    counts,
    histogram,
    in_thread,
    ping,
    tcp_pair,
    udp_pair,
    way,
)
from tests.lab.packets import checksum
from tests.verbs.tx.measure import UDP_HOPS, assert_seen, messages, run_udp

if TYPE_CHECKING:
    from collections.abc import Callable

    from hopscope.lab import Lab

pytestmark = pytest.mark.root

UDP_SEGMENT = 103
UDP_CORK = 1
SOL_UDP = 17
BURST = 13


def by_sendmmsg(sock: socket.socket, data: bytes) -> None:
    """Send the same datagram BURST times by one call."""
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(data, len(data))
    iovec = (ctypes.c_uint64 * 2)(ctypes.addressof(buffer), len(data))
    # struct mmsghdr: msg_name, msg_namelen, msg_iov, msg_iovlen, msg_control, msg_controllen, msg_flags; msg_len
    one = struct.pack("=QQQQQQQQ", 0, 0, ctypes.addressof(iovec), 1, 0, 0, 0, 0)
    vector = ctypes.create_string_buffer(one * BURST, len(one) * BURST)
    assert libc.sendmmsg(sock.fileno(), vector, BURST, 0) == BURST


SENDS = {
    "send": (1, lambda sock, data: sock.send(data)),
    "sendto": (1, lambda sock, data: sock.sendto(data, sock.getpeername())),
    "sendmsg": (1, lambda sock, data: sock.sendmsg([data[:1], data[1:]])),
    "write": (1, lambda sock, data: os.write(sock.fileno(), data)),
    "writev": (1, lambda sock, data: os.writev(sock.fileno(), [data[:1], data[1:]])),
    "sendmmsg": (BURST, by_sendmmsg),
}


def test_hops_add_up_to_the_total(lab: Lab, path: NetworkPath) -> None:
    with udp_pair(path) as flow, run_udp(lab, events=True) as tx:
        assert ping(*flow, 1009) == 1009
        snapshot, single = tx.interval(), messages(tx)
    assert_seen(snapshot, UDP_HOPS, 1009)
    total, *parts = (histogram(snapshot, hop).sum_ns for hop in ("tx.udp_total", *UDP_HOPS[:3]))
    assert total == sum(parts)
    assert min(parts) > 0
    # It is the receiver who frees, which says nothing of the device.
    assert counts(snapshot)["tx.udp_free"] == 0
    assert len(single) == 1009
    assert [message.total_ns for message in single] == [
        sum(duration or 0 for duration in message.hops().values()) for message in single
    ]
    assert all(None not in message.hops().values() for message in single)
    assert {message.pid for message in single} == {os.getpid()}
    assert {tuple(device.name for device in message.devices) for message in single} == {
        ("lo",) if path.ifname == "lo" else ("client0",)
    }


@pytest.mark.parametrize("call", SENDS)
def test_each_call_is_seen_from_its_entry(lab: Lab, either: NetworkPath, call: str) -> None:
    each, send = SENDS[call]
    with udp_pair(either) as (sender, receiver), run_udp(lab) as tx:
        for _ in range(23):
            send(sender, bytes(100))
            assert [len(receiver.recv(200)) for _ in range(each)] == [100] * each
        assert_seen(tx.interval(), UDP_HOPS, 23 * each)


@pytest.mark.parametrize("len_bytes", [0, 1, 1471, 1472, 1473, 9000, 60_000])
@pytest.mark.parametrize("name", ["veth-4", "veth-6"])
def test_a_datagram_is_one_message_however_many_fragments(lab: Lab, name: str, len_bytes: int) -> None:
    with udp_pair(way(lab, name)) as flow, run_udp(lab, events=True) as tx:
        assert ping(*flow, 23, len_bytes) == 23
        snapshot, single = tx.interval(), messages(tx)
    assert_seen(snapshot, UDP_HOPS, 23)
    assert [message.len_bytes for message in single] == [len_bytes] * 23


def test_unconnected_sender_shows_whom_it_sends_to(lab: Lab) -> None:
    with contextlib.ExitStack() as stack:
        new: Callable[..., socket.socket] = lab.client.call
        sender = stack.enter_context(new(socket.socket, socket.AF_INET6, socket.SOCK_DGRAM))
        receivers = [
            stack.enter_context(lab.server.call(socket.socket, socket.AF_INET6, socket.SOCK_DGRAM)) for _ in range(3)
        ]
        for receiver in receivers:
            receiver.bind(("::", 0))
        ports = [receiver.getsockname()[1] for receiver in receivers]
        tx = stack.enter_context(run_udp(lab, events=True))
        for host in ("fd77::2", "::ffff:10.77.0.2"):
            for port in ports:
                assert sender.sendto(b"to each", (host, port)) == 7
        single = messages(tx)
        source = sender.getsockname()[1]
    flows = [message.flow for message in single if message.flow]
    assert [(flow.peer, flow.peer_port) for flow in flows] == [
        (host, port) for host in ("fd77::2", "10.77.0.2") for port in ports
    ]
    assert {(flow.local, flow.local_port) for flow in flows} == {("fd77::1", source), ("10.77.0.1", source)}


def test_the_socket_after_a_closed_one_has_a_flow_of_its_own(lab: Lab, veth: NetworkPath) -> None:
    with run_udp(lab, events=True) as tx:
        seen = []
        for _ in range(23):  # the kernel gives the memory of a socket to the next one
            with udp_pair(veth) as (sender, receiver):
                assert ping(sender, receiver, 1) == 1
                (message,) = messages(tx)
                assert message.flow
                seen.append((message.flow.local_port, message.flow.peer_port))
                assert seen[-1] == (sender.getsockname()[1], receiver.getsockname()[1])


def test_corked_data_is_the_one_message_that_it_becomes(lab: Lab, either: NetworkPath) -> None:
    with udp_pair(either) as (sender, receiver), run_udp(lab, events=True) as tx:
        for _ in range(23):
            sender.send(bytes(100), socket.MSG_MORE)
            sender.send(bytes(100), socket.MSG_MORE)
            sender.send(bytes(100))
            assert len(receiver.recv(400)) == 300
        for _ in range(23):
            sender.setsockopt(SOL_UDP, UDP_CORK, 1)
            sender.send(bytes(150))
            sender.send(bytes(150))
            sender.setsockopt(SOL_UDP, UDP_CORK, 0)
            assert len(receiver.recv(400)) == 300
        snapshot, single = tx.interval(), messages(tx)
    assert_seen(snapshot, UDP_HOPS, 46)
    assert {message.len_bytes for message in single} == {300}


def test_segmentation_offload_is_one_message(lab: Lab, either: NetworkPath) -> None:
    with udp_pair(either) as (sender, receiver), run_udp(lab, events=True) as tx:
        sender.setsockopt(SOL_UDP, UDP_SEGMENT, 1000)
        for _ in range(23):
            sender.send(bytes(7500))
            assert [len(receiver.recv(2000)) for _ in range(8)] == [1000] * 7 + [500]
        snapshot, single = tx.interval(), messages(tx)
    assert_seen(snapshot, UDP_HOPS, 23)
    assert {message.len_bytes for message in single} == {7500}


def test_what_the_device_cannot_segment_is_counted_as_split(lab: Lab, veth: NetworkPath) -> None:
    lab.client.run(["ethtool", "-K", "client0", "tx-udp-segmentation", "off"], check=True, capture_output=True)
    with udp_pair(veth) as (sender, receiver), run_udp(lab) as tx:
        sender.setsockopt(SOL_UDP, UDP_SEGMENT, 1000)
        for _ in range(23):
            sender.send(bytes(3000))
            assert [len(receiver.recv(2000)) for _ in range(3)] == [1000] * 3
        snapshot = tx.interval()
    assert counts(snapshot)["tx.udp"] == 23
    assert all_discarded(snapshot) == {(hop, "split"): 23 for hop in UDP_HOPS[1:]}


def test_two_threads_are_told_apart(lab: Lab, veth: NetworkPath) -> None:
    with udp_pair(veth) as one, udp_pair(veth) as other, run_udp(lab) as tx:
        with in_thread(lambda: ping(*other, 2003)):
            assert ping(*one, 2003) == 2003
        assert_seen(tx.interval(), UDP_HOPS, 4006)


def test_a_tap_changes_nothing(lab: Lab, either: NetworkPath) -> None:
    with udp_pair(either) as flow, run_udp(lab) as tx, Tcpdump(either, "udp"):
        assert ping(*flow, 1009) == 1009
        assert_seen(tx.interval(), UDP_HOPS, 1009)


def test_what_is_not_sent_is_no_message(lab: Lab, veth: NetworkPath) -> None:
    unconnected = lab.client.call(socket.socket, socket.AF_INET, socket.SOCK_DGRAM)
    with unconnected as sender, udp_pair(veth) as flow, run_udp(lab) as tx:
        for _ in range(7):
            with pytest.raises(OSError, match="unreachable") as failure:
                sender.sendto(b"nowhere", ("192.0.2.1", 9))
            assert failure.value.errno == errno.ENETUNREACH
            with pytest.raises(OSError, match="too long"):
                flow[0].send(bytes(65_536))
        assert ping(*flow, 23) == 23
        assert_seen(tx.interval(), UDP_HOPS, 23)


def test_what_the_kernel_sends_for_itself_is_no_message(lab: Lab, veth: NetworkPath) -> None:
    with udp_pair(veth) as (sender, receiver), run_udp(lab) as tx:
        receiver.close()
        sent = 0
        for _ in range(23):  # each is answered by ICMP: port unreachable
            with contextlib.suppress(ConnectionRefusedError):  # such a call sends nothing
                sent += sender.send(b"closed") == 6
        snapshot = tx.interval()
    assert 0 < sent < 23
    assert_seen(snapshot, UDP_HOPS, sent)


@pytest.mark.parametrize("name", ["veth-4", "lo-6"])
def test_raw_sockets_are_datagrams_too(lab: Lab, name: str) -> None:
    path = way(lab, name)
    protocol = socket.IPPROTO_ICMP if path.family == socket.AF_INET else socket.IPPROTO_ICMPV6
    echo = struct.pack("!BBHHH", 8 if path.family == socket.AF_INET else 128, 0, 0, 7, 1) + bytes(48)
    if path.family == socket.AF_INET:
        echo = echo[:2] + struct.pack("!H", checksum(echo)) + echo[4:]
    with (
        path.sender.call(socket.socket, path.family, socket.SOCK_RAW, protocol) as raw,
        run_udp(lab, events=True) as tx,
    ):
        raw.settimeout(TIMEOUT_S)
        for _ in range(23):
            raw.sendto(echo, (path.host, 0))
        snapshot, single = tx.interval(), messages(tx)
    # With a hook in udp_sendmsg alone the call of a raw socket is not seen.
    entry = {row.way for row in snapshot.plan if row.point == "tx.udp_send" and row.status == "attached"}
    if entry == {"tp_btf:sys_enter"}:
        assert_seen(snapshot, UDP_HOPS, 23)
    else:
        assert all_discarded(snapshot) == {("tx.udp", "no_send"): 23, ("tx.udp_total", "no_send"): 23}
    assert {message.len_bytes for message in single} == {56}
    assert {message.flow.protocol for message in single if message.flow} == {f"protocol {int(protocol)}"}


def test_packet_sockets_are_datagrams_without_addresses(lab: Lab) -> None:
    frame = bytes.fromhex("ffffffffffff 020000770001 88b5") + bytes(100)
    with lab.client.call(socket.socket, socket.AF_PACKET, socket.SOCK_RAW) as raw, run_udp(lab, events=True) as tx:
        lab.client.call(raw.bind, ("client0", 0))
        for _ in range(23):
            assert raw.send(frame) == len(frame)
        snapshot, single = tx.interval(), messages(tx)
    assert counts(snapshot)["tx.udp_driver"] == 23
    assert [message.len_bytes for message in single] == [len(frame)] * 23
    assert {(message.flow.local, message.flow.local_port) for message in single if message.flow} == {("::", 0)}


def test_tcp_is_not_among_the_datagrams(lab: Lab, veth: NetworkPath) -> None:
    with udp_pair(veth) as udp, tcp_pair(veth) as tcp, run_udp(lab) as tx:
        assert ping(*udp, 23) + ping(*tcp, 23) == 46
        assert_seen(tx.interval(), UDP_HOPS, 23)
