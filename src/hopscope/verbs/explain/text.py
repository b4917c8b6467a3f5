# SPDX-License-Identifier: Apache-2.0
"""An explanation for people: sentences, worst first, and the causes by their share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.model.report import Column, of_rows
from hopscope.term.format import part, plural, time
from hopscope.term.report_table import render_report
from hopscope.verbs.explain.analysis import LEAST_SHARE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.term.terminal import Terminal
    from hopscope.verbs.explain.explanation import Explanation, Held

_SENTENCES: Final = 5
_COLUMNS: Final = (
    Column("cause", "text", "name of the cause", "cause"),
    Column("share", "part", "share of the messages' time", "share"),
    Column("time_ns", "ns", "time", "time"),
    Column("messages", "count", "messages that it held longest", "messages"),
    Column("culprit", "text", "who is responsible", "culprit"),
)


def render_explanation(explanation: Explanation, terminal: Terminal) -> str:
    """Return an explanation as lines without a line end after the last."""
    lines = [line for text in _paragraphs(explanation, terminal) for line in (*terminal.fold(text, indent=2), "")]
    if explanation.causes:
        rows = [(each.cause, each.share, each.time_ns, each.messages, each.culprit) for each in explanation.causes]
        lines += [*render_report(of_rows("explain", _COLUMNS, rows), terminal).split("\n"), ""]
    for note in (*explanation.counters, *explanation.limits):
        lines += terminal.fold(note, indent=2)
    return "\n".join(lines).rstrip("\n")


def _paragraphs(explanation: Explanation, terminal: Terminal) -> Iterator[str]:
    unicode = terminal.unicode
    count = plural(explanation.messages, "message")
    if not explanation.messages:
        yield "There are no messages to explain: no matching socket on this host sent anything during the recording."
        return
    median, worst = (time(ns, unicode=unicode) for ns in (explanation.median_ns, explanation.worst_ns))
    if explanation.finding is None:
        yield (
            f"Nothing held the messages for long: {count}, half of them within {median}, the longest wait {worst}. The"
            " causes below share that time; none of it is unusual."
        )
        return
    also = f"; {explanation.pending:,} had not been read when the recording ended" if explanation.pending else ""
    yield (
        f"{count}, half of them within {median}; {explanation.slow:,} waits of a millisecond or longer, up to {worst}"
        f"{also}."
    )
    told = [each for each in explanation.causes if each.share >= LEAST_SHARE]
    for each in told[:_SENTENCES]:
        yield _sentence(each, unicode=unicode)


def _sentence(held: Held, *, unicode: bool) -> str:
    told = f"{part(held.share)} of the time ({time(held.time_ns, unicode=unicode)}): {held.sentence}."
    for each in held.evidence:
        told += f" {each[:1].upper()}{each[1:]}."
    if held.confidence != "high":
        told += f" Confidence: {held.confidence}."
    if held.advice:
        told += f" Next: {held.advice}"
    return told
