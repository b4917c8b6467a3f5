# SPDX-License-Identifier: Apache-2.0
"""Individual packets with all their events on this host, their clones and segments, and the activity around them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from hopscope.trace.names import points
from hopscope.trace.packets.surroundings import add_surroundings
from hopscope.trace.packets.tree import Event, PacketTree
from hopscope.trace.relation import build

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hopscope.store.trace import Trace
    from hopscope.trace.selection import Selection

# Maximum time from segmentation until the driver receives the last segment.
_SEGMENTS_NS: Final = 10_000_000


def packet_trees(
    trace: Trace, selection: Selection, *, limit: int | None, slowest: bool
) -> tuple[list[PacketTree], int]:
    """Return packets, in chronological order or slowest first, and the number omitted by the limit."""
    build(trace, "flow_names", "device_names", "thread_names", "skb_lifetimes", "skb_step_lifetimes", "skb_steps")
    chosen = _choose(trace, selection, limit, slowest=slowest)
    if not chosen:
        return [], 0
    numbers = [row[0] for row in chosen]
    skbs = {row[1] for row in chosen}
    first_ns, last_ns = min(row[2] for row in chosen), max(row[3] for row in chosen) + _SEGMENTS_NS
    skbs |= _skbs_of_kin(trace, skbs, first_ns, last_ns)
    trees = _read(trace, skbs, first_ns, last_ns)
    heads = {tree.packet: head for tree, head in trees}
    by_number = {tree.packet: tree for tree, _ in trees}
    roots = [by_number[number] for number in numbers]
    _join_clones(roots, [tree for tree, _ in trees], heads)
    _join_segments(trace, roots, by_number.values())
    below = {kin.packet for root in roots for kin in root.kin}
    shown = [root for root in roots if root.packet not in below]
    add_surroundings(trace, shown)
    return shown, chosen[0][4] - len(chosen)


def _choose(trace: Trace, selection: Selection, limit: int | None, *, slowest: bool) -> list[tuple[int, ...]]:
    """Return (packet, skb, begin, end, total number) of the selected packets.

    Packets with a single event have no path and are omitted.
    """
    wanted = f"{selection.flow(trace, 'life_flow')} AND {selection.place(trace, 'life_')}"
    order = "end_ns - begin_ns DESC, begin_ns" if slowest else "begin_ns"
    return trace.rows(
        "SELECT *, count(*) OVER () AS packets FROM ("
        "SELECT packet, min(skb) AS skb, min(time_ns) AS begin_ns, max(time_ns) AS end_ns FROM"
        f" (SELECT packet, skb, time_ns, CASE WHEN {wanted} THEN 1 ELSE 0 END AS wanted FROM skb_step_lifetimes) l"
        f" GROUP BY packet HAVING count(*) > 1 AND max(wanted) = 1 AND {selection.window(trace, 'min(time_ns)')}) p"
        f" ORDER BY {order}{'' if limit is None else f' LIMIT {limit}'}"
    )


def _skbs_of_kin(trace: Trace, skbs: set[int], first_ns: int, last_ns: int) -> set[int]:
    """Return the addresses of skbs that share data with packets at these addresses, or that begin at the driver."""
    when = f"time_ns BETWEEN {first_ns} AND {last_ns}"
    found = trace.rows(
        f"SELECT DISTINCT skb FROM packets WHERE {when} AND head <> 0 AND head IN"
        f" (SELECT head FROM packets WHERE {when} AND {_among('skb', skbs)})"
        f" UNION SELECT DISTINCT skb FROM skb_steps WHERE {when} AND NOT continues"
        f" AND point = {points(trace)['tx.start']}"
    )
    return {skb for (skb,) in found}


def _read(trace: Trace, skbs: set[int], first_ns: int, last_ns: int) -> list[tuple[PacketTree, int]]:
    """Return all packets at these addresses with the address of their data."""
    rows = trace.rows(
        "SELECT l.packet, l.skb, l.head, l.time_ns, l.cpu, l.tid, p.name, coalesce(d.name, ''),"
        " coalesce(t.thread, concat('-', l.tid)),"
        " coalesce(l.len_bytes, 0), l.seq, coalesce(f.name, ''), l.flow <> 0"
        " FROM skb_lifetimes l JOIN points p ON p.point = l.point"
        " LEFT JOIN device_names d ON d.netns = l.netns AND d.ifindex = l.ifindex"
        " LEFT JOIN thread_names t ON t.tid = l.tid LEFT JOIN flow_names f ON f.flow = l.life_flow"
        f" WHERE l.time_ns BETWEEN {first_ns} AND {last_ns} AND {_among('l.skb', skbs)} ORDER BY l.time_ns, l.point"
    )
    grouped = defaultdict(list)
    for row in rows:
        grouped[row[0]].append(row)
    trees = []
    for packet, own in grouped.items():
        flows = tuple(dict.fromkeys(row[11] for row in own if row[11]))
        events = _nested([_event(row) for row in own])
        tree = PacketTree(packet, own[0][1], flows, max(row[9] for row in own), events)
        trees.append((tree, next((row[2] for row in own if row[2]), 0)))
    return trees


def _event(row: tuple[object, ...]) -> Event:
    _, _, _, time_ns, cpu, tid, point, device, thread, len_bytes, seq, _, looked_at = row
    says = f"len {len_bytes} seq {seq}" if looked_at else f"len {len_bytes}"
    return Event(time_ns, cpu, tid, point, 0, device, thread if tid else "", says)  # type: ignore[arg-type] # columns of our query


def _nested(events: Sequence[Event]) -> list[Event]:
    """Return the events with their depths: one deeper between call and return of a driver's transmit function."""
    open_at: list[str] = []
    nested = []
    returns = [event.device for event in events if event.point == "tx.driver"]
    for event in events:
        if event.point == "tx.driver" and event.device in open_at:
            del open_at[open_at.index(event.device) :]
        nested.append(replace(event, depth=len(open_at)))
        if event.point == "tx.start" and event.device in returns:
            open_at.append(event.device)
    return nested


def _join_clones(roots: Iterable[PacketTree], trees: Sequence[PacketTree], heads: dict[int, int]) -> None:
    """Put packets that share data with a root at the same time below it."""
    by_head = defaultdict(list)
    for tree in trees:
        if heads[tree.packet]:
            by_head[heads[tree.packet]].append(tree)
    for root in roots:
        for other in by_head.get(heads[root.packet], []):
            overlaps = root.begins_ns < other.begins_ns <= root.ends_ns
            if overlaps and other.skb != root.skb and other.kind == "packet":
                other.kind = "clone"
                root.kin.append(other)


def _join_segments(trace: Trace, roots: Iterable[PacketTree], trees: Iterable[PacketTree]) -> None:
    """Put the segments of a root below it.

    Segmentation frees it on the CPU that next hands the segments to the driver, before that CPU sends another packet.
    """
    number = points(trace)
    beginnings = {(tree.own[0].time_ns, tree.own[0].cpu): tree for tree in trees if tree.own[0].point == "tx.start"}
    for root in roots:
        own = root.own
        if own[-1].point != "skb.free" or not own[-2].point.startswith("tx.") or own[-2].point == "tx.driver":
            continue
        if any(event.point == "tx.start" for event in own):
            continue
        since_ns, cpu = own[-1].time_ns, own[-1].cpu
        for time_ns, point in trace.rows(
            f"SELECT time_ns, point FROM packets WHERE cpu = {cpu} AND time_ns > {since_ns}"
            f" AND time_ns < {since_ns + _SEGMENTS_NS} AND point IN ({number['tx.queue']}, {number['tx.start']})"
            " ORDER BY time_ns"
        ):
            segment = beginnings.get((time_ns, cpu))
            if point != number["tx.start"] or segment is None:
                break
            segment.kind = "segment"
            root.kin.append(segment)


def _among(column: str, numbers: set[int]) -> str:
    return f"{column} IN ({', '.join(map(str, sorted(numbers)))})"
