# SPDX-License-Identifier: Apache-2.0
"""A CPU that goes and comes back during a run. In the guests of vmtest alone: nobody else works there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.lab.measure import NetworkPath, ping, udp_pair
from tests.verbs.cpu.measure import assert_sane, of_process, run

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.root
_CPU = 1
_ONLINE = Path(f"/sys/devices/system/cpu/cpu{_CPU}/online")
_CALLS = 200


@pytest.fixture
def switch() -> Iterator[Path]:
    """The file that takes the CPU away and gives it back, which happens at the end in any case."""
    if "virtme" not in Path("/proc/cmdline").read_text():
        pytest.skip("takes a CPU away from whoever works here: vmtest does it in its guests")
    if not os.access(_ONLINE, os.W_OK):
        pytest.skip(f"CPU {_CPU} of this machine cannot be switched off")
    allowed = os.sched_getaffinity(0)
    yield _ONLINE
    _ONLINE.write_text("1")
    os.sched_setaffinity(0, allowed)


def test_a_cpu_that_goes_and_comes_back(veth: NetworkPath, switch: Path) -> None:
    with udp_pair(veth) as flow, run("cpu", hz=999) as cpu, run("process") as by_process:
        by_process.interval()
        for online in (True, False, True):
            switch.write_text("1" if online else "0")
            if online:
                os.sched_setaffinity(0, {_CPU})
            cpu.interval()
            assert ping(*flow, _CALLS) == _CALLS
            snapshot = cpu.interval()
            assert_sane(snapshot)
            rows = {row.group["cpu"]: row.parts["send"].runs for row in snapshot.rows}
            assert (rows.get(str(_CPU), 0) >= _CALLS) == online
        own = of_process(by_process.interval())
    assert own["send"].runs == own["receive"].runs == 3 * _CALLS
