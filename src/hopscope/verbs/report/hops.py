# SPDX-License-Identifier: Apache-2.0
"""Distributions of the time between consecutive points of packet lifetimes on this host.

A hop ``a → b`` is from a packet's event at a to its next event at b, on any CPU. If b is not the next point of the
kernel's path, the point in between was not attached, or the packet did not pass it. ``tx.driver`` is not on the path:
the hop from ``tx.start`` is the duration of the driver's transmit function.

A trace of several hosts also has a hop between hosts, for packets identified at both ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from hopscope.model.histogram import SLOTS, Histogram
from hopscope.model.report import Column, Report, of_rows
from hopscope.term.format import plural
from hopscope.term.heatmap import Heat
from hopscope.trace.gaps import loss_notes, unattached
from hopscope.trace.histogram_sql import slot
from hopscope.trace.host_numbers import host_of_cpu, hosts
from hopscope.trace.names import points
from hopscope.trace.packets.continues import ENDS, PLACE, PLACE_STEP, SENDING
from hopscope.trace.packets.crossings import TOOK
from hopscope.trace.packets.journeys import HELD
from hopscope.trace.packets.skb_lifetimes import has_gaps
from hopscope.trace.relation import SELECTION, build, columns, relation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hopscope.model.report import Value
    from hopscope.store.trace import Trace
    from hopscope.trace.relation import Context
    from hopscope.trace.selection import Selection

PERCENTILES: Final = (50.0, 90.0, 99.0, 99.9)
# An unknown flow, device or process.
UNKNOWN: Final = "-"

# In the order of a packet's path, for the order of rows.
WAY: Final = (
    "tx.queue", "tx.enqueue", "tx.dequeue", "tx.start", "tx.driver", "rx.driver", "rx.core", "rx.ip", "rx.l4",
    "rx.tcp_queue", "rx.copy", "skb.free", "skb.drop",
)  # fmt: skip

COLUMNS: Final = (
    Column("hop", "text", "from point → to point", "hop"),
    Column("from_point", "text", "probe point at which it begins", "from", rank=9),
    Column("to_point", "text", "probe point at which it ends", "to", rank=9),
    Column("count", "count", "number of packets", "count"),
    Column("moved", "part", "fraction that ended the hop on a different CPU than they began it", "moved", rank=2),
    Column("sum_ns", "ns", "total duration", "sum", rank=4),
    Column("mean_ns", "ns", "mean duration", "mean", rank=3),
    Column("p50_ns", "ns", "median duration", "p50"),
    Column("p90_ns", "ns", "90th percentile", "p90", rank=1),
    Column("p99_ns", "ns", "99th percentile", "p99"),
    Column("p99_9_ns", "ns", "99.9th percentile", "p99.9"),
    Column("max_ns", "ns", "maximum", "max"),
)
# Columns in a trace of several hosts.
BOUND: Final = Column(
    "bound_ns", "ns", "maximum error of each duration between hosts; null within one host", "±", rank=1
)
NETWORK: Final = " (network)"


class _Group(NamedTuple):
    """A grouping: the column that identifies groups, their names, and the relation with these names, if any."""

    column: str
    named: str
    names: str


_GROUPS: Final = {
    "flow": _Group("s.life_flow", "(SELECT flow AS id, name FROM flow_names)", "flow_names"),
    "interface": _Group(
        f"s.life_netns * {PLACE_STEP} + s.life_ifindex",
        f"(SELECT {PLACE} AS id, label AS name FROM device_names)",
        "device_names",
    ),
    "cpu": _Group("s.cpu", "(SELECT cpu AS id, name FROM cpu_names)", "cpu_names"),
    "netns": _Group("s.life_netns", "(SELECT netns AS id, name FROM netns_names)", "netns_names"),
    "host": _Group(host_of_cpu("s.cpu"), "(SELECT host AS id, name FROM hosts)", ""),
    "process": _Group("o.pid", "(SELECT DISTINCT pid AS id, name FROM flow_owners)", "flow_owners"),
}
BY: Final = tuple(_GROUPS)
BY_COLUMNS: Final = tuple(Column(by, "text", "group of the packets in this row, with --group-by", by) for by in BY)

# A hop belongs to the sender up to the driver, and to the receiver from there on.
_SENDER: Final = "(s.point IN ({tx}) OR (s.point IN ({ends}) AND s.from_point IN ({tx})))"
_OWNED: Final = f" LEFT JOIN flow_owners o ON o.flow = s.life_flow AND o.sends = {_SENDER}"

_COUNTED: Final = """
    SELECT grp, broken, from_point, point, slot, count(*) AS samples, CAST(sum(duration_ns) AS BIGINT) AS sum_ns,
           max(duration_ns) AS max_ns, CAST(sum(CASE WHEN cpu <> from_cpu THEN 1 ELSE 0 END) AS BIGINT) AS moved,
           CAST(NULL AS BIGINT) AS bound_ns
    FROM (SELECT {group} AS grp, {broken} AS broken, s.from_point, s.point, s.cpu, s.from_cpu,
                 s.time_ns - s.from_time_ns AS duration_ns, {slot} AS slot
          FROM {source} s{owned} WHERE {seen} AND {wanted}) hops
    GROUP BY grp, broken, from_point, point, slot"""
# A hop between hosts belongs to the receiver; it is included in rows by flow and by host.
_BETWEEN_GROUPS: Final = {None: "0", "flow": "l.flow", "host": "l.to_host"}
_BETWEEN: Final = f"""
    SELECT grp, FALSE AS broken, {{from_point}} AS from_point, {{to_point}} AS point, slot, count(*) AS samples,
           CAST(sum(took_ns) AS BIGINT) AS sum_ns, max(took_ns) AS max_ns, count(*) AS moved, max(bound_ns) AS bound_ns
    FROM (SELECT {{group}} AS grp, c.bound_ns, {TOOK} AS took_ns, {slot(TOOK)} AS slot
          FROM link_crossings c JOIN flow_links l ON l.link = c.link WHERE c.started) hops
    GROUP BY grp, slot"""


def _whose(selection: Selection, by: str | None) -> bool:
    """Return whether the owner of a packet matters: this needs the whole lifetime, and takes three times as long."""
    return by not in {None, "cpu", "host"} or selection.is_by_packet


def _is_between(trace: Trace, selection: Selection, by: str | None) -> bool:
    """Return whether hops between hosts are counted, too."""
    return bool(hosts(trace)) and by in _BETWEEN_GROUPS and not selection.is_by_place


def _needs_whose(context: Context) -> bool:
    return _whose(context.selection, context["by"])


def _needs_none(context: Context) -> bool:
    return not _needs_whose(context)


def _needs_links(context: Context) -> bool:
    return _is_between(context.trace, context.selection, context["by"])


@relation(
    "hop_counts",
    "a bucket of the durations of a hop, for a group of packets",
    columns(
        "grp broken from_point point slot samples sum_ns max_ns moved bound_ns",
        grp="number of the group (a flow, a device, …); 0: all; NULL: unknown",
        broken="whether events were lost in between, so that it may not be a hop",
        from_point="point at which the hop begins",
        point="probe point at which it ends",
        slot="bucket of the duration (hopscope.model.histogram)",
        samples="number of hops in the bucket",
        sum_ns="total duration",
        max_ns="maximum",
        moved="number of hops that ended on a different CPU",
        bound_ns="maximum error between hosts; NULL: one host",
    ),
    needs_if={
        "skb_step_lifetimes": _needs_whose,
        "driver_return_lifetimes": _needs_whose,
        "driver_returns": _needs_none,
        "skb_steps": lambda context: _needs_none(context) and not context[HELD],
        "held_skb_steps": lambda context: _needs_none(context) and bool(context[HELD]),
        "flow_owners": lambda context: context["by"] == "process",
        "flow_links": _needs_links,
        "link_crossings": _needs_links,
    },
    parameters=(SELECTION, "by", HELD),
    report="hops",
)
def _hop_counts(context: Context) -> str:
    trace, by = context.trace, context["by"]
    steps = "held_skb_steps" if context[HELD] else "skb_steps"
    whose = _needs_whose(context)
    sources = ("skb_step_lifetimes", "driver_return_lifetimes") if whose else (steps, "driver_returns")
    counted = " UNION ALL ".join(_counted(trace, context.selection, by, source) for source in sources)
    if _needs_links(context):
        number = points(trace)
        ends = {"from_point": number.get("tx.start", -1), "to_point": number.get("rx.driver", -1)}
        counted += f" UNION ALL {_BETWEEN.format(group=_BETWEEN_GROUPS[by], **ends)}"
    return counted


def hop_times(trace: Trace, selection: Selection, *, by: str | None = None, limit: int | None = None) -> Report:
    """Return the distributions of all hops.

    Parameters
    ----------
    trace, selection
        The trace, and the packets to count; a hop counts where it ends.
    by
        One of :data:`BY`: one row per group, instead of one for all.
    limit
        Maximum number of groups, those with most hops first; all their hops are shown.
    """
    held = _is_between(trace, selection, by) and not _whose(selection, by)
    _count(trace, selection, by, held=held)
    names, left_out = _groups(trace, by, limit)
    shown = COLUMNS if by is None else (BY_COLUMNS[BY.index(by)], *COLUMNS)
    rows = _rows(trace, names, by)
    if hosts(trace):
        shown = (*shown, BOUND)
    else:
        rows = [row[:-1] for row in rows]
    return of_rows("hops", shown, rows, notes=_notes(trace), left_out=left_out)


def hop_heats(trace: Trace, selection: Selection, slices: int) -> tuple[list[float], list[Heat]]:
    """Return the hops over time: bounds of so many slices of the selected part, in s, and the durations in each.

    A hop counts where it ends. Hops between hosts are not among them.
    """
    bounds_s, found = hops_over_time(trace, selection, slices)
    return bounds_s, [
        Heat(f"{before} → {point}", np.array([each.counts for each in parts])) for (before, point), parts in found
    ]


def hops_over_time(
    trace: Trace, selection: Selection, slices: int
) -> tuple[list[float], list[tuple[tuple[str, str], list[Histogram]]]]:
    """Return bounds as :func:`hop_heats` does, and for each hop (from point, to point) the histogram of each slice."""
    first, last = trace.rows(f"SELECT min(time_ns), max(time_ns) FROM packets WHERE {selection.window(trace)}")[0]
    if first is None:
        return [0.0], []
    width_ns = -(-(last + 1 - first) // slices)
    group = f"(s.time_ns - {first} - (s.time_ns - {first}) % {width_ns}) / {width_ns}"
    start_ns = first - trace.metadata.started_ns
    bounds_s = [(start_ns + number * width_ns) / 1e9 for number in range(slices + 1)]
    return bounds_s, [
        (hop, [parts.get(number) or Histogram.empty() for number in range(slices)])
        for hop, parts in hops_by(trace, selection, group).items()
    ]


def hops_by(trace: Trace, selection: Selection, group: str) -> dict[tuple[str, str], dict[int, Histogram]]:
    """Return for each hop (from point, to point), in the order of the path, its durations by a number.

    Parameters
    ----------
    group
        The number: an expression over ``s.time_ns``, the end of a hop.
    """
    sources = (
        ("skb_step_lifetimes", "driver_return_lifetimes")
        if _whose(selection, None)
        else ("skb_steps", "driver_returns")
    )
    build(trace, *sources, selection=selection)
    counted = " UNION ALL ".join(_counted(trace, selection, None, source, group) for source in sources)
    found: dict[tuple[int, int], dict[int, list[tuple[int, int, int, int]]]] = {}
    for number, before, point, *bucket in trace.rows(
        "SELECT CAST(grp AS BIGINT), from_point, point, slot, CAST(sum(samples) AS BIGINT),"
        f" CAST(sum(sum_ns) AS BIGINT), max(max_ns) FROM ({counted}) c WHERE NOT broken GROUP BY 1, 2, 3, 4"
    ):
        slot_number, samples, sum_ns, max_ns = bucket
        parts = found.setdefault((before, point), {})
        parts.setdefault(number, []).append((slot_number, samples, sum_ns, max_ns))
    names = trace.metadata.points
    return {
        (names[key[0]], names[key[1]]): {number: _histogram(counts) for number, counts in found[key].items()}
        for key in sorted(found, key=lambda key: _place(names, key))
    }


def _histogram(counted: Sequence[tuple[int, ...]]) -> Histogram:
    """Return the histogram of buckets (slot, samples, sum_ns, max_ns, …)."""
    slots = np.zeros(SLOTS, np.int64)
    for slot_number, samples, *_ in counted:
        slots[slot_number] = samples
    return Histogram(slots, sum(each[2] for each in counted), max((each[3] for each in counted), default=0))


def recorded_hops(trace: Trace, selection: Selection, by: str | None) -> list[tuple[str, str]]:
    """Return the hops that packets took on one host (from point, to point), in the order of their path."""
    _count(trace, selection, by)
    pairs = trace.rows("SELECT DISTINCT from_point, point FROM hop_counts WHERE NOT broken AND bound_ns IS NULL")
    names = trace.metadata.points
    return [(names[pair[0]], names[pair[1]]) for pair in sorted(pairs, key=lambda pair: _place(names, pair))]


def hops_of_groups(
    trace: Trace, selection: Selection, hop: tuple[str, str], by: str | None, limit: int
) -> list[tuple[str, Histogram]]:
    """Return the groups of a hop (from point, to point) with the most samples: name, and durations; None: one group."""
    _count(trace, selection, by)
    names, _ = _groups(trace, by, limit)
    wanted = {name: number for number, name in trace.metadata.points.items()}
    counted: dict[int | None, list[tuple[int, ...]]] = {}
    for group, *bucket in trace.rows(
        "SELECT grp, slot, samples, sum_ns, max_ns FROM hop_counts WHERE NOT broken AND bound_ns IS NULL"
        f" AND from_point = {wanted[hop[0]]} AND point = {wanted[hop[1]]} AND ({_among(names)})"
    ):
        counted.setdefault(group, []).append(tuple(bucket))
    return [(name, _histogram(counted[group])) for group, name in names.items() if group in counted]


def _count(trace: Trace, selection: Selection, by: str | None, *, held: bool = False) -> None:
    named = [_GROUPS[by].names] if by and _GROUPS[by].names else []
    build(trace, "hop_counts", *named, selection=selection, by=by, held=held)


def _counted(trace: Trace, selection: Selection, by: str | None, source: str, group: str = "0") -> str:
    number, lossy = points(trace), has_gaps(trace)
    conditions = [
        selection.window(trace, "s.time_ns"),
        selection.flow(trace, "s.life_flow"),
        selection.place(trace, "s.life_"),
    ]
    owned = ""
    if by == "process":
        sending, ends = (
            ", ".join(str(number.get(name, -1)) for name in names) for names in ([*SENDING, "tx.driver"], ENDS)
        )
        owned = _OWNED.format(tx=sending, ends=ends)
    return _COUNTED.format(
        group=_GROUPS[by].column if by else group,
        broken="s.broken" if lossy else "FALSE",
        seen="(s.continues OR s.broken)" if lossy else "s.continues",
        slot=slot("(s.time_ns - s.from_time_ns)"),
        source=source,
        owned=owned,
        wanted=" AND ".join(conditions),
    )


def _groups(trace: Trace, by: str | None, limit: int | None) -> tuple[dict[int | None, str], int]:
    """Return the groups to show, in order, with their names, and the number of omitted groups."""
    if by is None:
        return {0: ""}, 0
    found = trace.rows(
        f"SELECT g.grp, max(n.name), count(*) OVER () FROM"
        f" (SELECT grp, sum(samples) AS samples FROM hop_counts WHERE NOT broken GROUP BY grp) g"
        f" LEFT JOIN {_GROUPS[by].named} n ON n.id = g.grp GROUP BY g.grp, g.samples"
        " ORDER BY g.samples DESC, g.grp NULLS LAST" + ("" if limit is None else f" LIMIT {limit}")
    )
    names = {group: name or (UNKNOWN if group is None else str(group)) for group, name, _ in found}
    return names, found[0][2] - len(found) if found else 0


def _rows(trace: Trace, names: dict[int | None, str], by: str | None) -> list[list[Value]]:
    series: dict[tuple[int | None, int, int, bool], list[tuple[Any, ...]]] = {}
    found = trace.rows(
        "SELECT grp, from_point, point, slot, samples, sum_ns, max_ns, moved, bound_ns FROM hop_counts"
        f" WHERE NOT broken AND ({_among(names)})"
    )
    for group, before, point, *counted in found:
        series.setdefault((group, before, point, counted[-1] is not None), []).append(tuple(counted))
    point_names = trace.metadata.points
    order = {group: place for place, group in enumerate(names)}
    rows = []
    for key in sorted(series, key=lambda key: (order[key[0]], _place(point_names, key[1:3]), key[3])):
        group, before, point, between = key
        hop = _row(point_names[before], point_names[point], series[key], between=between)
        rows.append(hop if by is None else [names[group], *hop])
    return rows


def _among(names: dict[int | None, str]) -> str:
    """Return the condition that a group is shown."""
    numbers = ", ".join(str(each) for each in names if each is not None)
    return " OR ".join([*([f"grp IN ({numbers})"] if numbers else []), *(["grp IS NULL"] if None in names else [])])


def _place(names: dict[int, str], points: Sequence[int]) -> list[int]:
    return [WAY.index(names[point]) if names[point] in WAY else len(WAY) for point in points]


def _row(before: str, point: str, counted: Sequence[tuple[Any, ...]], *, between: bool) -> list[Value]:
    """Return a hop's row from (slot, samples, sum_ns, max_ns, moved, bound_ns) of each slot, the bound last."""
    histogram = _histogram(counted)
    return [
        f"{before} → {point}{NETWORK if between else ''}",
        before,
        point,
        histogram.count,
        sum(each[4] for each in counted) / histogram.count,
        histogram.sum_ns,
        histogram.mean_ns,
        *(histogram.percentile(q) for q in PERCENTILES),
        histogram.max_ns,
        max(each[5] for each in counted) if between else None,
    ]


def _notes(trace: Trace) -> list[str]:
    """Return sentences about missing hops."""
    notes = loss_notes(trace)
    if notes:
        ((broken,),) = trace.rows("SELECT CAST(coalesce(sum(samples), 0) AS BIGINT) FROM hop_counts WHERE broken")
        notes.append(
            f"left out: {plural(broken, 'hop')} in which events were lost, as start and end may "
            "belong to different packets"
        )
    reasons = unattached(trace)
    return [*notes, *(f"{point} not attached: {reasons[point]}" for point in WAY if point in reasons)]
