# SPDX-License-Identifier: Apache-2.0
"""The same finding at several places, told once."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from hopscope.verbs.check.conditions import Figure
from hopscope.verbs.check.figures import fill

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hopscope.verbs.check.conditions import Evidence
    from hopscope.verbs.check.findings import Entry, Finding

_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class Folded:
    """An entry and all places where it holds.

    Attributes
    ----------
    sentence
        With the figures of all places together; where there are several, those hit hardest are named.
    namespaces
        Where they are: names; empty where it is the host's own or all of them share it.
    evidence
        The place that was hit hardest first; of several, what each is about before what it is compared with.
    fixes
        Of the place that was hit hardest.
    others
        At how many places the commands are others.
    """

    entry: Entry
    findings: Sequence[Finding]
    sentence: str
    namespaces: Sequence[str]
    evidence: Sequence[Evidence]
    fixes: Sequence[str]
    others: int


def fold(findings: Sequence[Finding]) -> list[Folded]:
    """Return each entry once, in the order in which its first finding stands."""
    grouped: dict[str, list[Finding]] = {}
    for finding in findings:
        grouped.setdefault(finding.id, []).append(finding)
    return [_fold(group) for group in grouped.values()]


def _fold(group: Sequence[Finding]) -> Folded:
    worst_first = sorted(group, key=_weight, reverse=True)
    entry, subjects = group[0].entry, list(dict.fromkeys(each.subject for each in worst_first if each.subject))
    return Folded(
        entry,
        worst_first,
        fill(entry.sentence, _together(worst_first), _listed(subjects)),
        tuple(dict.fromkeys(each.namespace for each in worst_first if each.namespace not in {"", "host"})),
        [row for rank in zip_longest(*(each.evidence for each in worst_first)) for row in rank if row],
        worst_first[0].fixes,
        sum(each.fixes != worst_first[0].fixes for each in worst_first),
    )


def _weight(finding: Finding) -> float:
    """Return how hard a place was hit, to compare those of one entry."""
    for name in ("by", "share", "now"):
        figure = finding.figures.get(name)
        if figure and not isinstance(figure.value, str):
            return figure.value
    return 0.0


def _listed(names: Sequence[str]) -> str:
    if len(names) <= _NAMED + 1:
        return ", ".join(names)
    return f"{', '.join(names[:_NAMED])} and {len(names) - _NAMED} more"


def _together(findings: Sequence[Finding]) -> Mapping[str, Figure]:
    names = dict.fromkeys(name for finding in findings for name in finding.figures)
    return {name: _merged([each.figures[name] for each in findings if name in each.figures]) for name in names}


def _merged(figures: Sequence[Figure]) -> Figure:
    first = figures[0]
    values = [figure.value for figure in figures if not isinstance(figure.value, str)]
    if first.merge == "first" or len(values) < len(figures):
        return first
    if first.merge == "share":
        part, whole = sum(figure.part for figure in figures), sum(figure.whole for figure in figures)
        return Figure(min(part / whole, 1.0) if whole else max(values), first.unit, "share", part, whole)
    merged = {"max": max(values), "min": min(values)}.get(first.merge, sum(values))
    return Figure(merged, first.unit, first.merge)
