# SPDX-License-Identifier: Apache-2.0
"""Every way to attach a point of ``tx`` gives the same counts; each is forced in turn, where this kernel grants it.

`make vmtest` runs this on kernels that grant what the one at hand does not.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hopscope.probes.catalogue.tx import TX
from hopscope.probes.resolve import Resolver
from tests import leftovers
from tests.lab.forced import Forced, granted_ways, skip_unless_granted
from tests.lab.measure import counts, ping, tcp_pair, udp_pair, way
from tests.verbs.tx.measure import UDP_HOPS, assert_seen, run_tx, total_when

if TYPE_CHECKING:
    from hopscope.lab import Lab
    from hopscope.model.snapshot import PointStatus
    from hopscope.probes.point import AttachMethod
    from tests.lab.forced import Ways

pytestmark = pytest.mark.root
# What has one way alone is attached in each of these runs.
WAYS = [
    pytest.param(point.name, each, id=f"{point.name}={each.name}")
    for point in TX
    if len(point.ways) > 1
    for each in point.ways
]
STAMPED_HOPS = ("tx.tcp", "tx.sched", "tx.qdisc", "tx.driver", "tx.ack", "tx.total")
TRACED_HOPS = ("tx.sched", "tx.qdisc", "tx.ack", "tx.total")
# Instructions that the verifier looks at, path by path: it ends at a million (BPF_COMPLEXITY_LIMIT_INSNS), and no two
# kernels' look at equally many.
_MOST_VERIFIED = 900_000
_MESSAGES = 23
_DATAGRAMS = 101


@pytest.fixture(scope="module")
def resolver() -> Resolver:
    return Resolver()


def test_probes_says_of_each_way_what_a_run_finds(points: dict[str, PointStatus], resolver: Resolver) -> None:
    said = {(name, way.way): way.granted for name, status in points.items() for way in status.ways}
    found = {(point.name, way.name): resolver.judge(way).granted for point in TX for way in point.ways}
    assert {key: said[key] for key in found} == found


def measure(lab: Lab, ways: Ways) -> Ways:
    """Send and read while these ways are forced, and see each message at each hop; return what was attached."""
    with run_tx(lab, ways=ways) as tx:
        for runs, path_name in enumerate(("veth-4", "veth-6"), start=1):
            path = way(lab, path_name)
            with udp_pair(path) as udp, tcp_pair(path) as (sender, receiver):
                assert ping(*udp, _DATAGRAMS) == _DATAGRAMS
                assert ping(sender, receiver, _MESSAGES) == _MESSAGES
                snapshot = total_when(tx, "tx.total", runs * _MESSAGES)
            assert_seen(snapshot, UDP_HOPS, runs * _DATAGRAMS)
            assert_seen(snapshot, STAMPED_HOPS if "tx.driver" in counts(snapshot) else TRACED_HOPS, runs * _MESSAGES)
    attached = {row.point: row.way for row in snapshot.plan if row.status == "attached"}
    assert [row for row in snapshot.plan if row.point not in attached] == []
    return attached


@pytest.fixture(scope="module")
def forced(kept_lab: Lab, resolver: Resolver) -> Forced:
    return Forced(granted_ways(TX, resolver), functools.partial(measure, kept_lab))


@pytest.mark.parametrize(("point", "wanted"), WAYS)
def test_each_way_counts_the_same(resolver: Resolver, forced: Forced, point: str, wanted: AttachMethod) -> None:
    skip_unless_granted(resolver, point, wanted)
    assert forced.attached(point, wanted.name)[point] == wanted.name


def test_the_verifiers_limit_is_not_near(kept_lab: Lab) -> None:
    with run_tx(kept_lab, events=True):
        told = "".join(leftovers.read_all(Path("/proc/self/fdinfo")))
    verified = [int(count) for count in re.findall(r"^verified_insns:\s*(\d+)", told, re.MULTILINE)]
    if not verified:
        pytest.skip("this kernel does not tell (before 5.16)")
    assert max(verified) < _MOST_VERIFIED
