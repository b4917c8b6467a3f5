# SPDX-License-Identifier: Apache-2.0
"""Sends that do not become one packet each: joined, cut, partial, refused, by reference, and beyond 4 GiB."""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
import threading
import time
from typing import TYPE_CHECKING

import pytest

from tests.lab.measure import TIMEOUT_S, NetworkPath, all_discarded, counts, in_thread, ping, tcp_pair, way
from tests.verbs.tx.tcp_measure import WAYS, accounted, assert_accounted, assert_each, done, events, read_all, run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.lab import Lab

pytestmark = pytest.mark.root

_MSG_ZEROCOPY = 0x4000000
_SO_ZEROCOPY = 60
_SO_SNDBUFFORCE = 32


@contextlib.contextmanager
def corked(sender: socket.socket) -> Iterator[None]:
    sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
    yield
    sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_messages_that_leave_in_one_packet_leave_at_one_time(lab: Lab, either: NetworkPath, way: str) -> None:
    with tcp_pair(either) as (sender, receiver), run(lab, way) as tx:
        with corked(sender):
            for length in range(1, 24):
                sender.send(bytes(length))
            time.sleep(0.02)
        read_all(receiver, sum(range(1, 24)))
        assert_each(done(tx, 23), way, 23)
        messages = events(tx)
    assert [message.len_bytes for message in messages] == list(range(1, 24))
    assert len({(message.sched_ns, message.driver_ns, message.done_ns) for message in messages}) == 1
    assert all((message.hops()["tx.sched"] or 0) >= 20_000_000 for message in messages)
    assert {message.cause for message in messages} == {"cork"}


@pytest.mark.parametrize("way", WAYS)
def test_more_messages_than_are_remembered_share_their_samples(lab: Lab, veth: NetworkPath, way: str) -> None:
    with tcp_pair(veth) as (sender, receiver), run(lab, way) as tx:
        with corked(sender):
            for _ in range(300):
                sender.send(b"x")
        read_all(receiver, 300)
        snapshot = done(tx, 300)
        messages = events(tx)
    assert_accounted(snapshot, way, 300)
    assert all_discarded(snapshot)["tx.total", "merged"] == 300 - len(messages) > 0
    # The last one that is remembered ends where the stream does.
    assert messages[-1].end_byte == sum(message.len_bytes for message in messages) == 300


@pytest.mark.parametrize("way", WAYS)
def test_a_message_that_ends_within_a_packet_that_is_cut_is_missing(lab: Lab, veth: NetworkPath, way: str) -> None:
    with tcp_pair(veth) as (sender, receiver), run(lab, way) as tx:
        # The congestion window is 10 packets: TCP cuts what was joined.
        with in_thread(lambda: read_all(receiver, 60 * 1000)), corked(sender):
            for _ in range(60):
                sender.send(bytes(1000))
        snapshot = done(tx, 60)
        messages = events(tx)
    assert_accounted(snapshot, way, 60)
    assert [message.end_byte for message in messages] == [1000 * (number + 1) for number in range(60)]
    for message in messages:
        if message.sched_ns is None:
            assert message.driver_ns is message.done_ns is None
    if way == "stamped":
        assert all_discarded(snapshot)["tx.sched", "coalesced"] == all_discarded(snapshot)["tx.total", "coalesced"] > 0
    assert {reason for _, reason in all_discarded(snapshot)} <= {"coalesced", "no_stamp"}
    if way == "traced":
        # The packets themselves are looked at.
        assert counts(snapshot)["tx.sched"] == counts(snapshot)["tx.total"] == 60


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_full_buffer_takes_a_part_or_nothing(lab: Lab, either: NetworkPath, way: str) -> None:
    with tcp_pair(either) as (sender, receiver), run(lab, way) as tx:
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16_384)
        sent, refused, had = [], 0, 0
        for _ in range(60):
            try:
                sent.append(sender.send(bytes(30_000), socket.MSG_DONTWAIT))
            except BlockingIOError:
                refused += 1
                had += len(receiver.recv(20_000))
        read_all(receiver, sum(sent) - had)
        # That the one before was not stamped shows at the next call.
        ping(sender, receiver, 1)
        sent.append(100)
        snapshot = done(tx, len(sent))
        messages = events(tx)
    assert refused > 5
    assert any(length < 30_000 for length in sent)
    assert_accounted(snapshot, way, len(sent))
    why = {reason for _, reason in all_discarded(snapshot)}
    assert why <= {"coalesced", "no_stamp", "unstamped", "merged"}
    if not why & {"unstamped", "merged"}:
        assert [message.len_bytes for message in messages] == sent
    assert messages[-1].end_byte == sum(sent)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_call_that_fails_is_no_message(lab: Lab, veth: NetworkPath, way: str) -> None:
    with tcp_pair(veth) as (sender, receiver), run(lab, way) as tx:
        ping(sender, receiver, 1)
        sender.shutdown(socket.SHUT_WR)
        for _ in range(5):
            with pytest.raises(BrokenPipeError):
                sender.send(b"too late")
        snapshot = done(tx, 1)
        time.sleep(0.05)
        tx.interval()
        assert accounted(tx.total())["tx.total"] == 1
    assert_each(snapshot, way, 1)


def test_more_to_come_is_a_cork(lab: Lab, veth: NetworkPath) -> None:
    with tcp_pair(veth) as (sender, receiver), run(lab) as tx:
        for _ in range(23):
            sender.send(bytes(10), socket.MSG_MORE)
            time.sleep(0.002)
            sender.send(bytes(10))
            read_all(receiver, 20)
        assert_each(done(tx, 46), "stamped", 46)
        messages = events(tx)
    assert [message.cause for message in messages] == ["cork", "none"] * 23
    assert all((message.hops()["tx.sched"] or 0) >= 2_000_000 for message in messages[::2])


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_what_is_not_copied_counts_the_same(lab: Lab, either: NetworkPath, way: str) -> None:
    with tcp_pair(either) as (sender, receiver), run(lab, way) as tx, tempfile.TemporaryFile() as file:
        file.truncate(50_000)
        sender.setsockopt(socket.SOL_SOCKET, _SO_ZEROCOPY, 1)
        calls = 0
        for _ in range(10):
            assert sender.send(bytes(20_000), _MSG_ZEROCOPY) == 20_000
            read_all(receiver, 20_000)
            assert os.sendfile(sender.fileno(), file.fileno(), 0, 5000) == 5000
            read_all(receiver, 5000)
            _splice(file.fileno(), sender.fileno(), 3000)
            read_all(receiver, 3000)
            calls += 3
        snapshot = done(tx, calls)
        messages = events(tx)
    # A file goes to TCP in as many calls as its pages make pieces.
    assert [message.end_byte for message in messages if message.len_bytes == 20_000] == [
        20_000 + 28_000 * number for number in range(10)
    ]
    assert messages[-1].end_byte == sum(message.len_bytes for message in messages) == 280_000
    assert_accounted(snapshot, way, len(messages))


def _splice(source: int, target: int, len_bytes: int) -> None:
    read_end, write_end = os.pipe()
    try:
        assert os.splice(source, write_end, len_bytes, offset_src=0) == len_bytes
        assert os.splice(read_end, target, len_bytes) == len_bytes
    finally:
        os.close(read_end)
        os.close(write_end)


@pytest.mark.slow
def test_a_stream_of_more_than_4_gib_keeps_its_place(lab: Lab) -> None:
    total_bytes, piece_bytes = (4 << 30) + (64 << 20), 4 << 20
    path = way(lab, "lo-4")
    with tcp_pair(path) as (sender, receiver), run(lab) as tx:
        found = []
        for sock, option in ((sender, _SO_SNDBUFFORCE), (receiver, _SO_SNDBUFFORCE + 1)):
            sock.setsockopt(socket.SOL_SOCKET, option, 8 << 20)
        reader = threading.Thread(target=_discard, args=(receiver, total_bytes), daemon=True)
        reader.start()
        piece, sent = bytes(piece_bytes), 0
        deadline_s = time.monotonic() + 4 * TIMEOUT_S
        while sent < total_bytes:
            sent += sender.send(piece)
            assert time.monotonic() < deadline_s
        reader.join(TIMEOUT_S)
        snapshot = done(tx, total_bytes // piece_bytes)
        found = events(tx)
    assert_accounted(snapshot, "stamped", total_bytes // piece_bytes)
    assert [message.end_byte for message in found] == list(range(piece_bytes, total_bytes + 1, piece_bytes))
    assert {reason for _, reason in all_discarded(snapshot)} <= {"no_stamp", "coalesced"}
    assert found[-1].end_byte > 1 << 32
    for message in found:
        assert all(duration is None or duration >= 0 for duration in message.hops().values())


def _discard(receiver: socket.socket, len_bytes: int) -> None:
    """Read without a copy."""
    while len_bytes:
        had = receiver.recv_into(bytearray(1 << 20), min(len_bytes, 1 << 20), socket.MSG_TRUNC)
        len_bytes -= had
