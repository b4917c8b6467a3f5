# SPDX-License-Identifier: Apache-2.0
"""What kept TCP from sending: changes of each flow, as the kernel's programs recorded them (``tx.limit``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.bpf.layout import HopLimit, HopLimitValue
from hopscope.store.engine import last_known
from hopscope.trace.causes.clocks import clock
from hopscope.trace.messages.segments import number
from hopscope.trace.names import points
from hopscope.trace.relation import columns, relation

if TYPE_CHECKING:
    from hopscope.trace.relation import Context

# In the trace, the number of a limit; in names of columns, the cause.
STATES: Final = {
    HopLimit.HOP_LIMIT_HANDSHAKE: "handshake",
    HopLimit.HOP_LIMIT_PACING: "pacing",
    HopLimit.HOP_LIMIT_CONGESTION_WINDOW: "congestion_window",
    HopLimit.HOP_LIMIT_RECEIVER_WINDOW: "receiver_window",
    HopLimit.HOP_LIMIT_NAGLE: "nagle",
    HopLimit.HOP_LIMIT_CORK: "cork",
    HopLimit.HOP_LIMIT_SMALL_QUEUE: "small_queue",
    HopLimit.HOP_LIMIT_SEND_BUFFER: "send_buffer",
}
# The congestion window is full of packets that are not acknowledged, as one of them is lost.
LOST: Final = "retransmission"
OF_SOCKET: Final = (*STATES.values(), LOST)
# Cause → the state that is it.
CAUSES: Final = {state.replace("_", "-"): state for state in OF_SOCKET}
NONE: Final = "none"
OTHER: Final = "other"
_BYTE: Final = 256


@relation(
    "tcp_limits",
    "a change of what keeps TCP from sending the rest of what it has",
    columns(
        "subject time_ns place state condition detail len_bytes",
        subject="flow",
        place="order of what has the same time",
        state="from then on: `none`, `handshake`, `pacing`, `congestion_window`, `receiver_window`, `nagle`, `cork`, "
        "`small_queue`, `send_buffer` (all is sent, and a call waits for room), `retransmission` (the congestion "
        "window is full, in a pause before or after a retransmission), or `other`",
        condition="`congestion_window`: state of congestion control (0 open, 1 disorder, 2 CWR, 3 recovery, 4 loss); "
        "`pacing`: 1 if the application has set SO_MAX_PACING_RATE",
        detail="`congestion_window`: packets; `receiver_window`: bytes; `pacing`: bytes a second; `nagle`: packets in "
        "flight; `small_queue`: bytes below TCP",
        len_bytes="bytes that it has not sent",
    ),
    needs=("original_sockets", "original_packets"),
)
def _tcp_limits(context: Context) -> str:
    numbers = points(context.trace)
    kinds = " ".join(f"WHEN {int(kind)} THEN '{state}'" for kind, state in STATES.items())
    detail = 1 << int(HopLimitValue.HOP_LIMIT_DETAIL_SHIFT)
    changes = f"""
        SELECT flow AS subject, time_ns, cpu AS place,
               CASE value % {_BYTE} {kinds} WHEN {int(HopLimit.HOP_LIMIT_NONE)} THEN '{NONE}' ELSE '{OTHER}' END
                   AS state,
               CAST((value - value % {_BYTE}) / {_BYTE} AS BIGINT) % {_BYTE} AS condition,
               CAST((value - value % {detail}) / {detail} AS BIGINT) AS detail, len_bytes, CAST(NULL AS BOOLEAN) AS lost
        FROM original_sockets WHERE point = {number(numbers, "tx.limit")}"""
    own = "(PARTITION BY subject ORDER BY time_ns, place ROWS UNBOUNDED PRECEDING)"
    last = ", ".join(
        f"{last_known(name)} OVER {own} AS {name}" for name in ("state", "condition", "detail", "len_bytes", "lost")
    )
    return f"""
        SELECT subject, time_ns, place, CASE WHEN lost AND state = '{_WINDOW}' THEN '{LOST}' ELSE state END AS state,
               condition, detail, len_bytes
        FROM (SELECT subject, time_ns, place, {last} FROM ({changes} UNION ALL {_pauses(numbers)}) both_kinds) known
        WHERE state IS NOT NULL"""


def _pauses(numbers: dict[str, int]) -> str:
    """Return the query for when pauses of a flow begin to follow or precede a retransmission, or no longer do.

    A packet that is sent again reaches a device just before ``tcp.retransmit`` tells so.
    """
    queue, again = (number(numbers, name) for name in ("tx.queue", "tcp.retransmit"))
    sent = f"""
        SELECT flow, time_ns, cpu, next_point = {again} AS is_again
        FROM (SELECT flow, time_ns, cpu, point, lead(point) OVER (PARTITION BY flow ORDER BY time_ns) AS next_point
              FROM original_packets WHERE point = {again} OR (point = {queue} AND len_bytes > header_bytes)) events
        WHERE point = {queue} AND flow IN (SELECT flow FROM original_packets WHERE point = {again})"""
    following = "OVER (PARTITION BY flow ORDER BY time_ns)"
    none = ", ".join(f"CAST(NULL AS {kind}) AS {name}" for name, kind in _NOT_OF_PAUSES.items())
    return f"""
        SELECT flow AS subject, time_ns, cpu AS place, {none}, lost
        FROM (SELECT flow, time_ns, cpu, lost, lag(lost) {following} AS lost_before
              FROM (SELECT flow, time_ns, cpu, coalesce(is_again, FALSE) OR coalesce(lead(is_again) {following}, FALSE)
                           AS lost FROM ({sent}) s) p) c
        WHERE lost <> coalesce(lost_before, FALSE)"""


_WINDOW: Final = STATES[HopLimit.HOP_LIMIT_CONGESTION_WINDOW]
_NOT_OF_PAUSES: Final = {"state": "STRING", "condition": "BIGINT", "detail": "BIGINT", "len_bytes": "BIGINT"}

clock("tcp_limit", "tcp_limits", OF_SOCKET, "flow")
