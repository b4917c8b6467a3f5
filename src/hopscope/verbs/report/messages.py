# SPDX-License-Identifier: Apache-2.0
"""The report ``messages``: where messages spent their time, slowest first, and the share of each cause."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from hopscope.model.cause import BY_NAME as CAUSES
from hopscope.model.report import Column, Report
from hopscope.term.format import plural
from hopscope.trace.causes.blame import cause_totals, most_blamed
from hopscope.trace.gaps import attached, loss_notes, unfollowed_notes
from hopscope.trace.host_numbers import hosts
from hopscope.trace.messages.missing import Circumstances, missing
from hopscope.trace.messages.path import BY_COLUMN, RECEIVED, STEPS, earliest
from hopscope.trace.names import UNNAMED
from hopscope.trace.relation import build

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from hopscope.store.trace import Trace
    from hopscope.trace.selection import Selection

Columns: TypeAlias = "Mapping[str, NDArray[Any]]"

_AFTER: Final = "time after the beginning when "


def step_name(column: str) -> str:
    """Return the report's name of a point's column, with the unit: ``tx_start_ns``."""
    point = BY_COLUMN[column].title.replace(".", "_").replace(" ", "_")
    return f"{point}_ns"


COLUMNS: Final = (
    Column("begin_ns", "at_ns", "time of the first observed point", "begin"),
    Column("total_ns", "ns", "time from the first to the last observed point", "total"),
    Column("blame", "text", "cause that held it longest (docs/causes.md)", "held by"),
    Column("blame_ns", "ns", "time for which this cause held it", "for"),
    Column("len_bytes", "bytes", "bytes that the call sent", "bytes"),
    Column("retransmits", "count", "retransmissions that contain bytes of it", "retr", rank=2),
    Column("resent_ns", "ns", "time of the last retransmission after the beginning", "resent", rank=9),
    Column(
        "part",
        "text",
        "between hosts: the part to which this cause belongs (sender's or receiver's application or stack, network)",
        "of",
        rank=2,
    ),
    Column(
        "network_ns",
        "ns",
        "time from the last point on the sender's host to the first on the receiver's; null: one host, or "
        "within the bound",
        "network",
        rank=1,
    ),
    Column("network_bound_ns", "ns", "maximum error of network_ns and total_ns (bound of the clocks)", "±", rank=1),
    Column("sender_host", "text", "host of the sender; null in a recording of one host", "from", rank=5),
    Column("receiver_host", "text", "host of the receiver, or of the intended receiver", "to", rank=5),
    Column("until", "text", "last observed point; of a dropped datagram, the reason", "until", rank=3),
    Column("flow_name", "text", "source > destination", "flow"),
    Column(
        "translated_to",
        "text",
        "source > destination as the receiver sees it, if NAT on this host changed it",
        "after NAT",
    ),
    Column("sender", "text", "thread that sent it", "sender", rank=1),
    Column("reader", "text", "thread that read it", "reader", rank=1),
    Column("protocol", "text", "tcp or udp", "proto", rank=4),
    *(Column(step_name(step.column), "ns", _AFTER + step.meaning, step.title, rank=9) for step in STEPS),
    *(
        Column(cause.column, "ns", f"time for which it was held by {cause.name}: {cause.meaning}", cause.name, rank=9)
        for cause in CAUSES.values()
    ),
    Column("missing", "text", "points on its path that were not observed, and why", "missing", rank=9),
    Column("flow", "id", "number of the flow", "number", rank=9),
)
NAMES: Final = {column.name: column for column in COLUMNS}

REASONS: Final = (
    "SELECT d.time_ns, max(coalesce(r.name, CAST(d.reason AS STRING))) AS reason"
    " FROM drops d LEFT JOIN reasons r ON r.reason = d.reason GROUP BY d.time_ns"
)
_HELD: Final = ", ".join(f"c.{cause.column}" for cause in CAUSES.values())
_QUERY: Final = f"""
    SELECT m.*, {_HELD}, coalesce(n.name, {UNNAMED.format("m.flow")}) AS flow_name, d.reason AS drop_reason,
           s.name AS sender, r.name AS reader,
           sh.name AS sender_name, rh.name AS receiver_name,
           CASE WHEN t.flow IS NOT NULL THEN coalesce(a.name, {UNNAMED.format("t.flow")}) END AS translated_to
    FROM messages m LEFT JOIN message_causes c ON c.message = m.message
    LEFT JOIN flow_names n ON n.flow = m.flow
    LEFT JOIN final_translations t ON t.original = m.flow AND m.ends_ns >= t.from_ns AND m.ends_ns < t.until_ns
    LEFT JOIN flow_names a ON a.flow = t.flow
    LEFT JOIN thread_names s ON s.tid = m.sender_tid LEFT JOIN thread_names r ON r.tid = m.reader_tid
    LEFT JOIN ({REASONS}) d ON d.time_ns = m.dropped_ns
    LEFT JOIN hosts sh ON sh.host = m.sender_host LEFT JOIN hosts rh ON rh.host = m.receiver_host
    WHERE total_ns > 0 ORDER BY total_ns DESC, begins_ns, m.flow"""


def messages(trace: Trace, selection: Selection, *, limit: int | None = None) -> Report:
    """Return a row per message, slowest first, with the share of each cause in the heading."""
    build(trace, "messages", "message_causes", "final_translations", "flow_names", "thread_names", selection=selection)
    rows = trace.columns(_QUERY if limit is None else f"{_QUERY} LIMIT {limit}")
    count, single, unread, total_ns = trace.rows(_COUNTS)[0]
    values = _values(rows, missing(rows, Circumstances.of(trace)), trace.metadata.started_ns)
    notes = [*_notes(trace, count, single, unread), *_dropped(trace), *_across(trace), *loss_notes(trace)]
    heading = _heading(count, total_ns, cause_totals(trace), between=bool(hosts(trace))) if count else []
    return Report("messages", COLUMNS, values, notes, count - single - len(rows["flow"]), heading)


_COUNTS: Final = """
    SELECT count(*), coalesce(sum(CASE WHEN total_ns > 0 THEN 0 ELSE 1 END), 0),
           coalesce(sum(CASE WHEN read_ns IS NULL AND received_ns IS NULL AND dropped_ns IS NULL THEN 1 ELSE 0 END), 0),
           coalesce(sum(total_ns), 0)
    FROM messages"""


_AS_THEY_ARE: Final = (
    "network_ns", "network_bound_ns", "len_bytes", "retransmits", "flow_name", "translated_to", "sender", "reader",
    "flow",
)  # fmt: skip


def _values(rows: Columns, reasons: NDArray[Any], started_ns: int) -> dict[str, NDArray[Any]]:
    begins = np.asarray(rows["begins_ns"])
    blame, blame_ns = most_blamed(rows)
    return {
        "begin_ns": begins - started_ns,
        "total_ns": rows["total_ns"],
        "blame": blame,
        "blame_ns": blame_ns,
        "part": _part(blame, np.ma.getmaskarray(rows["network_bound_ns"])),
        "sender_host": rows["sender_name"],
        "receiver_host": rows["receiver_name"],
        "until": _until(rows),
        "resent_ns": np.ma.MaskedArray(rows["resent_ns"]) - begins,
        "protocol": np.where(np.asarray(rows["protocol"]) == 6, "tcp", "udp"),
        "missing": reasons,
        **{name: rows[name] for name in _AS_THEY_ARE},
        **{cause.column: rows[cause.column] for cause in CAUSES.values()},
        **{step_name(step.column): np.ma.MaskedArray(rows[step.column]) - begins for step in STEPS},
    }


def _part(blame: NDArray[Any], on_one_host: NDArray[Any]) -> NDArray[Any]:
    """Return the part of the path to which each cause belongs, for messages between two hosts."""
    nobody = np.ma.getmaskarray(blame) | on_one_host
    parts = [CAUSES[cause].part if cause else "" for cause in np.ma.filled(blame, "").tolist()]
    return np.ma.MaskedArray(np.array(parts, dtype=object), nobody)


def _until(rows: Columns) -> NDArray[Any]:
    """Return the name of the last observed point of each message."""
    names = np.full(len(rows["flow"]), "", dtype=object)
    for step in STEPS:
        names[~np.ma.getmaskarray(rows[step.column])] = step.title
    known = ~np.ma.getmaskarray(rows["drop_reason"])
    names[known] = [f"dropped: {reason}" for reason in np.asarray(rows["drop_reason"])[known].tolist()]
    return names


def _heading(count: int, total_ns: int, causes: Mapping[str, int], *, between: bool) -> list[str]:
    shares = [_shares(causes, total_ns)]
    if between:
        parts = dict.fromkeys((cause.part for cause in CAUSES.values()), 0)
        for cause, held_ns in causes.items():
            parts[CAUSES[cause].part] += held_ns
        found = {part: held_ns for part, held_ns in parts.items() if held_ns}
        shares = [_shares(found, total_ns), f"in detail: {shares[0]}"]
    first, *more = shares
    return [f"{plural(count, 'message')}; share of the time by cause: {first}", *more, ""]


def _shares(held: Mapping[str, int], total_ns: int) -> str:
    return ", ".join(f"{who} {share(held_ns, total_ns)}" for who, held_ns in held.items())


def share(part: int, whole: int) -> str:
    """Return a share in per cent."""
    return f"{part / whole:.0%}" if part >= 0.005 * whole else "<1%"


def _notes(trace: Trace, count: int, single: int, unread: int) -> list[str]:
    notes = unfollowed_notes(trace)
    if not count and not notes:
        notes.append(_nothing(trace))
    if unread:
        notes.append(
            f"{unread:,} of {plural(count, 'message')} {'was' if unread == 1 else 'were'} not read "
            f"{'' if hosts(trace) else 'on this host '}during the recording: see `missing` (--json)"
        )
    if single:
        notes.append(f"not listed: {plural(single, 'message')} observed at only one point, without a duration")
    return notes


def _dropped(trace: Trace) -> list[str]:
    """Return a sentence about datagrams that were dropped, with the reasons."""
    counted = trace.rows(
        f"SELECT coalesce(d.reason, 'unknown reason'), count(*) FROM messages m LEFT JOIN ({REASONS}) d"
        " ON d.time_ns = m.dropped_ns WHERE m.dropped_ns IS NOT NULL GROUP BY 1 ORDER BY 2 DESC, 1"
    )
    if not counted:
        return []
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in counted)
    return [f"dropped: {plural(sum(count for _, count in counted), 'datagram')} ({reasons})"]


def _across(trace: Trace) -> list[str]:
    """Return sentences about messages between hosts without a network time, or that cannot be told apart."""
    if not hosts(trace):
        return []
    notes = []
    ((untold, unsure),) = trace.rows(_UNTOLD)
    if untold:
        notes.append(
            f"{plural(untold, 'message')} without a network time: it is less than the error bound of the clocks"
        )
    if unsure:
        notes.append(f"{plural(unsure, 'datagram')} cannot be told apart: some were lost, but not known which")
    return notes


_UNTOLD: Final = f"""
    SELECT coalesce(sum(CASE WHEN network_bound_ns IS NOT NULL AND network_ns IS NULL
                             AND {earliest(RECEIVED)} IS NOT NULL THEN 1 ELSE 0 END), 0),
           coalesce(sum(CASE WHEN state = 'unsure' THEN 1 ELSE 0 END), 0)
    FROM messages"""


def _nothing(trace: Trace) -> str:
    needed = ("tx.sent", "tx.send", "tx.queue")
    plan = {
        row.get("point", ""): row.get("reason", "") for row in trace.metadata.plan if row.get("status") != "attached"
    }
    seen = attached(trace)
    failed = [f"{name}{f' ({plan[name]})' if plan.get(name) else ''}" for name in needed if name not in seen]
    if trace.metadata.plan and failed:
        return f"no messages: they require the probe points {', '.join(needed)}; not attached: {', '.join(failed)}"
    return "no messages: no matching socket on this host sent anything during the recording"
