# SPDX-License-Identifier: Apache-2.0
"""Every way to attach a point of ``cpu`` gives the same account; each is forced in turn, where this kernel grants it.

`make vmtest` runs this on kernels that grant what the one at hand does not.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from hopscope.probes.catalogue.cpu import CPU
from hopscope.probes.resolve import Resolver
from hopscope.verbs.cpu.collector import CpuCollector
from hopscope.verbs.cpu.options import CpuOptions
from tests.lab.forced import skip_unless_granted
from tests.lab.measure import ping, tcp_pair, udp_pair, way

if TYPE_CHECKING:
    from hopscope.lab import Lab
    from hopscope.probes.point import AttachMethod

pytestmark = pytest.mark.root
# What has one way alone is attached in each of these runs; `cpu.sample` on top, for it is not wanted by itself.
WAYS = [
    pytest.param(point.name, each, id=f"{point.name}={each.name}")
    for point in CPU
    if len(point.ways) > 1 or point.name == "cpu.sample"
    for each in point.ways
]
_MESSAGES = 23
_DATAGRAMS = 101
_NAMES = 7
# What some kernels or machines do not have: functions of old kernels or of modules, interrupts of another architecture.
_NOT_EVERYWHERE = {"cpu.timer", "cpu.ipi", "cpu.tasklet", "cpu.packet", "cpu.sendpage", "cpu.uring", "cpu.busy_poll"}


@pytest.fixture(scope="module")
def resolver() -> Resolver:
    return Resolver()


def with_calls(point: str, wanted: AttachMethod) -> dict[str, str]:
    """Return what to force: points that go with how socket calls are found need that forced, too."""
    follows_calls = point in {"cpu.control", "cpu.packet", "cpu.sendpage", "cpu.uring", "cpu.busy_poll"}
    calls = next(each for each in CPU if each.name == "cpu.call")
    kin = next((each.name for each in calls.ways if each.kind == wanted.kind), "")
    return {point: wanted.name} | ({"cpu.call": kin} if follows_calls else {})


@pytest.mark.parametrize(("point", "wanted"), WAYS)
def test_each_way_gives_the_same_account(kept_lab: Lab, resolver: Resolver, point: str, wanted: AttachMethod) -> None:
    skip_unless_granted(resolver, point, wanted)
    options = CpuOptions(group_by="process", hz=999 if point == "cpu.sample" else 0, ways=with_calls(point, wanted))
    with CpuCollector(options) as cpu:
        # To load the programs takes long under emulation: one run sees both versions of IP.
        for path_name in ("veth-4", "veth-6"):
            path = way(kept_lab, path_name)
            with udp_pair(path) as udp, tcp_pair(path) as tcp:
                cpu.interval()
                started_ns = time.monotonic_ns()
                assert ping(*udp, _DATAGRAMS) == _DATAGRAMS
                assert ping(*tcp, _MESSAGES) == _MESSAGES
                for _ in range(_NAMES):
                    tcp[0].getpeername()
                elapsed_ns = time.monotonic_ns() - started_ns
                snapshot = cpu.interval()
            (own,) = [row for row in snapshot.rows if f"({os.getpid()})" in row.group["process"]]
            assert own.parts["send"].runs == own.parts["receive"].runs == _DATAGRAMS + _MESSAGES
            assert own.parts["send"].len_bytes == own.parts["receive"].len_bytes > 0
            assert own.parts["control"].runs == _NAMES
            assert own.parts["control"].ns > 0
            assert 0 < own.parts["send"].ns + own.parts["receive"].ns < elapsed_ns
            softirqs = [snapshot.total.parts[name] for name in ("net_rx", "ksoftirqd", "napi_thread")]
            assert sum(part.packets for part in softirqs) >= _DATAGRAMS + _MESSAGES
            assert sum(part.ns for part in softirqs) > 0
    attached = {row.point: row.way for row in snapshot.plan if row.status == "attached"}
    assert attached[point] == wanted.name
    assert {row.point for row in snapshot.plan} - attached.keys() <= _NOT_EVERYWHERE
