# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of a token bucket."""

from __future__ import annotations

import pytest

from tests.lab.causes.queue import waits_ns

# A byte takes 1 µs.
_BIT_S = 8_000_000
_MS = 1_000_000


def waits_ms(*packets: tuple[float, int, bool], burst_bytes: int = 1000) -> dict[str, float]:
    packed = [(round(at * _MS), len_bytes, ours) for at, len_bytes, ours in packets]
    return {name: each / _MS for name, each in waits_ns(packed, _BIT_S, burst_bytes).items() if each}


def test_a_full_bucket_holds_nothing() -> None:
    assert waits_ms((0, 1000, True), (5, 1000, True)) == {}


def test_an_empty_bucket_holds_a_packet_until_there_are_tokens() -> None:
    assert waits_ms((0, 1000, True), (0.25, 1000, True)) == {"shaper": 0.75}


def test_behind_one_of_ours() -> None:
    found = waits_ms((0, 1000, True), (0, 1000, True), (0, 1000, True))
    assert found == {"shaper": 2.0, "queue-own": 1.0}


def test_behind_others() -> None:
    found = waits_ms(*[(0, 1000, False)] * 4, (1, 100, True))
    assert found == pytest.approx({"shaper": 0.1, "queue-others": 2.0})
