# SPDX-License-Identifier: Apache-2.0
"""Series that are never too many and never go down."""

from __future__ import annotations

import numpy as np

from hopscope.verbs.serve.family import Bounded

REST = ("other",)


def _update(bounded: Bounded, **counts: int) -> dict[str, int]:
    found = bounded.update([((name,), np.array([count])) for name, count in counts.items()])
    return {name: int(figures[0]) for (name,), figures in found.items()}


def test_the_busiest_have_names_and_all_others_are_one() -> None:
    bounded = Bounded(2, REST)
    assert _update(bounded, a=1, b=30, c=20, d=4) == {"b": 30, "c": 20, "other": 5}
    assert _update(bounded, a=1000, b=30, c=20, d=4, other=7) == {"b": 30, "c": 20, "other": 1011}


def test_a_group_that_is_gone_stays_and_one_with_a_free_name_does_not_take_from_the_others() -> None:
    bounded = Bounded(2, REST)
    assert _update(bounded, a=5) == {"a": 5}
    assert _update(bounded) == {"a": 5}
    assert _update(bounded, b=3, c=2) == {"a": 5, "b": 3, "other": 2}
    assert _update(bounded, a=6, b=3, c=9) == {"a": 6, "b": 3, "other": 9}


def test_groups_of_one_name_are_added_up() -> None:
    bounded = Bounded(1, REST)
    assert {name: int(figures[0]) for (name,), figures in bounded.update(
        [(("a",), np.array([1])), (("a",), np.array([2]))]).items()} == {"a": 3}  # fmt: skip
