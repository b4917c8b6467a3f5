# SPDX-License-Identifier: Apache-2.0
"""The processes at both ends of a flow: those whose socket calls sent and received its data.

In a softirq, the thread of a packet is the interrupted one; socket calls give the actual owner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.trace.packets.open_ends import MEANT
from hopscope.trace.packets.reverse_flows import reverses
from hopscope.trace.relation import columns, relation

if TYPE_CHECKING:
    from hopscope.trace.relation import Context

# Points in the calling thread; other socket points may be in any thread that a softirq interrupted.
_CALLS: Final = "('tx.send', 'tx.sent', 'rx.read', 'rx.received')"

# The sender of a flow receives its reverse. If several processes share a socket, the one with the most calls is the
# owner; owners of connected sockets take precedence over those of unconnected ones.
_OWNERS: Final = f"""
    WITH calls AS (
        SELECT s.flow, p.name LIKE 'tx.%' AS sends, t.pid, min(t.comm) AS comm, min(t.name) AS name, count(*) AS calls
        FROM sockets s JOIN points p ON p.point = s.point AND p.name IN {_CALLS}
        JOIN thread_names t ON t.tid = s.tid
        WHERE s.flow <> 0 GROUP BY s.flow, p.name LIKE 'tx.%', t.pid),
    own AS (
        SELECT m.meant AS flow, c.sends, c.pid, c.comm, c.name, c.calls, CASE WHEN m.exact THEN 1 ELSE 0 END AS exact
        FROM calls c JOIN ({MEANT}) m ON m.flow = c.flow),
    reverses AS ({{reverses}}),
    ends AS (
        SELECT flow, sends, pid, comm, name, calls, exact FROM own
        UNION ALL
        SELECT r.back, NOT c.sends, c.pid, c.comm, c.name, c.calls, c.exact
        FROM own c JOIN reverses r ON r.flow = c.flow),
    summed AS (
        SELECT flow, sends, pid, min(comm) AS comm, min(name) AS name, max(exact) AS exact, sum(calls) AS calls
        FROM ends GROUP BY flow, sends, pid),
    ranked AS (
        SELECT *, row_number() OVER (PARTITION BY flow, sends ORDER BY exact DESC, calls DESC, pid) AS place
        FROM summed)
    SELECT flow, sends, pid, comm, name FROM ranked WHERE place = 1"""


@relation(
    "flow_owners",
    "one end of a flow, with the process that owns the socket",
    columns(
        "flow sends pid comm name",
        sends="whether it is the sender's end (otherwise the receiver's)",
        name="name of the process: `COMM (PID)`",
    ),
    needs=("thread_names",),
)
def _owners(context: Context) -> str:
    return _OWNERS.format(reverses=reverses(context.trace))
