# SPDX-License-Identifier: Apache-2.0
"""Exact counts of ``tx`` for TCP: as many messages as sends, at each hop, on every path, by both ways."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import time
from typing import TYPE_CHECKING

import pytest

from tests.lab.measure import (
    PATH_NAMES,
    NetworkPath,
    all_discarded,
    histogram,
    in_thread,
    ping,
    tcp_pair,
    wait_acknowledged,
)
from tests.lab.measure import way as named
from tests.verbs.tx.tcp_measure import HOPS, WAYS, assert_accounted, assert_each, cookie, done, events, read_all, run

if TYPE_CHECKING:
    from collections.abc import Callable

    from hopscope.lab import Lab
    from hopscope.model.message import Message

pytestmark = pytest.mark.root

_MESSAGES = 101


@pytest.mark.parametrize("way", WAYS)
def test_so_many_sends_are_so_many_messages(lab: Lab, way: str) -> None:
    started_ns = time.monotonic_ns()
    seen: list[Message] = []
    with contextlib.ExitStack() as stack:
        paths = [named(lab, name) for name in PATH_NAMES]
        flows = [stack.enter_context(tcp_pair(path)) for path in paths]
        # To load the programs takes long under emulation: one run sees all paths.
        tx = stack.enter_context(run(lab, way))
        for path, flow in zip(paths, flows, strict=True):
            assert ping(*flow, _MESSAGES, 1000) == _MESSAGES
            expected = len(seen) + _MESSAGES
            assert_each(snapshot := done(tx, expected), way, expected)
            messages = events(tx)
            assert [message.end_byte for message in messages] == [1000 * (number + 1) for number in range(_MESSAGES)]
            devices = {tuple(device.name for device in message.devices) for message in messages}
            assert devices == {("lo" if path.ifname == "lo" else "client0",)}
            seen += messages
    elapsed_ns = time.monotonic_ns() - started_ns
    assert {message.len_bytes for message in seen} == {1000}
    assert {message.pid for message in seen} == {os.getpid()}
    assert {message.cause for message in seen} == {"none"}
    assert {message.retransmits for message in seen} == {0}
    assert not any(message.slept or message.aborted for message in seen)
    for message in seen:
        times = [message.entry_ns, message.handed_ns, message.sched_ns, message.driver_ns, message.done_ns]
        assert None not in times
        assert times == sorted(times, key=lambda time_ns: time_ns or 0)
    assert histogram(snapshot, "tx.total").sum_ns == sum(message.total_ns or 0 for message in seen)
    assert histogram(snapshot, "tx.total").sum_ns < elapsed_ns
    # The hops of a message add up to its total.
    parts = {hop: histogram(snapshot, hop).sum_ns for hop in HOPS[way]}
    host_ns = parts.pop("tx.host", None)
    assert parts.pop("tx.total") == sum(parts.values())
    assert host_ns in {sum(parts.values()) - parts["tx.ack"], None}


@pytest.mark.slow
def test_both_ways_agree(lab: Lab, veth: NetworkPath) -> None:
    # Each way runs alone first, then both beside each other on the same messages.
    with tcp_pair(veth) as flow, run(lab, "stamped") as stamped, run(lab, "traced") as traced:
        assert ping(*flow, 1009, 300) == 1009
        assert_each(done(stamped, 1009), "stamped", 1009)
        assert_each(done(traced, 1009), "traced", 1009)
        pairs = list(zip(events(stamped), events(traced), strict=True))
    assert all((one.len_bytes, one.end_byte) == (other.len_bytes, other.end_byte) for one, other in pairs)
    for name, error_ns in (("entry_ns", 20_000), ("sched_ns", 20_000), ("driver_ns", 20_000), ("done_ns", 50_000)):
        # The median: on a busy machine a hook can be interrupted before it looks at the clock.
        differences = sorted(abs(getattr(one, name) - getattr(other, name)) for one, other in pairs)
        assert differences[len(pairs) // 2] < error_ns, name


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("sizes", ["random", "falling", "rising"])
def test_messages_of_any_length_are_told_apart(lab: Lab, either: NetworkPath, way: str, sizes: str) -> None:
    lengths = random.Random(77).choices(  # noqa: S311 - no secret
        [1, 2, 99, 1447, 1448, 1449, 2896, 20_000, 65_535, 65_536, 300_000], k=61
    )
    lengths = {"random": lengths, "falling": sorted(lengths, reverse=True), "rising": sorted(lengths)}[sizes]
    with tcp_pair(either) as (sender, receiver), run(lab, way) as tx:
        with in_thread(lambda: read_all(receiver, sum(lengths))):
            for length in lengths:
                assert sender.send(bytes(length)) == length
        assert_accounted(snapshot := done(tx, len(lengths)), way, len(lengths))
        messages = events(tx)
    # Packets that an ACK sets going leave in a softirq, in which tracepoints may be off.
    assert {reason for _, reason in all_discarded(snapshot)} <= {"coalesced", "no_stamp"}
    assert [message.len_bytes for message in messages] == lengths
    assert messages[-1].end_byte == sum(lengths)


@pytest.mark.parametrize("way", WAYS)
def test_many_connections_keep_their_messages_apart(lab: Lab, veth: NetworkPath, way: str) -> None:
    with run(lab, way) as tx:
        expected = set()
        for number in range(100):
            with tcp_pair(veth) as (sender, receiver):
                expected.add((sender.getsockname()[1], number + 1))
                for _ in range(3):
                    sender.send(bytes(number + 1))
                    receiver.recv(1000)
                # Its last ACK is out once the other end hears the FIN.
                sender.shutdown(socket.SHUT_WR)
                assert receiver.recv(1) == b""
        assert_accounted(done(tx, 300), way, 300)
        messages = events(tx)
    found = {(message.flow.local_port, message.len_bytes) for message in messages if message.flow}
    assert found == expected


def test_an_event_bears_the_cookie_of_its_socket(lab: Lab, veth: NetworkPath) -> None:
    with tcp_pair(veth) as (sender, receiver), run(lab) as tx:
        ping(sender, receiver, 1)
        done(tx, 1)
        assert [message.cookie for message in events(tx)] == [cookie(sender)]


def _bind(send: Callable[..., object], *arguments: object) -> Callable[[], object]:
    return lambda: send(*arguments)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_the_call_does_not_matter(lab: Lab, either: NetworkPath, way: str) -> None:
    with tcp_pair(either) as (sender, receiver), run(lab, way) as tx:
        calls = {
            "send": _bind(sender.send, bytes(100)),
            "sendmsg": _bind(sender.sendmsg, [bytes(60), b"", bytes(40)]),
            "write": _bind(os.write, sender.fileno(), bytes(100)),
            "writev": _bind(os.writev, sender.fileno(), [bytes(1)] * 100),
        }
        for call in calls.values():
            call()
            read_all(receiver, 100)
        assert_each(done(tx, len(calls)), way, len(calls))
        assert [message.len_bytes for message in events(tx)] == [100] * len(calls)


@pytest.mark.parametrize("way", WAYS)
def test_a_sample_is_1_in_n(lab: Lab, veth: NetworkPath, way: str) -> None:
    with tcp_pair(veth) as flow, run(lab, way, sample=10) as tx:
        assert ping(*flow, 5000) == 5000
        wait_acknowledged(flow[0])
        tx.interval()
        snapshot = tx.total()
        messages = events(tx)
    # The gap is uniform in 0..18: 500 samples, with a standard deviation of 5.5 / 10 x sqrt(500) = 12.
    assert 430 < len(messages) < 570
    assert_each(snapshot, way, len(messages))
    assert f"{len(messages):,} of 5,000 messages followed" in snapshot.notes
    assert {message.len_bytes for message in messages} == {100}
    assert all(message.end_byte % 100 == 0 for message in messages)


@pytest.mark.parametrize("way", WAYS)
def test_a_rate_is_kept_for_each_flow(lab: Lab, veth: NetworkPath, way: str) -> None:
    with tcp_pair(veth) as one, tcp_pair(veth) as other, run(lab, way, rate=1000) as tx:
        started_s = time.monotonic()
        for _ in range(300):
            ping(*one, 1)
            ping(*other, 1)
        elapsed_s = time.monotonic() - started_s
        wait_acknowledged(one[0])
        wait_acknowledged(other[0])
        messages = events(tx)
        ports = [message.flow.local_port for message in messages if message.flow]
        for sender, _ in (one, other):
            assert 1 <= ports.count(sender.getsockname()[1]) <= elapsed_s * 1000 + 1
