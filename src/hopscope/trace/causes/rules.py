# SPDX-License-Identifier: Apache-2.0
"""When netfilter's rules were evaluated for packets of a flow (``nf.rules``)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from hopscope.trace.causes.clocks import clock, elapsed
from hopscope.trace.messages.segments import number
from hopscope.trace.names import points
from hopscope.trace.relation import columns, fixed, relation

if TYPE_CHECKING:
    from hopscope.trace.relation import Context

SENT: Final = "sent"
RECEIVED: Final = "received"
EVALUATED: Final = "evaluated"
# enum nf_inet_hooks: OUTPUT and POSTROUTING; before them PREROUTING, INPUT and FORWARD.
_HOOKS: Final = {SENT: "extra % 256 >= 3", RECEIVED: "extra % 256 < 3"}
_CHANGES: Final = columns(
    "subject time_ns place state",
    subject="flow, as it was sent",
    place="1: the rules begin, 0: they end",
    state="from then on: `evaluated`, or `none`",
)


def _changes(context: Context, part: str) -> str:
    point = number(points(context.trace), "nf.rules")
    return f"""
        SELECT coalesce(t.original, e.subject) AS subject, e.time_ns, e.place, e.state
        FROM (SELECT subject, time_ns - value AS time_ns, 1 AS place, '{EVALUATED}' AS state
              FROM cpu WHERE point = {point} AND {_HOOKS[part]}
              UNION ALL SELECT subject, time_ns, 0, 'none' FROM cpu WHERE point = {point} AND {_HOOKS[part]}) e
        LEFT JOIN final_translations t ON t.flow = e.subject AND e.time_ns >= t.from_ns AND e.time_ns < t.until_ns"""


def spans(part: str, begin: str, end: str) -> None:
    """Declare when rules begin and end, the spans of messages in which they may do so, and the time in which they did.

    Parameters
    ----------
    part
        :data:`SENT` or :data:`RECEIVED`.
    begin, end
        SQL for the begin and the end of the span in a row of ``messages``; NULL: none.
    """
    relation(
        f"{part}_rules",
        f"netfilter's rules for packets that are {part} begin or end, if they take 1 µs or more",
        _CHANGES,
        needs=("final_translations",),
        temporary=True,
    )(partial(_changes, part=part))
    fixed(
        f"{part}_rules_spans",
        f"the part of a message's path in which rules for packets that are {part} may be evaluated",
        columns("message part subject from_ns until_ns", part=f"`{part}`", subject="flow"),
        f"SELECT message, '{part}' AS part, flow AS subject, {begin} AS from_ns, {end} AS until_ns FROM messages"
        f" WHERE {end} > {begin} AND flow IN (SELECT subject FROM {part}_rules)",
        needs=("messages", f"{part}_rules"),
        temporary=True,
    )
    clock(f"{part}_rules", f"{part}_rules", (EVALUATED,), "flow")
    elapsed(f"{part}_rules", f"{part}_rules_spans", (EVALUATED,), of=f"{part}_rules")
