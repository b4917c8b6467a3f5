# SPDX-License-Identifier: Apache-2.0
"""Agreement with measurements that have nothing of hopscope in them."""

from __future__ import annotations

import re
import shutil
import signal
import socket
import struct
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from tests.lab.measure import MS, TIMEOUT_S, NetworkPath, counts, histogram, ping, run, udp_pair
from tests.stamping import stamping

if TYPE_CHECKING:
    from hopscope.lab import Lab

pytestmark = pytest.mark.root

_SO_TIMESTAMPING = 37
_RX_SOFTWARE_AND_REPORT = 1 << 3 | 1 << 4


def test_a_receiver_with_kernel_time_stamps_agrees(lab: Lab, either: NetworkPath) -> None:
    messages, held_s = 5, 0.005
    differences_ns = []
    with stamping(), udp_pair(either) as (sender, receiver), run(lab) as rx:
        receiver.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPING, _RX_SOFTWARE_AND_REPORT)
        for _ in range(10):
            measured_ns = 0
            for _ in range(messages):
                sender.send(bytes(100))
                time.sleep(held_s)
                _, ancillary, _, _ = receiver.recvmsg(200, 1000)
                read_ns = time.clock_gettime_ns(time.CLOCK_REALTIME)
                (stamp,) = [
                    data for level, kind, data in ancillary if (level, kind) == (socket.SOL_SOCKET, _SO_TIMESTAMPING)
                ]
                seconds, nanoseconds = struct.unpack_from("qq", stamp)
                measured_ns += read_ns - (seconds * 10**9 + nanoseconds)
            total = histogram(rx.interval(), "rx.udp_total")
            assert total.count == messages
            assert total.sum_ns >= messages * held_s * 1e9
            # Both start in netif_rx, a few instructions apart. The receiver's clock is read after the return of the
            # system call and some Python, so that it is the later one; a step of the wall clock by NTP is below one per
            # mille.
            differences_ns.append((measured_ns - total.sum_ns) / messages)
            assert -20_000 - 0.001 * measured_ns / messages < differences_ns[-1]
    # In some rounds the CPU may have been taken away in between.
    assert min(differences_ns) < MS


def test_bpftrace_counts_as_many_packets(lab: Lab, veth: NetworkPath) -> None:
    if not shutil.which("bpftrace"):
        pytest.skip("bpftrace is not installed: apt-get install bpftrace")
    program = 'tracepoint:net:netif_receive_skb /str(args->name) == "server0" && args->len == 1205/ { @ = count(); }'
    # In a mount namespace of its own, so that tracefs is nowhere else.
    script = 'mountpoint -q "$1" || mount -t tracefs tracefs "$1" && exec bpftrace -e "$0"'
    with subprocess.Popen(
        [
            "unshare",
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-c",
            script,
            f'BEGIN {{ printf("ready\\n"); }} {program}',
            "/sys/kernel/tracing",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as bpftrace:
        assert bpftrace.stdout is not None
        while "ready" not in (line := bpftrace.stdout.readline()):
            if not line:
                pytest.skip(f"bpftrace cannot attach here: {bpftrace.communicate()[1].strip()[-200:]}")
        with udp_pair(veth) as flow, run(lab) as rx:
            assert ping(*flow, 1009, 1177) == 1009
            found = counts(rx.interval())
        bpftrace.send_signal(signal.SIGINT)
        words, _ = bpftrace.communicate(timeout=TIMEOUT_S)
    assert found["rx.core"] == 1009
    assert [int(number) for number in re.findall(r"@: (\d+)", words)] == [1009]
