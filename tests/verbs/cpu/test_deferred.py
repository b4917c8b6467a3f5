# SPDX-License-Identifier: Apache-2.0
"""What the stack does in timers, tasklets and work items, and calls that move no data: by a burden of known length."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import struct
import time
from typing import TYPE_CHECKING

import pytest

from hopscope.lab import Lab, Tbf
from tests.lab.measure import tcp_pair, wait_acknowledged, way
from tests.verbs.cpu.measure import Burner, assert_sane, before_others, of_process, on_cpu, run
from tests.verbs.cpu.test_softirq import part_of
from tests.verbs.cpu.work import nft, sink
from tests.verbs.cpu.work_programs import bpf_call
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hopscope.model.cpu import CpuSnapshot

pytestmark = pytest.mark.root

BURN_NS = 300_000
COUNT = 40
SIZE = 1000
MB = 1_000_000
SO_MAX_PACING_RATE = 47
# include/linux/interrupt.h
TIMER_SOFTIRQ, TASKLET_SOFTIRQ, HRTIMER_SOFTIRQ = 1, 6, 8
BPF_PROG_ATTACH, SK_SKB_STREAM_VERDICT = 8, 5


@pytest.fixture
def burner(tmp_path: Path) -> Iterator[Burner]:
    """Burns what is sent."""
    with Burner(tmp_path, "burn_tc", outgoing=True) as made:
        yield made


def assert_burned_in(snapshot: CpuSnapshot, part: str, burner: Burner) -> None:
    """The burden is in this part, all of it and once; others of this machine may add to it."""
    assert 0.95 * burner.burned_ns < snapshot.total.parts[part].ns < 1.5 * burner.burned_ns
    assert_sane(snapshot)


def test_what_a_pacing_timer_sends_is_in_the_account(lab: Lab, burner: Burner) -> None:
    with (
        tcp_pair(way(lab, "veth-4")) as (sender, receiver),
        burner.on(lab.client, "client0"),
        burner.softirqs(),
        run() as cpu,
    ):
        sender.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, struct.pack("=Q", MB))
        burner.each(BURN_NS, least_bytes=SIZE)
        cpu.interval()
        sender.sendall(bytes(MB // 5))
        left = MB // 5
        while left:
            left -= len(receiver.recv(left))
        snapshot = cpu.interval()
    # The first packets leave in the call, those that follow at the timer: from it or, on old kernels, from a tasklet.
    burned_ns = sum(burner.softirq_ns(vector)[1] for vector in (TIMER_SOFTIRQ, TASKLET_SOFTIRQ, HRTIMER_SOFTIRQ))
    assert burned_ns > 0.5 * burner.burned_ns
    assert 0.95 * burned_ns < part_of(snapshot.total.parts, "timer", "tasklet").ns < 1.5 * burned_ns
    assert part_of(snapshot.total.parts, "timer", "tasklet", "send").ns > 0.95 * burner.burned_ns
    assert_sane(snapshot)


def test_retransmissions_are_the_timers(burner: Burner) -> None:
    with Lab() as lab, contextlib.ExitStack() as stack:
        ends = [stack.enter_context(tcp_pair(way(lab, "veth-4"))) for _ in range(COUNT)]
        nft(lab.server, "table inet t { chain c { type filter hook input priority 0; tcp dport != 0 drop; }; }")
        for sender, _ in ends:
            sender.send(b"lost")
        with burner.on(lab.client, "client0"), run() as cpu:
            burner.each(BURN_NS)
            cpu.interval()
            eventually(lambda: burner.packets >= COUNT)
            assert_burned_in(cpu.interval(), "timer", burner)


def test_what_follows_a_full_queue_is_the_tasklets(burner: Burner) -> None:
    with (
        Lab(tbf=Tbf(400_000_000, 20_000)) as lab,
        tcp_pair(way(lab, "veth-4")) as (sender, receiver),
        burner.on(lab.client, "client0"),
        burner.softirqs(),
        run() as cpu,
        sink(receiver),
    ):
        lab.client.run(["sysctl", "-qw", "net.ipv4.tcp_limit_output_bytes=4096"], check=True)
        wait_acknowledged(sender)
        burner.each(BURN_NS)
        cpu.interval()
        while burner.softirq_ns(TASKLET_SOFTIRQ)[1] < COUNT * BURN_NS:
            sender.sendall(bytes(MB))
        wait_acknowledged(sender)
        snapshot = cpu.interval()
        whole_ns, burned_ns = burner.softirq_ns(TASKLET_SOFTIRQ)
    # The account leaves out hard interrupts, and the way from the softirq to its tasklets.
    assert 0.95 * burned_ns < snapshot.total.parts["tasklet"].ns <= whole_ns
    assert_sane(snapshot)


def test_what_work_items_send_is_in_the_account(lab: Lab, burner: Burner) -> None:
    with tcp_pair(way(lab, "veth-4")) as (source, first), tcp_pair(way(lab, "veth-4")) as (onward, last):
        sockets = burner.bpf.maps["sockets"]
        bpf_call(BPF_PROG_ATTACH, sockets.fd, burner.bpf.programs["hand_on"].fd, SK_SKB_STREAM_VERDICT)
        for number, sock in enumerate((onward, source)):
            sockets.update(struct.pack("=I", number), struct.pack("=I", sock.fileno()))
        with burner.on(lab.client, "client0"), run() as cpu:
            burner.each(BURN_NS, least_bytes=SIZE)
            cpu.interval()
            for _ in range(COUNT):
                first.send(bytes(SIZE))
                assert len(last.recv(SIZE)) == SIZE
            snapshot = cpu.interval()
    assert_burned_in(snapshot, "workqueue", burner)
    threads = {row.group["process"] for row in snapshot.rows if row.parts["workqueue"].ns > BURN_NS}
    assert threads
    assert all(name.startswith("kworker/") for name in threads)


def test_a_known_burden_of_connect_is_control(tmp_path: Path) -> None:
    with (
        Burner(tmp_path, "burn_connect") as burner,
        burner.in_connect(),
        socket.socket(type=socket.SOCK_DGRAM) as sock,
        run() as cpu,
    ):
        burner.each(BURN_NS)
        cpu.interval()
        for _ in range(COUNT):
            sock.connect(("127.0.0.1", 9))
        snapshot = cpu.interval()
    assert_burned_in(snapshot, "control", burner)
    assert of_process(snapshot)["control"].runs == COUNT


def test_each_call_that_moves_no_data_is_control() -> None:
    with run() as cpu, socket.create_server(("127.0.0.1", 0)) as listener:
        cpu.interval()
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, 1)
            client.getsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY)
            client.connect(listener.getsockname())
            client.getpeername()
            listener.accept()[0].close()
            client.shutdown(socket.SHUT_WR)
        # Not networking: sockets and a file that carry no packets.
        for local in socket.socketpair():
            local.close()
        os.close(os.open("/", os.O_RDONLY))
        control = of_process(cpu.interval())["control"]
    made = ("socket", "setsockopt", "getsockopt", "connect", "getpeername", "accept", "shutdown")
    # Python asks what it accepted for its name.
    assert (control.runs, control.len_bytes) == (len(made) + 2 * len(("getsockname", "close")), 0)


def test_calls_that_move_no_data_are_what_the_kernel_charges_to_the_thread() -> None:
    with on_cpu(max(os.sched_getaffinity(0))), run() as cpu:
        cpu.interval()
        with before_others():
            before, began_ns = resource.getrusage(resource.RUSAGE_THREAD), time.thread_time_ns()
            while time.thread_time_ns() - began_ns < 0.5e9:
                for _ in range(10):
                    with socket.socket(type=socket.SOCK_DGRAM) as sock:
                        sock.bind(("127.0.0.1", 0))
                        sock.connect(("127.0.0.1", 9))
            took_ns, after = time.thread_time_ns() - began_ns, resource.getrusage(resource.RUSAGE_THREAD)
        control = of_process(cpu.interval())["control"]
    # What is left is the way into the kernel and back, interrupts, and our programs. The kernel goes by ticks.
    system_ns = (after.ru_stime - before.ru_stime) * 1e9
    assert 0.5 * system_ns < control.ns < 1.2 * system_ns
    assert control.ns < 1.02 * took_ns
