# SPDX-License-Identifier: Apache-2.0
"""The soak: a short one, a long one, and whether it would see what it looks for."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.soak.counts import Counts
from tests.soak.steady import Look, growing

if TYPE_CHECKING:
    from collections.abc import Callable

HOUR_S = 3600.0
LONG_S = float(os.environ.get("HOPSCOPE_SOAK_S", HOUR_S))
SHORT_S = 60.0
MIB = 1 << 20


@pytest.mark.parametrize(
    ("rss_mib", "descriptors", "found"),
    [
        (lambda _: 150, lambda _: 20, []),
        (lambda at: min(100 + at, 150), lambda at: 20 + at % 7, []),  # it fills, and connections come and go
        (lambda at: 100 + at / 20, lambda _: 20, ["memory grows from 104.5 to 110.5 MiB"]),
        (lambda _: 100, lambda at: 20 + at // 12, ["descriptors grow from 25 to 35"]),
    ],
)
def test_what_grows_is_seen(
    rss_mib: Callable[[int], float], descriptors: Callable[[int], int], found: list[str]
) -> None:
    looks = [Look(int(rss_mib(at) * MIB), descriptors(at)) for at in range(240)]
    assert growing(looks, HOUR_S) == found


@pytest.mark.parametrize(
    ("packets", "len_bytes", "lost", "wrong"),
    [
        (100, 5_000, 0, []),
        (97, 4_850, 3, []),
        (97, 4_850, 2, ["packets: subscriber has 97, the kernel 100; 2 lost"]),
        (100, 4_999, 0, ["bytes: subscriber has 4,999, the kernel 5,000; 0 lost"]),
        (101, 5_000, 1, ["packets: subscriber has 101, the kernel 100; 1 lost"]),
    ],
)
def test_a_count_that_is_not_the_kernels_is_seen(packets: int, len_bytes: int, lost: int, wrong: list[str]) -> None:
    known = {"packets": 100, "bytes": 5_000}
    found = Counts(known, {"metrics": {"packets": 100}, "subscriber": {"packets": packets, "bytes": len_bytes}}, lost)
    assert found.differences() == wrong


@pytest.mark.root
@pytest.mark.parametrize(
    "seconds",
    [
        pytest.param(SHORT_S, id="short"),
        pytest.param(LONG_S, id="long", marks=[pytest.mark.slow, pytest.mark.timeout(LONG_S + 600)]),
    ],
)
def test_nothing_grows_and_no_count_drifts(seconds: float) -> None:
    words = [sys.executable, "-m", "tests.soak", "--seconds", str(seconds)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
