# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from hopscope.verbs.cpu.collector import CpuCollector
from hopscope.verbs.cpu.options import CpuOptions
from tests.verbs.cpu import work_programs as programs
from tests.verbs.cpu import work_sockets as sockets

if TYPE_CHECKING:
    from pathlib import Path

    from hopscope.model.cpu import CpuSnapshot
    from hopscope.model.stacks import Stack
    from tests.verbs.cpu.work import Work

pytestmark = pytest.mark.root


def done(cpu: CpuCollector, kind: Work, folder: Path) -> CpuSnapshot:
    """Have the kernel do work for a moment, and return the interval."""
    with kind(folder) as act:
        act()
        cpu.interval()
        end_s = time.thread_time() + 0.3
        while time.thread_time() < end_s:
            act()
            cpu.drain()
        return cpu.interval()


def samples(stacks: list[Stack], function: str) -> int:
    return sum(stack.samples for stack in stacks if any(frame.endswith(function) for frame in stack.frames))


def test_busy_polling_is_a_part_of_its_own(tmp_path: Path) -> None:
    with CpuCollector(CpuOptions(hz=20_000)) as cpu:
        snapshot = done(cpu, sockets.busy_polling, tmp_path)
    assert snapshot.total.parts["busy_poll"].ns > 0
    polling = [stack for stack in snapshot.stacks if "napi_busy_loop" in stack.frames]
    assert sum(stack.samples for stack in polling) > 10
    assert {stack.part for stack in polling} == {"busy_poll"}
    assert {stack.frames[0] for stack in polling} == {"napi_busy_loop"}


def test_a_program_that_is_gone_keeps_its_name_in_the_total(tmp_path: Path) -> None:
    with CpuCollector(CpuOptions(hz=20_000)) as cpu:
        burnt = samples(done(cpu, programs.xdp, tmp_path).stacks, "_burn_xdp")
        # Whoever comes after may lie where it was.
        later = samples(done(cpu, programs.tc_program, tmp_path).stacks, "_burn_tc")
        total = cpu.total().stacks
    assert min(burnt, later) > 10
    assert samples(total, "_burn_xdp") >= burnt
    assert samples(total, "_burn_tc") >= later
