# SPDX-License-Identifier: Apache-2.0
"""Messages that had not reached their reader when the recording ended, and what they were waiting for until then."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from hopscope.model.cause import BY_NAME, UNKNOWN
from hopscope.trace.causes import limits, threads
from hopscope.trace.causes.clocks import elapsed
from hopscope.trace.relation import columns, relation

if TYPE_CHECKING:
    from hopscope.trace.relation import Context

# Who reads a flow: the thread that read most of its messages.
_READERS: Final = """
    SELECT flow, max_by(reader_tid, times) AS reader_tid FROM (
        SELECT flow, reader_tid, count(*) AS times FROM messages WHERE reader_tid IS NOT NULL GROUP BY 1, 2) read
    GROUP BY flow"""


@relation(
    "pending_spans",
    "a message that was not read by the end of the recording, from its last point on",
    columns(
        "message part subject from_ns until_ns",
        part="`sender`: it has not left its socket; `reader`: it was not read",
        subject="the flow, or the reading thread; NULL: unknown",
        until_ns="end of the recording",
    ),
    needs=("messages",),
)
def _pending_spans(context: Context) -> str:
    # Of a recording that was cut off, the end is not known: nothing is pending in it.
    end = f"CAST({context.trace.metadata.ended_ns or 0} AS BIGINT)"
    return f"""
        SELECT message, 'sender' AS part, flow AS subject, ends_ns AS from_ns, {end} AS until_ns
        FROM messages WHERE protocol = 6 AND queue_ns IS NULL AND driver_ns IS NULL AND ready_ns IS NULL
                            AND received_ns IS NULL AND ends_ns < {end}
        UNION ALL
        SELECT m.message, 'reader', CAST(r.reader_tid AS BIGINT), m.ends_ns, {end}
        FROM messages m LEFT JOIN ({_READERS}) r ON r.flow = m.flow
        WHERE m.ready_ns IS NOT NULL AND m.read_ns IS NULL AND m.received_ns IS NULL AND m.copy_ns IS NULL
              AND m.dropped_ns IS NULL AND m.ends_ns < {end}"""


elapsed("pending_sender", "pending_spans", limits.OF_SOCKET, of="tcp_limit")
elapsed("pending_reader", "pending_spans", threads.STATES, of="thread")

_HELD: Final = {
    **{cause: f"coalesce(s.{state}_ns, 0)" for cause, state in limits.CAUSES.items()},
    **{cause: " + ".join(f"coalesce(r.{state}_ns, 0)" for state in states) for cause, states in threads.CAUSES.items()},
}
# What can hold a message that has not been read.
CAUSES: Final = (*_HELD, UNKNOWN)
_COLUMNS: Final[dict[str, Any]] = {BY_NAME[name].column: ("ns", BY_NAME[name].meaning) for name in CAUSES}


@relation(
    "pending_causes",
    "a message that was not read by the end of the recording, with the time since its last point by cause",
    columns("message part pending_ns", " ".join(_COLUMNS), pending_ns="time from its last point to the end", **_COLUMNS,
            part="`sender`: it has not left its socket; `reader`: it was not read"),
    needs=("pending_spans", "pending_sender_elapsed", "pending_reader_elapsed"),
)  # fmt: skip
def _pending_causes(context: Context) -> str:  # noqa: ARG001 # a relation's query has it
    held = ", ".join(f"CAST({sql} AS BIGINT) AS {BY_NAME[name].column}" for name, sql in _HELD.items())
    known = " + ".join(BY_NAME[name].column for name in _HELD)
    return f"""
        SELECT *, pending_ns - ({known}) AS {BY_NAME[UNKNOWN].column} FROM (
            SELECT p.message, p.part, p.until_ns - p.from_ns AS pending_ns, {held}
            FROM pending_spans p
            LEFT JOIN pending_sender_elapsed s ON s.message = p.message AND p.part = 'sender'
            LEFT JOIN pending_reader_elapsed r ON r.message = p.message AND p.part = 'reader') f
        WHERE pending_ns > 0"""
