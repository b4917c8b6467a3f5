# SPDX-License-Identifier: Apache-2.0
"""Every way to attach a probe point gives the same counts; each is forced in turn, where this kernel grants it.

`make vmtest` runs this on kernels that grant what the one at hand does not.
"""

from __future__ import annotations

import contextlib
import functools
import socket
from typing import TYPE_CHECKING

import pytest

from hopscope.probes.catalogue import RX
from hopscope.probes.grants import GRANTED
from tests.lab.forced import Forced
from tests.lab.measure import TCP_DATA_HOPS, UDP_DATA_HOPS, assert_each, counts, ping, run, tcp_pair, udp_pair, way

if TYPE_CHECKING:
    from hopscope.lab import Lab
    from hopscope.model.snapshot import PointStatus
    from tests.lab.forced import Ways

pytestmark = pytest.mark.root
WAYS = [(point.name, each.name) for point in RX if len(point.ways) > 1 for each in point.ways]
_MESSAGES = 23
_DATAGRAMS = 101


@pytest.mark.slow
def test_every_point_has_a_way(points: dict[str, PointStatus]) -> None:
    assert [point.name for point in RX if points[point.name].chosen is None] == []


def test_what_is_refused_has_a_reason(points: dict[str, PointStatus]) -> None:
    ways = [way for status in points.values() for way in status.ways]
    assert [way.way for way in ways if not way.granted and not way.reason] == []
    assert GRANTED.granted


def skip_unless_granted(points: dict[str, PointStatus], point: str, name: str) -> None:
    status = next(each for each in points[point].ways if each.way == name)
    if not status.granted:
        pytest.skip(f"{point} by {name}: {status.reason}")


def measure(lab: Lab, ways: Ways) -> Ways:
    """Send and read while these ways are forced, and see each packet at each hop; return what was attached."""
    with contextlib.ExitStack() as flows:
        paths = [way(lab, path_name) for path_name in ("veth-4", "veth-6")]
        pairs = [(flows.enter_context(udp_pair(path)), flows.enter_context(tcp_pair(path))) for path in paths]
        ports = [receiver.getsockname()[1] for both in pairs for _, receiver in both]
        with run(lab, ways=ways, ports=ports) as rx:
            for udp, tcp in pairs:
                assert ping(*udp, _DATAGRAMS) == _DATAGRAMS
                assert ping(*tcp, _MESSAGES) == _MESSAGES
                snapshot = rx.interval()
                assert_each(snapshot, UDP_DATA_HOPS, _DATAGRAMS)
                assert_each(snapshot, TCP_DATA_HOPS, _MESSAGES)
                # Of TCP only the segments with data are known to be wanted: the socket says so when it takes them.
                assert counts(snapshot)["rx.tcp"] == _MESSAGES
                assert counts(snapshot)["rx.core"] == counts(snapshot)["rx.ip"] == _MESSAGES + _DATAGRAMS
    return {row.point: row.way for row in snapshot.plan if row.status == "attached"}


@pytest.fixture(scope="module")
def forced(kept_lab: Lab, points: dict[str, PointStatus]) -> Forced:
    ways = {point.name: points[point.name].ways for point in RX if len(point.ways) > 1}
    granted = {point: [each.way for each in told if each.granted] for point, told in ways.items()}
    return Forced(granted, functools.partial(measure, kept_lab))


@pytest.mark.parametrize(("point", "name"), WAYS)
def test_each_way_counts_the_same(points: dict[str, PointStatus], forced: Forced, point: str, name: str) -> None:
    skip_unless_granted(points, point, name)
    assert forced.attached(point, name)[point] == name


@pytest.mark.parametrize(("point", "name"), [each for each in WAYS if each[0] == "rx.udp_queue"])
def test_each_way_sees_the_same_length_of_the_queue(
    kept_lab: Lab, points: dict[str, PointStatus], point: str, name: str
) -> None:
    skip_unless_granted(points, point, name)
    with udp_pair(way(kept_lab, "veth-4")) as (sender, receiver), run(kept_lab, ways={point: name}, min_queue=4) as rx:
        for _ in range(10):
            sender.send(bytes(100))
        for _ in range(10):
            receiver.recv(200)
        # The fourth is the first that makes the queue so long.
        assert_each(rx.interval(), UDP_DATA_HOPS, 7)


@pytest.mark.parametrize(("point", "name"), [each for each in WAYS if each[0] == "rx.tcp_closing"])
def test_each_way_sees_data_after_our_own_fin(
    kept_lab: Lab, points: dict[str, PointStatus], point: str, name: str
) -> None:
    skip_unless_granted(points, point, name)
    with tcp_pair(way(kept_lab, "veth-4")) as (sender, receiver), run(kept_lab, ways={point: name}) as rx:
        receiver.shutdown(socket.SHUT_WR)
        assert sender.recv(10) == b""
        assert ping(sender, receiver, _MESSAGES) == _MESSAGES
        assert_each(rx.interval(), TCP_DATA_HOPS, _MESSAGES)
