# SPDX-License-Identifier: Apache-2.0
"""A step is where it was made, within its interval, and none is found where there is none."""

from __future__ import annotations

import numpy as np
import pytest

from hopscope.model.change_point import find_step


def series(
    random: np.random.Generator, length: int, *, at: int | None, by: float = 1.0, similar: float = 0.3
) -> np.ndarray:  # type: ignore[type-arg]
    values = np.empty(length)
    state = random.normal()
    for place in range(length):
        state = similar * state + np.sqrt(1 - similar**2) * random.normal()
        values[place] = state
    if at is not None:
        values[at:] += by
    return values


def test_interval_has_the_step_as_often_as_stated() -> None:
    random = np.random.default_rng(2)
    inside = widths = 0
    for _ in range(100):
        at = int(random.integers(60, 240))
        step = find_step(series(random, 300, at=at, by=1.2), np.ones(300))
        assert step is not None
        inside += step.least <= at <= step.most
        widths += step.most - step.least
    assert inside >= 95 - 3 * np.sqrt(95 * 0.05)
    assert widths / 100 < 60  # it says something


def test_clear_step_is_exact() -> None:
    values = np.where(np.arange(200) < 77, 0.4, 0.6) + np.random.default_rng(1).normal(0, 0.01, 200)
    step = find_step(values, np.ones(200))
    assert step is not None
    assert (step.at, step.least, step.most) == (77, 77, 77)
    assert step.before == pytest.approx(0.4, abs=0.01)
    assert step.after == pytest.approx(0.6, abs=0.01)
    assert step.probability <= 0.01


def test_series_without_a_step_seldom_has_one() -> None:
    random = np.random.default_rng(4)
    found = [find_step(series(random, 300, at=None), np.ones(300)) for _ in range(100)]
    assert np.mean([step is not None and step.probability <= 0.05 for step in found]) <= 0.05 + 3 * np.sqrt(
        0.0475 / 100
    )


def test_short_series_has_none() -> None:
    assert find_step(np.ones(9), np.ones(9)) is None
