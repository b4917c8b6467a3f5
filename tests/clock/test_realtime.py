# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from hopscope.clock import realtime
from hopscope.clock.phc import Domain, realtime_to_monotonic
from hopscope.clock.realtime import RealtimeClock, difference

if TYPE_CHECKING:
    import pytest

TIMERS = """Timer List Version: v0.10
cpu: 0
 clock 0:
  .index:      0
  .offset:     0 nsecs
active timers:
 clock 1:
  .index:      1
  .offset:     {} nsecs
"""


def listed(offset_ns: int) -> bytes:
    return TIMERS.format(offset_ns).encode()


def test_the_kernels_own_figure_is_exact() -> None:
    bracket = realtime_to_monotonic()
    assert difference(lambda: listed(-bracket.offset_ns)) == Domain(bracket.offset_ns, 0)


def test_a_figure_that_both_clocks_contradict_is_not_used() -> None:
    bracket = realtime_to_monotonic()
    found = difference(lambda: listed(-bracket.offset_ns + 10**9))
    assert abs(found.offset_ns - bracket.offset_ns) <= found.bound_ns + bracket.bound_ns
    assert found.bound_ns > 0


def test_without_the_kernels_figure_readings_must_do() -> None:
    found, bracket = difference(lambda: b""), realtime_to_monotonic()
    assert found.bound_ns > 0
    assert abs(found.offset_ns - bracket.offset_ns) <= found.bound_ns + bracket.bound_ns


def test_this_kernels_list_agrees_with_its_clocks() -> None:
    found, bracket = difference(realtime.read_timer_list), realtime_to_monotonic()
    assert abs(found.offset_ns - bracket.offset_ns) <= found.bound_ns + bracket.bound_ns


def test_a_clock_that_is_set_is_noticed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    # As the kernel tells of it: the machine's clock is nobody's to set.
    def cancelled(_fd: int, _size: int) -> bytes:
        raise OSError(errno.ECANCELED, os.strerror(errno.ECANCELED))

    with RealtimeClock() as clock:
        monkeypatch.setattr(realtime, "difference", lambda _list: Domain(-5, 0))
        with monkeypatch.context() as patched:
            patched.setattr(os, "read", cancelled)
            assert clock.was_set()
        assert clock.to_monotonic == Domain(-5, 0)
