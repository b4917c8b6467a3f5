# SPDX-License-Identifier: Apache-2.0
"""What kept TCP from sending: changes of each flow, as the kernel's programs recorded them (``tx.limit``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.bpf.layout import HopLimit, HopLimitValue
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
# Cause → the state that is it.
CAUSES: Final = {state.replace("_", "-"): state for state in STATES.values()}
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
        "`small_queue`, `send_buffer` (all is sent, and a call waits for room), or `other`",
        condition="`congestion_window`: state of congestion control (0 open, 1 disorder, 2 CWR, 3 recovery, 4 loss); "
        "`pacing`: 1 if the application has set SO_MAX_PACING_RATE",
        detail="`congestion_window`: packets; `receiver_window`: bytes; `pacing`: bytes a second; `nagle`: packets in "
        "flight; `small_queue`: bytes below TCP",
        len_bytes="bytes that it has not sent",
    ),
    needs=("original_sockets",),
)
def _tcp_limits(context: Context) -> str:
    point = number(points(context.trace), "tx.limit")
    kinds = " ".join(f"WHEN {int(kind)} THEN '{state}'" for kind, state in STATES.items())
    detail = 1 << int(HopLimitValue.HOP_LIMIT_DETAIL_SHIFT)
    return f"""
        SELECT flow AS subject, time_ns, cpu AS place,
               CASE value % {_BYTE} {kinds} WHEN {int(HopLimit.HOP_LIMIT_NONE)} THEN '{NONE}' ELSE '{OTHER}' END
                   AS state,
               CAST((value - value % {_BYTE}) / {_BYTE} AS BIGINT) % {_BYTE} AS condition,
               CAST((value - value % {detail}) / {detail} AS BIGINT) AS detail, len_bytes
        FROM original_sockets WHERE point = {point}"""


clock("tcp_limit", "tcp_limits", tuple(STATES.values()), "flow")
