# SPDX-License-Identifier: Apache-2.0
"""Why a message waits in TCP or below it. The causes in TCP one by one: `test_causes.py`.

MSG_EOR keeps messages in packets of their own: of those that are joined while they wait, and then cut, the kernel
stamps few (`test_tx_streams.py`).
"""

from __future__ import annotations

import contextlib
import socket
import time
from typing import TYPE_CHECKING

import pytest

from hopscope.lab import Lab, Namespace, Tbf
from hopscope.lab._libc import libc
from tests.lab.measure import MS, NetworkPath, counts, histogram, in_thread, ping, tcp_pair
from tests.lab.rawtcp import RawTcp, Tun
from tests.verbs.cpu.measure import batch
from tests.verbs.tx.tcp_measure import WAYS, assert_accounted, done, events, held, read_all, run, run_in

if TYPE_CHECKING:
    from collections.abc import Iterator


pytestmark = pytest.mark.root


@pytest.mark.parametrize("way", WAYS)
def test_nothing_holds_what_goes_at_once(lab: Lab, path: NetworkPath, way: str) -> None:
    with tcp_pair(path) as flow, run(lab, way) as tx:
        ping(*flow, 500, 3000)
        snapshot = done(tx, 500)
    assert held(snapshot) == {}
    assert counts(snapshot).get("tx.tcp_sndbuf", 0) == 0


def test_a_small_send_buffer(lab: Lab, either: NetworkPath) -> None:
    with tcp_pair(either) as (sender, receiver), run(lab) as tx:
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)

        def read_late() -> None:
            time.sleep(0.2)
            read_all(receiver, 200_000)

        with in_thread(read_late):
            sender.send(bytes(200_000))
        snapshot = done(tx, 1)
        (message,) = events(tx)
    assert message.len_bytes == 200_000
    assert message.slept
    assert (histogram(snapshot, "tx.tcp_sndbuf").count, histogram(snapshot, "tx.tcp").count) == (1, 1)
    assert histogram(snapshot, "tx.tcp_sndbuf").sum_ns >= 200 * MS
    assert (message.blame() or ("", 0))[0] == "send-buffer"


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("nodelay", [False, True], ids=["nagle", "nodelay"])
def test_two_small_writes_and_a_wait(lab: Lab, veth: NetworkPath, way: str, nodelay: bool) -> None:  # noqa: FBT001 - a parameter
    with tcp_pair(veth) as (sender, receiver), run(lab, way) as tx:
        sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, nodelay)
        writes = batch(10, 2)
        for _ in range(10):
            # Without quick ACKs, the second write waits for the delayed ACK of the first.
            receiver.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
            # One call, or the ACK could come before the second write where the machine stands still in between.
            assert libc.sendmmsg(sender.fileno(), writes, 2, 0) == 2
            read_all(receiver, 20)
            receiver.send(b"answer")
            sender.recv(10)
        snapshot = done(tx, 30)
        messages = [message for message in events(tx) if message.flow and message.flow.local == "10.77.0.1"]
    assert held(snapshot) == ({} if nodelay else {"nagle": 10})
    assert [message.cause for message in messages] == ["none", "none" if nodelay else "nagle"] * 10


def test_a_token_bucket_holds_its_backlog_for_backlog_by_rate() -> None:
    rate_bit_s, packets = 2_000_000, 40
    with Lab(tbf=Tbf(rate_bit_s=rate_bit_s, burst_bytes=1600)) as lab, contextlib.ExitStack() as stack:
        path = NetworkPath(lab.client, lab.server, "10.77.0.2", "server0")
        flows = [stack.enter_context(tcp_pair(path)) for _ in range(packets)]
        tx = stack.enter_context(run(lab))
        time.sleep(0.1)
        # A connection each, so that no window, pacing or small queue of TCP is in the way.
        for sender, _ in flows:
            sender.send(bytes(1388))
        read_ns = {}
        for sender, receiver in flows:
            read_all(receiver, 1388)
            read_ns[sender.getsockname()[1]] = time.monotonic_ns()
        snapshot = done(tx, packets)
        messages = sorted(events(tx), key=lambda message: message.sched_ns or 0)
    assert_accounted(snapshot, "stamped", packets)
    assert held(snapshot) == {}
    # 1388 bytes, 66 of headers (with the option of time stamps, and Ethernet); the first goes at once.
    packet_ns = (1388 + 66) * 8 * 1e9 / rate_bit_s
    waits = {number: message.qdisc_ns for number, message in enumerate(messages) if message.qdisc_ns is not None}
    assert len(waits) >= packets // 2
    assert max(waits.values()) > 50 * MS
    for number, wait_ns in waits.items():
        message, since_ns = messages[number], messages[0].sched_ns or 0
        least_ns = packet_ns * (number - 1) - ((message.sched_ns or 0) - since_ns)
        assert message.flow
        assert 0.9 * least_ns < wait_ns < read_ns[message.flow.local_port] - (message.sched_ns or 0)


@pytest.mark.parametrize("way", WAYS)
def test_a_congestion_window(way: str) -> None:
    with peer() as (namespace, raw, sock), run_in([namespace], way) as tx:
        # Ten packets go; the peer is silent for 50 ms.
        for _ in range(15):
            sock.send(bytes(1000), socket.MSG_EOR)
        time.sleep(0.05)
        while len(raw.received) < 15 * 1000:
            raw.listen_for(0.05)
        snapshot = done(tx, 15)
        causes = [message.cause for message in events(tx)]
    assert causes[:10] == ["none"] * 10
    assert set(causes[10:]) == {"congestion-window"}
    assert histogram(snapshot, "tx.sched_cwnd").count == 5
    assert histogram(snapshot, "tx.sched_cwnd").sum_ns >= 5 * 50 * MS


@contextlib.contextmanager
def peer() -> Iterator[tuple[Namespace, RawTcp, socket.socket]]:
    """Yield a peer that only acknowledges when it is told to, and the kernel's socket."""
    with contextlib.ExitStack() as stack:
        namespace = stack.enter_context(Namespace())
        tun = stack.enter_context(Tun(namespace))
        listener = stack.enter_context(namespace.call(socket.create_server, ("10.78.0.1", 0)))
        raw = stack.enter_context(RawTcp(tun, listener.getsockname()[1]))
        sock = stack.enter_context(listener.accept()[0])
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield namespace, raw, sock
