# SPDX-License-Identifier: Apache-2.0
"""Times by samples alone: against the exact account of the same traffic, and the kernel's account of a thread."""

from __future__ import annotations

import json
import math
import os
from typing import TYPE_CHECKING

import pytest

from hopscope.lab import Lab
from hopscope.libbpf import online_cpus
from hopscope.verbs.cpu.options import CpuOptions
from hopscope.verbs.cpu.sampled import SampledCollector
from tests.lab.command import hopscope
from tests.lab.measure import udp_pair, way
from tests.verbs.cpu.measure import before_others, of_process, on_cpu, run
from tests.verbs.cpu.test_softirq import NAPI, part_of
from tests.verbs.cpu.test_time import bulk

if TYPE_CHECKING:
    from hopscope.model.cpu import CpuSnapshot

pytestmark = pytest.mark.root

HZ = 2999
ROUNDS = 10
PARTS = ("net_rx", "send", "receive")


def sampled(group_by: str = "process", hz: int = HZ) -> SampledCollector:
    return SampledCollector(CpuOptions(group_by=group_by, hz=hz, sampled=True))


def agrees(exact: CpuSnapshot, estimate: CpuSnapshot, part: str) -> bool:
    """Tell whether the exact time is in the interval that the estimate states."""
    low_ns, high_ns = estimate.bounds_ns(estimate.total.parts[part].samples)
    return low_ns <= exact.total.parts[part].ns <= high_ns


@pytest.mark.parametrize(("budget", "hz"), [("0.001", 1), ("0.24", 40), ("100", 199 * len(online_cpus()))])
def test_a_budget_is_worth_so_many_samples(budget: str, hz: int) -> None:
    each = max(hz // len(online_cpus()), 1)
    report = json.loads(hopscope("cpu", "--budget", budget, "-d", 0.5, "--json").stdout.splitlines()[-1])
    assert report["sampling_hz"] == each
    assert report["notes"][0].startswith(f"budget {budget}% of a CPU: each CPU is looked at {each} time")


def test_the_exact_time_is_in_the_stated_interval() -> None:
    with (
        Lab(offloads=NAPI) as lab,
        udp_pair(way(lab, "veth-4")) as flow,
        run("cpu") as account,
        sampled("cpu") as clock,
    ):
        account.interval(), clock.interval()
        inside = []
        for _ in range(ROUNDS):
            bulk(*flow, 0.1)
            exact, estimate = account.interval(), clock.interval()
            inside += [agrees(exact, estimate, part) for part in PARTS]
        whole, total = account.total(), clock.total()
    # Of 95 %: the two do not begin and end at the same instant, and the exact times include the hooks.
    assert sum(inside) > 0.7 * len(inside)
    for part in PARTS:
        samples = total.total.parts[part].samples
        expected = whole.total.parts[part].ns * total.hz / 1e9
        assert abs(samples - expected) < 0.1 * expected + 3 * math.sqrt(expected), (part, samples, expected)
    assert total.ticks > 0
    assert sum(row.ns for row in total.rows) == total.total.ns


def test_a_thread_has_the_time_that_the_kernel_charges_to_it() -> None:
    with (
        Lab(offloads=NAPI) as lab,
        udp_pair(way(lab, "veth-4")) as flow,
        on_cpu(max(os.sched_getaffinity(0))),
        sampled() as clock,
    ):
        clock.interval()
        with before_others():
            took_ns = bulk(*flow, 0.5)
        snapshot = clock.interval()
    calls, softirqs = part_of(of_process(snapshot), "send", "receive"), snapshot.total.parts["net_rx"]
    # Softirqs run in the thread, in the midst of its sends. Others of this machine may add to them.
    assert 0.7 * took_ns < calls.ns + softirqs.ns < 1.1 * took_ns
    assert min(calls.samples, softirqs.samples) > 0
