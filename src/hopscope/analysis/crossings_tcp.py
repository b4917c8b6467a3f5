# SPDX-License-Identifier: Apache-2.0
"""TCP from host to host, by its bytes: packets are cut and merged on the way, bytes are not.

A byte that left n times and came m times was lost n - m times; of several packets that had it, the earlier ones are
taken to be the lost ones, as others followed them. When a packet came is when its last byte did, if it left only once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.analysis.messages_join import holds, make_cells, make_probes
from hopscope.analysis.messages_segments import ANCHORED, SLICE, TCP, anchors, connections, place
from hopscope.analysis.names import points

if TYPE_CHECKING:
    from hopscope.store.trace import Trace

_SCRATCH: Final = (
    "tcp_passages", "tcp_ranges", "uneven", "came_ranges", "came_cells", "came_cells_widths", "left_ranges",
    "left_cells", "left_cells_widths", "last_left", "first_uneven", "sent_before", "came_first",
)  # fmt: skip

# SYNs have no payload: they are looked for among all packets, by the flow on the wire.
_PASSAGES: Final = f"""
    SELECT e.leg AS flow, coalesce(c.connection, 0) AS connection, {SLICE} AS slice, e.packet, e.step, e.time_ns,
           e.started, e.seq, e.payload
    FROM passages e JOIN legs l ON l.leg = e.leg
    LEFT JOIN wire_connections c ON c.flow = l.flow AND e.time_ns >= c.from_ns AND e.time_ns < c.until_ns
    WHERE e.protocol = {TCP}"""
_RANGES: Final = f"""
    SELECT e.flow, e.connection, e.packet, e.step, e.time_ns, e.started, {place("e.seq")} AS start_byte,
           {place("e.seq")} + e.payload AS end_byte
    FROM tcp_passages e JOIN wire_anchors a
         ON a.flow = e.flow AND a.connection = e.connection AND a.slice = e.slice"""

# Ranges of bytes that left more often than they came.
_UNEVEN: Final = """
    SELECT flow, connection, byte AS start_byte, next_byte AS end_byte, CAST(surplus AS BIGINT) AS surplus
    FROM (SELECT flow, connection, byte, lead(byte) OVER own AS next_byte,
                 sum(step) OVER (PARTITION BY flow, connection ORDER BY byte ROWS UNBOUNDED PRECEDING) AS surplus
          FROM (SELECT flow, connection, byte, sum(step) AS step FROM (
                    SELECT flow, connection, start_byte AS byte, step FROM tcp_ranges
                    UNION ALL SELECT flow, connection, end_byte, -step FROM tcp_ranges) edges
                GROUP BY flow, connection, byte) summed
          WINDOW own AS (PARTITION BY flow, connection ORDER BY byte)) swept
    WHERE surplus > 0 AND next_byte > byte"""

_MISSED: Final = f"""
    SELECT flow, connection, packet, sum(len_bytes) AS missed_bytes
    FROM (SELECT c.flow, c.connection, c.packet, p.len_bytes, p.surplus,
                 row_number() OVER (PARTITION BY p.flow, p.connection, p.byte ORDER BY c.time_ns, c.packet) AS nth
          FROM first_uneven p JOIN left_cells c ON {holds("c", "p")}) held
    WHERE nth <= surplus GROUP BY flow, connection, packet"""


def make_tcp_crossings(trace: Trace) -> None:
    """Make the tables ``tcp_crossings`` and ``tcp_sent`` of ``passages`` and ``legs``."""
    trace.make_table("wire_connections", connections(points(trace), "packets"))
    trace.make_table("tcp_passages", _PASSAGES)
    trace.make_table("wire_anchors", anchors(f"SELECT {ANCHORED} FROM tcp_passages"))
    trace.make_table("tcp_ranges", _RANGES)
    trace.make_table("uneven", _UNEVEN)
    for name, step in (("left", 1), ("came", -1)):
        trace.make_table(f"{name}_ranges", f"SELECT * FROM tcp_ranges WHERE step = {step}")
        make_cells(trace, f"{name}_cells", f"{name}_ranges")
    _find_repeated(trace)
    _find_missed(trace)
    last = "SELECT flow, connection, packet, time_ns, started, end_byte - 1 AS byte FROM left_ranges"
    make_probes(trace, "last_left", "came_cells", last)
    trace.make_table(
        "came_first",
        "SELECT p.flow, p.connection, p.packet, min(p.time_ns) AS left_ns, min(c.time_ns) AS came_ns,"
        f" bool_or(p.started) AS started FROM last_left p JOIN came_cells c ON {holds('c', 'p')} GROUP BY 1, 2, 3",
    )
    trace.make_table(
        "tcp_crossings",
        "SELECT c.flow AS leg, c.left_ns, c.came_ns, c.started FROM came_first c"
        " WHERE NOT EXISTS (SELECT 1 FROM repeated r WHERE r.packet = c.packet AND r.flow = c.flow)",
    )
    trace.make_table("tcp_sent", _SENT)
    trace.drop(*_SCRATCH, "wire_connections", "wire_anchors", "repeated", "missed")


# Most connections send nothing again: only where more left than there are bytes it is looked for which.
_REPEATING: Final = """
    SELECT flow, connection FROM left_ranges GROUP BY flow, connection
    HAVING sum(end_byte - start_byte) > max(end_byte) - min(start_byte)"""


def _find_repeated(trace: Trace) -> None:
    """Make ``repeated``: packets whose last byte left in others, too; `again`: in an earlier one."""
    repeating = (
        f"SELECT l.* FROM left_ranges l JOIN ({_REPEATING}) r ON r.flow = l.flow AND r.connection = l.connection"
    )
    probes = f"SELECT flow, connection, packet, time_ns, end_byte - 1 AS byte FROM ({repeating}) l"
    make_probes(trace, "sent_before", "left_cells", probes)
    trace.make_table(
        "repeated",
        "SELECT p.flow, p.connection, p.packet, bool_or(c.time_ns < p.time_ns) AS again FROM sent_before p"
        f" JOIN left_cells c ON {holds('c', 'p')} AND c.packet <> p.packet GROUP BY 1, 2, 3",
    )


def _find_missed(trace: Trace) -> None:
    """Make ``missed``: packets of whose bytes some did not come, and how many."""
    make_probes(
        trace,
        "first_uneven",
        "left_cells",
        "SELECT flow, connection, start_byte AS byte, end_byte - start_byte AS len_bytes, surplus FROM uneven",
    )
    trace.make_table("missed", _MISSED)


_SENT: Final = """
    SELECT l.flow AS leg, l.time_ns AS left_ns, l.end_byte - l.start_byte AS payload, coalesce(r.again, FALSE) AS again,
           CAST(coalesce(m.missed_bytes, 0) AS BIGINT) AS missed_bytes
    FROM left_ranges l
    LEFT JOIN repeated r ON r.flow = l.flow AND r.connection = l.connection AND r.packet = l.packet
    LEFT JOIN missed m ON m.flow = l.flow AND m.connection = l.connection AND m.packet = l.packet"""
