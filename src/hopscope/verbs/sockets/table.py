# SPDX-License-Identifier: Apache-2.0
"""Sockets as a table: a line each, and below it what looks wrong with it."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import numpy as np

from hopscope.kernel.sockets.address import ends
from hopscope.kernel.sockets.signs import rtt_inflation
from hopscope.kernel.sockets.table import PROTOCOLS, Seen, State, has
from hopscope.term import format as fmt
from hopscope.term.format import plural
from hopscope.term.grid import Column, render_grid
from hopscope.verbs.sockets.groups import NOT_KNOWN, cgroup_names, congestion_names, groups, namespace_names
from hopscope.verbs.sockets.report import delivery_rate, rtt_us, state_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from hopscope.kernel.sockets.signs import Sign
    from hopscope.term.terminal import Terminal
    from hopscope.verbs.sockets.groups import SocketGroup
    from hopscope.verbs.sockets.report import SocketReport

_INDENT: Final = "  "
_BITS: Final = 8
_NO_PEER: Final = {State.LISTEN, State.CLOSE, State.BOUND_INACTIVE}


def render_sockets(report: SocketReport, terminal: Terminal, limit: int | None) -> str:
    """Return heading, table and notes as lines without a line end after the last; 0: all sockets."""
    lines = heading(report, terminal)
    shown = report.head(limit)
    if not len(shown):
        lines += terminal.fold("No matching sockets.")
    else:
        title, *table = render_grid(_columns(shown, terminal), terminal)
        lines.append(title)
        for index, line in enumerate(table):
            lines += [line, *(terminal.paint(text, "warn") for text in sign_lines(shown, index, terminal))]
    if len(report) > len(shown):
        lines += terminal.fold(f"and {_sockets(len(report) - len(shown))} more (--limit)")
    return "\n".join(lines + notes(report, terminal))


def render_groups(report: SocketReport, by: Sequence[str], terminal: Terminal, limit: int | None) -> str:
    """Return the sockets in groups, otherwise as :func:`render_sockets`."""
    lines = heading(report, terminal)
    found = groups(report, by)
    shown = found[: limit or None]
    if shown:
        lines += render_grid(_group_columns(shown, by, report.duration_s, terminal), terminal)
    else:
        lines += terminal.fold("No matching sockets.")
    if len(found) > len(shown):
        rest = sum(each.sockets for each in found[len(shown) :])
        lines += terminal.fold(f"and {len(found) - len(shown):,} more with {_sockets(rest)} (--limit)")
    return "\n".join(lines + notes(report, terminal))


def heading(report: SocketReport, terminal: Terminal) -> list[str]:
    """Return the lines above a table: when, how many, of which states, and what came and went."""
    start = datetime.fromtimestamp(report.started_ns // 10**9, UTC)
    parts = ["sockets", f"{start:%Y-%m-%d %H:%M:%S} UTC"]
    if report.duration_s is not None:
        length = fmt.time(report.duration_s * 1e9, unicode=terminal.unicode)
        parts.append(f"total {length}" if report.kind == "total" else length)
    states: dict[str, list[str]] = {}
    for (protocol, state), count in report.states().most_common():
        states.setdefault(protocol, []).append(f"{count:,} {state}")
    counts = "; ".join(f"{protocol} {', '.join(found)}" for protocol, found in states.items())
    lines = [f"{_INDENT.join(parts)}{_INDENT}{_sockets(len(report))}{f': {counts}' if counts else ''}"]
    lines[0] += "; out, in: bytes so far" if report.duration_s is None else "; out, in: bit/s"
    if report.duration_s is not None and (report.new or report.change.gone):
        gone = f"{plural(report.change.gone, 'socket')} closed: what they did since the previous reading is unknown"
        lines.append(f"{report.new:,} new; {gone}")
    return [terminal.paint(line, "dim") for text in lines for line in terminal.fold(text)]


def notes(report: SocketReport, terminal: Terminal) -> list[str]:
    """Return the lines below a table: what is not known, and what reading took."""
    sockets = report.sockets
    missing = [f"not read: {sockets.namespaces.get(each.netns, each.netns)}: {each.reason}" for each in sockets.unread]
    if sockets.twice or sockets.interrupted:
        missing.append(
            f"The kernel's tables changed while they were read: {_sockets(sockets.twice)} appeared twice "
            "(shown once), and others may be missing"
        )
    lines = [terminal.paint(line, "warn") for text in missing for line in terminal.fold(text)]
    texts = [f"note: {note}" for note in report.notes]
    if report.reader_cpu_percent is not None:
        texts.insert(0, f"cost: {fmt.per_cent(report.reader_cpu_percent)} reader")
    return lines + [terminal.paint(line, "dim") for text in texts for line in terminal.fold(text)]


def socket_names(report: SocketReport) -> list[str]:
    """Return each socket as ``tcp 10.0.0.1:40000 > 10.0.0.2:80``, with its state where that is not established."""
    rows = report.sockets.rows
    found = []
    for protocol, state, local, peer in zip(
        rows["protocol"].tolist(),
        rows["message"]["state"].tolist(),
        ends(report.sockets, "local"),
        ends(report.sockets, "peer"),
        strict=True,
    ):
        flow = local if state in _NO_PEER else f"{local} > {peer}"
        usual = state == State.ESTABLISHED or (state == State.CLOSE and PROTOCOLS.get(protocol) != "tcp")
        found.append(f"{PROTOCOLS.get(protocol, protocol)} {flow}{'' if usual else f' {state_name(state)}'}")
    return found


def process_names(report: SocketReport) -> list[str]:
    """Return whose each socket is: the first process, and how many more."""
    names = []
    for inode in report.sockets.rows["message"]["inode"].tolist():
        found = report.owners.get(inode, ())
        pids = dict.fromkeys(owner.pid for owner in found)
        more = f" +{len(pids) - 1}" if len(pids) > 1 else ""
        names.append(f"{found[0].comm} ({found[0].pid}){more}" if found else NOT_KNOWN)
    return names


def sign_lines(report: SocketReport, index: int, terminal: Terminal) -> list[str]:
    """Return what looks wrong with a socket, as lines that fit."""
    found = report.signs.of(index)
    if not found:
        return []
    text = ", ".join(sign.text.format(sign_value(sign, value, terminal)) for sign, value in found)
    narrow = replace(terminal, width=terminal.width - 4)
    return [f"{_INDENT * 2}{line}" for line in narrow.fold(text)]


def sign_value(sign: Sign, value: float, terminal: Terminal) -> str:
    """Return the value of a sign in its unit."""
    match sign.unit:
        case "part":
            return fmt.part(value)
        case "ms":
            return fmt.time(value * 1e6, unicode=terminal.unicode)
        case "ratio":
            return f"{fmt.rate(value)}x"
        case _:
            return fmt.count(round(value))


def _columns(report: SocketReport, terminal: Terminal) -> list[Column]:
    rows, change = report.sockets.rows, report.change
    info = has(rows, Seen.INFO)
    sent, received = (_amounts(values, report, info) for values in (change.sent_bytes, change.received_bytes))
    at_rest = report.duration_s is None
    several = len(set(rows["netns"].tolist())) > 1
    # What is first left out where it is narrow: at rest what the counters say, in an interval what the queues say.
    queues, traffic = (1, 4) if at_rest else (4, 1)
    found = [
        Column("process", process_names(report), left=True),
        Column("socket", socket_names(report), left=True),
        Column("recv-q", [fmt.count(value) for value in rows["message"]["rqueue"].tolist()], rank=queues),
        Column("send-q", [fmt.count(value) for value in rows["message"]["wqueue"].tolist()], rank=queues),
        Column("out", sent, rank=traffic),
        Column("in", received, rank=traffic),
        Column("retr", _shares(change.share("total_retrans", "data_segs_out")), rank=3),
        Column("rtt", [_micros(value, terminal) for value in rtt_us(report).tolist()], rank=2),
        Column("/min", [_ratio(value) for value in rtt_inflation(rows).tolist()], rank=5),
        Column("rwnd", _shares(change.share("rwnd_limited", "busy_time")), rank=7),
        Column("sndbuf", _shares(change.share("sndbuf_limited", "busy_time")), rank=8),
        Column("delivery", [_rate(value * _BITS) for value in delivery_rate(report).tolist()], rank=9),
        Column("cwnd", _where(info, rows["tcp"]["snd_cwnd"]), rank=10),
        Column("cc", congestion_names(report), rank=11, left=True),
        Column("cgroup", cgroup_names(report), rank=12, left=True),
    ]
    if report.duration_s is not None:
        busy = change["busy_time"] / (report.duration_s * 1e6)
        found.insert(9, Column("busy", _shares(np.where(info, np.minimum(busy, 1), np.nan)), rank=7))
    if several:
        found.insert(2, Column("netns", namespace_names(report), rank=6, left=True))
    return found


def _group_columns(
    shown: Sequence[SocketGroup], by: Sequence[str], duration_s: float | None, terminal: Terminal
) -> list[Column]:
    return [
        *(Column(key, [each.group[key] for each in shown], left=True) for key in by),
        Column("sockets", [fmt.count(each.sockets) for each in shown]),
        Column("in trouble", [fmt.count(each.in_trouble) if each.in_trouble else "" for each in shown], rank=1),
        Column("out", [_amount(each.sent_bytes, duration_s) for each in shown], rank=2),
        Column("in", [_amount(each.received_bytes, duration_s) for each in shown], rank=2),
        Column("retr", _shares_of((each.retransmitted, each.data_segments) for each in shown), rank=3),
        Column("rtt", [_micros(each.rtt_us, terminal) for each in shown], rank=3),
        Column("max", [_micros(each.rtt_max_us, terminal) for each in shown], rank=5),
        Column("/min", [_ratio(each.rtt_inflation) for each in shown], rank=6),
        Column("recv-q", [fmt.count(each.receive_queue_bytes) for each in shown], rank=4),
        Column("send-q", [fmt.count(each.send_queue_bytes) for each in shown], rank=4),
        Column("drops", [fmt.count(each.drops) for each in shown], rank=7),
    ]


def _amounts(values: NDArray[np.float64], report: SocketReport, info: NDArray[np.bool_]) -> list[str]:
    known = info & report.change.known
    return [
        _amount(value, report.duration_s) if seen else fmt.MISSING
        for value, seen in zip(values.tolist(), known.tolist(), strict=True)
    ]


def _amount(byte_count: float, duration_s: float | None) -> str:
    if duration_s is None:
        return fmt.count(round(byte_count))
    return fmt.rate(byte_count * _BITS / duration_s)


def _rate(per_s: float) -> str:
    return fmt.MISSING if math.isnan(per_s) else fmt.rate(per_s)


def _shares(values: NDArray[np.float64]) -> list[str]:
    return [fmt.MISSING if math.isnan(value) else fmt.part(value) for value in values.tolist()]


def _shares_of(pairs: Iterable[tuple[int, int]]) -> list[str]:
    return [fmt.part(min(part / whole, 1)) if whole else fmt.MISSING for part, whole in pairs]


def _micros(value_us: float | None, terminal: Terminal) -> str:
    if value_us is None or math.isnan(value_us):
        return fmt.MISSING
    return fmt.time(value_us * 1e3, unicode=terminal.unicode)


def _ratio(value: float | None) -> str:
    return fmt.MISSING if value is None or math.isnan(value) else f"{fmt.rate(value)}x"


def _where(known: NDArray[np.bool_], values: NDArray[np.uint32]) -> list[str]:
    return [fmt.count(value) if seen else fmt.MISSING for value, seen in zip(values.tolist(), known, strict=True)]


def _sockets(number: int) -> str:
    return fmt.plural(number, "socket")
