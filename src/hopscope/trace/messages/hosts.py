# SPDX-License-Identifier: Apache-2.0
"""Messages from one host to another: their hosts, and the network time within the bound of the clocks.

Times on one host are in the order of its clock. Between hosts, the order is only as certain as the clocks: a time of
the receiver that precedes the last one of the sender by no more than the bound is valid; the receiver's times are then
shifted so that nothing arrives before it left. The network time is given only if it exceeds its bound.

The lifetimes of a datagram at its sender and at its receiver are combined, also across recorded routers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.trace.clock_bounds import bound_join
from hopscope.trace.host_numbers import host_of_cpu, hosts
from hopscope.trace.messages.path import PACKET_COLUMNS, RECEIVED, SENT, earliest, latest
from hopscope.trace.names import points
from hopscope.trace.packets.datagram_links import transfers
from hopscope.trace.relation import columns, fixed, relation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hopscope.trace.relation import Context

_SENDS: Final = ("tx.send", "tx.sent")
_READS: Final = ("rx.read", "rx.received")
_READY: Final = "rx.ready"
_NOBODY: Final = (
    "SELECT 0 AS flow, CAST(NULL AS SMALLINT) AS sender_host, CAST(NULL AS SMALLINT) AS receiver_host WHERE FALSE"
)

# The receiver is the reader; without a read, the notified thread.
_FLOW_HOSTS: Final = f"""
    SELECT flow, max(CASE WHEN point IN ({{sends}}) THEN host END) AS sender_host,
           coalesce(max(CASE WHEN point IN ({{reads}}) THEN host END), max(CASE WHEN point = {{ready}} THEN host END))
               AS receiver_host
    FROM (SELECT DISTINCT flow, point, {host_of_cpu("cpu")} AS host FROM original_sockets
          WHERE flow <> 0 AND point IN ({{sends}}, {{reads}}, {{ready}})) seen
    GROUP BY flow"""


@relation(
    "flow_hosts",
    "a TCP flow of a joined trace, with the hosts of its sockets",
    columns("flow sender_host receiver_host"),
    needs=("original_sockets",),
    temporary=True,
)
def _flow_hosts(context: Context) -> str:
    if not hosts(context.trace):
        return _NOBODY
    number = points(context.trace)
    sends, reads = (", ".join(str(number.get(name, -1)) for name in names) for names in (_SENDS, _READS))
    return _FLOW_HOSTS.format(sends=sends, reads=reads, ready=number.get(_READY, -1))


def loosened(source: str, others: Sequence[str]) -> str:
    """Return the query for messages with receivers' times increased by the bound, so that only errors are out of order.

    Parameters
    ----------
    source
        Messages of a joined trace with ``sender_host`` and ``receiver_host``.
    others
        Their columns other than those of points.
    """
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
    """Return the query for messages whose times were relaxed and checked, with corrected times and the network time."""
    given = ", ".join((*others, *SENT, "network_bound_ns"))
    back = ", ".join(f"{name} - coalesce(network_bound_ns, 0) AS {name}" for name in RECEIVED)
    later = ", ".join(f"{name} + CASE WHEN gap_ns < 0 THEN -gap_ns ELSE 0 END AS {name}" for name in RECEIVED)
    gap = f"CASE WHEN network_bound_ns IS NULL THEN 0 ELSE coalesce({earliest(RECEIVED)} - {latest(SENT)}, 0) END"
    return (
        f"SELECT {given}, {later}, CASE WHEN gap_ns > network_bound_ns THEN gap_ns END AS network_ns"
        f" FROM (SELECT *, {gap} AS gap_ns FROM (SELECT {given}, {back} FROM ({checked}) c) t) g"
    )


_MOST_ROUTERS: Final = 8
# The points of a packet on the receiving host.
_RECEIVED: Final = (*PACKET_COLUMNS[5:9], "copied_ns", "freed_ns", "freed_tid", "came_cpu")
_SENT: Final = (*PACKET_COLUMNS[:5], "packet", "begins_ns", "tcp_ns", "flow", "seq", "tid", "len_bytes")

# A departing packet was last queued at a device; an arriving one begins with the driver.
_ENDS: Final = """
    SELECT packet, host, 1 AS step, coalesce(last_start_ns, last_queue_ns) AS time_ns, last_flow AS flow,
           last_seq AS seq, last_len AS len_bytes
    FROM udp_lifetimes WHERE leaves
    UNION ALL
    SELECT packet, host, -1, begins_ns, came_flow, came_seq, came_len FROM udp_lifetimes WHERE driver_ns = begins_ns"""
fixed(
    "host_datagrams",
    "a datagram that left a host or arrived at one",
    columns("packet host step time_ns flow seq len_bytes", len_bytes="length of the payload"),
    _ENDS,
    needs=("udp_lifetimes",),
    temporary=True,
)
transfers("host_datagrams", "host_datagrams")

_GOES_ON: Final = "FROM growing_routes w JOIN host_datagrams_transfers l ON l.packet = w.arrived AND l.state = 'came'"
_LONGER: Final = """
    SELECT w.packet, coalesce(l.arrived, w.arrived) AS arrived
    FROM growing_routes w
    LEFT JOIN (SELECT * FROM host_datagrams_transfers WHERE state = 'came') l ON l.packet = w.arrived"""


@relation(
    "datagram_routes",
    "a datagram that left a host, with its arrival at the last host that recorded it",
    columns("packet arrived"),
    needs=("host_datagrams_transfers",),
    temporary=True,
    scratch=("growing_routes",),
)
def _datagram_routes(context: Context) -> str:
    trace = context.trace
    trace.make_table("growing_routes", "SELECT packet, arrived FROM host_datagrams_transfers WHERE state = 'came'")
    for _ in range(_MOST_ROUTERS):
        if not trace.rows(f"SELECT 1 {_GOES_ON} LIMIT 1"):
            break
        trace.make_table("growing_routes", _LONGER)
    return "SELECT * FROM growing_routes"


# The destination of the other packets of the flow, if it is the same for all.
_GOALS: Final = """
    SELECT o.last_flow AS flow, max(a.host) AS to_host
    FROM datagram_routes w JOIN udp_lifetimes o ON o.packet = w.packet
    JOIN udp_lifetimes a ON a.packet = w.arrived AND NOT a.leaves
    GROUP BY o.last_flow HAVING min(a.host) = max(a.host)"""


def _of_end(column: str) -> str:
    """Return SQL for the host at which a datagram arrived; forwarding routers do not count."""
    return f"CASE WHEN NOT o.leaves THEN o.{column} WHEN NOT a.leaves THEN a.{column} END AS {column}"


# The lifetimes at senders, ending where they were received.
LINKED: Final = f"""
    SELECT {", ".join(f"o.{name}" for name in _SENT)},
           {", ".join(map(_of_end, _RECEIVED))},
           CASE WHEN o.leaves AND (o.dropped_ns IS NULL OR a.packet IS NOT NULL) THEN a.dropped_ns ELSE o.dropped_ns END
               AS dropped_ns,
           CASE WHEN a.packet IS NULL THEN o.last_flow WHEN a.leaves THEN a.last_flow ELSE a.came_flow END AS last_flow,
           CASE WHEN a.packet IS NULL THEN o.last_len WHEN a.leaves THEN a.last_len ELSE a.came_len END AS last_len,
           o.host AS sender_host,
           CASE WHEN NOT o.leaves THEN o.host WHEN a.packet IS NULL THEN g.to_host WHEN NOT a.leaves THEN a.host END
               AS receiver_host,
           l.state
    FROM udp_lifetimes o
    LEFT JOIN host_datagrams_transfers l ON l.packet = o.packet
    LEFT JOIN datagram_routes w ON w.packet = o.packet
    LEFT JOIN udp_lifetimes a ON a.packet = w.arrived
    LEFT JOIN ({_GOALS}) g ON g.flow = o.last_flow"""


def lives_to_link(numbers: dict[str, int]) -> str:
    """Return the columns by which lifetimes are linked."""
    queue, start, driver = (numbers.get(name, -1) for name in ("tx.queue", "tx.start", "rx.driver"))
    at_queue, at_driver = (f"CASE WHEN point = {each} THEN time_ns END" for each in (queue, driver))
    return f"""{host_of_cpu("max(cpu)")} AS host, max_by(seq, {at_queue}) AS last_seq, max({at_queue}) AS last_queue_ns,
               max(CASE WHEN point = {start} THEN time_ns END) AS last_start_ns,
               coalesce(max({at_queue}) > coalesce(max({at_driver}), 0), FALSE) AS leaves,
               min_by(flow, {at_driver}) AS came_flow, min_by(seq, {at_driver}) AS came_seq,
               min_by(len_bytes - header_bytes, {at_driver}) AS came_len"""
