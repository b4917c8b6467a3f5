# SPDX-License-Identifier: Apache-2.0
"""A trace for tests of what reports do with any: few events of each table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hopscope.store.trace import Trace
from tests.lab.traces import UDP, MadeTrace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def small() -> MadeTrace:
    """Return a trace of two flows: a web server's, which sends two packets back, and a name server's."""
    made = MadeTrace()
    request = made.flow("10.0.0.1:40000", "10.0.0.2:80")
    reply = made.flow("10.0.0.2:80", "10.0.0.1:40000")
    query = made.flow("[fd00::1]:5353", "[fd00::2]:53", UDP)
    eth0, eth1 = made.device("eth0", 2), made.device("eth1", 3)
    nginx, named = made.thread(17, "nginx", 15), made.thread(18, 'na"med\x1b,', 16)
    made.packet("rx.driver", 1_000, skb=0x1000, packet=1, flow=request, len_bytes=152, header_bytes=52, **eth0)
    made.packet("rx.core", 1_500, skb=0x1000, packet=1, flow=request, len_bytes=152, header_bytes=52, **eth0)
    made.packet("rx.driver", 2_000, skb=0x2000, packet=2, flow=query, len_bytes=100, cpu=1, **eth1)
    made.packet("rx.core", 2_700, skb=0x2000, packet=2, flow=query, len_bytes=100, cpu=1, **eth1)
    made.socket("rx.read", 3_000, sock=0x77, flow=request, tid=nginx, protocol=6, seq=100)
    made.socket("rx.received", 3_100, sock=0x78, flow=query, tid=named, protocol=17, len_bytes=52, cpu=1)
    for number in (3, 4):
        where = {"skb": 0x1000 * number, "packet": number, "flow": reply, "len_bytes": 1_000}
        made.packet("tx.queue", 1_000 * number + 500, tid=nginx, **where, **eth0)
        made.packet("tx.start", 1_000 * number + 600, tid=nginx, **where, **eth0)
    made.packet("tcp.retransmit", 9_000, skb=0x9000, packet=5, flow=reply)
    made.work("softirq.enter", 900, subject=3)
    made.work("sched.switch", 1_000_000_000, tid=nginx, subject=named, cpu=1)
    return made


@pytest.fixture
def trace(tmp_path: Path) -> Iterator[Trace]:
    with Trace(small().write(tmp_path / "trace")) as opened:
        yield opened
