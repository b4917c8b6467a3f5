# SPDX-License-Identifier: Apache-2.0
"""The analysis behind ``explain``: sums of the causes of messages, and what is to be said of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.errors import UsageError
from hopscope.model.cause import BY_NAME, CAUSES, UNKNOWN
from hopscope.term.format import plural
from hopscope.trace.causes.pending import CAUSES as PENDING
from hopscope.trace.gaps import attached, lost_events, unattached, unfollowed_notes
from hopscope.trace.relation import build
from hopscope.verbs.explain.culprits import Culprits
from hopscope.verbs.explain.dropped import dropped
from hopscope.verbs.explain.explanation import SLOW_NS, Explanation, Held
from hopscope.verbs.report.requests import wanted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hopscope.store.trace import Trace
    from hopscope.trace.selection import Selection
    from hopscope.verbs.explain.explanation import Confidence

_RELATIONS: Final = (
    *("messages", "message_causes", "thread_states", "tcp_limits", "queue_shares", "queue_departures", "device_queues"),
    *("final_translations", "pending_spans", "pending_causes", "flow_names", "thread_names", "exchanges"),
    "drop_places",
    *("softirq_changes", "softirq_spans", "softirq_elapsed", "poller_spans", "poller_elapsed", "cpu_names"),
)
APPLICATION: Final = "application"
# What is said of a cause needs this share of the time.
LEAST_SHARE: Final = 0.05
# So much the times of two programs at one point, or of two points that follow each other, may differ.
_NEAR_NS: Final = 100_000
# Of all messages, or of their time: fewer slow ones are no finding.
_FEW_MESSAGES: Final = 0.05
_LITTLE_TIME: Final = 0.5
_MUCH_UNKNOWN: Final = 0.25
# Points without which a cause cannot be told from others.
_EVIDENCE: Final = (
    *("tx.send", "tx.sent", "tx.limit", "tx.neighbour", "tx.queue"),
    *("rx.ready", "sched.switch", "sched.wake"),
)


def explain(
    trace: Trace,
    selection: Selection,
    *,
    slowest: int | None = None,
    begins_ns: int | None = None,
    request_ns: int | None = None,
) -> Explanation:
    """Return why messages took as long as they did.

    Parameters
    ----------
    trace, selection
        The trace, and the part of it.
    slowest
        Only so many messages, the slowest; None: all.
    begins_ns, request_ns
        Only the messages, or those of the requests, that begin within the microsecond from this time on (since the
        start of the recording, ns).
    """
    build(trace, *_RELATIONS, selection=selection)
    started_ns = trace.metadata.started_ns
    _choose_exchanges(trace, selection, None if request_ns is None else started_ns + request_ns)
    trace.make_table("explained", _chosen(started_ns, slowest, begins_ns, request_ns))
    if slowest is not None or begins_ns is not None:
        trace.make_table("explained_exchanges", "SELECT * FROM explained_exchanges WHERE FALSE")
    count, pending, slow, slow_ns, worst_ns, median_ns = _counts(trace)
    sums, messages = _sums(trace)
    total_ns = sum(sums.values())
    serious = slow and (slow >= _FEW_MESSAGES * count or slow_ns >= _LITTLE_TIME * total_ns)
    chosen = slowest is not None or begins_ns is not None or request_ns is not None
    limits = _limits(trace)
    trust = _trust(trace, sums, total_ns)
    culprits = Culprits(trace)
    causes = [
        _held(culprits, name, held_ns, held_ns / max(1, total_ns), messages.get(name, 0), trust)
        for name, held_ns in sorted(sums.items(), key=lambda each: -each[1])
        if held_ns
    ]
    suspects = causes if serious or chosen else [each for each in causes if _is_much(each, count)]
    main = suspects[0].cause if suspects else None
    return Explanation(count, slow, pending, total_ns, median_ns, worst_ns, causes, main, limits, dropped(trace, count))


def begins_s_of(trace: Trace, selection: Selection, at_ns: int) -> float:
    """Return when the message with an exemplar's ID begins, in s since the start of the recording, to the microsecond.

    The ID is when `serve` saw its send call, or its packet come from the driver: CLOCK_MONOTONIC, ns. What recorded was
    another program at these points, and of datagrams at the one behind: it is the message with the nearest time.

    Raises
    ------
    UsageError
        None is near.
    """
    build(trace, "messages", selection=selection)
    far = ", ".join(f"coalesce(abs({name} - {at_ns}), {_NEAR_NS})" for name in ("begins_ns", "first_ns", "driver_ns"))
    near = f"SELECT begins_ns, least({far}) AS far FROM messages WHERE least({far}) < {_NEAR_NS}"
    found = trace.rows(f"{near} ORDER BY far, begins_ns LIMIT 1")
    if not found:
        raise UsageError(
            f"No message of this recording has the ID @{at_ns}",
            "Its recording is one that the flight recorder of the same host wrote soon after",
        )
    return (int(found[0][0]) - trace.metadata.started_ns) // 1_000 / 1e6


def _is_much(held: Held, count: int) -> bool:
    much_ns = BY_NAME[held.cause].much_ns
    return much_ns is not None and held.time_ns >= much_ns * count


def _chosen(started_ns: int, slowest: int | None, begins_ns: int | None, request_ns: int | None) -> str:
    """Return the query for the numbers of the messages to explain."""
    if request_ns is not None:
        return (
            "SELECT DISTINCT m.message FROM messages m JOIN explained_exchanges e ON m.connection = e.connection"
            " AND ((m.flow = e.forth AND m.begins_ns >= e.begins_ns AND m.begins_ns <= e.asked_ns)"
            " OR (m.flow = e.back AND m.begins_ns >= e.asked_ns AND m.begins_ns <= e.ends_ns))"
        )
    if begins_ns is not None:
        first_ns = started_ns + begins_ns
        return f"SELECT message FROM messages WHERE begins_ns >= {first_ns} AND begins_ns < {first_ns + 1_000}"
    if slowest is not None:
        return f"SELECT message FROM messages ORDER BY total_ns DESC, message LIMIT {slowest}"
    return "SELECT message FROM messages"


def _choose_exchanges(trace: Trace, selection: Selection, first_ns: int | None) -> None:
    only = wanted(trace, selection)
    if first_ns is not None:
        only += f" AND begins_ns >= {first_ns} AND begins_ns < {first_ns + 1_000}"
    trace.make_table(
        "explained_exchanges",
        f"SELECT * FROM exchanges WHERE state = 'answered' AND answers_ns > asked_ns AND {only}",
    )


_ALL: Final = """
    SELECT m.message, coalesce(m.total_ns, 0) + coalesce(p.pending_ns, 0) AS total_ns, p.message IS NOT NULL AS pending
    FROM explained e JOIN messages m ON m.message = e.message LEFT JOIN pending_causes p ON p.message = m.message"""


def _counts(trace: Trace) -> tuple[int, int, int, int, int, int]:
    """Return the number of messages, those pending, the slow ones and their time, and the worst and median time."""
    slow = f"total_ns >= {SLOW_NS}"
    (row,) = trace.rows(
        f"SELECT count(*), coalesce(sum(CASE WHEN pending AND {slow} THEN 1 ELSE 0 END), 0),"
        f" coalesce(sum(CASE WHEN {slow} THEN 1 ELSE 0 END), 0),"
        f" coalesce(sum(CASE WHEN {slow} THEN total_ns ELSE 0 END), 0), coalesce(max(total_ns), 0) FROM ({_ALL}) a"
    )
    served = trace.rows(
        f"SELECT count(*), coalesce(sum(answers_ns - asked_ns), 0), coalesce(max(answers_ns - asked_ns), 0)"
        f" FROM explained_exchanges WHERE answers_ns - asked_ns >= {SLOW_NS}"
    )[0]
    middle = trace.rows(
        f"SELECT total_ns FROM (SELECT total_ns, row_number() OVER (ORDER BY total_ns) AS place FROM ({_ALL}) a) r"
        f" WHERE place = {int(row[0]) // 2 + 1}"
    )
    count, pending, slow_count, slow_ns, worst_ns = map(int, row)
    return (
        count, pending, slow_count + int(served[0]), slow_ns + int(served[1]), max(worst_ns, int(served[2])),
        int(middle[0][0]) if middle else 0,
    )  # fmt: skip


def _sums(trace: Trace) -> tuple[dict[str, int], dict[str, int]]:
    """Return cause → its time, and cause → the number of messages that it held longest."""
    columns = ", ".join(cause.column for cause in CAUSES)
    also = ", ".join(cause.column if cause.name in PENDING else "0" for cause in CAUSES)
    both = (
        f"SELECT c.message, {columns} FROM explained e JOIN message_causes c ON c.message = e.message"
        f" UNION ALL SELECT p.message, {also} FROM explained e JOIN pending_causes p ON p.message = e.message"
    )
    (row,) = trace.rows(f"SELECT {', '.join(f'coalesce(sum({cause.column}), 0)' for cause in CAUSES)} FROM ({both}) b")
    sums = {cause.name: int(held_ns) for cause, held_ns in zip(CAUSES, row, strict=True)}
    sums[APPLICATION] += int(
        trace.rows("SELECT coalesce(sum(answers_ns - asked_ns), 0) FROM explained_exchanges")[0][0]
    )
    each = ", ".join(f"sum({cause.column}) AS {cause.column}" for cause in CAUSES)
    most = f"SELECT {each} FROM ({both}) b GROUP BY message"
    greatest = " ".join(
        f"WHEN {cause.column} >= greatest({', '.join(other.column for other in CAUSES)}) THEN '{cause.name}'"
        for cause in CAUSES
    )
    counted = dict(trace.rows(f"SELECT CASE {greatest} END AS cause, count(*) FROM ({most}) m GROUP BY 1"))
    counted[APPLICATION] = int(trace.rows("SELECT count(*) FROM explained_exchanges")[0][0])
    return sums, {name: int(times) for name, times in counted.items() if name}


def _trust(trace: Trace, sums: dict[str, int], total_ns: int) -> Confidence:
    """Return how sure anything is that is said of this trace."""
    if sums[UNKNOWN] > _MUCH_UNKNOWN * total_ns:
        return "low"
    return "medium" if lost_events(trace) else "high"


_ORDER: Final[tuple[Confidence, ...]] = ("low", "medium", "high")


def _held(  # noqa: PLR0913, PLR0917 # one parameter an attribute
    culprits: Culprits, name: str, held_ns: int, share: float, messages: int, trust: Confidence
) -> Held:
    if share < LEAST_SHARE or BY_NAME[name].usual:
        return Held(name, held_ns, share, messages, BY_NAME[name].meaning, confidence=trust)
    each = culprits.of(name)
    sure = min(trust, each.confidence, key=_ORDER.index)
    return Held(name, held_ns, share, messages, each.sentence, each.culprit, each.evidence, sure, each.advice)


def _limits(trace: Trace) -> Sequence[str]:
    """Return what could not be seen."""
    notes = unfollowed_notes(trace)
    lost = lost_events(trace)
    if lost:
        notes.append(f"{plural(lost, 'event')} lost: messages of that time are incomplete")
    reasons = unattached(trace)
    seen = attached(trace)
    absent = [name for name in _EVIDENCE if name not in seen]
    refused = [name for name in absent if name in reasons]
    if seen and absent:
        why = f" (not granted: {', '.join(refused)})" if refused else ""
        notes.append(f"not recorded: {', '.join(absent)}{why}; what only these can show is unknown")
    return notes
