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


def test_who_counted_nothing_yet_takes_no_name_and_what_counts_can_be_chosen() -> None:
    bounded = Bounded(1, REST, lambda figures: figures[0])
    update = {"idle": [0, 9], "long": [1, 900], "often": [5, 5]}
    found = bounded.update([((name,), np.array(figures)) for name, figures in update.items()])
    assert {name: figures.tolist() for (name,), figures in found.items()} == {"often": [5, 5], "other": [1, 909]}


def test_groups_of_one_name_are_added_up() -> None:
    bounded = Bounded(1, REST)
    assert {name: int(figures[0]) for (name,), figures in bounded.update(
        [(("a",), np.array([1])), (("a",), np.array([2]))]).items()} == {"a": 3}  # fmt: skip


def test_figures_that_come_later_are_counted_beside_those_of_before() -> None:
    bounded = Bounded(1, REST)
    bounded.widen(1)
    bounded.update([(("a",), np.array([[5]])), (("b",), np.array([[2]]))])
    bounded.widen(2)
    found = bounded.update([(("a",), np.array([[6], [1]])), (("b",), np.array([[2], [3]]))])
    assert {labels: figures.tolist() for labels, figures in found.items()} == {("a",): [[6], [1]], REST: [[2], [3]]}
