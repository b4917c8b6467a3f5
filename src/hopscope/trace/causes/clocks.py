# SPDX-License-Identifier: Apache-2.0
"""Clocks of states: for how long a thread, a socket or a device has been in each of its states until a time.

A thing (a thread, say) is in one state at a time. If the time that it has spent in each is summed at every change, the
time that it spent in a state during any span is the difference of two readings, however many changes are in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.store.engine import last_known
from hopscope.trace.relation import columns, fixed

if TYPE_CHECKING:
    from collections.abc import Sequence

_OWN: Final = "(PARTITION BY subject ORDER BY time_ns, place)"
# Over all subjects, one after the other: readings of one subject are only compared with each other, and DuckDB sums up
# without partitions in a fifteenth of the time.
_SO_FAR: Final = "(ORDER BY subject, time_ns, place ROWS UNBOUNDED PRECEDING)"


def clock(name: str, changes: str, states: Sequence[str], subject: str) -> None:
    """Declare ``<name>_clock``: a change of state, with the time spent in each state before.

    Parameters
    ----------
    name
        Prefix of the relation.
    changes
        The relation with the changes: ``subject``, ``time_ns``, ``place`` (order at the same time), ``state``.
    states
        Names of the states. Other values of ``state`` are counted in none.
    subject
        Meaning of the column ``subject``.
    """
    own = {state: f"CASE WHEN state = '{state}' THEN coalesce(next_ns - time_ns, 0) ELSE 0 END" for state in states}
    spent = ", ".join(f"sum({each}) OVER {_SO_FAR} - {each} AS {state}_ns" for state, each in own.items())
    fixed(
        f"{name}_clock",
        f"a row of `{changes}`, with the time spent in each state before",
        columns(
            "subject time_ns state change",
            *(f"{state}_ns" for state in states),
            subject=subject,
            state="state from then on",
            change="number of the change",
            **{f"{state}_ns": f"time spent in the state {state} before" for state in states},
        ),
        f"SELECT subject, time_ns, state, row_number() OVER (ORDER BY subject, time_ns, place) AS change, {spent}"
        f" FROM (SELECT *, lead(time_ns) OVER {_OWN} AS next_ns FROM {changes}) c",
        needs=(changes,),
        temporary=True,
    )


def elapsed(name: str, spans: str, states: Sequence[str], *, of: str) -> None:
    """Declare ``<name>_elapsed``: a span of a message, with the time that its subject spent in each state meanwhile.

    What was before the subject's first change is in no state.

    Parameters
    ----------
    name
        Prefix of the relation.
    spans
        The relation with the spans: ``message``, ``part``, ``subject``, ``from_ns``, ``until_ns``.
    states
        Names of the states.
    of
        Prefix of the clock.
    """
    own = "(PARTITION BY subject ORDER BY time_ns ROWS UNBOUNDED PRECEDING)"
    readings = (
        "SELECT message, part, ends, subject, time_ns, known FROM ("
        f" SELECT *, {last_known('change')} OVER {own} AS known"
        " FROM (SELECT CAST(NULL AS BIGINT) AS message, CAST(NULL AS STRING) AS part, CAST(NULL AS INTEGER) AS ends,"
        f" subject, time_ns, change FROM {of}_clock"
        f" UNION ALL SELECT message, part, -1, subject, from_ns, NULL FROM {spans}"
        f" UNION ALL SELECT message, part, 1, subject, until_ns, NULL FROM {spans}) both_kinds"
        ") found WHERE message IS NOT NULL"
    )
    sums = ", ".join(
        f"CAST(coalesce(sum(r.ends * (c.{state}_ns"
        f" + CASE WHEN c.state = '{state}' THEN r.time_ns - c.time_ns ELSE 0 END)), 0) AS BIGINT) AS {state}_ns"
        for state in states
    )
    fixed(
        f"{name}_elapsed",
        f"a row of `{spans}`, with the time that its subject spent in each state meanwhile",
        columns(
            "message part",
            *(f"{state}_ns" for state in states),
            part="part of the message's path",
            **{f"{state}_ns": f"time spent in the state {state}" for state in states},
        ),
        f"SELECT r.message, r.part, {sums} FROM ({readings}) r JOIN {of}_clock c ON c.change = r.known GROUP BY 1, 2",
        needs=(spans, f"{of}_clock"),
        temporary=True,
    )
