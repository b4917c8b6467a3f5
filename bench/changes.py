# SPDX-License-Identifier: Apache-2.0
"""By how many percent a condition changes what applications achieve, against nothing attached in the same round."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from bench.measure import Spread, change_percent, table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

OFF: Final = "off"

Figures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Metric:
    """A figure of a run: how it is shown, and the change in % that is wanted at most, of a condition."""

    title: str
    unit: float
    form: str
    wanted: Mapping[str, str] = field(default_factory=dict)


def changes(rounds: Sequence[Mapping[str, Figures]], name: str, key: str) -> Spread:
    """Return by how many percent a condition changes a metric, against nothing attached in the same round."""
    return Spread.of(change_percent(figures[OFF][key], figures[name][key]) for figures in rounds)


def changes_table(rounds: Sequence[Mapping[str, Figures]], metrics: Mapping[str, Metric]) -> str:
    """Lay out each metric under each condition, in the order of the first round."""
    rows = []
    for key in rounds[0][OFF]:
        metric = metrics[key]
        for name in rounds[0]:
            figure = Spread.of(figures[name][key] / metric.unit for figures in rounds)
            rows.append(
                [
                    metric.title if name == OFF else "",
                    name,
                    f"{figure.median:{metric.form}}",
                    "" if name == OFF else changes(rounds, name, key).shown("+.1f"),
                    metric.wanted.get(name, ""),
                ]
            )
    return table(("", "", "median", "change (quartiles)", "wanted"), rows, names=2)
