# SPDX-License-Identifier: Apache-2.0
"""Sentences about what is missing from a trace: lost events and probe points that were not attached."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.store.unrecorded import CLASSES, CLASSES_OPTION, RULES, UNRECORDED
from hopscope.term.format import plural

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hopscope.store.trace import Trace


# include/uapi/linux/in.h
_MPTCP: Final = 262


def lost_events(trace: Trace) -> int:
    """Return the number of lost events."""
    return int(trace.rows("SELECT coalesce(sum(lost), 0) FROM losses")[0][0])


def loss_notes(trace: Trace) -> list[str]:
    """Return a sentence about lost events, if there are any."""
    lost = lost_events(trace)
    if not lost:
        return []
    of_classes = ", ".join(f"of class {name} {each or 'none'}" for name, _, each in _classes(trace))
    return [
        (
            f"lost: {plural(lost, 'event')}{of_classes and f' ({of_classes})'}, because the reader or the disk was too"
            " slow; results that depend on them are missing"
        )
    ]


def unrecorded_notes(trace: Trace) -> list[str]:
    """Return a sentence about events that each condition left out when they were to be recorded; of the whole trace."""
    if all(table.name != UNRECORDED.name for table in trace.metadata.tables):
        return []
    found = trace.rows(
        f"SELECT u.condition, coalesce(p.name, CAST(u.point AS STRING)), sum(u.events) FROM {UNRECORDED.name} u"
        " LEFT JOIN points p ON p.point = u.point GROUP BY 1, 2 ORDER BY 3 DESC, 2"
    )
    notes = []
    for rule in RULES:
        counts = {point: int(events) for condition, point, events in found if condition == rule}
        points = ", ".join(f"{point} {events:,}" for point, events in counts.items())
        if counts:
            notes.append(f"left out by --{rule}: {plural(sum(counts.values()), 'event')} ({points})")
    return notes


def class_notes(trace: Trace) -> list[str]:
    """Return a sentence about the events of each class that had rings of their own; of the whole trace."""
    return [class_note(*each) for each in _classes(trace)]


def class_note(name: str, events: int, lost: int) -> str:
    """Return a sentence about a class of events."""
    return f"class {name}: {plural(events, 'event')}, {f'{lost:,} lost' if lost else 'none lost'}"


def _classes(trace: Trace) -> list[tuple[str, int, int]]:
    """Return the name of each class, its recorded events, and its lost ones, in the order of names."""
    if all(table.name != CLASSES.name for table in trace.metadata.tables):
        return []
    counts = dict.fromkeys(sorted(trace.metadata.options.get(CLASSES_OPTION) or ()), (0, 0))
    found = trace.rows(f"SELECT class, sum(events), sum(lost) FROM {CLASSES.name} GROUP BY class ORDER BY class")
    counts |= {name: (int(events), int(lost)) for name, events, lost in found}
    return [(name, *each) for name, each in counts.items()]


def unfollowed_notes(trace: Trace) -> list[str]:
    """Return a sentence about calls on MPTCP sockets, whose messages are not followed; of the whole trace."""
    sends, reads = (_mptcp_calls(trace, point) for point in ("tx.sent", "rx.received"))
    if not sends and not reads:
        return []
    return [
        (
            f"the recording has {plural(sends, 'send call')} and {plural(reads, 'receive call')} on MPTCP sockets, "
            "which are not among the messages: MPTCP is not followed"
        )
    ]


def _mptcp_calls(trace: Trace, point: str) -> int:
    ((count,),) = trace.rows(
        "SELECT count(*) FROM sockets s JOIN points p ON p.point = s.point"
        f" WHERE s.protocol = {_MPTCP} AND p.name = '{point}' AND s.len_bytes > 0"
    )
    return int(count)


def attached(trace: Trace) -> frozenset[str]:
    """Return the probe points that were attached, as far as the trace lists them; of one that lists none, none."""
    return frozenset(row.get("point", "") for row in trace.metadata.plan if row.get("status") == "attached")


def unattached(trace: Trace) -> dict[str, str]:
    """Return probe point → why it was not attached (and, in a joined trace, on which hosts)."""
    states: dict[tuple[str, str], str] = {}
    used = set()
    for row in trace.metadata.plan:
        place = row.get("point", ""), row.get("host", "")
        if row.get("status") == "attached":
            used.add(place)
        else:
            states[place] = row.get("reason") or row.get("status", "") or "not attached"
    left = {place: reason for place, reason in states.items() if place[0] and place not in used}
    found: dict[str, list[str]] = {}
    for (point, host), reason in left.items():
        found.setdefault(point, []).append(f"{reason} ({host})" if host else reason)
    return {point: "; ".join(reasons) for point, reasons in found.items()}


def unattached_notes(trace: Trace, points: Iterable[str]) -> list[str]:
    """Return a sentence for each of these points that was not attached."""
    reasons = unattached(trace)
    return [f"{point} not attached: {reasons[point]}" for point in points if point in reasons]
