# SPDX-License-Identifier: Apache-2.0
"""Where nothing is wrong, a check finds nothing, however busy it is."""

from __future__ import annotations

import socket
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from hopscope.lab import Lab, Tbf
from hopscope.lab.veth import CLIENT_IFNAME, CLIENT_IPV4, SERVER_IPV4
from hopscope.model.counters.readings import HOST
from hopscope.term.terminal import Terminal
from hopscope.verbs.check.table import render_check
from tests.lab.packets import Datagram
from tests.provoke import addresses, checking, healthy, udp
from tests.provoke.common import TIMES, raw_ipv4, rules
from tests.shared import first

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.root


@pytest.fixture
def lab() -> Iterator[Lab]:
    with Lab() as made:
        yield made


def test_nothing_happens(lab: Lab) -> None:
    assert checking.said(checking.of_lab(lab).look().findings) == []


@pytest.mark.slow
def test_all_kinds_of_traffic(lab: Lab) -> None:
    with Lab() as other, healthy.traffic(lab), healthy.short_connections(healthy.way(other, "veth-4")):
        time.sleep(0.5)  # streams begin by finding out how fast they may be
        watch = checking.Watch(lab.client, lab.server, other.client, other.server)
        time.sleep(0.2)
        soon = watch.look().findings
        time.sleep(3)
        assert checking.said(soon) == []
        assert checking.said(watch.look().findings) == []


def test_from_its_beginning_to_its_end(lab: Lab) -> None:
    watch = checking.of_lab(lab)
    with healthy.traffic(lab):
        time.sleep(1)
    assert checking.said(watch.look().findings) == []


@pytest.mark.parametrize("gro", first([False, True]))
def test_as_fast_as_it_goes(gro: bool) -> None:  # noqa: FBT001 - a case
    with Lab(offloads={"gro": gro}) as lab, healthy.bulk(lab):
        time.sleep(0.5)
        watch = checking.of_lab(lab)
        time.sleep(3)
        findings = watch.look().findings
    # A sender without limit is faster than a reader that lacks a CPU: then it is true that it is stopped.
    assert {each.id for each in findings if each.netns} <= {"tcp-zero-window-sent"}
    assert checking.grave(findings) == []


@pytest.mark.slow
def test_a_router() -> None:
    with healthy.routed() as namespaces:
        time.sleep(0.5)
        watch = checking.Watch(*namespaces)
        time.sleep(2)
        assert checking.said(watch.look().findings) == []


@pytest.mark.slow
def test_a_shaped_uplink() -> None:
    with Lab(tbf=Tbf(rate_bit_s=100_000_000, burst_bytes=20_000)) as lab, healthy.bulk(lab):
        time.sleep(0.5)
        watch = checking.of_lab(lab)
        time.sleep(2)
        findings = watch.look().findings
    # Where others take the CPUs, the reader comes late, and it is true that it closes its window.
    assert {each.id for each in findings if each.netns} - {"tcp-zero-window-sent"} == {"qdisc-shaped"}
    assert checking.grave(findings) == []


def test_noise_of_a_network(lab: Lab) -> None:
    """Broadcasts, groups that nobody here is in, and what a switch floods."""
    watch = checking.of_lab(lab)
    with lab.client.call(socket.socket, socket.AF_PACKET, socket.SOCK_DGRAM) as sender:
        for mac, host in (
            ("ffffffffffff", "255.255.255.255"),
            ("ffffffffffff", "10.77.0.255"),
            ("01005e0000fb", "224.0.0.251"),
            ("01005e7ffffa", "239.255.255.250"),
            ("020000000001", "10.77.0.77"),
        ):
            packet = Datagram((CLIENT_IPV4, 5353), (host, 5353), bytes(40)).build()
            for _ in range(TIMES):
                sender.sendto(packet, (CLIENT_IFNAME, 0x0800, 0, 0, bytes.fromhex(mac)))
        lldp, few = 0x88CC, 7
        for _ in range(few):
            sender.sendto(bytes(60), (CLIENT_IFNAME, lldp, 0, 0, bytes.fromhex("0180c200000e")))
    assert checking.said(watch.look().findings) == []


def test_a_container_restarts() -> None:
    """The only port of a bridge goes and comes back."""
    with Lab(bridged=True) as lab:
        assert lab._middle is not None
        watch = checking.Watch(lab._middle, lab.client, lab.server)
        for words in (("nomaster",), ("master", "bridge0")) * 2:
            for port in ("client-port", "server-port"):
                lab._middle.run(["ip", "link", "set", port, *words], check=True)
            time.sleep(0.2)
        assert checking.said(watch.look().findings) == []


def test_what_an_application_does_not_want(lab: Lab) -> None:
    watch = checking.of_lab(lab)
    with udp.filtered(lab):
        assert checking.said(watch.look().findings) == []


def test_what_a_firewall_does_not_let_through(lab: Lab) -> None:
    watch = checking.of_lab(lab)
    with rules(lab.server, "input", f"ip saddr {CLIENT_IPV4} udp dport 7 drop"), raw_ipv4(lab.client) as raw:
        for _ in range(TIMES):
            raw.sendto(Datagram((CLIENT_IPV4, 7), (SERVER_IPV4, 7), b"x").build(), (SERVER_IPV4, 0))
        assert checking.said(watch.look().findings) == []


def test_what_nobody_counts_is_said_to_be_unseen(lab: Lab) -> None:
    """A rule without a counter drops everything: nothing is found, and the report says why that proves little."""
    watch = checking.of_lab(lab)
    with (
        rules(lab.server, "input", "udp dport 7 drop"),
        lab.client.call(socket.socket, type=socket.SOCK_DGRAM) as sender,
    ):
        for _ in range(TIMES):
            sender.sendto(b"x", (SERVER_IPV4, 7))
        check = watch.look()
    of_namespaces = replace(
        check, checked=[each for each in check.checked if not any(f.netns == HOST for f in each.findings)]
    )
    assert checking.said(check.findings) == []
    told = " ".join(render_check(of_namespaces, Terminal(80)).split())
    looked = sum(each.state == "well" and each.entry.severity != "note" for each in of_namespaces.checked)
    assert told.startswith(f"No problems found. Checked {looked} conditions in 2 network namespaces over ")
    assert "packets dropped by 1 nftables rule without a counter" in told


def test_the_reverse_path_filter_is_not_told_twice(lab: Lab) -> None:
    watch = checking.of_lab(lab)
    with addresses.reverse_path(lab):
        assert "ip-martians" not in [each.id for each in watch.look().findings]
