# SPDX-License-Identifier: Apache-2.0
"""What holds messages in TCP: each cause is made alone, and is found alone, by all ways; and two in one wait.

MSG_EOR keeps messages in packets of their own: of those that are joined while they wait, and then cut, the kernel
stamps few (`test_streams.py`).
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final

import numpy as np
import pytest

from hopscope.kernel.sockets.tcp_info import DTYPE
from hopscope.lab import Tbf, shape
from tests.lab.measure import MS, NetworkPath, histogram, in_thread, tcp_pair, wait_acknowledged
from tests.verbs.tx.measure import ip
from tests.verbs.tx.tcp_measure import accounted, done, events, held, read_all, run
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hopscope.lab import Lab
    from hopscope.model.snapshot import Snapshot
    from hopscope.verbs.tx.collector import TxCollector

pytestmark = pytest.mark.root

_SO_MAX_PACING_RATE: Final = 47
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33
# With hooks that every packet of the host passes, with those of the selected flows alone, and by tracing.
MODES: Final[Mapping[str, Mapping[str, object]]] = {
    "host": {"way": "stamped"},
    "flow": {"way": "stamped", "flow_hooks": True},
    "traced": {"way": "traced"},
}
# Of the kernel's account of the receiver's window; the coarsest ones have 100 a second.
_TICK_NS: Final = 10 * MS
# Of a wait, what may go to "other": TCP makes packets of several calls' bytes, and looks are made meanwhile.
_NOISE: Final = 0.05

both = pytest.mark.parametrize("mode", ["flow", "host", pytest.param("traced", marks=pytest.mark.slow)])


def started(lab: Lab, mode: str) -> TxCollector:
    """Return a run on the lab."""
    return run(lab, **MODES[mode])  # type: ignore[arg-type] # whatever `run` takes


def info(sock: socket.socket, name: str) -> int:
    """Return what the kernel says of the connection (TCP_INFO)."""
    told = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, DTYPE.itemsize)
    return int(np.frombuffer(told.ljust(DTYPE.itemsize, b"\0"), DTYPE)[0][name])


def sums_ns(snapshot: Snapshot) -> dict[str, int]:
    """Return cause → the time that it has of all waits."""
    return {cause: histogram(snapshot, f"tx.sched_{cause}").sum_ns for cause in held(snapshot)}


def assert_only(cause: str, name: str, tx: TxCollector, snapshot: Snapshot, least: int) -> None:
    """One cause held the messages that were held, at least so many; the parts are exactly the waits.

    By tracing, a wait begins with its call, and what the call itself takes is nobody's: of a short one it may be most.
    """
    parts = sums_ns(snapshot)
    waits = [(message.cause, message.hops()["tx.sched"] or 0) for message in events(tx) if message.cause != "none"]
    longest_ns = max(wait_ns for _, wait_ns in waits)
    causes = [found for found, wait_ns in waits if wait_ns >= _NOISE * longest_ns]
    assert causes == [name] * len(causes), parts
    assert sum(found == name for found, _ in waits) >= least, parts
    assert sum(parts.values()) == sum(wait_ns for _, wait_ns in waits)
    assert parts[cause] >= (1 - _NOISE) * sum(parts.values()), parts


@both
def test_small_queues_alone(lab: Lab, veth: NetworkPath, mode: str) -> None:
    shape(lab.client, "client0", Tbf(rate_bit_s=100_000_000, burst_bytes=70_000))
    ip(lab.client, "route replace 10.77.0.0/24 dev client0 initcwnd 1000")
    ip(lab.server, "route replace 10.77.0.0/24 dev server0 initrwnd 1000")
    with tcp_pair(veth) as (sender, receiver):
        sender.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, 8 << 20)
        receiver.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 8 << 20)
        with in_thread(lambda: read_all(receiver, 400_000)):
            sender.sendall(bytes(400_000))  # until the receiver's window is open
        wait_acknowledged(sender)
        with started(lab, mode) as tx:
            with in_thread(lambda: read_all(receiver, 60 * 20_000)):
                for _ in range(60):
                    sender.send(bytes(20_000), socket.MSG_EOR)
            snapshot = done(tx, 60)
            assert info(sender, "snd_cwnd") >= 1000
            assert_only("tsq", "small-queue", tx, snapshot, 20)


@both
def test_a_congestion_window_alone(lab: Lab, veth: NetworkPath, mode: str) -> None:
    # ACKs are slow, so that no packet is below TCP for long.
    shape(lab.server, "server0", Tbf(rate_bit_s=200_000, burst_bytes=1600))
    ip(lab.client, "route replace 10.77.0.0/24 dev client0 initcwnd 2")
    with tcp_pair(veth) as (sender, receiver), started(lab, mode) as tx:
        sender.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, 8 << 20)
        receiver.send(bytes(1400))  # the token bucket is empty
        read_all(sender, 1400)
        with in_thread(lambda: read_all(receiver, 40 * 3000)):
            for _ in range(40):
                sender.send(bytes(3000), socket.MSG_EOR)
        snapshot = done(tx, 41)
        assert_only("cwnd", "congestion-window", tx, snapshot, 8)


@both
def test_a_receivers_window_alone(lab: Lab, veth: NetworkPath, mode: str) -> None:
    ip(lab.client, "route replace 10.77.0.0/24 dev client0 initcwnd 1000")
    with tcp_pair(veth) as (sender, receiver), started(lab, mode) as tx:
        sender.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, 8 << 20)
        for _ in range(40):
            sender.send(bytes(10_000), socket.MSG_EOR)
        eventually(lambda: info(sender, "rwnd_limited") >= 200_000)
        read_all(receiver, 400_000)
        snapshot = done(tx, 40)
        told_ns = info(sender, "rwnd_limited") * 1000
        assert_only("rwnd", "receiver-window", tx, snapshot, 10)
    assert abs(histogram(snapshot, "tx.sched_rwnd").max_ns - told_ns) <= 2 * _TICK_NS


@both
def test_a_receivers_window_and_then_a_congestion_window(lab: Lab, either: NetworkPath, mode: str) -> None:
    with tcp_pair(either) as (sender, receiver), started(lab, mode) as tx:
        # Less room than was promised: packets are dropped, and what is left of the window is that of congestion.
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        sender.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, 8 << 20)
        for _ in range(40):
            sender.send(bytes(10_000), socket.MSG_EOR)
        eventually(lambda: info(sender, "busy_time") >= info(sender, "rwnd_limited") + 100_000)
        read_all(receiver, 400_000)
        snapshot = done(tx, 40)
        told_ns = info(sender, "rwnd_limited") * 1000
    assert told_ns > 100 * MS
    assert accounted(snapshot)["tx.total"] == 40
    assert abs(histogram(snapshot, "tx.sched_rwnd").max_ns - told_ns) <= 2 * _TICK_NS
    whole, parts = histogram(snapshot, "tx.sched"), sums_ns(snapshot)
    assert parts["rwnd"] + parts["cwnd"] >= (1 - _NOISE) * whole.sum_ns, parts


@both
def test_a_pacing_rate_alone(lab: Lab, either: NetworkPath, mode: str) -> None:
    with tcp_pair(either) as (sender, receiver), started(lab, mode) as tx:
        sender.setsockopt(socket.SOL_SOCKET, _SO_MAX_PACING_RATE, 1_000_000)
        sender.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, 8 << 20)
        with in_thread(lambda: read_all(receiver, 300_000)):
            for _ in range(60):
                sender.send(bytes(5000), socket.MSG_EOR)
        snapshot = done(tx, 60)
        assert_only("pacing", "pacing", tx, snapshot, 42)
    # 0.3 MB at 1 MB/s.
    assert histogram(snapshot, "tx.sched_pacing").max_ns >= 150 * MS


@both
def test_nagle_alone(lab: Lab, veth: NetworkPath, mode: str) -> None:
    with tcp_pair(veth) as (sender, receiver), started(lab, mode) as tx:
        sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 0)
        for _ in range(10):
            # Without quick ACKs, the second write waits for the delayed ACK of the first.
            receiver.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
            sender.send(bytes(10))
            sender.send(bytes(10))
            read_all(receiver, 20)
            receiver.send(b"answer")
            sender.recv(10)
        assert_only("nagle", "nagle", tx, done(tx, 30), 5)


@both
def test_a_cork_alone(lab: Lab, veth: NetworkPath, mode: str) -> None:
    with tcp_pair(veth) as (sender, receiver), started(lab, mode) as tx:
        for _ in range(10):
            sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
            sender.send(bytes(10))
            assert info(sender, "notsent_bytes") == 10
            sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)
            read_all(receiver, 10)
        assert_only("cork", "cork", tx, done(tx, 10), 10)


@both
@pytest.mark.parametrize("nodelay", [0, 1], ids=["nagle", "nodelay"])
def test_more_to_come_is_a_cork_with_nagle_and_without(lab: Lab, veth: NetworkPath, mode: str, nodelay: int) -> None:
    with tcp_pair(veth) as (sender, receiver), started(lab, mode) as tx:
        sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, nodelay)
        for _ in range(10):
            sender.send(bytes(10), socket.MSG_MORE)
            assert info(sender, "notsent_bytes") == 10
            sender.send(bytes(10))
            read_all(receiver, 20)
        snapshot = done(tx, 20)
        assert [message.cause for message in events(tx)] == ["cork", "none"] * 10
    assert held(snapshot)["cork"] == 10
