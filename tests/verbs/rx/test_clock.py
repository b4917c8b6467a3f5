# SPDX-License-Identifier: Apache-2.0
"""Steps of the wall clock and of the TAI offset, during a run, change nothing.

No namespace has a wall clock of its own: this runs where the machine is ours alone, in `make vmtest`.
"""

from __future__ import annotations

import ctypes
import os
import time
from typing import TYPE_CHECKING

import pytest

from tests.lab.measure import UDP_DATA_HOPS, NetworkPath, assert_each, histogram, ping, run, tcp_pair, udp_pair

if TYPE_CHECKING:
    from collections.abc import Callable

    from hopscope.lab import Lab

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif("HOPSCOPE_VM" not in os.environ, reason="steps the whole machine's clock: run `make vmtest`"),
]

_CLOCK_TAI = 11


class Timex(ctypes.Structure):
    """``struct timex`` as far as it is used; the rest is room."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("frequency", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("constant", ctypes.c_long),
        ("rest", ctypes.c_char * 256),
    )


def step_realtime(*, forward: bool) -> None:
    try:
        time.clock_settime(time.CLOCK_REALTIME, time.clock_gettime(time.CLOCK_REALTIME) + (3600 if forward else -3600))
    except PermissionError:
        pytest.skip("this machine forbids setting CLOCK_REALTIME, even to root")


def tai_offset_s() -> int:
    return round(time.clock_gettime(_CLOCK_TAI) - time.clock_gettime(time.CLOCK_REALTIME))


def step_tai(*, forward: bool) -> None:
    adj_tai = 0x80
    request = Timex(modes=adj_tai, constant=tai_offset_s() + (37 if forward else -37))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.adjtimex(ctypes.byref(request)) < 0:
        pytest.skip("this machine forbids setting the TAI offset, even to root")


@pytest.mark.parametrize("step", [step_realtime, step_tai])
@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_a_step_of_a_clock_changes_nothing(
    lab: Lab, either: NetworkPath, step: Callable[..., None], protocol: str
) -> None:
    pair = tcp_pair if protocol == "tcp" else udp_pair
    started_ns = time.monotonic_ns()
    with pair(either) as (sender, receiver), run(lab) as rx:
        assert ping(sender, receiver, 23) == 23
        sender.send(bytes(100))
        step(forward=True)
        try:
            assert len(receiver.recv(200)) == 100
            assert ping(sender, receiver, 23) == 23
            sender.send(bytes(100))
        finally:
            step(forward=False)
        assert len(receiver.recv(200)) == 100
        snapshot = rx.interval()
        elapsed_ns = time.monotonic_ns() - started_ns
    hops = UDP_DATA_HOPS if protocol == "udp" else ("rx.tcp_queue", "rx.tcp_read", "rx.tcp_total")
    assert_each(snapshot, hops, 48)
    assert histogram(snapshot, f"rx.{protocol}_total").max_ns <= elapsed_ns
    assert snapshot.duration_s * 1e9 <= elapsed_ns
