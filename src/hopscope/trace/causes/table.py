# SPDX-License-Identifier: Apache-2.0
"""``message_causes``: for how long each cause held a message.

Most stages of a message's path have one cause (:mod:`hopscope.trace.messages.path`). Three are divided: what TCP and
the send call did until the message left, by what the socket waited for; the time in a queueing discipline, by whose
packets left meanwhile; and the time until the read, by what the reading thread did. What is left over is unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from hopscope.model.cause import BY_NAME, CAUSES, UNKNOWN
from hopscope.trace.causes import limits, rules, threads
from hopscope.trace.causes.clocks import elapsed
from hopscope.trace.causes.queues import DELAYS, PACED, SHAPERS
from hopscope.trace.gaps import attached
from hopscope.trace.host_numbers import hosts
from hopscope.trace.messages.path import (
    GROUPS,
    QDISC,
    READER,
    SENDER,
    STEPS,
    before,
    earliest,
    held_sql,
    latest,
    with_previous,
)
from hopscope.trace.relation import columns, fixed, relation

if TYPE_CHECKING:
    from hopscope.store.trace import Trace
    from hopscope.trace.relation import Context

CALLED: Final = latest(("call_ns", "send_ns"))
LEFT: Final = "coalesce(neighbour_ns, queue_ns, first_ns)"
ARRIVED: Final = latest(before("wake_ns"))
READ: Final = f"coalesce({earliest(('copy_ns', 'read_ns', 'received_ns'))}, switch_ns, wake_ns)"

_COPY: Final = "send-copy"
_STACK: Final = "stack"
_RULES: Final = "netfilter"
_DRIVER: Final = "driver"
_BACKLOG: Final = "backlog"
_WAIT: Final = "softirq-wait"
_GRO: Final = "gro"

# While the send call was still running, and after it.
_SPAN: Final = columns(
    "message part subject from_ns until_ns", part="part of the message's path", subject="whose states count"
)
_OF_TCP: Final = f"""
    SELECT message, flow AS subject, coalesce({CALLED}, first_ns) AS from_ns, {LEFT} AS until_ns,
           least({LEFT}, greatest(coalesce(sent_ns, 0), coalesce({CALLED}, first_ns))) AS call_until_ns
    FROM messages WHERE protocol = 6 AND {LEFT} > coalesce({CALLED}, first_ns)"""
fixed(
    "sender_spans",
    "a message in TCP, while its send call runs (`call`) and after that (`rest`)",
    _SPAN,
    f"""
    SELECT message, 'call' AS part, subject, from_ns, call_until_ns AS until_ns FROM ({_OF_TCP}) s
    WHERE call_until_ns > from_ns
    UNION ALL
    SELECT message, 'rest', subject, call_until_ns, until_ns FROM ({_OF_TCP}) s WHERE until_ns > call_until_ns""",
    needs=("messages",),
    temporary=True,
)
fixed(
    "thread_spans",
    "a message from its arrival to its read (`reader`)",
    _SPAN,
    f"""
    SELECT message, 'reader' AS part, CAST(reader_tid AS BIGINT) AS subject, {ARRIVED} AS from_ns, {READ} AS until_ns
    FROM messages WHERE reader_tid IS NOT NULL AND {READ} > {ARRIVED}""",
    needs=("messages",),
    temporary=True,
)
rules.spans(rules.SENT, f"coalesce({CALLED}, first_ns)", LEFT)
rules.spans(rules.RECEIVED, "coalesce(core_ns, driver_ns)", "coalesce(l4_ns, tcp_ns, ready_ns)")
elapsed("sender", "sender_spans", limits.OF_SOCKET, of="tcp_limit")
elapsed("thread", "thread_spans", threads.STATES, of="thread")


def _listed(kinds: tuple[str, ...]) -> str:
    return ", ".join(f"'{kind}'" for kind in kinds)


def _held(context: Context) -> dict[str, str]:
    """Return cause, or group of causes → SQL for its time in a row of ``messages``."""
    joined = bool(hosts(context.trace))
    parts: dict[str, list[str]] = {}
    for step in STEPS[1:]:
        for cause, sql in held_sql(step.column, joined=joined).items():
            parts.setdefault(cause, []).append(f"coalesce({sql}, 0)")
    return {cause: " + ".join(each) for cause, each in parts.items()}


_COLUMNS: Final[dict[str, Any]] = {cause.column: ("ns", cause.meaning) for cause in CAUSES}


@relation(
    "message_causes",
    "a message, with the time for which each cause held it; their sum is the message's time",
    columns("message", " ".join(_COLUMNS), **_COLUMNS),
    needs=(
        *("messages", "sender_spans", "sender_elapsed", "thread_elapsed", "queue_shares"),
        *("sent_rules_elapsed", "received_rules_elapsed", "arrival_waits"),
    ),
)
def _message_causes(context: Context) -> str:
    held = _held(context)
    groups = ", ".join(f"{held.pop(group)} AS {group}_held_ns" for group in GROUPS)
    direct = ", ".join(f"{sql} AS {_alias(cause)}" for cause, sql in held.items())
    in_call = " + ".join(f"coalesce(c.{state}_ns, 0)" for state in limits.CAUSES.values())
    of_threads = ", ".join(f"coalesce(t.{state}_ns, 0) AS t_{state}_ns" for state in threads.STATES)
    limited = {state: f"coalesce(c.{state}_ns, 0) + coalesce(r.{state}_ns, 0)" for state in limits.CAUSES.values()}
    of_limits = ", ".join(f"{sql} AS l_{state}_ns" for state, sql in limited.items())
    # Rules are evaluated where nothing limits.
    unlimited = f"sender_held_ns - CASE WHEN protocol = 6 THEN {' + '.join(limited.values())} ELSE 0 END"
    evaluated_sent = _within(f"s.{rules.EVALUATED}_ns", unlimited)
    evaluated = _within(f"v.{rules.EVALUATED}_ns", _alias(_STACK))
    waited = (_within("w.driver_waits_ns", _alias(_DRIVER)), _within("w.core_waits_ns", _alias(_BACKLOG)))
    gathered = _within("w.gro_ns", f"{_alias(_BACKLOG)} - {waited[1]}")
    found = f"""
        SELECT m.*, k.until_ns - k.from_ns AS call_held_ns, {in_call} AS in_call_ns,
               {of_limits}, {of_threads}, coalesce(q.last_ns, 0) AS q_last_ns, coalesce(q.own_ns, 0) AS q_own_ns,
               coalesce(q.others_ns, 0) AS q_others_ns, q.kind,
               {evaluated_sent} AS sent_rules_ns, {evaluated} AS received_rules_ns,
               {waited[0]} AS driver_waits_ns, {waited[1]} AS core_waits_ns, {gathered} AS gro_ns
        FROM (SELECT message, protocol, {groups}, {direct} FROM ({with_previous("messages")}) p) m
        LEFT JOIN (SELECT * FROM sender_spans WHERE part = 'call') k ON k.message = m.message
        LEFT JOIN (SELECT * FROM sender_elapsed WHERE part = 'call') c ON c.message = m.message
        LEFT JOIN (SELECT * FROM sender_elapsed WHERE part = 'rest') r ON r.message = m.message
        LEFT JOIN thread_elapsed t ON t.message = m.message
        LEFT JOIN queue_shares q ON q.message = m.message
        LEFT JOIN sent_rules_elapsed s ON s.message = m.message
        LEFT JOIN received_rules_elapsed v ON v.message = m.message
        LEFT JOIN arrival_waits w ON w.message = m.message"""
    # What nothing limited in the call is the copy, if limits were recorded.
    copied = "greatest(0, coalesce(call_held_ns, 0) - in_call_ns - sent_rules_ns)"
    parts = {
        SENDER: {
            **{cause: f"l_{state}_ns" for cause, state in limits.CAUSES.items()},
            _COPY: f"CASE WHEN protocol <> 6 THEN sender_held_ns - sent_rules_ns"
            f" ELSE {copied if _are_recorded(context.trace) else '0'} END",
            _RULES: "sent_rules_ns",
        },
        QDISC: _queue_parts(),
        READER: {cause: " + ".join(f"t_{state}_ns" for state in states) for cause, states in threads.CAUSES.items()},
    }
    sums: dict[str, list[str]] = {cause: [_alias(cause)] for cause in held}
    moved = (
        (_STACK, _RULES, "received_rules_ns"),
        (_DRIVER, _WAIT, "driver_waits_ns"),
        (_BACKLOG, _WAIT, "core_waits_ns"),
        (_BACKLOG, _GRO, "gro_ns"),
    )
    for cause, other, column in moved:
        sums[cause].append(f"-{column}")
        sums.setdefault(other, []).append(column)
    for group, each in parts.items():
        held_ns, known_ns = f"{group}_held_ns", f"{group}_known_ns"
        for cause, sql in each.items():
            # Spans are the stages' own, unless bytes were sent again in between.
            scaled = f"CAST(floor(({sql}) * ({held_ns} / greatest(1, {known_ns}))) AS BIGINT)"
            sums.setdefault(cause, []).append(f"CASE WHEN {known_ns} > {held_ns} THEN {scaled} ELSE {sql} END")
    known_in = ", ".join(f"{' + '.join(each.values())} AS {group}_known_ns" for group, each in parts.items())
    total = " + ".join((*(_alias(cause) for cause in held), *(f"{group}_held_ns" for group in GROUPS)))
    named = [cause for cause in CAUSES if cause.name != UNKNOWN]
    listed = ", ".join(
        f"CAST({' + '.join(sums.get(cause.name, ['0']))} AS BIGINT) AS {cause.column}" for cause in named
    )
    columns_ = ", ".join(cause.column for cause in named)
    known = " + ".join(cause.column for cause in named)
    return (
        f"SELECT message, {columns_}, CAST(whole_ns - ({known}) AS BIGINT) AS {BY_NAME[UNKNOWN].column}"
        f" FROM (SELECT message, {total} AS whole_ns, {listed} FROM (SELECT *, {known_in} FROM ({found}) f) s) g"
    )


def _within(sql: str, most: str) -> str:
    return f"least(coalesce({sql}, 0), greatest(0, {most}))"


def _alias(cause: str) -> str:
    """Return the column with the time of the stages that have one cause."""
    return f"{cause.replace('-', '_')}_d_ns"


def _are_recorded(trace: Trace) -> bool:
    """Return whether it was recorded what kept TCP from sending; a trace that does not list its points has all."""
    return not trace.metadata.plan or "tx.limit" in attached(trace)


def _queue_parts() -> dict[str, str]:
    """Return cause → SQL for its part of the time in a queueing discipline."""
    shaped, delayed, paced = (f"kind IN ({_listed(kinds)})" for kinds in (SHAPERS, DELAYS, PACED))
    whole = "q_own_ns + q_others_ns + q_last_ns"
    return {
        "queue-others": f"CASE WHEN {delayed} OR {paced} THEN 0 ELSE q_others_ns END",
        "queue-own": f"CASE WHEN {delayed} OR {paced} THEN 0 ELSE q_own_ns END",
        "shaper": f"CASE WHEN {delayed} THEN {whole} WHEN {shaped} THEN q_last_ns ELSE 0 END",
        "pacing": f"CASE WHEN {paced} THEN {whole} ELSE 0 END",
        "driver": f"CASE WHEN kind IS NULL OR {shaped} OR {delayed} OR {paced} THEN 0 ELSE q_last_ns END",
    }


# Group of causes → those that share its stages' time.
SHARED: Final = {
    SENDER: (*limits.CAUSES, _COPY, _RULES),
    QDISC: tuple(_queue_parts()),
    READER: tuple(threads.CAUSES),
}
