# SPDX-License-Identifier: Apache-2.0
"""The answer to a question: a report, and sentences on what is missing from it."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

from hopscope.errors import UsageError
from hopscope.model.report import Report, of_rows
from hopscope.store.fleet.raw import Raw
from hopscope.term.format import plural
from hopscope.verbs.fleet.raw.question import (
    ABSENT,
    BROKEN,
    LOST,
    MISSED,
    RECORDED,
    SAID,
    UNFINISHED,
    UNREAD,
    WARNING,
    WITHOUT,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from hopscope.store.fleet.raw import Leaf
    from hopscope.verbs.fleet.raw.asked import Asked
    from hopscope.verbs.fleet.raw.question import Question

_FOREIGN: Final = "not in the answer: its name is none of a host, a boot or an hour"


@dataclass(frozen=True, slots=True)
class Found:
    """What an engine gives.

    Attributes
    ----------
    lines
        The first ones of the answer, sorted: column → value.
    count
        How many lines there are.
    notes
        As :data:`hopscope.verbs.fleet.raw.question.NOTE_LINES` gives them.
    """

    lines: Sequence[Mapping[str, Any]]
    count: int
    notes: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer.

    Attributes
    ----------
    report
        What is shown.
    complete
        Whether all recordings of that time are in it, from their beginnings to their ends.
    """

    report: Report
    complete: bool


def chosen(fleet: Path, asked: Asked, hosts: Sequence[str]) -> tuple[list[Leaf], list[str]]:
    """Return the traces that a question is about, and the names of what is there besides.

    Parameters
    ----------
    hosts
        Names, or patterns with ``*``; empty: all.

    Raises
    ------
    UsageError
        There are none.
    """
    leaves, foreign = Raw(fleet).leaves()
    for host in hosts:
        if not any(fnmatchcase(leaf.host, host) for leaf in leaves):
            known = sorted({leaf.host for leaf in leaves})
            raise UsageError(
                f"{fleet} has no host {host}", f"It has {', '.join(known[:10])}{', …' * (len(known) > 10)}"
            )
    found = [
        leaf
        for leaf in leaves
        if asked.wants(leaf) and (not hosts or any(fnmatchcase(leaf.host, host) for host in hosts))
    ]
    if not found and not foreign:
        hours = sorted({leaf.hour for leaf in leaves})
        raise UsageError(
            f"{fleet} has no recordings of that time", f"It has {hours[0]} to {hours[-1]}" if hours else "Store some"
        )
    return found, [] if hosts else foreign


def answer(question: Question, found: Found, foreign: Sequence[str]) -> Answer:
    """Return the answer."""
    incomplete = [note for note in found.notes if note["kind"] in {UNREAD, UNFINISHED}]
    said = [say(note) for kind, say in _SENTENCES.items() for note in found.notes if note["kind"] == kind]
    report = of_rows(
        f"fleet.report.{question.name}",
        question.columns,
        [question.values(line) for line in found.lines],
        notes=[*said, *(f"{name}: {_FOREIGN}" for name in foreign)],
        left_out=found.count - len(found.lines),
        heading=[*(_recorded(note) for note in found.notes if note["kind"] == RECORDED), ""],
    )
    return Answer(report, not incomplete and not foreign)


def _recorded(note: Mapping[str, Any]) -> str:
    return (
        f"{plural(note['hosts'], 'host')}, {plural(note['traces'], 'recording')}, "
        f"{_seconds(note['amount'])} all together"
    )


def _seconds(duration_ns: int) -> str:
    return f"{duration_ns / 1e9:,.1f} s"


def _where(note: Mapping[str, Any]) -> str:
    return note["host"] if note["hosts"] == 1 else f"{plural(note['hosts'], 'host')}, most on {note['host']}"


def _such_as(note: Mapping[str, Any]) -> str:
    return note["host"] if note["hosts"] == 1 else f"{plural(note['hosts'], 'host')}, such as {note['host']}"


# Kind of a note → its sentence.
_SENTENCES: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = {
    UNREAD: lambda note: f"{note['folder']}: not in the answer: {note['text']}",
    UNFINISHED: lambda note: f"{note['folder']}: {note['text']}",
    LOST: lambda note: (
        f"lost: {plural(note['amount'], 'event')} ({_where(note)}), because the reader or the disk was too slow;"
        " results that depend on them are missing"
    ),
    MISSED: lambda note: f"missed events: {note['amount']:,} ({_where(note)}; BPF runs suppressed by the kernel)",
    BROKEN: lambda note: (
        f"left out: {plural(note['amount'], 'hop')} ({_where(note)}) in which events were lost, as start and end may"
        " belong to different packets"
    ),
    ABSENT: lambda note: f"not recorded for {_seconds(note['amount'])} ({_where(note)}): {note['text']}",
    WITHOUT: lambda note: f"nothing of {plural(note['traces'], 'recording')} ({_such_as(note)}): {note['text']}",
    WARNING: lambda note: f"{note['text']} ({_such_as(note)})",
    SAID: lambda note: f"{note['text']} ({_such_as(note)})",
}
