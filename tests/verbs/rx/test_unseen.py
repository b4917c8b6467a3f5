# SPDX-License-Identifier: Apache-2.0
"""Bytes that are read and yet were not seen arriving, with and without filters; data beside the established state."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
from typing import TYPE_CHECKING, Any

import pytest

from hopscope.verbs.rx.collector import RxCollector
from hopscope.verbs.rx.options import RxOptions
from tests.lab.measure import (
    TCP_DATA_HOPS,
    NetworkPath,
    all_discarded,
    assert_each,
    counts,
    discarded,
    limit,
    ping,
    run,
    tcp_pair,
    udp_pair,
    way,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hopscope.lab import Lab
    from hopscope.model.snapshot import Snapshot

pytestmark = pytest.mark.root


def unseen(snapshot: Snapshot, protocol: str = "tcp") -> int:
    return all_discarded(snapshot).get((f"rx.{protocol}_read", "unseen"), 0)


@contextlib.contextmanager
def half_closed(path: NetworkPath) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Yield a sender, and a receiver whose FIN has been sent and acknowledged."""
    with tcp_pair(path) as (sender, receiver):
        receiver.shutdown(socket.SHUT_WR)
        assert sender.recv(10) == b""
        yield sender, receiver


# ---- before the start ----


@pytest.mark.parametrize("pair", [tcp_pair, udp_pair], ids=["tcp", "udp"])
@pytest.mark.parametrize(
    ("wanted", "options"),
    [
        (1, lambda _lab, _sock: {}),
        (1, lambda _lab, sock: {"ports": [sock.getsockname()[1]]}),
        (0, lambda _lab, sock: {"ports": [sock.getsockname()[1] ^ 1]}),
        (1, lambda _lab, _sock: {"addresses": [ipaddress.ip_network("10.77.0.2/32")]}),
        (0, lambda _lab, _sock: {"addresses": [ipaddress.ip_network("10.78.0.0/16")]}),
        (1, lambda _lab, _sock: {"pids": [os.getpid()]}),
        (0, lambda _lab, _sock: {"pids": [1]}),
        # What the socket cannot tell of its packets.
        (0, lambda lab, _sock: {"interfaces": [(lab.server.call(socket.if_nametoindex, "server0"), lab.server.inode)]}),
        (0, lambda _lab, _sock: {"min_queue": 1}),
        (0, lambda _lab, _sock: {"sample": 2}),
    ],
    ids=[
        "namespace",
        "port",
        "other-port",
        "address",
        "other-address",
        "pid",
        "other-pid",
        "interface",
        "min-queue",
        "sample",
    ],
)
def test_what_was_queued_before_the_start_is_unseen_where_the_socket_says_it_is_wanted(
    lab: Lab,
    veth: NetworkPath,
    pair: Any,  # noqa: ANN401 - a context manager
    wanted: int,
    options: Callable[[Lab, socket.socket], dict[str, Any]],
) -> None:
    protocol = "tcp" if pair is tcp_pair else "udp"
    with pair(veth) as (sender, receiver):
        sender.send(bytes(100))
        with run(lab, **options(lab, receiver)) as rx:
            assert len(receiver.recv(100)) == 100
            snapshot = rx.interval()
    if protocol == "udp" and _udp_reads_by_stamp(snapshot):
        pytest.skip("datagrams are followed by their own stamp here: one from before the start is no_stamp")
    assert unseen(snapshot, protocol) == wanted, all_discarded(snapshot)


def _udp_reads_by_stamp(snapshot: Snapshot) -> bool:
    return any(
        row.point == "rx.udp_read" and row.status == "attached" and "skb_consume_udp" in row.way
        for row in snapshot.plan
    )


def test_an_ipv6_socket_says_its_addresses(lab: Lab) -> None:
    with tcp_pair(way(lab, "veth-6")) as (sender, receiver):
        sender.send(bytes(100))
        with run(lab, addresses=[ipaddress.ip_network("fd77::1/128")]) as rx:
            receiver.recv(100)
            assert unseen(rx.interval()) == 1


def test_another_namespace_is_not_this_filter_s_matter(lab: Lab, veth: NetworkPath) -> None:
    with tcp_pair(veth) as (sender, receiver):
        sender.send(bytes(100))
        with RxCollector(RxOptions(namespaces=[lab.client.inode])) as rx:
            receiver.recv(100)
            assert unseen(rx.interval()) == 0


def test_without_any_filter_it_is_unseen(veth: NetworkPath) -> None:
    with tcp_pair(veth) as (sender, receiver):
        sender.send(bytes(100))
        # Others on this machine may add to it.
        with RxCollector(RxOptions()) as rx:
            assert len(receiver.recv(100)) == 100
            assert unseen(rx.interval()) >= 1


@contextlib.contextmanager
def pipe() -> Iterator[int]:
    """Yield the end to write to."""
    pipe_out, pipe_in = os.pipe()
    try:
        yield pipe_in
    finally:
        os.close(pipe_out)
        os.close(pipe_in)


def test_a_splice_that_finds_nothing_has_read_nothing(lab: Lab, veth: NetworkPath) -> None:
    with tcp_pair(veth) as (sender, receiver), pipe() as pipe_in, run(lab) as rx:
        receiver.settimeout(0)
        for _ in range(3):
            with pytest.raises(BlockingIOError):
                os.splice(receiver.fileno(), pipe_in, 100)
        limit(receiver)
        sender.send(b"m" * 100)
        sender.shutdown(socket.SHUT_WR)
        # The second finds the FIN.
        assert [os.splice(receiver.fileno(), pipe_in, 100) for _ in range(3)] == [100, 0, 0]
        assert_each(rx.interval(), TCP_DATA_HOPS, 1)


def test_what_is_spliced_unseen_counts_once(lab: Lab, veth: NetworkPath) -> None:
    with tcp_pair(veth) as (sender, receiver), pipe() as pipe_in:
        sender.send(b"m" * 100)
        with run(lab) as rx:
            assert os.splice(receiver.fileno(), pipe_in, 100) == 100
            sender.shutdown(socket.SHUT_WR)
            assert [os.splice(receiver.fileno(), pipe_in, 100) for _ in range(3)] == [0, 0, 0]
            assert unseen(rx.interval()) == 1


# ---- after our own FIN ----


def test_data_after_our_own_fin_is_measured(lab: Lab, path: NetworkPath) -> None:
    with half_closed(path) as flow, run(lab) as rx:
        assert ping(*flow, 23) == 23
        assert_each(rx.interval(), TCP_DATA_HOPS, 23)


def test_data_after_our_own_fin_is_measured_under_a_filter(lab: Lab, veth: NetworkPath) -> None:
    with half_closed(veth) as flow, half_closed(veth) as other, run(lab, ports=[flow[1].getsockname()[1]]) as rx:
        assert ping(*flow, 23) + ping(*other, 69) == 92
        assert_each(rx.interval(), ("rx.core", "rx.ip", "rx.tcp", *TCP_DATA_HOPS), 23)


def test_a_connection_that_is_half_closed_on_the_way_is_measured_throughout(lab: Lab, either: NetworkPath) -> None:
    with tcp_pair(either) as (sender, receiver), run(lab) as rx:
        assert ping(sender, receiver, 7) == 7
        receiver.shutdown(socket.SHUT_WR)
        assert sender.recv(10) == b""
        assert ping(sender, receiver, 16) == 16
        assert_each(rx.interval(), TCP_DATA_HOPS, 23)


def test_what_waits_after_our_own_fin_is_measured_or_merged(lab: Lab, either: NetworkPath) -> None:
    with half_closed(either) as (sender, receiver), run(lab) as rx:
        for _ in range(23):
            sender.send(b"m" * 100)
        left = 23 * 100
        while left:
            left -= len(receiver.recv(left))
        snapshot = rx.interval()
    found = counts(snapshot)
    merged = discarded(snapshot).pop(("rx.tcp_read", "merged"), 0)
    assert found["rx.tcp_queue"] == found["rx.tcp_read"] == found["rx.tcp_total"] == 23 - merged > 0
    assert set(discarded(snapshot)) <= {("rx.tcp_read", "merged")}


def test_a_last_segment_with_the_peer_s_fin_is_measured(lab: Lab, either: NetworkPath) -> None:
    with half_closed(either) as (sender, receiver), run(lab) as rx:
        sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 0)
        sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
        sender.send(b"last")
        sender.shutdown(socket.SHUT_WR)
        assert receiver.recv(100, socket.MSG_WAITALL) == b"last"
        assert receiver.recv(100) == b""
        assert_each(rx.interval(), TCP_DATA_HOPS, 1)


def test_data_that_a_closed_socket_refuses_is_not_queued(lab: Lab, veth: NetworkPath) -> None:
    with tcp_pair(veth) as (sender, receiver), run(lab) as rx:
        receiver.shutdown(socket.SHUT_WR)
        assert sender.recv(10) == b""
        receiver.close()
        with contextlib.suppress(ConnectionError):
            for _ in range(3):
                sender.send(b"too late")
        assert_each(rx.interval(), TCP_DATA_HOPS, 0)


def test_data_that_completes_the_handshake_is_measured_or_unseen(lab: Lab, veth: NetworkPath) -> None:
    with veth.receiver.call(socket.create_server, (veth.host, 0)) as listener, run(lab) as rx:
        # The server ignores the acknowledgement that would complete it.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 5)
        with veth.sender.call(socket.create_connection, listener.getsockname(), 20) as sender:
            sender.send(b"first")
            with listener.accept()[0] as receiver:
                assert receiver.recv(100) == b"first"
                snapshot = rx.interval()
    assert counts(snapshot)["rx.tcp_read"] + unseen(snapshot) == 1
    closing = next(row.way for row in snapshot.plan if row.point == "rx.tcp_closing" and row.status == "attached")
    assert unseen(snapshot) == (0 if closing.startswith("fentry") else 1)
