# SPDX-License-Identifier: Apache-2.0
"""The report ``messages``: where each message's time went, the slowest first, and who held all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from hopscope.model.report import Column, Report
from hopscope.trace.gaps import loss_notes
from hopscope.trace.host_numbers import hosts
from hopscope.trace.messages.blame import layer_totals, most_blamed
from hopscope.trace.messages.missing import Circumstances, missing
from hopscope.trace.messages.path import BY_COLUMN, PARTS, RECEIVED, STEPS, earliest
from hopscope.trace.relation import build

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from hopscope.store.trace import Trace
    from hopscope.trace.selection import Selection

Columns: TypeAlias = "Mapping[str, NDArray[Any]]"

_AFTER: Final = "after its begin: when "


def step_name(column: str) -> str:
    """Return what the report calls a point's column, with the unit: ``tx_start_ns`` after the message's begin."""
    point = BY_COLUMN[column].title.replace(".", "_").replace(" ", "_")
    return f"{point}_ns"


COLUMNS: Final = (
    Column("begin_ns", "at_ns", "when its first point was seen", "begin"),
    Column("total_ns", "ns", "from its first to its last point that was seen", "total"),
    Column("blame", "text", "who held it longest", "held by"),
    Column("blame_ns", "ns", "for how long", "for"),
    Column("len_bytes", "bytes", "that the call sent", "bytes"),
    Column("retransmits", "count", "retransmissions of bytes of it", "retr", rank=2),
    Column("resent_ns", "ns", "after its begin: when the last of them was", "resent", rank=9),
    Column(
        "part",
        "text",
        "between hosts: whose layer it is: sender's or receiver's application or stack",
        "of",
        rank=2,
    ),
    Column(
        "network_ns",
        "ns",
        "from the last point on the sender's host to the first on the receiver's; null: one host, or within the bound",
        "network",
        rank=1,
    ),
    Column(
        "network_bound_ns", "ns", "by so much network_ns, and total_ns, may be wrong: the clocks' bound", "±", rank=1
    ),
    Column("sender_host", "text", "host that sent it; null in a recording of one host", "from", rank=5),
    Column("receiver_host", "text", "host that received it, or was to", "to", rank=5),
    Column("until", "text", "the last point that was seen", "until", rank=3),
    Column("flow_name", "text", "source > destination", "flow"),
    Column(
        "translated_to", "text", "source > destination at the receiver, if NAT on this host changed it", "after NAT"
    ),
    Column("sender", "text", "the thread that sent it", "sender", rank=1),
    Column("reader", "text", "the thread that read it", "reader", rank=1),
    Column("protocol", "text", "tcp or udp", "proto", rank=4),
    *(Column(step_name(step.column), "ns", _AFTER + step.meaning, step.title, rank=9) for step in STEPS),
    Column("missing", "text", "points on its way that were not seen, and why", "missing", rank=9),
    Column("flow", "number", "its flow's number", "number", rank=9),
)
NAMES: Final = {column.name: column for column in COLUMNS}

_QUERY: Final = """
    SELECT m.*, coalesce(n.name, CAST(m.flow AS STRING)) AS flow_name, s.name AS sender, r.name AS reader,
           sh.name AS sender_name, rh.name AS receiver_name,
           CASE WHEN t.flow IS NOT NULL THEN coalesce(a.name, CAST(t.flow AS STRING)) END AS translated_to
    FROM messages m LEFT JOIN flow_names n ON n.flow = m.flow
    LEFT JOIN final_translations t ON t.original = m.flow AND m.ends_ns >= t.from_ns AND m.ends_ns < t.until_ns
    LEFT JOIN flow_names a ON a.flow = t.flow
    LEFT JOIN thread_names s ON s.tid = m.sender_tid LEFT JOIN thread_names r ON r.tid = m.reader_tid
    LEFT JOIN hosts sh ON sh.host = m.sender_host LEFT JOIN hosts rh ON rh.host = m.receiver_host
    WHERE total_ns > 0 ORDER BY total_ns DESC, begins_ns, m.flow"""


def messages(trace: Trace, selection: Selection, *, limit: int | None = None) -> Report:
    """Return a row per message, the slowest first; in the heading, who held all of them."""
    build(trace, "messages", "final_translations", "flow_names", "thread_names", selection=selection)
    rows = trace.columns(_QUERY if limit is None else f"{_QUERY} LIMIT {limit}")
    count, single, unread, total_ns = trace.rows(_COUNTS)[0]
    values = _values(rows, missing(rows, Circumstances.of(trace)), trace.metadata.started_ns)
    notes = [*_notes(trace, count, single, unread), *_across(trace), *loss_notes(trace)]
    heading = _heading(count, total_ns, layer_totals(trace), between=bool(hosts(trace))) if count else []
    return Report("messages", COLUMNS, values, notes, count - single - len(rows["flow"]), heading)


_COUNTS: Final = """
    SELECT count(*), coalesce(sum(CASE WHEN total_ns > 0 THEN 0 ELSE 1 END), 0),
           coalesce(sum(CASE WHEN read_ns IS NULL AND received_ns IS NULL THEN 1 ELSE 0 END), 0),
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
        **{step_name(step.column): np.ma.MaskedArray(rows[step.column]) - begins for step in STEPS},
    }


def _part(blame: NDArray[Any], on_one_host: NDArray[Any]) -> NDArray[Any]:
    """Return of which part of the way each layer is, of messages between two hosts."""
    nobody = np.ma.getmaskarray(blame) | on_one_host
    parts = [PARTS.get(layer, "") for layer in np.ma.filled(blame, "").tolist()]
    return np.ma.MaskedArray(np.array(parts, dtype=object), nobody)


def _until(rows: Columns) -> NDArray[Any]:
    """Return the name of the last point that was seen of each message."""
    names = np.full(len(rows["flow"]), "", dtype=object)
    for step in STEPS:
        names[~np.ma.getmaskarray(rows[step.column])] = step.title
    return names


def _heading(count: int, total_ns: int, layers: Mapping[str, int], *, between: bool) -> list[str]:
    shares = [_shares(layers, total_ns)]
    if between:
        parts = dict.fromkeys(PARTS.values(), 0)
        for layer, held_ns in layers.items():
            parts[PARTS[layer]] += held_ns
        found = {part: held_ns for part, held_ns in parts.items() if held_ns}
        shares = [_shares(found, total_ns), f"layer by layer: {shares[0]}"]
    first, *more = shares
    return [f"{count:,} message{'s' if count > 1 else ''}; of their time held by: {first}", *more, ""]


def _shares(held: Mapping[str, int], total_ns: int) -> str:
    return ", ".join(f"{who} {share(held_ns, total_ns)}" for who, held_ns in held.items())


def share(part: int, whole: int) -> str:
    """Return a part in per cent."""
    return f"{part / whole:.0%}" if part >= 0.005 * whole else "<1%"


def _notes(trace: Trace, count: int, single: int, unread: int) -> list[str]:
    notes = []
    if not count:
        notes.append(_nothing(trace))
    if unread:
        notes.append(
            f"{unread:,} of {count:,} messages were not read {'' if hosts(trace) else 'here '}while it was recorded:"
            " see `missing` (--json)"
        )
    if single:
        notes.append(f"{single:,} messages were seen at one point only and have no time: they are not listed")
    return notes


def _across(trace: Trace) -> list[str]:
    """Return sentences on messages between hosts of which the clocks do not tell, or that are like others."""
    if not hosts(trace):
        return []
    notes = []
    ((untold, unsure),) = trace.rows(_UNTOLD)
    if untold:
        whose = "message: its" if untold == 1 else "messages: their"
        notes.append(f"{untold:,} {whose} time on the network is within the clocks' bound, and not said")
    if unsure:
        notes.append(f"{unsure:,} datagrams are alike, and some of them did not come: which is not known")
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
    attached = {row.get("point", "") for row in trace.metadata.plan if row.get("status") == "attached"}
    failed = [f"{name}{f' ({plan[name]})' if plan.get(name) else ''}" for name in needed if name not in attached]
    if trace.metadata.plan and failed:
        return f"no message: that needs the points {', '.join(needed)}; not attached: {', '.join(failed)}"
    return "no message: nothing wanted was sent by a socket on this host while it was recorded"
