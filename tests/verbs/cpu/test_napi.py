# SPDX-License-Identifier: Apache-2.0
"""Polls outside of the softirq of the interrupted task: threads, busy polling, ksoftirqd."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import socket
import struct
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from hopscope.lab import Lab
from hopscope.model.cpu import NO_PART
from tests.lab.measure import udp_pair, way
from tests.verbs.cpu.measure import Burner, assert_sane, of_device, of_process, run
from tests.verbs.cpu.test_softirq import NAPI, exchange
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.root

PACKETS = 500
BURN_NS = 50_000
POLLS = 10
LOOPED = 5
MS = 1_000_000
POLL_US = 20_000
# What the kernel itself takes for a packet: far less, also on a busy machine.
OWN_NS = 40_000
SO_BUSY_POLL = 46
SO_INCOMING_NAPI_ID = 56
# include/uapi/linux/eventpoll.h
EPIOCSPARAMS = 0x40088A01


@pytest.fixture
def napi() -> Iterator[Lab]:
    with Lab(offloads=NAPI) as lab:
        yield lab


def thread_the_napi(lab: Lab) -> None:
    """Make the server's device poll by threads; sysfs shows it in the namespace that mounts it."""
    words = "mount -t sysfs none /sys && echo 1 > /sys/class/net/server0/threaded"
    lab.server.run(["unshare", "--mount", "sh", "-c", words], check=True)


@pytest.mark.parametrize("group_by", ["interface", "process"])
def test_threads_that_poll_are_apart(napi: Lab, tmp_path: Path, group_by: str) -> None:
    thread_the_napi(napi)
    with (
        Burner(tmp_path, "burn_xdp") as burner,
        udp_pair(way(napi, "veth-4")) as flow,
        burner.on(napi.server, "server0"),
        run(group_by) as cpu,
    ):
        burner.each(BURN_NS)
        cpu.interval()
        exchange(*flow, PACKETS)
        snapshot = cpu.interval()
        assert burner.packets == PACKETS
        rows = {next(iter(row.group.values())): row.parts["napi_thread"] for row in snapshot.rows}
        (name,) = [name for name, part in rows.items() if part.packets]
        if group_by == "interface":
            assert of_device(snapshot, "server0", napi.server)["net_rx"].packets == 0
            assert name.startswith("server0@")
        else:
            assert name.startswith("napi/server0-")
    assert rows[name].packets == PACKETS
    assert 0.95 * PACKETS * BURN_NS < rows[name].ns < 1.05 * burner.burned_ns + PACKETS * OWN_NS
    # What comes from elsewhere: a switch to the thread before its first poll.
    assert sum(part.ns for part in rows.values()) - rows[name].ns < 0.05 * rows[name].ns
    assert_sane(snapshot)


@pytest.fixture
def polled(napi: Lab) -> Iterator[socket.socket]:
    """A socket that knows the NAPI to poll."""
    with udp_pair(way(napi, "veth-4")) as (sender, receiver):
        exchange(sender, receiver, 1)
        if not receiver.getsockopt(socket.SOL_SOCKET, SO_INCOMING_NAPI_ID):
            pytest.skip("this kernel's veth gives sockets no NAPI to poll busily")
        yield receiver


def poll_in_recv(receiver: socket.socket) -> None:
    receiver.setsockopt(socket.SOL_SOCKET, SO_BUSY_POLL, POLL_US)
    receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("qq", 0, 2 * POLL_US))
    for _ in range(POLLS):
        with contextlib.suppress(BlockingIOError):
            receiver.recv(100)


def poll_in_epoll(receiver: socket.socket) -> None:
    with select.epoll() as epoll:
        try:
            fcntl.ioctl(epoll, EPIOCSPARAMS, struct.pack("IHBx", POLL_US, 8, 0))
        except OSError as error:
            pytest.skip(f"this kernel's epoll cannot be told to poll busily (since 6.9): {error}")
        epoll.register(receiver, select.EPOLLIN)
        for _ in range(POLLS):
            assert epoll.poll(2 * POLL_US / 1e6) == []


@pytest.mark.parametrize("poll", [poll_in_recv, poll_in_epoll])
def test_busy_polling_is_apart(polled: socket.socket, poll: Callable[[socket.socket], None]) -> None:
    with run(hz=1000) as cpu:
        cpu.interval()
        began_ns = time.thread_time_ns()
        poll(polled)
        took_ns = time.thread_time_ns() - began_ns
        snapshot = cpu.interval()
    parts = of_process(snapshot)
    # The thread does next to nothing else; but softirqs for others of this machine come upon it.
    others_ns = snapshot.total.parts["net_rx"].ns
    assert 0.8 * (took_ns - others_ns) - 5 * MS < parts["busy_poll"].ns <= 1.02 * took_ns
    assert parts["receive"].ns < 0.1 * parts["busy_poll"].ns + 5 * MS
    assert parts["busy_poll"].runs > POLLS
    samples: Counter[str] = Counter()
    for stack in snapshot.stacks:
        if stack.group.endswith(f"({os.getpid()})"):
            samples[stack.part] += stack.samples
    assert samples["busy_poll"] > 0.8 * samples.total()


def loop_packets(lab: Lab) -> None:
    """Let both hosts send what is for 10.99.0.1 to the other."""
    for namespace, gateway in ((lab.client, "10.77.0.2"), (lab.server, "10.77.0.1")):
        namespace.sysctl("net.ipv4.ip_forward", 1)
        for setting, value in (("accept_local", 1), ("rp_filter", 0), ("send_redirects", 0)):
            for each in ("all", "client0" if namespace is lab.client else "server0"):
                namespace.sysctl(f"net.ipv4.conf.{each}.{setting}", value)
        namespace.run(["ip", "route", "add", "10.99.0.0/24", "via", gateway], check=True)


def test_ksoftirqd_is_apart(napi: Lab, tmp_path: Path) -> None:
    # A packet that goes round until its TTL ends takes longer than softirqs may in one go (2 jiffies).
    loop_packets(napi)
    with (
        Burner(tmp_path, "burn_xdp") as burner,
        napi.client.call(socket.socket, socket.AF_INET, socket.SOCK_DGRAM) as sender,
        burner.on(napi.server, "server0"),
        run() as cpu,
    ):
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 255)
        burner.each(200_000)
        cpu.interval()
        for _ in range(LOOPED):
            sender.sendto(bytes(100), ("10.99.0.1", 7777))
        eventually(lambda: burner.packets >= LOOPED * 128)
        snapshot = cpu.interval()
    rows = {row.group["process"]: row.parts for row in snapshot.rows}
    threads = {name: parts["ksoftirqd"] for name, parts in rows.items() if parts["ksoftirqd"].packets}
    assert threads
    assert all(name.startswith("ksoftirqd/") for name in threads)
    assert sum(part.packets for part in threads.values()) > 0.3 * LOOPED * 128
    softirqs = sum((parts[name] for parts in rows.values() for name in ("net_rx", "ksoftirqd")), NO_PART)
    # A softirq that comes upon a process that this kernel does not let be watched is not seen; both ends have packets.
    seen = min(softirqs.packets / (2 * LOOPED * 128), 1)
    assert softirqs.ns > 0.9 * seen * LOOPED * 128 * 200_000
    assert_sane(snapshot)
