# SPDX-License-Identifier: Apache-2.0
"""A check between two moments in which more happens than traffic: it says what is true, or nothing."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import threading
from typing import TYPE_CHECKING

import pytest

from hopscope.kernel.counters.reader import CounterReader
from hopscope.lab import Lab, Namespace
from hopscope.lab._libc import unshare_net
from hopscope.lab.launch import unbind_name
from hopscope.lab.namespaces import _Worker
from hopscope.lab.veth import SERVER_IFNAME
from hopscope.verbs.check.findings import evaluate
from tests.provoke import checking, devices

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.root

NOWHERE = "192.0.2.7"
NAME = "hopscope-provoke"
ODD = "a;$(x){by}*["


@pytest.fixture
def lab() -> Iterator[Lab]:
    with Lab() as made:
        yield made


def send_nowhere(times: int) -> None:
    """Have no way to go so often, in the namespace that this is called in."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for _ in range(times):
            with contextlib.suppress(OSError):
                sender.sendto(b"x", (NOWHERE, 7))


def test_an_interface_is_renamed(lab: Lab) -> None:
    with devices.larger_than_the_other_end_takes(lab):
        pass
    lab.server.run(["ip", "link", "set", SERVER_IFNAME, "down"], check=True)
    watch = checking.of_lab(lab)
    lab.server.run(["ip", "link", "set", SERVER_IFNAME, "name", "other0"], check=True)
    found = watch.look().findings
    assert any(key.subject == "other0" for key in watch.now.numbers)
    assert checking.grave(found) == []


def test_an_interface_moves_to_another_namespace(lab: Lab) -> None:
    with devices.larger_than_the_other_end_takes(lab), Namespace() as other:
        watch = checking.Watch(lab.client, lab.server, other)
        lab.server.run(["ip", "link", "set", SERVER_IFNAME, "netns", str(other.pid)], check=True)
        found = watch.look().findings
        assert (other.inode, SERVER_IFNAME) in {(key.netns, key.subject) for key in watch.now.numbers}
        assert checking.grave(found) == []


def test_an_interface_is_made(lab: Lab) -> None:
    watch = checking.of_lab(lab)
    lab.client.run(["ip", "link", "add", ODD, "type", "veth", "peer", "made1"], check=True)
    found = watch.look().findings
    assert any(key.subject == ODD for key in watch.now.numbers)
    assert checking.grave(found) == []


def test_an_interface_with_an_odd_name_loses_packets(lab: Lab) -> None:
    lab.server.run(["ip", "link", "set", SERVER_IFNAME, "down"], check=True)
    lab.server.run(["ip", "link", "set", SERVER_IFNAME, "name", ODD], check=True)
    lab.server.run(["ip", "link", "set", ODD, "up", "mtu", "1300"], check=True)
    watch = checking.of_lab(lab)
    with socket_of(lab.client) as sender:
        for _ in range(211):
            sender.sendto(bytes(1400), ("10.77.0.2", 7))
    (found,) = [each for each in watch.look().findings if each.id == "device-rx-dropped"]
    assert (found.netns, found.subject) == (lab.server.inode, ODD)
    assert checking.total([found], ["rx_dropped"]) == {"rx_dropped": 211}


@contextlib.contextmanager
def socket_of(namespace: Namespace) -> Iterator[socket.socket]:
    with namespace.call(socket.socket, socket.AF_INET, socket.SOCK_DGRAM) as made:
        yield made


def test_a_namespace_ends() -> None:
    with Namespace() as stays:
        with Namespace() as ends:
            watch = checking.Watch(stays, ends)
            ends.call(send_nowhere, 211)
        stays.call(send_nowhere, 101)
        found = watch.look().findings
    assert [(each.id, each.netns) for each in found if each.netns in {stays.inode, ends.inode}] == [
        ("ip-no-route-out", stays.inode)
    ]
    unread = {(each.netns, each.source) for each in watch.now.unread}
    assert {(ends.inode, source) for source in ("snmp", "netstat", "link", "sysctl")} <= unread
    assert (stays.inode, "snmp") not in unread


def test_a_namespace_is_seen_only_later() -> None:
    # No process is in it, only a thread, until it gets a name.
    worker = _Worker()
    reader = CounterReader()
    try:
        worker.do(unshare_net)
        worker.do(send_nowhere, 211)
        before = reader.read()
        subprocess.run(["ip", "netns", "attach", NAME, str(worker.do(threading.get_native_id))], check=True)
        now = reader.read()
    finally:
        unbind_name(NAME)
        worker.stop()
    (inode,) = [inode for inode, name in now.namespaces.items() if name == NAME]
    assert inode not in before.namespaces
    assert any(key.netns == inode and key.name == "IpOutNoRoutes" for key in now.numbers)
    assert [each.id for each in evaluate(before, now).findings if each.netns == inode] == []


@pytest.mark.slow
def test_forty_namespaces() -> None:
    with contextlib.ExitStack() as stack:
        many = [stack.enter_context(Namespace()) for _ in range(40)]
        watch = checking.Watch(*many)
        for number, each in enumerate(many):
            each.call(send_nowhere, number)
        found = [each for each in watch.look().findings if each.netns]
    said = {each.netns: checking.total([each], ["IpOutNoRoutes"])["IpOutNoRoutes"] for each in found}
    # One or two are no trouble.
    assert said == {each.inode: number for number, each in enumerate(many) if number >= 3}
    assert {each.id for each in found} == {"ip-no-route-out"}


def test_no_time_between(lab: Lab) -> None:
    watch = checking.of_lab(lab)
    watch.now = watch.before
    assert [each.id for each in evaluate(watch.before, watch.before).findings if each.severity != "notice"] == []
