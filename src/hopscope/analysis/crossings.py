# SPDX-License-Identifier: Apache-2.0
"""What went from host to host: which packets left one, which came to the next one, and when.

Where a packet's life on a host begins with the driver it came; where it ends at a device that it is sent from, it left.
On the wire a flow has the same number at both ends. From each host it goes to the one where it is seen next: a *leg*.

Tables::

    legs       `leg`, `flow` on the wire, `from_host`, `to_host`, `protocol`
    passages   packets with a payload that left (`step` 1) and came (-1): `leg`, `time_ns`, `seq`, `payload`
    crossings  packets that are known to be the same at both ends: `leg`, `left_ns`, `came_ns`, `bound_ns`, and whether
               tx.start was seen (`started`)
    sent       a row a packet that left: `leg`, `left_ns`, `payload`, `again`: its bytes had been sent before, `lost`,
               `lost_bytes`, `unsure`: it did not come, but its receiver was absent, or lost events
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.analysis.clock_bounds import bound_join, make_clock_bounds
from hopscope.analysis.crossings_tcp import make_tcp_crossings
from hopscope.analysis.datagram_links import make_links
from hopscope.analysis.host_numbers import host_of_cpu
from hopscope.analysis.journeys import make_journeys
from hopscope.analysis.lives import make_lives
from hopscope.analysis.messages_missing import ON_THE_WAY_NS
from hopscope.analysis.messages_udp import UDP

if TYPE_CHECKING:
    from hopscope.analysis.selection import Selection
    from hopscope.store.trace import Trace

# How long a packet was on the way. Within the bound, what came may seem to have come before it left.
TOOK: Final = "greatest(came_ns - left_ns, 1)"
_SCRATCH: Final = ("journeys", "unknown_spans", "links", "links_ends", "tcp_sent", "tcp_crossings", "address_hosts")

# In which a packet that did not come may have come all the same.
_UNKNOWN: Final = f"""
    SELECT host, from_ns - {ON_THE_WAY_NS} AS from_ns, until_ns FROM absences
    UNION ALL SELECT {host_of_cpu("cpu")}, from_ns - {ON_THE_WAY_NS}, until_ns FROM losses WHERE lost > 0"""

# Where an address is: whence its own packets come, and where those for it are not sent on.
_ADDRESSES: Final = """
    SELECT address, max(host) AS host FROM (
        SELECT f.source AS address, j.host FROM journeys j JOIN flows f ON f.flow = j.out_flow
        WHERE j.leaves AND NOT j.came
        UNION SELECT f.destination, j.host FROM journeys j JOIN flows f ON f.flow = j.in_flow
        WHERE j.came AND NOT j.leaves) a
    GROUP BY address HAVING min(host) = max(host)"""

# The next one is that where it is seen first, of those where it is not seen before; if nobody saw it, where it is for.
_LEGS: Final = """
    WITH departures AS (
        SELECT out_flow AS flow, host, min(left_ns) AS first_ns FROM journeys WHERE leaves GROUP BY out_flow, host),
    arrivals AS (
        SELECT in_flow AS flow, host, min(came_ns) AS first_ns FROM journeys WHERE came GROUP BY in_flow, host),
    nearest AS (
        SELECT d.flow, d.host AS from_host, a.host AS to_host,
               row_number() OVER (PARTITION BY d.flow, d.host ORDER BY
                   CASE WHEN a.first_ns + {slack_ns} >= d.first_ns THEN 0 ELSE 1 END, a.first_ns) AS place
        FROM departures d JOIN arrivals a ON a.flow = d.flow AND a.host <> d.host),
    known AS (
        SELECT flow, from_host, to_host FROM nearest WHERE place = 1
        UNION ALL
        SELECT d.flow, d.host, h.host FROM departures d JOIN flows f ON f.flow = d.flow
        JOIN address_hosts h ON h.address = f.destination AND h.host <> d.host
        WHERE d.flow NOT IN (SELECT flow FROM arrivals))
    SELECT row_number() OVER (ORDER BY k.flow, from_host) AS leg, k.flow, from_host, to_host, f.protocol
    FROM known k JOIN flows f ON f.flow = k.flow WHERE {wanted}"""

_PASSAGES: Final = """
    SELECT l.leg, l.protocol, j.packet, 1 AS step, j.left_ns AS time_ns, j.started, j.out_seq AS seq,
           j.out_len AS payload
    FROM journeys j JOIN legs l ON l.flow = j.out_flow AND l.from_host = j.host
    WHERE j.leaves AND j.out_len > 0
    UNION ALL
    SELECT l.leg, l.protocol, j.packet, -1, j.came_ns, FALSE, j.in_seq, j.in_len
    FROM journeys j JOIN legs l ON l.flow = j.in_flow AND l.to_host = j.host
    WHERE j.came AND j.in_len > 0"""

# A leg is as a flow between two hosts alone.
_ENDS: Final = f"""
    SELECT p.packet, CASE WHEN p.step > 0 THEN l.from_host ELSE l.to_host END AS host, p.step, p.time_ns, p.leg AS flow,
           p.seq, p.payload AS len_bytes
    FROM passages p JOIN legs l ON l.leg = p.leg WHERE p.protocol = {UDP}"""

_CROSSINGS: Final = f"""
    SELECT c.leg, c.left_ns, c.came_ns, c.started, coalesce(s.bound_ns, 0) + coalesce(r.bound_ns, 0) AS bound_ns
    FROM (SELECT leg, left_ns, came_ns, started FROM tcp_crossings
          UNION ALL
          SELECT k.flow, k.left_ns, k.came_ns, p.started FROM links k
          JOIN passages p ON p.packet = k.packet AND p.leg = k.flow AND p.step = 1 WHERE k.state = 'came') c
    JOIN legs l ON l.leg = c.leg
    {bound_join("s", "l.from_host", "c.left_ns")} {bound_join("r", "l.to_host", "c.came_ns")}
    WHERE {{window}}"""

_SENT: Final = """
    SELECT e.leg, e.left_ns, e.payload, e.again, e.missed AND u.leg IS NULL AS lost,
           CASE WHEN e.missed AND u.leg IS NULL THEN e.missed_bytes ELSE 0 END AS lost_bytes,
           e.missed AND u.leg IS NOT NULL AS unsure
    FROM {all_sent} e
    LEFT JOIN (SELECT DISTINCT m.leg, m.left_ns FROM {all_sent} m JOIN legs l ON l.leg = m.leg
               JOIN unknown_spans s ON s.host = l.to_host AND m.left_ns >= s.from_ns AND m.left_ns < s.until_ns
               WHERE m.missed) u ON u.leg = e.leg AND u.left_ns = e.left_ns
    WHERE {window}"""
_ALL_SENT: Final = """(
        SELECT leg, left_ns, payload, again, missed_bytes > 0 AS missed, missed_bytes FROM tcp_sent
        UNION ALL
        SELECT k.flow, k.left_ns, p.payload, FALSE, k.state = 'lost' OR (k.state = 'unsure' AND k.short), p.payload
        FROM links k JOIN passages p ON p.packet = k.packet AND p.leg = k.flow AND p.step = 1)"""


def make_crossings(trace: Trace, selection: Selection, *, steps: str = "steps") -> None:
    """Make the tables; `selection`: which flows on the wire, and when they left; `steps` as for `make_journeys`."""
    make_lives(trace)
    make_clock_bounds(trace)
    make_journeys(trace, steps)
    trace.make_table("address_hosts", _ADDRESSES)
    trace.make_table("unknown_spans", _UNKNOWN)
    ((bound_ns,),) = trace.rows("SELECT coalesce(max(bound_ns), 0) FROM clock_bounds")
    trace.make_table("legs", _LEGS.format(slack_ns=2 * bound_ns, wanted=selection.flow(trace, "k.flow")))
    # What is wanted is chosen when all is compared: what was sent again may have left before, or may come after.
    trace.make_table("passages", _PASSAGES)
    make_tcp_crossings(trace)
    trace.make_table("links_ends", _ENDS)
    make_links(trace, "links_ends")
    trace.make_table("crossings", _CROSSINGS.format(window=selection.window(trace, "c.left_ns")))
    trace.make_table("sent", _SENT.format(all_sent=_ALL_SENT, window=selection.window(trace, "e.left_ns")))
    trace.drop(*_SCRATCH)
