# SPDX-License-Identifier: Apache-2.0
"""Packets between hosts: which ones left a host, which ones arrived at the next one, and when.

A packet arrived at a host if its lifetime there begins with the driver, and left it if its lifetime ends at a sending
device. On the wire, a flow has the same number at both ends. From each host, it goes to the host that sees it next: a
*link*.

A datagram is followed as a whole (:mod:`hopscope.trace.packets.datagram_links`). TCP is followed by its bytes, because
packets are split and merged in transit. A byte that left n times and arrived m times was lost n - m times; of several
packets with this byte, the earlier ones are assumed to be lost, as others followed them. A packet arrives when its last
byte does, if that was sent only once.

`selection` applies to flows on the wire and to departure times. It is applied after the comparison, because a
retransmitted byte may have left before, or may arrive after the selected period.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.trace.clock_bounds import bound_join
from hopscope.trace.host_numbers import host_of_cpu
from hopscope.trace.messages.join import cells, holds, probes
from hopscope.trace.messages.missing import ON_THE_WAY_NS
from hopscope.trace.messages.segments import ANCHORED, SLICE, TCP, anchors, connections, place
from hopscope.trace.messages.udp import UDP
from hopscope.trace.names import points
from hopscope.trace.packets.datagram_links import transfers
from hopscope.trace.relation import columns, fixed, relation

if TYPE_CHECKING:
    from hopscope.trace.relation import Context

# Time in transit. Within the bound, a packet may appear to arrive before it left.
TOOK: Final = "greatest(came_ns - left_ns, 1)"

# Periods in which a missing packet may actually have arrived.
_UNKNOWN: Final = f"""
    SELECT host, from_ns - {ON_THE_WAY_NS} AS from_ns, until_ns FROM absences
    UNION ALL SELECT {host_of_cpu("cpu")}, from_ns - {ON_THE_WAY_NS}, until_ns FROM losses WHERE lost > 0"""

# The host of an address: the origin of its packets, and where packets to it are not forwarded.
_ADDRESSES: Final = """
    SELECT address, max(host) AS host FROM (
        SELECT f.source AS address, j.host FROM host_visits j JOIN flows f ON f.flow = j.out_flow
        WHERE j.leaves AND NOT j.came
        UNION SELECT f.destination, j.host FROM host_visits j JOIN flows f ON f.flow = j.in_flow
        WHERE j.came AND NOT j.leaves) a
    GROUP BY address HAVING min(host) = max(host)"""

# The next host is the first one to see the flow afterwards; if none did, the host of the destination address.
_LINKS: Final = """
    WITH departures AS (
        SELECT out_flow AS flow, host, min(left_ns) AS first_ns FROM host_visits WHERE leaves GROUP BY out_flow, host),
    arrivals AS (
        SELECT in_flow AS flow, host, min(came_ns) AS first_ns FROM host_visits WHERE came GROUP BY in_flow, host),
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
    SELECT row_number() OVER (ORDER BY k.flow, from_host) AS link, k.flow, from_host, to_host, f.protocol
    FROM known k JOIN flows f ON f.flow = k.flow WHERE {wanted}"""

_PASSAGES: Final = """
    SELECT l.link, l.protocol, j.packet, 1 AS step, j.left_ns AS time_ns, j.started, j.out_seq AS seq,
           j.out_len AS payload
    FROM host_visits j JOIN flow_links l ON l.flow = j.out_flow AND l.from_host = j.host
    WHERE j.leaves AND j.out_len > 0
    UNION ALL
    SELECT l.link, l.protocol, j.packet, -1, j.came_ns, FALSE, j.in_seq, j.in_len
    FROM host_visits j JOIN flow_links l ON l.flow = j.in_flow AND l.to_host = j.host
    WHERE j.came AND j.in_len > 0"""

# A link is treated like a flow between just two hosts.
_DATAGRAMS: Final = f"""
    SELECT p.packet, CASE WHEN p.step > 0 THEN l.from_host ELSE l.to_host END AS host, p.step, p.time_ns,
           p.link AS flow, p.seq, p.payload AS len_bytes
    FROM link_passages p JOIN flow_links l ON l.link = p.link WHERE p.protocol = {UDP}"""

fixed(
    "address_hosts",
    "an address, with its host",
    columns("address host"),
    _ADDRESSES,
    needs=("host_visits",),
    temporary=True,
)
fixed(
    "unobserved_spans",
    "a period in which a packet that arrived at a host may not have been recorded",
    columns("host from_ns until_ns"),
    _UNKNOWN,
    temporary=True,
)


@relation(
    "flow_links",
    "a flow on the wire between two hosts",
    columns("link flow from_host to_host protocol", to_host="receiving host"),
    needs=("clock_bounds", "host_visits", "address_hosts"),
    parameters=("selection",),
)
def _flow_links(context: Context) -> str:
    ((bound_ns,),) = context.trace.rows("SELECT coalesce(max(bound_ns), 0) FROM clock_bounds")
    return _LINKS.format(slack_ns=2 * bound_ns, wanted=context.selection.flow(context.trace, "k.flow"))


fixed(
    "link_passages",
    "a packet with a payload that left for a host or arrived from one",
    columns("link protocol packet step time_ns started seq payload"),
    _PASSAGES,
    needs=("host_visits", "flow_links"),
    temporary=True,
)
fixed(
    "link_datagrams",
    "a datagram that left for a host or arrived from one, with its link as its flow",
    columns(
        "packet host step time_ns flow seq len_bytes", flow="number of the link", len_bytes="length of the payload"
    ),
    _DATAGRAMS,
    needs=("link_passages", "flow_links"),
    temporary=True,
)
transfers("link_datagrams", "link_datagrams")

# SYNs have no payload: they are searched for among all packets, by the flow on the wire.
_TCP_PACKETS: Final = f"""
    SELECT e.link AS flow, coalesce(c.connection, 0) AS connection, {SLICE} AS slice, e.packet, e.step, e.time_ns,
           e.started, e.seq, e.payload
    FROM link_passages e JOIN flow_links l ON l.link = e.link
    LEFT JOIN wire_connections c ON c.flow = l.flow AND e.time_ns >= c.from_ns AND e.time_ns < c.until_ns
    WHERE e.protocol = {TCP}"""
_TCP_RANGES: Final = f"""
    SELECT e.flow, e.connection, e.packet, e.step, e.time_ns, e.started, {place("e.seq")} AS start_byte,
           {place("e.seq")} + e.payload AS end_byte
    FROM link_tcp_packets e JOIN link_tcp_anchors a
         ON a.flow = e.flow AND a.connection = e.connection AND a.slice = e.slice"""


# Ranges of bytes that left more often than they arrived.
_SHORTFALLS: Final = """
    SELECT flow, connection, byte AS start_byte, next_byte AS end_byte, CAST(surplus AS BIGINT) AS surplus
    FROM (SELECT flow, connection, byte, lead(byte) OVER own AS next_byte,
                 sum(step) OVER (PARTITION BY flow, connection ORDER BY byte ROWS UNBOUNDED PRECEDING) AS surplus
          FROM (SELECT flow, connection, byte, sum(step) AS step FROM (
                    SELECT flow, connection, start_byte AS byte, step FROM link_tcp_ranges
                    UNION ALL SELECT flow, connection, end_byte, -step FROM link_tcp_ranges) edges
                GROUP BY flow, connection, byte) summed
          WINDOW own AS (PARTITION BY flow, connection ORDER BY byte)) swept
    WHERE surplus > 0 AND next_byte > byte"""

_MISSED: Final = f"""
    SELECT flow, connection, packet, sum(len_bytes) AS missed_bytes
    FROM (SELECT c.flow, c.connection, c.packet, p.len_bytes, p.surplus,
                 row_number() OVER (PARTITION BY p.flow, p.connection, p.byte ORDER BY c.time_ns, c.packet) AS nth
          FROM shortfall_bytes p JOIN left_cells c ON {holds("c", "p")}) held
    WHERE nth <= surplus GROUP BY flow, connection, packet"""

# Most connections retransmit nothing: only if more bytes left than exist, the retransmissions are determined.
_REPEATING: Final = """
    SELECT flow, connection FROM left_ranges GROUP BY flow, connection
    HAVING sum(end_byte - start_byte) > max(end_byte) - min(start_byte)"""

_TCP_DEPARTURES: Final = """
    SELECT l.flow AS link, l.time_ns AS left_ns, l.end_byte - l.start_byte AS payload,
           coalesce(r.again, FALSE) AS again,
           CAST(coalesce(m.missed_bytes, 0) AS BIGINT) AS missed_bytes
    FROM left_ranges l
    LEFT JOIN repeated_packets r ON r.flow = l.flow AND r.connection = l.connection AND r.packet = l.packet
    LEFT JOIN missed_packets m ON m.flow = l.flow AND m.connection = l.connection AND m.packet = l.packet"""
_OF_REPEATING: Final = (
    f"SELECT l.* FROM left_ranges l JOIN ({_REPEATING}) r ON r.flow = l.flow AND r.connection = l.connection"
)


@relation(
    "wire_connections",
    "a TCP connection on the wire, beginning with its SYN",
    columns(
        "flow from_ns connection until_ns syn_seq",
        from_ns="when its SYN was first seen",
        until_ns="when the SYN of the next connection was first seen; 2^63 - 1: none",
        syn_seq="its number: the first byte has the next one",
    ),
    temporary=True,
)
def _wire_connections(context: Context) -> str:
    return connections(points(context.trace), "packets")


fixed(
    "link_tcp_packets",
    "a TCP packet that left for a host or arrived from one",
    columns("flow connection slice packet step time_ns started seq payload"),
    _TCP_PACKETS,
    needs=("link_passages", "flow_links", "wire_connections"),
    temporary=True,
)
fixed(
    "link_tcp_anchors",
    "a slice of time of a connection on a link, with the offset of one byte in it",
    columns(
        "flow connection slice seq place",
        flow="number of the link",
        seq="sequence number of the byte",
        place=("byte", "its offset in the connection"),
    ),
    anchors(f"SELECT {ANCHORED} FROM link_tcp_packets"),
    needs=("link_tcp_packets",),
    temporary=True,
)
_RANGE: Final = columns("flow connection packet step time_ns started start_byte end_byte", flow="number of the link")
fixed(
    "link_tcp_ranges",
    "the range of bytes of a packet that left for a host or arrived from one",
    _RANGE,
    _TCP_RANGES,
    needs=("link_tcp_packets", "link_tcp_anchors"),
    temporary=True,
)
fixed(
    "link_tcp_shortfalls",
    "a range of bytes that left more often than it arrived",
    columns("flow connection start_byte end_byte surplus"),
    _SHORTFALLS,
    needs=("link_tcp_ranges",),
    temporary=True,
)
for _way, _step in (("left", 1), ("came", -1)):
    fixed(
        f"{_way}_ranges",
        f"a range of bytes that {'left' if _step > 0 else 'arrived'}",
        _RANGE,
        f"SELECT * FROM link_tcp_ranges WHERE step = {_step}",
        needs=("link_tcp_ranges",),
        temporary=True,
    )
    cells(_way, f"{_way}_ranges", _RANGE)
fixed(
    "left_again_bytes",
    "the last byte of a packet in a connection with retransmissions, with a cell width to search",
    columns("flow connection packet time_ns byte width cell"),
    probes("left", f"SELECT flow, connection, packet, time_ns, end_byte - 1 AS byte FROM ({_OF_REPEATING}) l"),
    needs=("left_ranges", "left_widths"),
    temporary=True,
)
fixed(
    "repeated_packets",
    "a packet whose last byte was also sent in another one",
    columns("flow connection packet again"),
    "SELECT p.flow, p.connection, p.packet, bool_or(c.time_ns < p.time_ns) AS again FROM left_again_bytes p"
    f" JOIN left_cells c ON {holds('c', 'p')} AND c.packet <> p.packet GROUP BY 1, 2, 3",
    needs=("left_again_bytes", "left_cells"),
    temporary=True,
)
fixed(
    "shortfall_bytes",
    "the first byte of a range that left more often than it arrived, with a cell width to search",
    columns("flow connection byte len_bytes surplus width cell"),
    probes(
        "left",
        "SELECT flow, connection, start_byte AS byte, end_byte - start_byte AS len_bytes, surplus"
        " FROM link_tcp_shortfalls",
    ),
    needs=("link_tcp_shortfalls", "left_widths"),
    temporary=True,
)
fixed(
    "missed_packets",
    "a packet of which some bytes did not arrive",
    columns("flow connection packet missed_bytes"),
    _MISSED,
    needs=("shortfall_bytes", "left_cells"),
    temporary=True,
)
fixed(
    "last_left_bytes",
    "the last byte of a packet that left, with a cell width to search",
    columns("flow connection packet time_ns started byte width cell"),
    probes("came", "SELECT flow, connection, packet, time_ns, started, end_byte - 1 AS byte FROM left_ranges"),
    needs=("left_ranges", "came_widths"),
    temporary=True,
)
fixed(
    "first_arrivals",
    "a packet that left, with the first arrival of its last byte",
    columns("flow connection packet left_ns came_ns started", came_ns="arrival time of its last byte"),
    "SELECT p.flow, p.connection, p.packet, min(p.time_ns) AS left_ns, min(c.time_ns) AS came_ns,"
    f" bool_or(p.started) AS started FROM last_left_bytes p JOIN came_cells c ON {holds('c', 'p')} GROUP BY 1, 2, 3",
    needs=("last_left_bytes", "came_cells"),
    temporary=True,
)
fixed(
    "tcp_crossings",
    "a TCP packet that arrived with its last byte",
    columns("link left_ns came_ns started", came_ns="arrival time of its last byte"),
    "SELECT c.flow AS link, c.left_ns, c.came_ns, c.started FROM first_arrivals c"
    " WHERE NOT EXISTS (SELECT 1 FROM repeated_packets r WHERE r.packet = c.packet AND r.flow = c.flow)",
    needs=("first_arrivals", "repeated_packets"),
    temporary=True,
)
fixed(
    "tcp_departures",
    "a TCP packet that left for a host",
    columns("link left_ns payload again missed_bytes"),
    _TCP_DEPARTURES,
    needs=("left_ranges", "repeated_packets", "missed_packets"),
    temporary=True,
)

_CROSSINGS: Final = f"""
    SELECT c.link, c.left_ns, c.came_ns, c.started, coalesce(s.bound_ns, 0) + coalesce(r.bound_ns, 0) AS bound_ns
    FROM (SELECT link, left_ns, came_ns, started FROM tcp_crossings
          UNION ALL
          SELECT k.flow, k.left_ns, k.came_ns, p.started FROM link_datagrams_transfers k
          JOIN link_passages p ON p.packet = k.packet AND p.link = k.flow AND p.step = 1 WHERE k.state = 'came') c
    JOIN flow_links l ON l.link = c.link
    {bound_join("s", "l.from_host", "c.left_ns")} {bound_join("r", "l.to_host", "c.came_ns")}
    WHERE {{window}}"""

_DEPARTURES: Final = """
    SELECT e.link, e.left_ns, e.payload, e.again, e.missed AND u.link IS NULL AS lost,
           CASE WHEN e.missed AND u.link IS NULL THEN e.missed_bytes ELSE 0 END AS lost_bytes,
           e.missed AND u.link IS NOT NULL AS unsure
    FROM {departures} e
    LEFT JOIN (SELECT DISTINCT m.link, m.left_ns FROM {departures} m JOIN flow_links l ON l.link = m.link
               JOIN unobserved_spans s ON s.host = l.to_host AND m.left_ns >= s.from_ns AND m.left_ns < s.until_ns
               WHERE m.missed) u ON u.link = e.link AND u.left_ns = e.left_ns
    WHERE {window}"""
_ALL_DEPARTURES: Final = """(
        SELECT link, left_ns, payload, again, missed_bytes > 0 AS missed, missed_bytes FROM tcp_departures
        UNION ALL
        SELECT k.flow, k.left_ns, p.payload, FALSE, k.state = 'lost' OR (k.state = 'unsure' AND k.short), p.payload
        FROM link_datagrams_transfers k
        JOIN link_passages p ON p.packet = k.packet AND p.link = k.flow AND p.step = 1)"""


@relation(
    "link_crossings",
    "a packet identified both where it left and where it arrived",
    columns(
        "link left_ns came_ns started bound_ns",
        came_ns="arrival time",
        bound_ns="maximum error of the time in transit",
    ),
    needs=("tcp_crossings", "link_datagrams_transfers", "link_passages", "flow_links", "clock_bounds"),
    parameters=("selection",),
)
def _link_crossings(context: Context) -> str:
    return _CROSSINGS.format(window=context.selection.window(context.trace, "c.left_ns"))


@relation(
    "link_departures",
    "a packet that left for a host, and whether it arrived",
    columns("link left_ns payload again lost lost_bytes unsure"),
    needs=("tcp_departures", "link_datagrams_transfers", "link_passages", "flow_links", "unobserved_spans"),
    parameters=("selection",),
)
def _link_departures(context: Context) -> str:
    window = context.selection.window(context.trace, "e.left_ns")
    return _DEPARTURES.format(departures=_ALL_DEPARTURES, window=window)
