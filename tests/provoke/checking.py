# SPDX-License-Identifier: Apache-2.0
"""The check between two moments of chosen namespaces: what `hopscope check` does, without the wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hopscope.kernel.counters.reader import CounterReader
from hopscope.model.counters.readings import HOST
from hopscope.verbs.check.findings import evaluate

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from hopscope.lab import Lab, Namespace
    from hopscope.model.counters.readings import Readings
    from hopscope.verbs.check.findings import Check, Finding


class Watch:
    """Looks at namespaces, and at the host, from now on."""

    def __init__(self, *namespaces: Namespace) -> None:
        self._reader = CounterReader([each.inode for each in namespaces])
        self.before: Readings = self._reader.read()
        self.now = self.before

    def look(self) -> Check:
        """Return the check of the time since the beginning."""
        self.now = self._reader.read()
        return evaluate(self.before, self.now)


def of_lab(lab: Lab) -> Watch:
    return Watch(lab.client, lab.server)


def grave(findings: Iterable[Finding]) -> list[str]:
    """Return the warnings and worse, a sentence each, without those of the host, where others are busy as well."""
    return said(each for each in findings if each.severity != "notice")


def said(findings: Iterable[Finding]) -> list[str]:
    """Return all that was found, a sentence each, without what is of the host."""
    return [f"{each.id} at {each.subject or '-'}: {each.sentence}" for each in findings if each.netns != HOST]


def total(findings: Iterable[Finding], names: Collection[str]) -> dict[str, int]:
    """Return what these counted by the evidence of findings, all subjects together."""
    counted: dict[str, int] = {}
    for row in (row for each in findings for row in each.evidence):
        if row.key.name in names and row.by is not None:
            counted[row.key.name] = counted.get(row.key.name, 0) + row.by
    return counted
