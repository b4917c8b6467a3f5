# SPDX-License-Identifier: Apache-2.0
"""Messages as a table, or as waterfalls: the stages of a message as bars on a time axis."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from hopscope.model.cause import CAUSES
from hopscope.term import format as fmt
from hopscope.term.report_table import NOTHING, footer, render_report
from hopscope.term.terminal import pad
from hopscope.trace.causes.blame import stages
from hopscope.trace.messages.path import BY_COLUMN, NETWORK, STEPS
from hopscope.verbs.report.messages import NAMES, step_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hopscope.model.report import Report, Value
    from hopscope.term.terminal import Terminal
    from hopscope.trace.causes.blame import Stage

# Up to this number of messages, waterfalls are the default.
FEW: Final = 10

_TABLE: Final = (
    "begin_ns", "total_ns", "blame", "blame_ns", "network_ns", "network_bound_ns", "len_bytes", "retransmits", "until",
    "flow_name", "translated_to",
    "sender", "reader", "sender_host", "receiver_host",
)  # fmt: skip
_SELDOM: Final = ("translated_to", "network_ns", "network_bound_ns", "sender_host", "receiver_host")
_POINT, _TIME = 14, 6
# Causes of a stage that are shown, and what the bound of a network time takes.
_CAUSES: Final = 2
_BOUND: Final = 10
_LEAST_BAR: Final = 8
_GAPS: Final = 4


def render_messages(report: Report, terminal: Terminal, *, waterfall: bool) -> str:
    """Return heading, messages and notes as lines without a line end after the last."""
    if not waterfall:
        # Few traces have NAT or several hosts: otherwise these columns are empty.
        left_out = {name for name in _SELDOM if not any(each is not None for each in report.column(name))}
        columns = [NAMES[name] for name in _TABLE if name not in left_out]
        return render_report(replace(report, columns=columns), terminal)
    lines = [line for text in report.heading for line in terminal.fold(text)]
    for row in report.named_rows():
        lines += [*_message(row, terminal), ""]
    if not len(report) and not report.notes:
        lines += terminal.fold(NOTHING)
    return "\n".join([*lines, *footer(report, terminal)]).rstrip("\n")


def _message(row: Mapping[str, Value], terminal: Terminal) -> Iterator[str]:
    unicode = terminal.unicode
    for line in terminal.fold(title(row, unicode=unicode)):
        yield terminal.paint(line, "bold")
    total_ns = _whole(row["total_ns"]) or 1
    first, parts = stages_of(row)
    yield f"{pad(BY_COLUMN[first].title, _POINT)} {'0'.rjust(_TIME)}"
    longest = max((part.duration_ns for part in parts if part.told), default=0)
    words = max(len(_words(part)) + (_BOUND if part.causes == (NETWORK,) else 0) for part in parts)
    width = max(terminal.width - _POINT - _TIME - words - _GAPS, _LEAST_BAR)
    previous = first
    for part in parts:
        line = _stage(part, total_ns, width, terminal, spans=_spans(previous, part.column))
        if part.causes == (NETWORK,):
            line = _between(line, part, width, _whole(row["network_bound_ns"]) or 0, unicode=unicode)
        yield terminal.paint(line, "bold") if part.duration_ns == longest else line
        previous = part.column
    if row["missing"]:
        yield from (terminal.paint(line, "dim") for line in terminal.fold(f"not seen: {row['missing']}"))


def stages_of(row: Mapping[str, Value]) -> tuple[str, list[Stage]]:
    """Return the column of the first point at which a row's message was seen, and the stages from there on."""
    times = {step.column: _whole(row[step_name(step.column)]) for step in STEPS}
    first = next(column for column, at_ns in times.items() if at_ns is not None)
    across, network_ns = row["network_bound_ns"] is not None, _whole(row["network_ns"])
    held = {cause.name: _whole(row[cause.column]) or 0 for cause in CAUSES}
    return first, list(stages(times, _whole(row["resent_ns"]), held, across=across, network_ns=network_ns))


def title(row: Mapping[str, Value], *, unicode: bool) -> str:
    """Return a sentence on a row's message: how long it took, when, how large it was, and what held it most."""
    total = fmt.time(_whole(row["total_ns"]), unicode=unicode)
    held = fmt.time(_whole(row["blame_ns"]), unicode=unicode)
    who = " to ".join(str(row[name]) for name in ("sender", "reader") if row[name])
    at_s = (_whole(row["begin_ns"]) or 0) / 1e9
    again = _whole(row["retransmits"])
    resent = f", {again} retransmission{'s' if again > 1 else ''}" if again else ""
    whose = f", {who}" if who else ""
    way = f", {row['sender_host']} to {row['receiver_host']}" if row["network_bound_ns"] is not None else ""
    translated = f", as {row['translated_to']} after NAT" if row["translated_to"] else ""
    return (
        f"{total} at {at_s:.6f} s: {_whole(row['len_bytes']):,} bytes, {row['protocol']} {row['flow_name']}"
        f"{translated}{way}{whose}{resent}; {row['blame']} {held}"
    )


def _stage(part: Stage, total_ns: int, width: int, terminal: Terminal, *, spans: bool) -> str:
    """Return a line: the point at which the stage ends, its duration, its bar, its causes."""
    begin = round(part.after_ns / total_ns * width)
    end = max(round((part.after_ns + part.duration_ns) / total_ns * width), begin + 1)
    begin = min(begin, width - 1)
    mark = ("█" if not spans else "▒") if terminal.unicode else ("#" if not spans else "+")
    bar = " " * begin + mark * (min(end, width) - begin)
    duration = fmt.time(part.duration_ns, unicode=terminal.unicode).rjust(_TIME)
    return f"{pad(BY_COLUMN[part.column].title, _POINT)} {duration} {pad(bar, width)} {_words(part)}".rstrip()


def _words(part: Stage) -> str:
    """Return the causes of a stage that are shown."""
    return ", ".join(part.causes[:_CAUSES])


def _between(line: str, part: Stage, width: int, bound_ns: int, *, unicode: bool) -> str:
    """Return the line of the stage between two hosts, with the bound, or with its maximum duration."""
    if part.told:
        return f"{line} {'±' if unicode else '+-'} {fmt.time(bound_ns, unicode=unicode)}"
    most = fmt.time(part.duration_ns + bound_ns, unicode=unicode)
    point = f"{pad(BY_COLUMN[part.column].title, _POINT)} {fmt.MISSING.rjust(_TIME)}"
    return f"{point} {pad('', width)} {_words(part)} < {most}"


def _spans(previous: str, column: str) -> bool:
    """Return whether a point that every message passes lies between the two and was not seen."""
    names = list(BY_COLUMN)
    between = names[names.index(previous) + 1 : names.index(column)]
    return bool({"queue_ns", "start_ns", "driver_ns", "core_ns"} & set(between))


def _whole(value: Value) -> int | None:
    return None if value is None else int(value)
