# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import time

import pytest

from hopscope.clock import adjustment
from hopscope.clock.adjustment import TIMEX
from tests import headers


def played(monkeypatch: pytest.MonkeyPatch, rest_us: int = 0, **said: int) -> None:
    """Let the kernel say that. The machine's clock is nobody's to change."""
    names = ("modes", "offset", "freq", "maxerror", "esterror", "status", "constant")
    fields = [0] * 21
    fields[11] = 10_000
    for name, value in said.items():
        fields[{**{name: at for at, name in enumerate(names)}, "tick": 11, "tai": 20}[name]] = value
    single = [0, rest_us, *[0] * 19]
    monkeypatch.setattr(
        adjustment, "_adjtimex", lambda modes: tuple(single if modes == adjustment.ADJ_OFFSET_SS_READ else fields)
    )


def test_this_kernel_says_how_it_runs_its_clocks() -> None:
    before_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    found = adjustment.read()
    assert before_ns <= found.at_ns <= time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    assert abs(found.rate) < 1e-3
    assert found.max_error_ns >= 0
    assert 0 <= found.tai_offset_s < 100


@pytest.mark.parametrize(
    ("said", "rate"),
    [
        ({}, 0.0),
        ({"freq": 65_536 * 3}, 3e-6),  # 3 ppm
        ({"freq": -65_536, "tick": 10_001}, 99e-6),
        # 1 ms that a kernel's PLL works off by a quarter of a 64th a second
        ({"status": 0x2001, "offset": 1_000_000, "constant": 6}, 1e-3 / 256),
        ({"status": 0x0001, "offset": 1_000, "constant": 6}, 1e-3 / 256),
        ({"status": 0x2000, "offset": 1_000_000, "constant": 6}, 0.0),
        ({"rest_us": 200}, 200e-6),
        ({"rest_us": -90_000}, -500e-6),
    ],
)
def test_all_that_makes_the_clock_faster_counts(
    said: dict[str, int], rate: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    played(monkeypatch, **said)
    assert adjustment.read().rate == pytest.approx(rate)


def test_whether_a_daemon_vouches_for_the_clock_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    played(monkeypatch, status=0x2001, maxerror=1500, esterror=20, tai=37)
    found = adjustment.read()
    assert (found.synchronized, found.max_error_ns, found.estimated_error_ns, found.tai_offset_s) == (
        *(True, 1_500_000, 20_000),
        37,
    )
    played(monkeypatch, status=adjustment.STA_UNSYNC)
    assert not adjustment.read().synchronized


def test_layouts_and_constants_are_those_of_the_kernels_headers() -> None:
    values = {
        "sizeof(struct timex)": TIMEX.size,
        "offsetof(struct timex, status)": 40,
        "offsetof(struct timex, tick)": 88,
        "offsetof(struct timex, tai)": 160,
        "ADJ_OFFSET_SS_READ": adjustment.ADJ_OFFSET_SS_READ,
        "STA_PLL": adjustment.STA_PLL,
        "STA_UNSYNC": adjustment.STA_UNSYNC,
        "STA_NANO": adjustment.STA_NANO,
    }
    headers.assert_values(("stddef", "sys/timex"), values)
