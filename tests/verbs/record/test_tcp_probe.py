# SPDX-License-Identifier: Apache-2.0
"""The state of TCP connections in a recording equals what ``TCP_INFO`` says of the socket."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from tests.lab.causes.actors.common import tcp_info
from tests.lab.measure import tcp_pair, way
from tests.verbs.record.measure import recording
from tests.waiting import eventually

if TYPE_CHECKING:
    from hopscope.lab import Lab
    from tests.verbs.record.measure import Rows, Seen

pytestmark = pytest.mark.root

ROUNDS = 12
LEN_BYTES = 3001
NAMES = ("srtt_us", "ssthresh", "snd_cwnd", "snd_wnd", "rcv_wnd")


def states(seen: Seen, flow: int) -> Rows:
    return seen.take().rows("tcp").having(flow=flow).by_time()


def test_states_are_those_that_the_owner_is_told(lab: Lab) -> None:
    sent = ROUNDS * LEN_BYTES
    with recording(lab, profiles=("tcp",)) as seen, tcp_pair(way(lab, "veth-4")) as (sender, receiver):
        before, known = tcp_info(sender), 0
        for number in range(ROUNDS):
            sender.sendall(bytes(LEN_BYTES))
            receiver.recv(LEN_BYTES, socket.MSG_WAITALL)
            receiver.sendall(b"x")
            sender.recv(1)
            flow = seen.take().flow_of(sender)
            rows = states(seen, flow)
            found = {name: int(rows[name][known]) for name in NAMES if name in before}
            assert number == 0 or found.items() <= before.items(), f"round {number}"
            assert rows["snd_nxt"][-1] - rows["snd_una"][-1] <= LEN_BYTES
            before, known = tcp_info(sender), len(rows)
        first = int(states(seen, flow)["snd_una"][0])
        sender.shutdown(socket.SHUT_WR)
        assert receiver.recv(1) == b""
        receiver.close()
        # The FIN counts as one byte. It is acknowledged when the connection is closing.
        eventually(lambda: int(states(seen, flow)["snd_una"][-1]) - first == sent + 1)
