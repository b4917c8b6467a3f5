# SPDX-License-Identifier: Apache-2.0
"""``hopscope record --host`` over a connection that is slower than what is recorded: what is lost is known exactly."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from hopscope.lab.netlink import Tbf
from hopscope.lab.veth import shape
from hopscope.store.trace import Trace
from tests.lab.recorded_hosts import Pair, pair, stopped
from tests.verbs.record.test_hosts import said_at_end

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.root
# So long, bytes of packets come quicker than the link takes them, until no room is left anywhere on the way.
FLOOD_S = 14
FLOOD = f"""
import os, socket, sys, time
receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
receiver.bind(("127.0.0.1", 0))
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sender.connect(receiver.getsockname())
noise = os.urandom(1 << 20)
for seconds in (0.1, {FLOOD_S}):
    sys.stdin.readline()
    until_s, count = time.monotonic() + seconds, 0
    while time.monotonic() < until_s:
        sender.send(memoryview(noise)[count & 0xffff:][:8000])
        count += 1
    print(count, flush=True)
"""


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with pair(tmp_path_factory.mktemp("hosts")) as made:
        shape(made.lab.server, "server0", Tbf(40_000_000, 64 << 10, 1 << 20))
        yield made


def test_all_that_is_not_recorded_is_counted(hosts: Pair, tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = ("--point", "tx.start", "--snap", 8192, "--buffer", 2, "--counters", 0)
    child = hosts.begun(out, *options, hosts=("b",))
    words = ["nsenter", f"--net=/proc/{hosts.lab.server.pid}/ns/net", "taskset", "-c", "1", sys.executable, "-c", FLOOD]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as sender:
        assert sender.stdin
        assert sender.stdout
        sent = 0
        for _ in range(2):  # the first make thread and device known
            sender.stdin.write("\n")
            sender.stdin.flush()
            sent += int(sender.stdout.readline())
    code, err = stopped(child)
    assert code == 0, err
    lost = int(said_at_end(err, out)["b"]["lost"].replace(",", ""))
    assert lost > 0
    with Trace(out / "b") as trace:
        assert trace.warnings == []
        ((recorded,),) = trace.rows(
            "SELECT count(*) FROM packets JOIN points USING (point) JOIN devices USING (ifindex, netns) "
            "WHERE points.name = 'tx.start' AND devices.name = 'lo'"
        )
        assert recorded + lost == sent
        losses = trace.rows("SELECT cpu, from_ns, until_ns, lost FROM losses")
        assert sum(row[-1] for row in losses) == lost
        assert {row[0] for row in losses} == {1}
        ((first, last),) = trace.rows("SELECT min(time_ns), max(time_ns) FROM packets")
        assert all(first < from_ns < until_ns for _, from_ns, until_ns, _ in losses)
        assert min(until_ns for _, _, until_ns, _ in losses) < last or len(losses) == 1
