# SPDX-License-Identifier: Apache-2.0
"""Questions whose answers are durations: hops, and the slowest packets and messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hopscope.model.histogram import SLOTS, Histogram
from hopscope.model.report import Column
from hopscope.trace.causes.blame import cause_totals
from hopscope.trace.gaps import unattached_notes, unfollowed_notes
from hopscope.trace.relation import build
from hopscope.verbs.fleet.raw.making import HOST, HOSTS, by_host, most, named, total
from hopscope.verbs.fleet.raw.question import BROKEN, SAID, Part, Question
from hopscope.verbs.report.hops import COLUMNS as HOP_COLUMNS
from hopscope.verbs.report.hops import PERCENTILES, WAY
from hopscope.verbs.report.messages import NAMES as MESSAGE_COLUMNS
from hopscope.verbs.report.messages import messages

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hopscope.model.report import Value
    from hopscope.store.trace import Trace
    from hopscope.trace.selection import Selection

BEGAN: Final = Column("began", "text", "when it began, by the host's wall clock (UTC)", "at")


def _hops(trace: Trace, selection: Selection, _most: int) -> Part:
    build(trace, "hop_counts", selection=selection, by=None, held=False)
    ((broken,),) = trace.rows("SELECT CAST(coalesce(sum(samples), 0) AS BIGINT) FROM hop_counts WHERE broken")
    return Part(
        trace.rows(
            "SELECT a.name, b.name, h.slot, h.samples, h.sum_ns, h.max_ns, h.moved FROM hop_counts h"
            " JOIN points a ON a.point = h.from_point JOIN points b ON b.point = h.point WHERE NOT h.broken"
        ),
        [*([(BROKEN, "", int(broken))] if broken else []), *((SAID, note, 1) for note in unattached_notes(trace, WAY))],
    )


_HOP_FIGURES: Final = f"{total('samples')}, {total('sum_ns')}, max(max_ns) AS max_ns, {total('moved')}"
# Sums of a hop beside its histogram.
_HOP_LINES: Final = f"""
    SELECT f.*, h.slots, h.counts FROM (
        SELECT {{who}}, from_point, to_point, {_HOP_FIGURES} FROM rows GROUP BY {{by}}from_point, to_point) f
    JOIN (
        SELECT {{by}}from_point, to_point, list(slot ORDER BY slot) AS slots, list(samples ORDER BY slot) AS counts
        FROM (
            SELECT {{by}}from_point, to_point, slot, {total("samples")} FROM rows
            GROUP BY {{by}}from_point, to_point, slot)
        GROUP BY {{by}}from_point, to_point) h
    USING ({{by}}from_point, to_point)"""
_PLACE: Final = f"coalesce(list_position({list(WAY)}, {{}}), {len(WAY) + 1})"


def _hop_values(line: Mapping[str, Any]) -> list[Value]:
    slots = np.zeros(SLOTS, np.int64)
    slots[line["slots"]] = line["counts"]
    histogram = Histogram(slots, line["sum_ns"], line["max_ns"])
    return [
        f"{line['from_point']} → {line['to_point']}",
        line["from_point"],
        line["to_point"],
        line["hosts"],
        histogram.count,
        line["moved"] / histogram.count,
        histogram.sum_ns,
        histogram.mean_ns,
        *(histogram.percentile(q) for q in PERCENTILES),
        histogram.max_ns,
        line["most_host"],
    ]


HOPS: Final = by_host(
    Question(
        "hops",
        "a hop",
        _hops,
        {
            **dict.fromkeys(("host", "from_point", "to_point"), "text"),
            **dict.fromkeys(("slot", "samples", "sum_ns", "max_ns", "moved"), "int"),
        },
        f"SELECT host, from_point, to_point, slot, {_HOP_FIGURES} FROM rows GROUP BY host, from_point, to_point, slot",
        ("from_point", "to_point"),
        _HOP_LINES,
        f"{_PLACE.format('from_point')}, {_PLACE.format('to_point')}, from_point, to_point, sum_ns / samples DESC",
        (*HOP_COLUMNS[:3], HOSTS, *HOP_COLUMNS[3:], most("host with the maximum")),
        _hop_values,
    ),
    most_by="max_ns",
)


def _causes(trace: Trace, selection: Selection, _most: int) -> Part:
    build(trace, "messages", "message_causes", selection=selection)
    return Part(list(cause_totals(trace).items()), [(SAID, note, 1) for note in unfollowed_notes(trace)])


_CAUSE_COLUMNS: Final = (
    Column("cause", "text", "what held messages (docs/causes.md)", "cause"),
    Column("held_ns", "ns", "for how long, of all messages together", "held"),
    Column(
        "share", "part", "fraction of the time of all messages; with --group-by host, of those of this host", "share"
    ),
    HOSTS,
    most("host whose messages it held longest"),
)
CAUSES: Final = by_host(
    Question(
        "causes",
        "a cause that held messages",
        _causes,
        {"host": "text", "cause": "text", "held_ns": "int"},
        f"SELECT host, cause, {total('held_ns')} FROM rows GROUP BY host, cause",
        (),
        f"""SELECT *, held_ns / sum(held_ns) OVER ({{within}}) AS share
            FROM (SELECT {{who}}, cause, {total("held_ns")} FROM rows GROUP BY {{by}}cause) c""",
        "held_ns DESC, cause",
        _CAUSE_COLUMNS,
        named(_CAUSE_COLUMNS),
    ),
    most_by="held_ns",
)


def _packets(trace: Trace, selection: Selection, limit: int) -> Part:
    build(trace, "flow_names", "device_names", "skb_step_lifetimes")
    offset_ns = trace.metadata.realtime_ns - trace.metadata.started_ns
    return Part(
        trace.rows(f"""
            WITH slowest AS (
                SELECT packet, min(time_ns) AS begin_ns, max(time_ns) AS end_ns, max(len_bytes) AS len_bytes
                FROM skb_step_lifetimes GROUP BY packet
                HAVING count(*) > 1 AND {selection.window(trace, "max(time_ns)")}
                ORDER BY end_ns - begin_ns DESC, begin_ns, packet LIMIT {limit}),
            passed AS (
                SELECT s.packet, list(p.name ORDER BY s.time_ns, p.name) AS points,
                       list(s.life_flow ORDER BY s.time_ns DESC, p.name DESC)[1] AS flow,
                       list(d.label ORDER BY s.time_ns, p.name) FILTER (d.label IS NOT NULL) AS devices
                FROM skb_step_lifetimes s JOIN points p ON p.point = s.point
                LEFT JOIN device_names d ON d.netns = s.netns AND d.ifindex = s.ifindex
                WHERE s.packet IN (SELECT packet FROM slowest) GROUP BY s.packet)
            SELECT s.begin_ns + {offset_ns}, s.end_ns - s.begin_ns, p.points[1], p.points[-1], s.len_bytes,
                   p.devices[1], f.name
            FROM slowest s JOIN passed p ON p.packet = s.packet LEFT JOIN flow_names f ON f.flow = p.flow""")
    )


_SLOWEST: Final = "SELECT * FROM rows ORDER BY {} LIMIT {{most}}"
_PACKET_ORDER: Final = "total_ns DESC, began, host, flow_name, from_point, to_point, len_bytes, device"
_PACKET_COLUMNS: Final = (
    BEGAN,
    HOST,
    Column("total_ns", "ns", "time from the first to the last observed point", "total"),
    Column("from_point", "text", "the first point", "from"),
    Column("to_point", "text", "the last point", "to"),
    Column("len_bytes", "bytes", "greatest length on the way", "bytes", rank=2),
    Column("device", "text", "the first device that it passed", "device", rank=1),
    Column("flow_name", "text", "source > destination", "flow"),
)
PACKETS: Final = Question(
    "packets",
    "one of the slowest packets",
    _packets,
    {
        "host": "text",
        **dict.fromkeys(("began", "total_ns"), "int"),
        **dict.fromkeys(("from_point", "to_point"), "text"),
        "len_bytes": "int",
        **dict.fromkeys(("device", "flow_name"), "text"),
    },
    _SLOWEST.format(_PACKET_ORDER),
    (),
    "SELECT * FROM rows",
    _PACKET_ORDER,
    _PACKET_COLUMNS,
    named(_PACKET_COLUMNS, ("began",)),
)

_OF_MESSAGES: Final = (
    "total_ns", "blame", "blame_ns", "len_bytes", "retransmits", "until", "flow_name", "sender", "reader", "protocol",
)  # fmt: skip


def _messages(trace: Trace, selection: Selection, limit: int) -> Part:
    realtime_ns = trace.metadata.realtime_ns
    found = messages(trace, selection, limit=limit)
    rows = [
        (realtime_ns + int(row["begin_ns"] or 0), *(row[name] for name in _OF_MESSAGES)) for row in found.named_rows()
    ]
    return Part(rows, [(SAID, note, 1) for note in unfollowed_notes(trace)])


_MESSAGE_ORDER: Final = "total_ns DESC, began, host, flow_name, len_bytes, sender, reader, until"
_MESSAGE_COLUMNS: Final = (BEGAN, HOST, *(MESSAGE_COLUMNS[name] for name in _OF_MESSAGES))
MESSAGES: Final = Question(
    "messages",
    "one of the slowest messages, as far as its host saw it",
    _messages,
    {
        "host": "text",
        "began": "int",
        **{name: "text" if MESSAGE_COLUMNS[name].unit == "text" else "int" for name in _OF_MESSAGES},
    },
    _SLOWEST.format(_MESSAGE_ORDER),
    (),
    "SELECT * FROM rows",
    _MESSAGE_ORDER,
    _MESSAGE_COLUMNS,
    named(_MESSAGE_COLUMNS, ("began",)),
)
