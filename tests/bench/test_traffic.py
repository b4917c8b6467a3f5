# SPDX-License-Identifier: Apache-2.0
"""What is read of processes and namespaces in /proc, and where processes run."""

from __future__ import annotations

import os
import socket
import subprocess
import time

import pytest

from bench.traffic import LOADS, cpu_ns, per_cpu_second, pin, received
from hopscope.lab import Namespace
from tests import again


def test_cpu_time_is_of_all_threads_in_ns() -> None:
    before_ns, start_ns = cpu_ns(os.getpid()), time.thread_time_ns()
    while time.thread_time_ns() - start_ns < 20_000_000:
        pass
    assert cpu_ns(os.getpid()) - before_ns >= 10_000_000


def test_process_is_pinned_to_a_cpu_that_we_may_use() -> None:
    cpus = sorted(os.sched_getaffinity(0))
    with subprocess.Popen(["sleep", "30"]) as child:
        for index in (0, 1):
            pin(child.pid, index)
            assert os.sched_getaffinity(child.pid) == {cpus[index % len(cpus)]}
        child.kill()


@pytest.mark.root
def test_datagrams_count_when_they_are_read() -> None:
    with Namespace() as namespace:
        sink = namespace.call(socket.socket, socket.AF_INET, socket.SOCK_DGRAM)
        sender = namespace.call(socket.socket, socket.AF_INET, socket.SOCK_DGRAM)
        with sink, sender:
            sink.bind(("127.0.0.1", 0))
            for _ in range(23):
                sender.sendto(bytes(1000), sink.getsockname())
            assert received(namespace.pid, "udp") == 0
            assert received(namespace.pid, "tcp") == 23 * 1028
            for _ in range(20):
                sink.recv(1)
            assert received(namespace.pid, "udp") == 20


@pytest.mark.root
@pytest.mark.parametrize("load", LOADS)
def test_load_flows(load: str) -> None:
    with Namespace() as namespace:
        assert again.until(lambda rate: rate > 0, lambda: per_cpu_second(namespace, load, 0.1)) > 0
