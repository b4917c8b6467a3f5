# SPDX-License-Identifier: Apache-2.0
"""What the counters say of the host's clocks, beside these clocks themselves."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from hopscope.clock import adjustment
from hopscope.kernel.counters import timekeeping

if TYPE_CHECKING:
    from pathlib import Path


def said() -> dict[str, int]:
    return {name: int(value) for _, name, value in timekeeping.timekeeping()}


def test_tai_is_as_far_ahead_as_the_clocks_themselves_show() -> None:
    found = said()
    brackets = []
    for _ in range(20):
        before_ns = time.monotonic_ns()
        tai_ns = time.clock_gettime_ns(time.CLOCK_TAI)
        brackets.append((time.monotonic_ns() - before_ns, tai_ns - before_ns))
    width_ns, ahead_ns = min(brackets)
    assert ahead_ns - width_ns - found["reading_bound_ns"] <= found["tai_minus_monotonic_ns"]
    assert found["tai_minus_monotonic_ns"] <= ahead_ns + found["reading_bound_ns"]
    kernels = adjustment.read()
    assert found["synchronized"] == int(kernels.synchronized)
    assert found["tai_minus_utc_s"] == kernels.tai_offset_s


@pytest.mark.parametrize("synchronized", [True, False])
@pytest.mark.parametrize("daemon", ["_CHRONY", "_PTP4L", "_TIMESYNCD", ""])
def test_the_bound_is_of_who_knows_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, daemon: str, *, synchronized: bool
) -> None:
    """Neither daemon runs here: what it is asked and answers is made up, what becomes of it is not."""
    kernels = adjustment.Adjustment(0, 0.0, synchronized, 7_000, 0, 37)
    monkeypatch.setattr(adjustment, "read", lambda: kernels)
    monkeypatch.setattr(timekeeping, "chrony_bound_ns", lambda: 1_000)
    monkeypatch.setattr(timekeeping, "ptp4l_bound_ns", lambda: 200)
    for name in ("_CHRONY", "_PTP4L", "_TIMESYNCD"):
        monkeypatch.setattr(timekeeping, name, tmp_path / name)
    if daemon:
        (tmp_path / daemon).touch()
    bounds = {"_CHRONY": {"chrony_bound_ns": 1_000}, "_PTP4L": {"ptp4l_bound_ns": 200}, "_TIMESYNCD": {}}
    expected = bounds.get(daemon, {"adjtimex_bound_ns": 7_000}) if synchronized else {}
    assert {name: value for name, value in said().items() if name in {
        "chrony_bound_ns", "ptp4l_bound_ns", "adjtimex_bound_ns"
    }} == expected  # fmt: skip


def test_a_daemon_that_does_not_answer_gives_no_bound_but_the_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = adjustment.Adjustment(
        0, 0.0, synchronized=True, max_error_ns=7_000, estimated_error_ns=0, tai_offset_s=37
    )
    monkeypatch.setattr(adjustment, "read", lambda: kernels)
    monkeypatch.setenv("PATH", str(tmp_path))
    for name, bounds in (("_CHRONY", {"adjtimex_bound_ns"}), ("_PTP4L", set())):
        for each in ("_CHRONY", "_PTP4L", "_TIMESYNCD"):
            monkeypatch.setattr(timekeeping, each, tmp_path / "running" if each == name else tmp_path / "none")
        (tmp_path / "running").touch()
        assert {each for each in said() if each.endswith("_bound_ns")} - {"reading_bound_ns"} == bounds
