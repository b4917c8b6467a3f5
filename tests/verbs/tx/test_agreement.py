# SPDX-License-Identifier: Apache-2.0
"""Agreement with the kernel's own transmit time stamps, which the sender asks for itself (SO_TIMESTAMPING)."""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING

import pytest

from tests.lab.measure import NetworkPath, tcp_pair
from tests.verbs.tx.tcp_measure import WAYS, assert_each, done, events, run

if TYPE_CHECKING:
    from hopscope.lab import Lab

pytestmark = pytest.mark.root

_SO_TIMESTAMPING = 37
_TX_SOFTWARE, _SOFTWARE, _OPT_ID, _TX_SCHED, _TX_ACK, _OPT_TSONLY = 1 << 1, 1 << 4, 1 << 7, 1 << 8, 1 << 9, 1 << 11
_STAGES = {1: "sched", 0: "driver", 2: "ack"}  # SCM_TSTAMP_SCHED, _SND, _ACK
_ERROR_NS = 5_000


def stamps(sender: socket.socket) -> dict[int, dict[str, int]]:
    """Return from the error queue the last byte's number of each message → stage → CLOCK_REALTIME in ns."""
    found: dict[int, dict[str, int]] = {}
    while True:
        try:
            _, ancillary, _, _ = sender.recvmsg(0, 512, socket.MSG_ERRQUEUE | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return found
        by_kind = {kind: data for _, kind, data in ancillary}
        seconds, nanoseconds = struct.unpack_from("qq", by_kind[_SO_TIMESTAMPING])
        errors = next(data for kind, data in by_kind.items() if kind != _SO_TIMESTAMPING)
        _, _, _, _, _, stage, number = struct.unpack_from("=IBBBBII", errors)
        found.setdefault(number, {})[_STAGES[stage]] = seconds * 10**9 + nanoseconds


@pytest.mark.parametrize("way", WAYS)
def test_a_sender_with_time_stamps_agrees(lab: Lab, either: NetworkPath, way: str) -> None:
    sends = 200
    found: dict[int, dict[str, int]] = {}
    with tcp_pair(either) as (sender, receiver), run(lab, way) as tx:
        asked = _TX_SOFTWARE | _SOFTWARE | _OPT_ID | _TX_SCHED | _TX_ACK | _OPT_TSONLY
        sender.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPING, asked)
        for _ in range(sends):
            sender.send(bytes(100))
            receiver.recv(100)
            found |= stamps(sender)
        assert_each(done(tx, sends), way, sends)
        messages = events(tx)
    differences: dict[str, list[int]] = {"driver": [], "ack": []}
    for message in messages:
        kernel = found[message.end_byte - 1]
        assert set(kernel) == {"sched", "driver", "ack"}
        ours = {"driver": message.driver_ns or 0, "ack": message.done_ns or 0}
        for stage, each in differences.items():
            # Their clock is the wall clock: only the time between stages compares.
            each.append((ours[stage] - (message.sched_ns or 0)) - (kernel[stage] - kernel["sched"]))
    for stage, each in differences.items():
        median_ns = sorted(each)[sends // 2]
        assert abs(median_ns) < _ERROR_NS, (stage, median_ns)
