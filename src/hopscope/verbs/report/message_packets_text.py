# SPDX-License-Identifier: Apache-2.0
"""The packets of messages as waterfalls: of each packet, the time at each point, on the time axis of its message."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from hopscope.term import format as fmt
from hopscope.term.report_table import NOTHING, footer
from hopscope.term.terminal import columns, pad
from hopscope.trace.messages.path import BY_COLUMN, PACKET_COLUMNS
from hopscope.verbs.report.messages import step_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hopscope.model.report import Report
    from hopscope.term.terminal import Terminal

_LEAST_BAR: Final = 8
_GAP: Final = 1


def render_message_packets(report: Report, terminal: Terminal) -> str:
    """Return messages, each with its packets, and notes as lines without a line end after the last."""
    names = [column.name for column in report.columns]
    rows = [dict(zip(names, values, strict=True)) for values in report.rows()]
    lines: list[str] = []
    for _, packets in groupby(rows, key=lambda row: row["message"]):
        lines += [*_message(list(packets), terminal), ""]
    if not rows and not report.notes:
        lines += terminal.fold(NOTHING)
    return "\n".join([*lines, *footer(report, terminal)]).rstrip("\n")


def _message(packets: Sequence[dict[str, Any]], terminal: Terminal) -> Iterator[str]:
    first = packets[0]
    total = fmt.time(first["total_ns"], unicode=terminal.unicode)
    again = sum(packet["kind"] == "retransmission" for packet in packets)
    resent = f", {fmt.plural(again, 'retransmission')}" if again else ""
    heading = (
        f"message {first['message']}: {total} at {first['begin_ns'] / 1e9:.6f} s: {first['message_bytes']:,} bytes, "
        f"{first['protocol']} {first['flow_name']}; {fmt.plural(len(packets), 'packet')}{resent}"
    )
    yield from (terminal.paint(line, "bold") for line in terminal.fold(heading))
    titles = [_title(packet) for packet in packets]
    width = max(map(columns, titles))
    for packet, title in zip(packets, titles, strict=True):
        times = _times(packet)
        room = max(terminal.width - width - _GAP, _LEAST_BAR)
        bar = _bar([at_ns for _, at_ns in times], first["total_ns"] or 1, room, unicode=terminal.unicode)
        line = f"{pad(terminal.text(title), width)} {bar}".rstrip()
        yield terminal.paint(line, "warn") if packet["kind"] == "retransmission" or packet["reason"] else line
        yield from terminal.fold(f"  {_steps(times, unicode=terminal.unicode)}", indent=2)


def _title(packet: dict[str, Any]) -> str:
    """Return what a packet is, and of which bytes."""
    start, length = packet["start_byte"], packet["len_bytes"]
    where = f" on {packet['host']}" if packet["host"] is not None else ""
    if length is None:
        return f"{packet['kind']}{where}"
    bytes_ = f"{length:,} bytes" if start is None else f"bytes {start:,} to {start + length - 1:,}"
    return f"{packet['kind']}{where}, {bytes_}"


def _times(packet: dict[str, Any]) -> list[tuple[str, int]]:
    """Return the points that it passed, with the time after the message's beginning, in order of time."""
    found = [(BY_COLUMN[column].point, packet[step_name(column)]) for column in PACKET_COLUMNS]
    if packet["dropped_ns"] is not None:
        found.append((f"dropped ({packet['reason']})", packet["dropped_ns"]))
    return sorted(((point, at_ns) for point, at_ns in found if at_ns is not None), key=lambda each: each[1])


def _steps(times: Sequence[tuple[str, int]], *, unicode: bool) -> str:
    """Return each point with its time: of the first one since the message began, then since the point before."""
    texts: list[str] = []
    before_ns = 0
    for point, at_ns in times:
        sign = "" if at_ns < before_ns else "+"
        texts.append(f"{point} {sign if texts else ''}{_signed(at_ns - before_ns, unicode=unicode)}")
        before_ns = at_ns
    return ", ".join(texts)


def _signed(duration_ns: int, *, unicode: bool) -> str:
    sign = "-" if duration_ns < 0 else ""
    return sign + fmt.time(abs(duration_ns), unicode=unicode)


def _bar(times_ns: Sequence[int], total_ns: int, width: int, *, unicode: bool) -> str:
    """Return a bar from the first to the last of these times."""
    if not times_ns:
        return ""
    begin, end = (round(min(max(at_ns, 0), total_ns) / total_ns * width) for at_ns in (times_ns[0], times_ns[-1]))
    begin = min(begin, width - 1)
    return " " * begin + ("█" if unicode else "#") * max(min(end, width) - begin, 1)
