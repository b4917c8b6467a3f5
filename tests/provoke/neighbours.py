# SPDX-License-Identifier: Apache-2.0
"""Neighbours that do not answer, or are more than the host may know."""

from __future__ import annotations

import contextlib
import errno
import itertools
import socket
from typing import TYPE_CHECKING, Final

from hopscope.lab.veth import CLIENT_IFNAME
from tests.provoke.common import SILENT, TIMES, Provoked, host_setting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.lab import Lab

_IP_RECVERR: Final = 11


@contextlib.contextmanager
def too_many(lab: Lab) -> Iterator[Provoked]:
    """More neighbours are asked for than the host may know (gc_thresh3, of the host)."""
    _ask(lab)
    with lab.client.call(socket.socket, socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.IPPROTO_IP, _IP_RECVERR, 1)
        refused, others = 0, itertools.cycle(range(10, 250))
        # Not even one: whose neighbours those are that there are is another matter. Where one of them can be forgotten,
        # one of ours finds its place.
        with host_setting("net.ipv4.neigh.default.gc_thresh3", 0):
            while refused < TIMES:
                try:
                    sender.sendto(b"x", (f"10.77.0.{next(others)}", 7))
                except OSError as error:
                    if error.errno != errno.ENOBUFS:
                        raise
                    refused += 1
        yield Provoked(lab.client, {"IpOutDiscards": TIMES}, {("neighbour", "arp", "table_fulls"): TIMES})


@contextlib.contextmanager
def no_answer(lab: Lab) -> Iterator[Provoked]:
    """A neighbour does not answer, and what waits for it is more than may wait."""
    _ask(lab)
    lab.client.sysctl(f"net.ipv4.neigh.{CLIENT_IFNAME}.unres_qlen_bytes", 1)
    with lab.client.call(socket.socket, socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for _ in range(TIMES + 1):
            sender.sendto(b"x", (SILENT, 7))
    yield Provoked(lab.client, {}, {("neighbour", "arp", "unresolved_discards"): TIMES})


def _ask(lab: Lab) -> None:
    """Let the client ask for addresses, as a lab's devices do not."""
    lab.client.run(["ip", "link", "set", CLIENT_IFNAME, "arp", "on"], check=True)
