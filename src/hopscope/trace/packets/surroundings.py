# SPDX-License-Identifier: Apache-2.0
"""CPU activity around a packet: the interrupt, the softirq and the poll in which it arrived, and its reader."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from hopscope.trace.packets.tree import Event

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hopscope.store.trace import Trace
    from hopscope.trace.packets.tree import PacketTree

# A softirq hands over to ksoftirqd after 2 ms; the time from the interrupt to the softirq is shorter.
_SPAN_NS: Final = 2_500_000
_NET_RX: Final = 3
_IN_SOFTIRQ: Final = ("rx.driver", "rx.core")
_TO_SOCKET: Final = ("rx.tcp_queue", "rx.l4")
_BY_READER: Final = ("rx.copy", "skb.free")
# The socket notifies its reader immediately, if at all.
_TOLD_NS: Final = 50_000

_Row = tuple[int, int, int, str, int, int, int]


def add_surroundings(trace: Trace, trees: Sequence[PacketTree]) -> None:
    """Add the recorded CPU activity around each packet to its events."""
    windows = {window for tree in trees for window in _windows(tree)}
    if not windows:
        return
    by_cpu: dict[int, list[_Row]] = defaultdict(list)
    for row in _read(trace, windows):
        by_cpu[row[1]].append(row)
    for tree in trees:
        found = {row for event in tree.own for row in _around(event, by_cpu[event.cpu])}
        found |= set(_wake(tree, by_cpu))
        tree.events = sorted([*tree.events, *map(_event, found)], key=lambda event: event.time_ns)


def _windows(tree: PacketTree) -> Iterator[tuple[int, int, int]]:
    """Yield (CPU, from, until) of the relevant periods."""
    for event in tree.own:
        if event.point in (*_IN_SOFTIRQ, *_TO_SOCKET, *_BY_READER):
            yield event.cpu, event.time_ns - _SPAN_NS, event.time_ns + _SPAN_NS


def _read(trace: Trace, windows: set[tuple[int, int, int]]) -> list[_Row]:
    """Return (time_ns, cpu, tid, point's name, subject, value, extra) in order of time."""
    listed = ", ".join(f"({cpu}, {since}, {until})" for cpu, since, until in sorted(windows))
    first, last = min(window[1] for window in windows), max(window[2] for window in windows)
    parts = [
        f"SELECT time_ns, cpu, tid, point, {columns} FROM {table} WHERE time_ns BETWEEN {first} AND {last}"
        for table, columns in (("cpu", "subject, value, extra"), ("sockets", "flow, 0, 0"))
    ]
    return trace.rows(
        "SELECT DISTINCT e.time_ns, e.cpu, e.tid, p.name, e.subject, e.value, e.extra"
        f" FROM ({' UNION ALL '.join(parts)}) e"
        " JOIN points p ON p.point = e.point AND (p.name LIKE '%irq.%' OR p.name LIKE 'sched.%'"
        " OR p.name IN ('napi.poll', 'rx.ready'))"
        f" JOIN (VALUES {listed}) AS w(cpu, since_ns, until_ns)"
        " ON w.cpu = e.cpu AND e.time_ns BETWEEN w.since_ns AND w.until_ns ORDER BY e.time_ns"
    )


def _around(event: Event, rows: Sequence[_Row]) -> Iterator[_Row]:
    """Yield the events that led to the softirq of an event, and the end of the poll."""
    if event.point not in _IN_SOFTIRQ:
        return
    now = bisect_left(rows, (event.time_ns,))
    entered = _last(rows[:now], "softirq.enter", "softirq.exit")
    if entered is None:
        return
    yield entered
    before = rows[: bisect_left(rows, entered)]
    raised = _last(before, "softirq.raise", "softirq.enter")
    if raised:
        yield raised
        interrupt = _last(before[: bisect_left(before, raised)], "irq.enter", "irq.exit")
        if interrupt:
            yield interrupt
    for row in rows[now:]:
        if row[3] == "napi.poll":
            yield row
        if row[3] in {"napi.poll", "softirq.exit"}:
            return


def _last(rows: Sequence[_Row], name: str, closing: str) -> _Row | None:
    """Return the last of these events that has not been closed since; of softirqs, only NET_RX."""
    for row in reversed(rows):
        if row[3].startswith("softirq.") and row[4] != _NET_RX:
            continue
        if row[3] == name:
            return row
        if row[3] == closing:
            return None
    return None


def _wake(tree: PacketTree, by_cpu: dict[int, list[_Row]]) -> Iterator[_Row]:
    """Yield the notification, wake-up and scheduling of the packet's reader.

    The copying thread is the reader; the freeing one may be any thread interrupted by a softirq, unless the socket woke
    it.
    """
    given = next((event for event in reversed(tree.own) if event.point in _TO_SOCKET), None)
    if given is None:
        return
    after = [event for event in tree.own if event.time_ns > given.time_ns]
    reader = next((event for event in after if event.point == "rx.copy"), None)
    woken = reader.tid if reader else None
    for row in _from(by_cpu[given.cpu], given.time_ns):
        if row[0] > given.time_ns + _TOLD_NS:
            break
        if row[3] == "sched.wake" and woken in {None, row[4]}:
            woken = row[4]
            yield row
        if row[3] == "rx.ready":
            yield row
        if row[3] in {"sched.wake", "softirq.exit"}:
            break
    reader = reader or next((event for event in after if event.point == "skb.free" and event.tid == woken), None)
    if reader:
        for row in reversed([row for row in by_cpu[reader.cpu] if given.time_ns < row[0] < reader.time_ns]):
            if row[3] == "sched.switch" and row[4] == reader.tid:
                yield row
                return


def _from(rows: Sequence[_Row], time_ns: int) -> Sequence[_Row]:
    return rows[bisect_left(rows, (time_ns,)) :]


def _event(row: _Row) -> Event:
    time_ns, cpu, tid, point, subject, value, extra = row
    says = {
        "napi.poll": f"{value} of {extra} polled",
        "rx.ready": "reader notified",
        "sched.wake": f"thread {subject}",
        "sched.switch": f"to thread {subject}",
    }.get(point, "NET_RX" if point.startswith("softirq.") else f"interrupt {subject}")
    return Event(time_ns, cpu, tid, point, says=says, of_packet=False)
