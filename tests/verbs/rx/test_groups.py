# SPDX-License-Identifier: Apache-2.0
"""Groups: exact counts for each, under the names that people know, and nothing lost when there are too many."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.lab.measure import (
    UDP_DATA_HOPS,
    NetworkPath,
    cgroup,
    counts,
    discarded,
    group_counts,
    histogram,
    ping,
    run,
    sink_traffic,
    tcp_pair,
    udp_pair,
    way,
)

if TYPE_CHECKING:
    from hopscope.lab import Lab

pytestmark = pytest.mark.root


def namespace_name(inode: int) -> str:
    from hopscope.kernel import netns  # noqa: PLC0415

    return netns.namespaces()[inode].name


def test_interface(lab: Lab) -> None:
    with udp_pair(way(lab, "veth-4")) as veth, udp_pair(way(lab, "lo-6")) as lo, run(lab, group_by="interface") as rx:
        assert ping(*veth, 23) + ping(*lo, 7) == 30
        snapshot = rx.interval()
    name = namespace_name(lab.server.inode)
    for hop in ("rx.core", "rx.ip", *UDP_DATA_HOPS):
        assert group_counts(snapshot, hop) == {f"server0@{name}": 23, f"lo@{name}": 7}
    assert discarded(snapshot) == {}


def test_namespace(lab: Lab) -> None:
    client_lo = NetworkPath(lab.client, lab.client, "127.0.0.1", "lo")
    with udp_pair(client_lo) as client, udp_pair(way(lab, "veth-4")) as veth, run(lab, group_by="netns") as rx:
        assert ping(*client, 23) + ping(*veth, 7) == 30
        snapshot = rx.interval()
    names = [namespace_name(each.inode) for each in (lab.client, lab.server)]
    for hop in ("rx.core", "rx.ip", *UDP_DATA_HOPS):
        assert group_counts(snapshot, hop) == dict(zip(names, (23, 7), strict=True))


def test_protocol(lab: Lab, either: NetworkPath) -> None:
    with udp_pair(either) as udp, tcp_pair(either) as tcp, run(lab, group_by="protocol") as rx:
        assert ping(*udp, 23) + ping(*tcp, 7) == 30
        snapshot = rx.interval()
    assert group_counts(snapshot, "rx.core") == {"udp": 23, "tcp": 7}
    assert group_counts(snapshot, "rx.udp_total") == {"udp": 23}
    assert group_counts(snapshot, "rx.tcp_total") == {"tcp": 7}


def test_process(lab: Lab, veth: NetworkPath) -> None:
    with run(lab, group_by="process") as rx:
        first = sink_traffic(veth, 23, "--comm", "first")
        second = sink_traffic(veth, 7, "--comm", "second")
        snapshot = rx.interval()
    for hop in ("rx.udp_read", "rx.udp_total"):
        assert group_counts(snapshot, hop) == {f"first ({first})": 23, f"second ({second})": 7}


def test_cgroup_of_the_socket(lab: Lab, veth: NetworkPath) -> None:
    container = "c0ffee" + "0123456789" * 5 + "abcdef01"
    with cgroup("one") as one, cgroup(f"docker-{container}.scope") as two, run(lab, group_by="cgroup") as rx:
        sink_traffic(veth, 23, "--cgroup", one)
        sink_traffic(veth, 7, "--cgroup", two)
        snapshot = rx.interval()
    for hop in ("rx.core", "rx.ip", *UDP_DATA_HOPS):
        assert group_counts(snapshot, hop) == {f"/{one.name}": 23, "container c0ffee012345": 7}


@pytest.mark.parametrize("key", ["port", "peer", "flow"])
def test_flows(lab: Lab, key: str) -> None:
    with udp_pair(way(lab, "veth-4")) as udp, tcp_pair(way(lab, "lo-6")) as tcp, run(lab, group_by=key) as rx:
        assert ping(*udp, 23) + ping(*tcp, 7) == 30
        snapshot = rx.interval()
        of_udp, of_tcp = (
            flow_label(key, protocol, receiver, sender.getsockname(), lab.server.inode)
            for protocol, (sender, receiver) in (("udp", udp), ("tcp", tcp))
        )
    assert group_counts(snapshot, "rx.core") == {of_udp: 23, of_tcp: 7}
    assert group_counts(snapshot, "rx.udp_total") == {of_udp: 23}
    assert group_counts(snapshot, "rx.tcp_total") == {of_tcp: 7}


def flow_label(key: str, protocol: str, own: socket.socket, peer: tuple[Any, ...], namespace: int) -> str:
    """Return what the group of a flow is called, by what its sockets say."""
    (host, port), (peer_host, peer_port) = own.getsockname()[:2], peer[:2]
    form = "{}:{}" if own.family == socket.AF_INET else "[{}]:{}"
    local, remote = form.format(host, port), form.format(peer_host, peer_port)
    flow = f"{protocol} {local} {remote} @{namespace_name(namespace)}"
    return {"port": f"{protocol} {port}", "peer": peer_host, "flow": flow}[key]


def test_cpu(lab: Lab, veth: NetworkPath) -> None:
    allowed = os.sched_getaffinity(0)
    with udp_pair(veth) as flow, run(lab, group_by="cpu") as rx:
        try:
            for cpu in sorted(allowed):
                os.sched_setaffinity(0, {cpu})
                assert ping(*flow, 23) == 23
        finally:
            os.sched_setaffinity(0, allowed)
        snapshot = rx.interval()
    # A read is counted where it is done, which the test has fixed.
    assert group_counts(snapshot, "rx.udp_read") == {str(cpu): 23 for cpu in allowed}
    assert counts(snapshot)["rx.core"] == 23 * len(allowed)


@pytest.mark.parametrize("room", [2, 64])
def test_more_groups_than_rows_are_together_in_other(lab: Lab, veth: NetworkPath, room: int) -> None:
    with run(lab, group_by="process", max_groups=room) as rx:
        pids = [sink_traffic(veth, 23, "--comm", f"sink{number}") for number in range(4)]
        snapshot = rx.interval()
    own = {f"sink{number} ({pid})": 23 for number, pid in enumerate(pids[:room])}
    rest = {"other": (4 - room) * 23} if room < 4 else {}
    assert group_counts(snapshot, "rx.udp_total") == own | rest
    if room < 4:
        (note,) = snapshot.notes
        assert re.findall(r"\d+", note) == [str((4 - room) * 23), str(room)]
    else:
        assert snapshot.notes == []


def test_a_group_keeps_its_name_when_it_is_gone(lab: Lab, veth: NetworkPath) -> None:
    with run(lab, group_by="process") as rx:
        pid = sink_traffic(veth, 23, "--comm", "short-lived")
        assert not Path(f"/proc/{pid}").exists()
        rx.interval()
        assert histogram(rx.total(), "rx.udp_total", process=f"short-lived ({pid})").count == 23


def test_groups_add_up_to_what_there_is_without_them(lab: Lab, either: NetworkPath) -> None:
    with udp_pair(either) as (sender, receiver), run(lab, group_by="interface") as grouped, run(lab) as plain:
        assert ping(sender, receiver, 200) == 200
        found = [{hop: count for hop, count in counts(rx.interval()).items() if count} for rx in (grouped, plain)]
    for each in found:  # the wake-up and its parts
        for name in ("rx.udp_wake", "rx.udp_asleep", "rx.udp_runnable"):
            each.pop(name, None)
    assert found[0] == found[1]
