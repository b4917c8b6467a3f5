# SPDX-License-Identifier: Apache-2.0
"""Questions whose answers are counts: drops, counters, findings, flows, and the hosts themselves."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from hopscope.model.counters.sources import LAYERS
from hopscope.model.report import Column
from hopscope.store.schema import EVENT_TABLES
from hopscope.trace.gaps import unattached_notes
from hopscope.trace.relation import build
from hopscope.verbs.check.findings import SEVERITIES
from hopscope.verbs.check.recorded import check_of
from hopscope.verbs.check.table import select
from hopscope.verbs.fleet.raw.making import HOST, HOSTS, by_host, most, named, total
from hopscope.verbs.fleet.raw.question import SAID, Part, Question
from hopscope.verbs.report.counters import COLUMNS as COUNTER_COLUMNS
from hopscope.verbs.report.counters import counter_history
from hopscope.verbs.report.counters import notes as counter_notes
from hopscope.verbs.report.drops import COLUMNS as DROP_COLUMNS
from hopscope.verbs.report.flows import COLUMNS as FLOW_COLUMNS
from hopscope.verbs.report.flows import flows

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hopscope.store.trace import Trace
    from hopscope.trace.selection import Selection

_FIRST: Final = Column("first", "text", "time of the first one, by the host's wall clock (UTC)", "first", rank=3)
_LAST: Final = Column("last", "text", "time of the last one", "last", rank=3)


def _chosen(columns: Iterable[Column], *names: str) -> tuple[Column, ...]:
    """Return columns of a report, which mean the same here."""
    known = {column.name: column for column in columns}
    return tuple(known[name] for name in names)


def _offset_ns(trace: Trace) -> int:
    """Return what makes CLOCK_REALTIME of the trace's times."""
    return trace.metadata.realtime_ns - trace.metadata.started_ns


def _drops(trace: Trace, selection: Selection, _most: int) -> Part:
    build(trace, "drop_places")
    return Part(
        trace.rows(f"""
            SELECT coalesce(r.name, CAST(d.reason AS VARCHAR)), coalesce(s.name, CASE WHEN d.location = 0 THEN '-'
                   ELSE 'address without a name' END), count(*), min(d.time_ns) + {_offset_ns(trace)},
                   max(d.time_ns) + {_offset_ns(trace)}
            FROM drops d LEFT JOIN reasons r ON r.reason = d.reason LEFT JOIN drop_places s ON s.address = d.location
            WHERE {selection.window(trace, "d.time_ns")} GROUP BY 1, 2"""),
        [(SAID, note, 1) for note in unattached_notes(trace, ["skb.drop"])],
    )


_DROP_COLUMNS: Final = (
    *_chosen(DROP_COLUMNS, "drops", "reason", "location"),
    HOSTS,
    most("host that dropped most of them"),
    _FIRST,
    _LAST,
)
DROPS: Final = by_host(
    Question(
        "drops",
        "a reason and a place in the kernel for which packets were dropped",
        _drops,
        {"host": "text", "reason": "text", "location": "text", "drops": "int", "first": "int", "last": "int"},
        f"""SELECT host, reason, location, {total("drops")}, min(first) AS first, max(last) AS last
            FROM rows GROUP BY host, reason, location""",
        ("reason", "location"),
        f"""SELECT {{who}}, reason, location, {total("drops")}, min(first) AS first, max(last) AS last
            FROM rows GROUP BY {{by}}reason, location""",
        "drops DESC, reason, location",
        _DROP_COLUMNS,
        named(_DROP_COLUMNS, ("first", "last")),
    ),
    most_by="drops",
)


def _counters(trace: Trace, selection: Selection, _most: int) -> Part:
    found = counter_history(trace, selection)
    wanted = ("layer", "name", "subject", "netns", "sign", "count", "anew", "peak_per_s")
    rows = [[row[name] or 0 if name == "anew" else row[name] for name in wanted] for row in found.named_rows()]
    return Part(rows, [(SAID, note, 1) for note in counter_notes(trace)])


_COUNTER_KEY: Final = "layer, name, subject, netns, sign"
_COUNTER_COLUMNS: Final = (
    *_chosen(COUNTER_COLUMNS, "layer", "name", "subject", "netns", "sign"),
    Column("count", "count", "increase, of all hosts together", "count"),
    HOSTS,
    most("host with the greatest increase"),
    Column("peak_per_s", "per_s", "highest rate of one host between two consecutive readings", "peak/s", rank=3),
    *_chosen(COUNTER_COLUMNS, "anew"),
)
_COUNTER_FIGURES: Final = f"""{total("count")}, {total("anew")}, max(peak_per_s) AS peak_per_s"""
COUNTERS: Final = by_host(
    Question(
        "counters",
        "a kernel counter that increased",
        _counters,
        {
            "host": "text",
            **dict.fromkeys(_COUNTER_KEY.split(", "), "text"),
            "count": "int",
            "anew": "int",
            "peak_per_s": "float",
        },
        f"SELECT host, {_COUNTER_KEY}, {_COUNTER_FIGURES} FROM rows GROUP BY host, {_COUNTER_KEY}",
        ("layer", "name", "subject", "netns", "sign"),
        f"SELECT {{who}}, {_COUNTER_KEY}, {_COUNTER_FIGURES} FROM rows GROUP BY {{by}}{_COUNTER_KEY}",
        f"list_position({list(LAYERS)}, layer), coalesce(list_position(['loss', 'bad'], sign), 3), count DESC, name,"
        " subject, netns",
        _COUNTER_COLUMNS,
        lambda line: [
            (line[each.name] or None) if each.name == "anew" else line[each.name] for each in _COUNTER_COLUMNS
        ],
    ),
    most_by="count",
)


def _findings(trace: Trace, _selection: Selection, _most: int) -> Part:
    check, at_ns = check_of(trace)
    shown = select(check, "notice")
    places = Counter(each.id for each in shown)
    first = {each.id: each for each in reversed(shown)}
    return Part(
        [
            (each.severity, name, each.entry.layer, each.sentence, at_ns, 1, places[name])
            for name, each in first.items()
        ],
        [(SAID, f"not looked at: {each}", 1) for each in check.unread],
    )


_FINDING_KEY: Final = "severity, id, layer"
_FINDING_FIGURES: Final = (
    f"list(sentence ORDER BY last DESC, sentence)[1] AS sentence, max(last) AS last, {total('traces')},"
    " max(places) AS places"
)
_FINDING_COLUMNS: Final = (
    Column("severity", "text", "critical, warning or notice", "severity"),
    Column("id", "text", "name of the finding (docs/check.md)", "finding"),
    Column("layer", "text", "layer of the network stack", "layer", rank=3),
    HOSTS,
    most("host with most recordings that have it"),
    Column("traces", "count", "number of recordings that have it: one for each host and hour, or more", "in"),
    Column("places", "count", "at how many places of one host at once at most: interfaces, CPUs, …", "places", rank=2),
    Column("sentence", "text", "the last one of them, with its figures", "what"),
    _LAST,
)
FINDINGS: Final = by_host(
    Question(
        "findings",
        "a known problem",
        _findings,
        {
            "host": "text",
            **dict.fromkeys(("severity", "id", "layer", "sentence"), "text"),
            **dict.fromkeys(("last", "traces", "places"), "int"),
        },
        f"SELECT host, {_FINDING_KEY}, {_FINDING_FIGURES} FROM rows GROUP BY host, {_FINDING_KEY}",
        ("severity", "id", "layer"),
        f"SELECT {{who}}, {_FINDING_KEY}, {_FINDING_FIGURES} FROM rows GROUP BY {{by}}{_FINDING_KEY}",
        f"list_position({list(SEVERITIES)}, severity), traces DESC, id",
        _FINDING_COLUMNS,
        named(_FINDING_COLUMNS, ("last",)),
    ),
    most_by="traces",
)


def _flows(trace: Trace, selection: Selection, _most: int) -> Part:
    realtime_ns = trace.metadata.realtime_ns
    found = flows(trace, selection)
    return Part([(*row[:-2], *(realtime_ns + int(time_ns or 0) for time_ns in row[-2:])) for row in found.rows()])


_FLOW_SUMS: Final = ("tx_packets", "tx_bytes", "rx_packets", "rx_bytes", "retransmits", "drops")
_FLOW_FIGURES: Final = (
    f"max(flow_name) AS flow_name, max(protocol) AS protocol, {', '.join(map(total, _FLOW_SUMS))},"
    " min(first) AS first, max(last) AS last"
)
_FLOW_COLUMNS: Final = (
    *_chosen(FLOW_COLUMNS, "flow", "flow_name", "protocol"),
    HOSTS,
    most("host that sent and received most bytes of it"),
    *_chosen(FLOW_COLUMNS, *_FLOW_SUMS),
    _FIRST,
    _LAST,
)
FLOWS: Final = by_host(
    Question(
        "flows",
        "a flow",
        _flows,
        {
            "host": "text",
            "flow": "int",
            "flow_name": "text",
            "protocol": "text",
            **dict.fromkeys((*_FLOW_SUMS, "first", "last"), "int"),
        },
        f"SELECT host, flow, {_FLOW_FIGURES} FROM rows GROUP BY host, flow",
        ("flow",),
        f"SELECT {{who}}, flow, {_FLOW_FIGURES} FROM rows GROUP BY {{by}}flow",
        "tx_bytes + rx_bytes DESC, flow",
        _FLOW_COLUMNS,
        named(_FLOW_COLUMNS, ("first", "last")),
    ),
    most_by="tx_bytes + rx_bytes",
)


def _hosts(trace: Trace, selection: Selection, _most: int) -> Part:
    metadata, window = trace.metadata, selection.window(trace)
    counts = " + ".join(f"(SELECT count(*) FROM {table} WHERE {window})" for table in EVENT_TABLES)
    begun = selection.window(trace, "from_ns")
    ((events, lost),) = trace.rows(f"SELECT {counts}, (SELECT coalesce(sum(lost), 0) FROM losses WHERE {begun})")
    length_ns = (metadata.ended_ns or metadata.started_ns) - metadata.started_ns
    first_ns, last_ns = metadata.realtime_ns, metadata.realtime_ns + length_ns
    about = [metadata.host.get(name) or None for name in ("release", "machine")]
    return Part([(*about, 1, length_ns, int(events), int(lost), metadata.missed, first_ns, last_ns)])


_HOST_SUMS: Final = ("traces", "recorded_ns", "events", "lost", "missed")
_HOST_FIGURES: Final = f"{', '.join(map(total, _HOST_SUMS))}, min(first) AS first, max(last) AS last"
_HOST_COLUMNS: Final = (
    HOST,
    Column("release", "text", "kernel release", "kernel", rank=1),
    Column("machine", "text", "machine type", "machine", rank=4),
    Column("traces", "count", "number of recordings: one for each hour, or more", "recordings"),
    Column("recorded_s", "ratio", "their length, all together, in seconds", "seconds"),
    Column("events", "count", "events of probe points", "events"),
    Column("lost", "count", "events that were lost", "lost"),
    Column("missed", "count", "runs of the recording programs that the kernel suppressed", "missed", rank=2),
    Column("first", "text", "beginning of the first recording, by the host's wall clock (UTC)", "first", rank=3),
    Column("last", "text", "end of the last recording", "last", rank=3),
)
HOSTS_RECORDED: Final = Question(
    "hosts",
    "a host, and how much was recorded there",
    _hosts,
    {
        **dict.fromkeys(("host", "release", "machine"), "text"),
        **dict.fromkeys((*_HOST_SUMS, "first", "last"), "int"),
    },
    f"SELECT host, release, machine, {_HOST_FIGURES} FROM rows GROUP BY host, release, machine",
    ("host",),
    f"""SELECT host, string_agg(DISTINCT release, ', ' ORDER BY release) AS release,
               string_agg(DISTINCT machine, ', ' ORDER BY machine) AS machine, {_HOST_FIGURES}
        FROM rows GROUP BY host""",
    "host",
    _HOST_COLUMNS,
    lambda line: named(_HOST_COLUMNS, ("first", "last"))({**line, "recorded_s": round(line["recorded_ns"] / 1e9, 3)}),
)
