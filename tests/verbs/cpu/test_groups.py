# SPDX-License-Identifier: Apache-2.0
"""Whose it is: by process, cgroup, device and CPU; the rows are the total, also when there are too many groups."""

from __future__ import annotations

import os
import re
import time
from typing import TYPE_CHECKING

import pytest

from hopscope.kernel.irqs import network_irqs
from hopscope.lab import Workload
from tests.lab.measure import NetworkPath, udp_pair
from tests.verbs.cpu.measure import NOBODY, assert_sane, calls, of_group, of_process, on_cpu, run
from tests.verbs.cpu.test_softirq import exchange
from tests.verbs.rx.test_groups import cgroup

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.root

COUNT = 23
SIZE = 64
EXACT = (COUNT, COUNT * SIZE)
NOTHING = (0, 0)


def traffic(
    path: NetworkPath, into: Path | None = None, out_of: Path | None = None, name: str = "service"
) -> tuple[int, int]:
    """Send some datagrams one by one, from a process in one cgroup to one in another; return the processes."""
    to = ("--cgroup", into) if into else ()
    out = ("--cgroup", out_of) if out_of else ()
    with Workload(path.receiver, "udp-sink", "--bind", path.host, "--count", COUNT, "--comm", name, *to) as sink:
        arguments = ("--count", COUNT, "--rate", 2000, "--size", SIZE, "--comm", f"{name}-out")
        with Workload(path.sender, "udp-send", path.host, sink.port, *arguments, *out) as sender:
            sender.result()
        sink.result()
        return sender.pid, sink.pid


def test_a_process_that_only_sends_receives_nothing(veth: NetworkPath) -> None:
    with run("process") as cpu:
        pairs = [traffic(veth, name=f"service{number}") for number in range(3)]
        snapshot = cpu.interval()
    for number, (sender, sink) in enumerate(pairs):
        parts = of_group(snapshot, f"service{number}-out ({sender})")
        assert calls(parts, "send", "receive", "io_uring") == [EXACT, NOTHING, NOTHING]
        assert parts["receive"].ns == 0 < parts["send"].ns
        received = of_process(snapshot, sink)
        assert calls(received, "send") == [NOTHING]
        # It may look in vain before a datagram comes.
        assert received["receive"].runs >= COUNT
        assert received["receive"].len_bytes == COUNT * SIZE
    assert_sane(snapshot)


def test_each_service_of_a_host_has_a_line(veth: NetworkPath) -> None:
    container = "c0ffee" + "0123456789" * 5 + "abcdef01"
    with cgroup("one") as one, cgroup(f"docker-{container}.scope") as two, run("cgroup") as cpu:
        for _ in range(2):
            traffic(veth, into=one, out_of=two)
        snapshot = cpu.interval()
    senders, sinks = of_group(snapshot, "container c0ffee012345"), of_group(snapshot, f"/{one.name}")
    assert calls(senders, "send", "receive") == [(2 * COUNT, 2 * COUNT * SIZE), NOTHING]
    assert calls(sinks, "send") == [NOTHING]
    assert sinks["receive"].len_bytes == 2 * COUNT * SIZE
    assert_sane(snapshot)


def test_calls_are_charged_to_the_cpu_that_does_them(veth: NetworkPath) -> None:
    allowed = os.sched_getaffinity(0)
    with udp_pair(veth) as flow, run("cpu") as cpu:
        for number in sorted(allowed):
            cpu.interval()
            with on_cpu(number):
                exchange(*flow, COUNT)
            snapshot = cpu.interval()
            assert [row.group["cpu"] for row in snapshot.rows] == sorted(row.group["cpu"] for row in snapshot.rows)
            assert of_group(snapshot, str(number))["send"].runs >= COUNT
            assert_sane(snapshot)


@pytest.mark.parametrize("group_by", ["process", "cgroup", "interface", "cpu"])
def test_rows_are_the_total(veth: NetworkPath, group_by: str) -> None:
    with udp_pair(veth) as flow, run(group_by) as cpu:
        exchange(*flow, COUNT)
        snapshot = cpu.interval()
    assert_sane(snapshot)
    assert snapshot.total.parts["send"].runs >= COUNT
    assert sum(snapshot.total.parts[name].packets for name in ("net_rx", "ksoftirqd")) >= COUNT


def test_too_many_groups_are_one_row(veth: NetworkPath) -> None:
    with run("process", max_groups=1) as few, run("process") as all_groups:
        pids = {pid for _ in range(3) for pid in traffic(veth)}
        found = all_groups.interval()
        snapshot = few.interval()
    own = [of_process(snapshot, pid) for pid in pids]
    # At most one of them was the first of all.
    assert sum(parts != NOBODY for parts in own) <= 1
    assert len(snapshot.rows) <= 2
    assert_sane(snapshot)
    rest = of_group(snapshot, "-")
    assert rest["send"].runs + sum(parts["send"].runs for parts in own) >= 3 * COUNT
    (note,) = [note for note in snapshot.notes if "group" in note]
    overflows, limit = (int(each.replace(",", "")) for each in re.findall(r"\d[\d,]*", note))
    assert limit == 1
    # Each call looks for its group at its beginning.
    assert overflows >= 5 * COUNT
    assert [note for note in found.notes if "group" in note] == []
    # The later snapshot has at least what the earlier one has.
    for name, part in found.total.parts.items():
        assert snapshot.total.parts[name].runs >= part.runs


def test_interrupts_of_devices_are_counted_as_the_kernel_counts_them() -> None:
    irqs = network_irqs()
    if not irqs:
        pytest.skip("this machine shows no interrupt of a network device")

    def counted() -> int:
        with open("/proc/interrupts") as file:  # noqa: PTH123
            lines = [line.split() for line in file]
        cpus = len(lines[0])
        return sum(sum(map(int, line[1 : 1 + cpus])) for line in lines[1:] if line[0][:-1] in map(str, irqs))

    with run("cpu") as cpu:
        before = counted()
        cpu.interval()
        time.sleep(1.0)
        runs = cpu.interval().total.parts["irq"].runs
        after = counted()
    # The two do not look at the same instant.
    assert runs <= after - before
