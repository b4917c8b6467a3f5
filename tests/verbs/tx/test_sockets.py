# SPDX-License-Identifier: Apache-2.0
"""Which sockets are followed, from when to when; several runs at once; several threads on one socket."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hopscope.verbs.tx import collector as tx_module
from hopscope.verbs.tx.collector import TxCollector
from hopscope.verbs.tx.options import TxOptions
from tests.lab.measure import (
    MS,
    NetworkPath,
    all_discarded,
    histogram,
    in_thread,
    ping,
    tcp_pair,
    wait_acknowledged,
    wait_at_rest,
)
from tests.verbs.tx.tcp_measure import accounted, assert_accounted, assert_each, done, events, read_all, run
from tests.waiting import eventually

if TYPE_CHECKING:
    from hopscope.lab import Lab

pytestmark = pytest.mark.root

_SO_SNDBUFFORCE = 32


@pytest.mark.slow
@pytest.mark.parametrize("flow_hooks", [False, True], ids=["host hooks", "flow hooks"])
def test_a_socket_from_before_the_start_is_followed_to_the_end(lab: Lab, either: NetworkPath, flow_hooks: bool) -> None:  # noqa: FBT001 - a parameter
    with tcp_pair(either) as flow:
        ping(*flow, 5)
        with run(lab, flow_hooks=flow_hooks) as tx:
            assert ping(*flow, 23) == 23
            snapshot = done(tx, 23)
            messages = events(tx)
        assert [message.end_byte for message in messages] == [100 * (number + 1) for number in range(23)]
        assert {message.len_bytes for message in messages} == {100}
        assert accounted(snapshot)["tx.total"] == 23
        ping(*flow, 7)
        # A second run begins anew.
        with run(lab, flow_hooks=flow_hooks) as tx:
            assert ping(*flow, 11) == 11
            done(tx, 11)
            assert [message.end_byte for message in events(tx)] == [100 * (number + 1) for number in range(11)]


@pytest.mark.parametrize("flow_hooks", [False, True], ids=["host hooks", "flow hooks"])
def test_bytes_that_wait_at_the_start_belong_to_no_message(lab: Lab, veth: NetworkPath, flow_hooks: bool) -> None:  # noqa: FBT001 - a parameter
    with tcp_pair(veth) as (sender, receiver):
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        sender.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, 1 << 20)
        sender.send(bytes(300_000))
        with run(lab, flow_hooks=flow_hooks) as tx:
            sender.send(bytes(100))
            read_all(receiver, 300_100)
            done(tx, 1)
            assert [(message.len_bytes, message.end_byte) for message in events(tx)] == [(100, 100)]


@pytest.mark.slow
def test_what_came_before_the_end_of_a_run_goes_unseen_by_the_next(lab: Lab, veth: NetworkPath) -> None:
    with tcp_pair(veth) as (sender, receiver):
        with run(lab):
            sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
            sender.send(bytes(50))
        with run(lab) as tx:
            # Its packet bears the stamp of the run before.
            sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)
            read_all(receiver, 50)
            ping(sender, receiver, 3)
            snapshot = done(tx, 3)
    assert_each(snapshot, "stamped", 3)


@pytest.mark.slow
def test_two_runs_see_the_same_and_the_first_to_end_takes_nothing_away(lab: Lab, either: NetworkPath) -> None:
    with tcp_pair(either) as flow, run(lab) as second:
        with run(lab, sample=3) as first:
            ping(*flow, 30)
            assert_each(done(second, 30), "stamped", 30)
            wait_acknowledged(flow[0])
            first.interval()
            sampled = len(events(first))
            assert_each(first.total(), "stamped", sampled)
        ping(*flow, 30)
        assert_each(done(second, 60), "stamped", 60)
        # New sockets, too.
        with tcp_pair(either) as other:
            ping(*other, 7)
            assert_each(done(second, 67), "stamped", 67)


@pytest.mark.slow
def test_a_run_on_one_port_does_not_blind_a_run_on_another(lab: Lab) -> None:
    with contextlib.ExitStack() as stack:
        listeners = [stack.enter_context(lab.server.call(socket.create_server, ("10.77.0.2", 0))) for _ in range(2)]
        runs = [stack.enter_context(run(lab, ports=[listener.getsockname()[1]])) for listener in listeners]
        for number, listener in enumerate(listeners):
            with (
                lab.client.call(socket.create_connection, listener.getsockname()) as sender,
                listener.accept()[0] as receiver,
            ):
                assert ping(sender, receiver, 10 + number) == 10 + number
        for number, tx in enumerate(runs):
            assert_each(done(tx, 10 + number), "stamped", 10 + number)


def test_what_a_listener_of_a_wanted_process_accepts_is_followed(lab: Lab, veth: NetworkPath) -> None:
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(lab.server.call(socket.create_server, (veth.host, 0)))
        options = TxOptions(pids=[os.getpid()], protocol="tcp", events=True)
        tx = stack.enter_context(TxCollector(options))
        sender = stack.enter_context(lab.client.call(socket.create_connection, listener.getsockname()))
        receiver = stack.enter_context(listener.accept()[0])
        assert ping(receiver, sender, 23) == 23
        done(tx, 23)
        messages = [message for message in events(tx) if message.flow and message.flow.local == veth.host]
    assert [message.len_bytes for message in messages] == [100] * 23
    assert tx._options.only_flow_hooks


def test_threads_on_one_socket_keep_their_entries(lab: Lab, veth: NetworkPath) -> None:
    with tcp_pair(veth) as (sender, receiver), run(lab) as tx:
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
        slow = threading.Thread(target=sender.send, args=(bytes(300_000),), daemon=True)
        slow.start()
        wchan = Path(f"/proc/self/task/{slow.native_id}/wchan")
        eventually(lambda: wchan.read_text() == "wait_woken")  # for room
        time.sleep(0.1)
        began_ns = time.monotonic_ns()
        other = threading.Thread(target=sender.send, args=(bytes(1000),), daemon=True)
        other.start()
        time.sleep(0.2)
        read_all(receiver, 301_000)
        slow.join()
        other.join()
        longest_ns = time.monotonic_ns() - began_ns
        snapshot = done(tx, 2)
        messages = events(tx)
    assert_accounted(snapshot, "stamped", 2)
    assert messages[-1].end_byte == sum(message.len_bytes for message in messages) == 301_000
    # The slow one slept from its own entry on; the other's bytes may fit behind those that wait.
    brief, slow_ns = sorted(message.hops()["tx.tcp"] or 0 for message in messages)
    assert slow_ns >= 300 * MS
    assert 0 < brief <= longest_ns
    assert histogram(snapshot, "tx.tcp_sndbuf").max_ns == slow_ns


def test_many_threads_send_on_one_socket(lab: Lab, either: NetworkPath) -> None:
    threads, each = 8, 200
    with tcp_pair(either) as (sender, receiver), run(lab) as tx:

        def send() -> None:
            for _ in range(each):
                sender.send(bytes(500))

        with in_thread(lambda: read_all(receiver, threads * each * 500)), contextlib.ExitStack() as stack:
            for _ in range(threads):
                stack.enter_context(in_thread(send))
        done(tx, threads * each)
        # The last one of them may have no event of its own.
        ping(sender, receiver, 1)
        snapshot = done(tx, threads * each + 1)
        messages = events(tx)
    assert_accounted(snapshot, "stamped", threads * each + 1)
    assert messages[-1].end_byte == threads * each * 500 + 100
    assert {reason for _, reason in all_discarded(snapshot)} <= {"coalesced", "merged", "no_stamp"}


def test_sockets_beyond_the_bound_are_counted_and_make_room_when_they_close(
    lab: Lab, veth: NetworkPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tx_module, "_STAMPED_SOCKETS", 2)
    wait_at_rest(lab.client, lab.server)  # what an earlier test has closed may still send
    # Both ends of the first connection send; so they are two.
    with run(lab) as tx:
        with tcp_pair(veth) as first, tcp_pair(veth) as second:
            assert ping(*first, 5) == 5
            assert ping(first[1], first[0], 5) == 5
            assert ping(*second, 7) == 7
            snapshot = done(tx, 17)
            assert_accounted(snapshot, "stamped", 17)
            assert all_discarded(snapshot)["tx.total", "no_memory"] == 7
        with tcp_pair(veth) as third:
            assert ping(*third, 3) == 3
            snapshot = done(tx, 20)
        assert all_discarded(snapshot)["tx.total", "no_memory"] == 7
        assert histogram(snapshot, "tx.total").count == 13


def test_a_socket_that_another_run_follows_takes_no_place(
    lab: Lab, veth: NetworkPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    with run(lab), tcp_pair(veth) as other, tcp_pair(veth) as flow:
        monkeypatch.setattr(tx_module, "_STAMPED_SOCKETS", 1)
        with run(lab, ports=[flow[0].getsockname()[1]]) as tx:
            assert ping(*other, 5) == 5
            assert ping(*flow, 7) == 7
            snapshot = done(tx, 7)
    assert_accounted(snapshot, "stamped", 7)
    assert histogram(snapshot, "tx.total").count == 7
