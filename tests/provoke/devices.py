# SPDX-License-Identifier: Apache-2.0
"""Packets that are lost at a device, in its queue, or on their way into the stack."""

from __future__ import annotations

import contextlib
import errno
import socket
from typing import TYPE_CHECKING, Final

from hopscope.lab import shape
from hopscope.lab.links import set_offloads
from hopscope.lab.veth import CLIENT_IFNAME, CLIENT_IPV4, SERVER_IFNAME, SERVER_IPV4
from tests.lab.packets import Datagram
from tests.provoke.common import TIMES, Provoked, host_setting, wire
from tests.provoke.evidence import link, qdisc
from tests.provoke.udp import STANDSTILL
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.lab import Lab

_SOL_UDP: Final = 17
_UDP_SEGMENT: Final = 103
SEGMENTS: Final = 64
_PORT: Final = 7


@contextlib.contextmanager
def queue_full(lab: Lab) -> Iterator[Provoked]:
    """The interface stands still, its queue is full, and exactly so many find no room in it."""
    shape(lab.client, CLIENT_IFNAME, STANDSTILL)
    packet = Datagram((CLIENT_IPV4, _PORT), (SERVER_IPV4, _PORT), bytes(300)).build()
    with wire(lab) as (sender, address):
        refused = 0
        while refused < TIMES:
            try:
                sender.sendto(packet, address)
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                refused += 1
        assert qdisc(lab.client, CLIENT_IFNAME)["drops"] == TIMES
        yield Provoked(lab.client, {}, {("qdisc", f"{CLIENT_IFNAME} tbf", "drops"): TIMES}, CLIENT_IFNAME)


@contextlib.contextmanager
def larger_than_the_other_end_takes(lab: Lab) -> Iterator[Provoked]:
    """The ends of a link do not have the same MTU: what is larger than the other's is lost there without a word."""
    lab.server.run(["ip", "link", "set", SERVER_IFNAME, "mtu", "1300"], check=True)
    with lab.client.call(socket.socket, socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for _ in range(TIMES):
            sender.sendto(bytes(1400), (SERVER_IPV4, _PORT))
    yield Provoked(lab.server, {}, {}, SERVER_IFNAME)


@contextlib.contextmanager
def backlog_full(lab: Lab) -> Iterator[Provoked]:
    """More packets come at once than a CPU's queue takes (netdev_max_backlog, of the host): 56 of 64 are lost.

    A datagram that is cut into segments on its way out brings them within one run of the softirq.
    """
    lost, longest = 56, 7
    with bursts(lab) as sender:
        with host_setting("net.core.netdev_max_backlog", longest):
            sender.send(bytes(SEGMENTS * 100))
        yield Provoked(lab.client, {}, {("link", CLIENT_IFNAME, "tx_dropped"): lost}, CLIENT_IFNAME)


@contextlib.contextmanager
def time_squeezed(lab: Lab) -> Iterator[Provoked]:
    """More packets come at once than a softirq's turn may take (netdev_budget, of the host)."""
    with bursts(lab) as sender:
        with host_setting("net.core.netdev_budget", 1):
            for _ in range(TIMES):
                sender.send(bytes(SEGMENTS * 100))
        yield Provoked(lab.server)


@contextlib.contextmanager
def carrier_flapping(lab: Lab) -> Iterator[Provoked]:
    """The other end of a cable is pulled out and put in again, seven times."""
    for state in ("down", "up") * 7:
        lab.client.run(["ip", "link", "set", CLIENT_IFNAME, state], check=True)
    eventually(lambda: link(lab.server, SERVER_IFNAME)["operstate"] == "UP")
    yield Provoked(lab.server, {}, {}, SERVER_IFNAME)


@contextlib.contextmanager
def bursts(lab: Lab) -> Iterator[socket.socket]:
    """Yield a sender whose datagrams leave as segments of 100 bytes, all at once, to nobody."""
    lab.client.call(set_offloads, CLIENT_IFNAME, {"gso": False, "tx": False})
    with (
        lab.client.call(socket.socket, socket.AF_INET, socket.SOCK_DGRAM) as sender,
        lab.server.call(socket.socket, socket.AF_INET, socket.SOCK_DGRAM) as receiver,
    ):
        receiver.bind((SERVER_IPV4, 0))
        receiver.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)
        sender.connect(receiver.getsockname())
        sender.setsockopt(_SOL_UDP, _UDP_SEGMENT, 100)
        yield sender
