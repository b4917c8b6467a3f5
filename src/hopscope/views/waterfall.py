# SPDX-License-Identifier: Apache-2.0
"""Messages for people: a table, or for each message a waterfall, its stages as bars on one axis of time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from hopscope.analysis.messages import NAMES, step_name
from hopscope.analysis.messages_blame import stages
from hopscope.analysis.messages_path import BY_COLUMN, STEPS
from hopscope.views import format as fmt
from hopscope.views.report_table import NOTHING, footer, render_report
from hopscope.views.terminal import pad

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hopscope.analysis.messages_blame import Stage
    from hopscope.analysis.report import Report, Value
    from hopscope.views.terminal import Terminal

# So many messages, or fewer, are shown as waterfalls if nothing else is wanted.
FEW: Final = 10

_TABLE: Final = (
    "begin_ns", "total_ns", "blame", "blame_ns", "len_bytes", "retransmits", "until", "flow_name", "translated_to",
    "sender", "reader",
)  # fmt: skip
_POINT, _TIME, _LAYER = 14, 6, 18
_LEAST_BAR: Final = 8
_GAPS: Final = 4


def render_messages(report: Report, terminal: Terminal, *, waterfall: bool) -> str:
    """Return heading, messages and notes as lines without a line end after the last."""
    if not waterfall:
        # Few traces have NAT: elsewhere its column is no use.
        left_out = set() if any(report.column("translated_to")) else {"translated_to"}
        columns = [NAMES[name] for name in _TABLE if name not in left_out]
        return render_report(replace(report, columns=columns), terminal)
    lines = [line for text in report.heading for line in terminal.fold(text)]
    names = [column.name for column in report.columns]
    for values in report.rows():
        lines += [*_message(dict(zip(names, values, strict=True)), terminal), ""]
    if not len(report) and not report.notes:
        lines += terminal.fold(NOTHING)
    return "\n".join([*lines, *footer(report, terminal)]).rstrip("\n")


def _message(row: Mapping[str, Value], terminal: Terminal) -> Iterator[str]:
    unicode = terminal.unicode
    for line in terminal.fold(_title(row, unicode=unicode)):
        yield terminal.paint(line, "bold")
    times = {step.column: _whole(row[step_name(step.column)]) for step in STEPS}
    total_ns = _whole(row["total_ns"]) or 1
    first = next(column for column, at_ns in times.items() if at_ns is not None)
    yield f"{pad(BY_COLUMN[first].title, _POINT)} {'0'.rjust(_TIME)}"
    parts = list(stages(times, _whole(row["resent_ns"])))
    longest = max((part.duration_ns for part in parts), default=0)
    width = max(terminal.width - _POINT - _TIME - _LAYER - _GAPS, _LEAST_BAR)
    previous = first
    for part in parts:
        line = _stage(part, total_ns, width, terminal, spans=_spans(previous, part.column))
        yield terminal.paint(line, "bold") if part.duration_ns == longest else line
        previous = part.column
    if row["missing"]:
        yield from (terminal.paint(line, "dim") for line in terminal.fold(f"not seen: {row['missing']}"))


def _title(row: Mapping[str, Value], *, unicode: bool) -> str:
    total = fmt.time(_whole(row["total_ns"]), unicode=unicode)
    held = fmt.time(_whole(row["blame_ns"]), unicode=unicode)
    who = " to ".join(str(row[name]) for name in ("sender", "reader") if row[name])
    at_s = (_whole(row["begin_ns"]) or 0) / 1e9
    again = _whole(row["retransmits"])
    resent = f", {again} retransmission{'s' if again > 1 else ''}" if again else ""
    whose = f", {who}" if who else ""
    translated = f", as {row['translated_to']} after NAT" if row["translated_to"] else ""
    return (
        f"{total} at {at_s:.6f} s: {_whole(row['len_bytes']):,} bytes, {row['protocol']} {row['flow_name']}"
        f"{translated}{whose}{resent}; {row['blame']} {held}"
    )


def _stage(part: Stage, total_ns: int, width: int, terminal: Terminal, *, spans: bool) -> str:
    """Return a line: the point that it ends at, its duration, its bar, who is to blame."""
    begin = round(part.after_ns / total_ns * width)
    end = max(round((part.after_ns + part.duration_ns) / total_ns * width), begin + 1)
    begin = min(begin, width - 1)
    mark = ("█" if not spans else "▒") if terminal.unicode else ("#" if not spans else "+")
    bar = " " * begin + mark * (min(end, width) - begin)
    duration = fmt.time(part.duration_ns, unicode=terminal.unicode).rjust(_TIME)
    return f"{pad(BY_COLUMN[part.column].title, _POINT)} {duration} {pad(bar, width)} {part.layer}".rstrip()


def _spans(previous: str, column: str) -> bool:
    """Return whether a point that is always there lies between the two and was not seen."""
    names = list(BY_COLUMN)
    between = names[names.index(previous) + 1 : names.index(column)]
    return bool({"queue_ns", "start_ns", "driver_ns", "core_ns"} & set(between))


def _whole(value: Value) -> int | None:
    return None if value is None else int(value)
