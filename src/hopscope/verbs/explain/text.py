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
    lines: list[str] = []
    for texts in _paragraphs(explanation, terminal):
        lines += [*(line for text in texts for line in terminal.fold(text, indent=2)), ""]
    if explanation.causes:
        rows = [(each.cause, each.share, each.time_ns, each.messages, each.culprit) for each in explanation.causes]
        lines += [*render_report(of_rows("explain", _COLUMNS, rows), terminal).split("\n"), ""]
    for note in (*explanation.counters, *explanation.limits):
        lines += terminal.fold(note, indent=2)
    return "\n".join(lines).rstrip("\n")


def _paragraphs(explanation: Explanation, terminal: Terminal) -> Iterator[list[str]]:
    """Iterate over paragraphs, each as texts that begin a line."""
    unicode = terminal.unicode
    count = plural(explanation.messages, "message")
    if not explanation.messages:
        yield ["There are no messages to explain: the recording has none of a matching socket on this host."]
        return
    median, worst = (time(ns, unicode=unicode) for ns in (explanation.median_ns, explanation.worst_ns))
    if explanation.finding is None:
        calm = f"Nothing held the messages for long: {count}, the median took {median}, the longest wait was {worst}."
        yield [f"{calm} Below is what they spent this time on."]
        yield from ([f"{each}."] for each in explanation.dropped)
        return
    also = f"; {explanation.pending:,} had not been read when the recording ended" if explanation.pending else ""
    waits = plural(explanation.slow, "wait")
    yield [f"{count}, the median took {median}; {waits} of a millisecond or longer, the longest {worst}{also}."]
    yield from ([f"{each}."] for each in explanation.dropped)
    told = [each for each in explanation.causes if each.share >= LEAST_SHARE]
    for each in told[:_SENTENCES]:
        yield told_of(each, unicode=unicode)


def told_of(held: Held, *, unicode: bool) -> list[str]:
    """Return what is said of a cause, as texts that begin a line."""
    told = f"{part(held.share)} of the time ({time(held.time_ns, unicode=unicode)}): {held.sentence}."
    if held.evidence:
        told += f" Evidence: {'; '.join(held.evidence)}."
    if held.confidence != "high":
        told += f" Confidence: {held.confidence}."
    return [told, f"  Next: {held.advice}"] if held.advice else [told]
