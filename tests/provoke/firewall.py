# SPDX-License-Identifier: Apache-2.0
"""Connections that are followed (conntrack), and packets that a rule drops."""

from __future__ import annotations

import contextlib
import json
import socket
from typing import TYPE_CHECKING

from hopscope.lab.veth import CLIENT_IPV4, SERVER_IPV4
from tests.lab.packets import Segment, TcpFlag, build
from tests.provoke.common import SILENT, TIMES, Provoked, connected, host_setting, raw_ipv4, rules

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.lab import Lab

_PORT = 7


@contextlib.contextmanager
def followed_too_many(lab: Lab) -> Iterator[Provoked]:
    """The table of followed connections is full (nf_conntrack_max, of the host) of such as are in use."""
    with rules(lab.server, "input", "ct state new accept"), contextlib.ExitStack() as stack:
        for _ in range(50):
            stack.enter_context(connected(lab))
        with (
            host_setting("net.netfilter.nf_conntrack_max", 49),
            lab.client.call(socket.socket, socket.AF_INET, socket.SOCK_DGRAM) as sender,
        ):
            for port in range(TIMES):
                sender.sendto(b"x", (SERVER_IPV4, 20_000 + port))
            yield Provoked(lab.server, {}, {("conntrack", "", "drop"): TIMES})


@contextlib.contextmanager
def nearly_too_many(lab: Lab) -> Iterator[Provoked]:
    """The table is full to 29 of 31."""
    with rules(lab.server, "input", "ct state new accept"), contextlib.ExitStack() as stack:
        for _ in range(29):
            stack.enter_context(connected(lab))
        with host_setting("net.netfilter.nf_conntrack_max", 31):
            yield Provoked(lab.server, {}, {("conntrack", "", "count"): 29, ("conntrack", "", "max"): 31})


@contextlib.contextmanager
def not_understood(lab: Lab) -> Iterator[Provoked]:
    """Segments that belong to no connection."""
    with rules(lab.server, "input", "ct state invalid drop"), raw_ipv4(lab.client) as raw:
        for number in range(TIMES):
            reset = Segment((CLIENT_IPV4, 7), (SERVER_IPV4, _PORT), number, 1, TcpFlag.RST)
            raw.sendto(build(reset), (SERVER_IPV4, 0))
        yield Provoked(lab.server, {}, {("conntrack", "", "invalid"): TIMES})


@contextlib.contextmanager
def ruled_out(lab: Lab) -> Iterator[Provoked]:
    """Datagrams that a rule drops."""
    with (
        rules(lab.server, "input", f"udp dport {_PORT} counter drop"),
        lab.client.call(socket.socket, socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        for _ in range(TIMES):
            sender.sendto(b"x", (SERVER_IPV4, _PORT))
        (rule,) = json.loads(lab.server.run(["nft", "-j", "list", "ruleset"], capture_output=True).stdout)["nftables"][
            3:
        ]
        subject = "inet provoke input handle {}".format(rule["rule"]["handle"])
        yield Provoked(lab.server, {}, {("nft", subject, "drops"): TIMES}, subject)


@contextlib.contextmanager
def not_to_be_told_apart(lab: Lab) -> Iterator[Provoked]:
    """Two connections whose answers would look the same: the later one finds its place taken."""
    zones = "ct original zone set numgen inc mod 2 map { 0 : 1, 1 : 2 }"
    with (
        rules(lab.server, "prerouting", f"tcp flags & (syn | ack) == syn {zones}", priority=-300),
        rules(lab.server, "input", "ct state new accept", family="ip"),
        lab.server.call(socket.create_server, (SERVER_IPV4, 0), backlog=1000) as listener,
        raw_ipv4(lab.client) as raw,
    ):
        for number in range(TIMES):
            syn = Segment((SILENT, 20_000 + number), listener.getsockname(), 1, 0, TcpFlag.SYN)
            for _ in range(2):
                raw.sendto(build(syn), (SERVER_IPV4, 0))
        yield Provoked(lab.server, {}, {("conntrack", "", "insert_failed"): TIMES})
