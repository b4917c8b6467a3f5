# SPDX-License-Identifier: Apache-2.0
"""Polls outside of the softirq of the interrupted task: threads, busy polling, ksoftirqd."""

from __future__ import annotations

import os
import select
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from collectors.cpu_measure import Burner, assert_sane, of_device, of_process, run
from collectors.measure import in_thread, udp_pair, way
from collectors.test_cpu_softirq import NAPI, exchange
from hopscope.lab import Lab

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.root

PACKETS = 500
BURN_NS = 50_000
# What the kernel itself takes for a packet: far less, also on a busy machine.
OWN_NS = 40_000
SO_BUSY_POLL = 46
SO_INCOMING_NAPI_ID = 56


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
