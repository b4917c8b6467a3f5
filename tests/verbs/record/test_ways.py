# SPDX-License-Identifier: Apache-2.0
"""Every way to attach a point of ``record`` gives the same counts; each is forced in turn, where this kernel grants it.

`make vmtest` runs this on kernels that grant what the one at hand does not.
"""

from __future__ import annotations

import functools
import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hopscope.lab.veth import SERVER_IPV4
from hopscope.libbpf import Btf
from hopscope.live.recorder.options import PREFIX
from hopscope.probes.catalogue.record import RECORD
from hopscope.probes.resolve import Resolver
from tests import leftovers
from tests.lab.forced import Forced, granted_ways, skip_unless_granted
from tests.lab.measure import ping, tcp_pair, udp_pair, way
from tests.verbs.record.measure import ACK, PSH, namespaces, payload, recording

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.lab import Lab
    from hopscope.model.snapshot import PointStatus
    from hopscope.probes.point import AttachMethod
    from tests.lab.forced import Ways
    from tests.verbs.record.measure import Seen

pytestmark = pytest.mark.root
# What has one way alone is attached in each of these runs.
WAYS = [
    pytest.param(point.name, each, id=f"{point.name}={each.name}")
    for point in RECORD
    if len(point.ways) > 1
    for each in point.ways
]
# Instructions that the verifier looks at, path by path: it ends at a million (BPF_COMPLEXITY_LIMIT_INSNS), and no two
# kernels' look at equally many.
_MOST_VERIFIED = 400_000
DATAGRAMS, MESSAGES, DROPS = 101, 23, 17
UDP_POINTS = (
    "tx.queue",
    "tx.start",
    "tx.driver",
    "rx.driver",
    "rx.core",
    "rx.l4",
    "rx.ready",
    "tx.sent",
    "rx.received",
)
TCP_POINTS = (
    *("tx.send", "tx.queue", "tx.start", "rx.driver", "rx.core", "rx.l4", "rx.tcp_queue"),
    *("rx.ready", "rx.copy", "rx.read", "tx.sent", "rx.received"),
)


@pytest.fixture(scope="module")
def resolver() -> Resolver:
    return Resolver()


def workload(lab: Lab, seen: Seen) -> Iterator[tuple[str, int, int]]:
    """Send and read; yield for each point the events of the datagrams, then of the messages, and how many are right."""
    attached = {row.point.removeprefix(PREFIX) for row in seen.recorder.plan() if row.status == "attached"}
    for name in ("veth-4", "veth-6"):
        path = way(lab, name)
        seen.forget()
        with udp_pair(path) as udp:
            assert ping(*udp, DATAGRAMS, 997) == DATAGRAMS
            counts = seen.take().counts()
            flow = seen.flow_of(udp[0])
        yield from ((f"udp {point}", counts[point], DATAGRAMS) for point in UDP_POINTS if point in attached)
        assert set(payload(seen.at("rx.driver", flow=flow))) == {997}
        seen.forget()
        with tcp_pair(path) as tcp:
            assert ping(*tcp, MESSAGES, 997) == MESSAGES
            seen.take()
            data, _ = seen.socket_flows(tcp[0])
        segments = seen.at("tx.queue", flow=data, tcp_flags=PSH | ACK)
        assert (len(segments), payload(segments).sum()) == (MESSAGES, MESSAGES * 997)
        for point in TCP_POINTS:
            if point in attached:
                yield f"tcp {point}", of_messages(seen, point, data, set(segments["skb"])), MESSAGES
        for point, column in (("tx.sent", "len_bytes"), ("rx.received", "len_bytes")):
            if point in attached:
                yield f"tcp bytes of {point}", seen.at(point, flow=data)[column].sum(), MESSAGES * 997


def of_messages(seen: Seen, point: str, data: int, skbs: set[Any]) -> int:
    """Return the events of a point that are of messages: by flow in sockets, by address in packets."""
    rows = seen.at(point)
    if "sock" in rows:
        return len(rows.having(flow=data))
    if point == "rx.copy":
        return len(rows)
    return len(rows.having(skb=list(skbs), tcp_flags=[0, PSH | ACK]))


def measure(lab: Lab, ways: Ways) -> Ways:
    """Send and read while these ways are forced, and see each event of each point; return what was attached."""
    options = {point.removeprefix(PREFIX): name for point, name in ways.items()}
    with recording(lab, profiles=["all"], ways=options) as seen:
        rows = list(workload(lab, seen))
        attached = {row.point: row.way for row in seen.recorder.plan() if row.status == "attached"}
    assert [(name, found) for name, found, expected in rows if found != expected] == []
    return attached


@pytest.fixture(scope="module")
def forced(kept_lab: Lab, resolver: Resolver) -> Forced:
    return Forced(granted_ways(RECORD, resolver), functools.partial(measure, kept_lab))


@pytest.mark.parametrize(("point", "wanted"), WAYS)
def test_each_way_counts_the_same(resolver: Resolver, forced: Forced, point: str, wanted: AttachMethod) -> None:
    skip_unless_granted(resolver, point, wanted)
    assert forced.attached(point, wanted.name)[point] == wanted.name


@pytest.mark.slow
def test_what_is_granted_can_be_attached_under_every_filter(kept_lab: Lab, points: dict[str, PointStatus]) -> None:
    granted = {name for name, status in points.items() if name.startswith(PREFIX) and status.chosen}
    filters = {
        "ports": range(1, 17),
        "namespaces": namespaces(kept_lab),
        "interfaces": [(7, number) for number in range(16)],
        "pids": range(1, 17),
        "comms": ["seven"] * 16,
        "cgroups": range(1, 17),
    }
    with recording(None, profiles=["all"], **filters) as seen:
        attached = {row.point for row in seen.recorder.plan() if row.status == "attached"}
        told = "".join(leftovers.read_all(Path("/proc/self/fdinfo")))
    assert attached == granted
    verified = [int(count) for count in re.findall(r"^verified_insns:\s*(\d+)", told, re.MULTILINE)]
    assert max(verified, default=0) < _MOST_VERIFIED


def test_drops_have_their_reasons_where_the_kernel_has_them(kept_lab: Lab) -> None:
    with (
        recording(kept_lab, profiles=["drops"], stacks=True) as seen,
        kept_lab.client.call(socket.socket, socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        for _ in range(DROPS):
            sender.sendto(bytes(100), (SERVER_IPV4, 7778))
        drops = seen.take().rows("drops")
        flows = [number for number in set(drops["flow"]) - {0} if seen.ends(number)[3] == 7778]
        drops = drops.having(flow=flows)
    assert len(drops) == len(seen.at("skb.drop", flow=flows)) == DROPS
    symbols = seen.rows("symbols")
    assert all("udp" in name for name in symbols.having(address=drops["location"])["name"])
    if Btf.kernel().tracepoint_arguments("kfree_skb") > 2:
        assert {seen.metadata.reasons[int(reason)] for reason in drops["reason"]} <= {"NO_SOCKET", "NOT_SPECIFIED"}
    else:
        assert set(drops["reason"]) == {0}
    assert set(drops["stack"]) != {-1}
