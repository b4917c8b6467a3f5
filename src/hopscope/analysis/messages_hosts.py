# SPDX-License-Identifier: Apache-2.0
"""Messages from one host to another: whose they are, and what the clocks' bound allows to say of the way between.

What a message passes on one host is in the order of that host's clock. Between the hosts, the order is certain only as
far as the clocks are: a time of the receiver's that lies before the sender's last, by no more than the bound, is as
right as the others; the receiver's times are then put that much later, so that nothing comes before it left. The time
on the network is said where it is greater than its bound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.analysis.clock_bounds import bound_join, make_clock_bounds
from hopscope.analysis.host_numbers import host_of_cpu, hosts
from hopscope.analysis.messages_path import RECEIVED, SENT, earliest, latest
from hopscope.analysis.names import points

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hopscope.store.trace import Trace

_SENDS: Final = ("tx.send", "tx.sent")
_READS: Final = ("rx.read", "rx.received")
_TOLD: Final = "rx.ready"
_NOBODY: Final = (
    "SELECT 0 AS flow, CAST(NULL AS SMALLINT) AS sender_host, CAST(NULL AS SMALLINT) AS receiver_host WHERE FALSE"
)

# Who reads is the receiver; of what nobody reads, who is told.
_FLOW_HOSTS: Final = f"""
    SELECT flow, max(CASE WHEN point IN ({{sends}}) THEN host END) AS sender_host,
           coalesce(max(CASE WHEN point IN ({{reads}}) THEN host END), max(CASE WHEN point = {{told}} THEN host END))
               AS receiver_host
    FROM (SELECT DISTINCT flow, point, {host_of_cpu("cpu")} AS host FROM followed_sockets
          WHERE flow <> 0 AND point IN ({{sends}}, {{reads}}, {{told}})) seen
    GROUP BY flow"""


def make_flow_hosts(trace: Trace) -> None:
    """Make the table ``flow_hosts``: the hosts of the sockets that a flow of TCP goes from, and to; NULL: not seen."""
    if not hosts(trace):
        trace.make_table("flow_hosts", _NOBODY)
        return
    number = points(trace)
    sends, reads = (", ".join(str(number.get(name, -1)) for name in names) for names in (_SENDS, _READS))
    trace.make_table("flow_hosts", _FLOW_HOSTS.format(sends=sends, reads=reads, told=number.get(_TOLD, -1)))


def loosened(trace: Trace, source: str, others: Sequence[str]) -> str:
    """Return the query for messages whose receivers' times are later by the bound, so that only what is wrong is out.

    Parameters
    ----------
    trace
        That was joined.
    source
        Messages with ``sender_host`` and ``receiver_host``.
    others
        Their columns besides the points'.
    """
    make_clock_bounds(trace)
    worst = "(SELECT coalesce(max(bound_ns), 0) FROM clock_bounds)"
    given = ", ".join(f"m.{name}" for name in (*others, *SENT))
    moved = ", ".join(f"m.{name} + coalesce(m.network_bound_ns, 0) AS {name}" for name in RECEIVED)
    known = (
        f"SELECT e.*, CASE WHEN sender_host <> receiver_host THEN coalesce(s.bound_ns, {worst})"
        f" + coalesce(r.bound_ns, {worst}) END AS network_bound_ns"
        f" FROM (SELECT *, {latest(SENT)} AS left_ns, {earliest(RECEIVED)} AS came_ns FROM {source} raw) e"
        f" {bound_join('s', 'e.sender_host', 'e.left_ns')} {bound_join('r', 'e.receiver_host', 'e.came_ns')}"
    )
    return f"SELECT {given}, {moved}, m.network_bound_ns FROM ({known}) m"


def tightened(checked: str, others: Sequence[str]) -> str:
    """Return the query for messages that were loosened and checked, with their times and that on the network."""
    given = ", ".join((*others, *SENT, "network_bound_ns"))
    back = ", ".join(f"{name} - coalesce(network_bound_ns, 0) AS {name}" for name in RECEIVED)
    later = ", ".join(f"{name} + CASE WHEN gap_ns < 0 THEN -gap_ns ELSE 0 END AS {name}" for name in RECEIVED)
    gap = f"CASE WHEN network_bound_ns IS NULL THEN 0 ELSE coalesce({earliest(RECEIVED)} - {latest(SENT)}, 0) END"
    return (
        f"SELECT {given}, {later}, CASE WHEN gap_ns > network_bound_ns THEN gap_ns END AS network_ns"
        f" FROM (SELECT *, {gap} AS gap_ns FROM (SELECT {given}, {back} FROM ({checked}) c) t) g"
    )
