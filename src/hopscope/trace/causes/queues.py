# SPDX-License-Identifier: Apache-2.0
"""Whose packets left a queueing discipline while a message waited in it.

A device sends one packet after the other. The time from one departure to the next is spent on the packet that leaves
at its end. While a message waits, it waits for packets of other flows, for earlier ones of its own flow, and, after the
last of them, for its own departure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.store.engine import last_known
from hopscope.trace.messages.segments import number
from hopscope.trace.names import points
from hopscope.trace.packets.continues import PLACE
from hopscope.trace.relation import columns, fixed, relation

if TYPE_CHECKING:
    from hopscope.trace.relation import Context

# Queueing disciplines that keep packets until there are tokens for them; others send as soon as the driver takes one.
SHAPERS: Final = ("tbf", "htb", "hfsc", "cake", "cbs")
# Those that give each packet a departure time of its own, whatever is ahead of it.
DELAYS: Final = ("netem", "etf", "taprio")
# It keeps a flow's packets until the departure time that TCP's pacing gives them.
PACED: Final = ("fq",)


@relation(
    "queue_departures",
    "a packet leaves a queueing discipline",
    columns(
        "place time_ns flow before_ns",
        before_ns="when the packet before it left the device's queueing discipline; NULL: none",
    ),
    needs=("original_packets",),
)
def _queue_departures(context: Context) -> str:
    numbers = points(context.trace)
    queue, dequeue = (number(numbers, name) for name in ("tx.queue", "tx.dequeue"))
    flow = f"CASE WHEN point = {queue} OR flow <> 0 THEN flow END"
    return f"""
        SELECT place, time_ns, flow, lag(time_ns) OVER (PARTITION BY place ORDER BY time_ns) AS before_ns
        FROM (SELECT {PLACE} AS place, time_ns, point,
                     {last_known(flow)} OVER (PARTITION BY skb ORDER BY time_ns ROWS UNBOUNDED PRECEDING) AS flow
              FROM original_packets WHERE point IN ({queue}, {dequeue})) known
        WHERE point = {dequeue}"""


fixed(
    "queue_waits",
    "a message in a queueing discipline",
    columns(
        "message flow place from_ns until_ns own_from_ns",
        from_ns="when it entered",
        until_ns="when it left",
        own_from_ns="when the packet before it left, or it entered: from then on it waited for its own departure",
    ),
    """
    SELECT m.message, m.flow, max(d.place) AS place, m.enqueue_ns AS from_ns, m.dequeue_ns AS until_ns,
           greatest(m.enqueue_ns, coalesce(max_by(d.before_ns, d.place), m.enqueue_ns)) AS own_from_ns
    FROM messages m JOIN queue_departures d ON d.time_ns = m.dequeue_ns AND d.flow = m.flow
    WHERE m.enqueue_ns IS NOT NULL
    GROUP BY m.message, m.flow, m.enqueue_ns, m.dequeue_ns""",
    needs=("messages", "queue_departures"),
    temporary=True,
)

# How long the device was busy with packets of a flow up to each departure, and whose packet leaves next.
_SERVED: Final = """
    SELECT place, flow, time_ns, before_ns,
           sum(time_ns - coalesce(before_ns, time_ns)) OVER (PARTITION BY place, flow ORDER BY time_ns
               ROWS UNBOUNDED PRECEDING) AS served_ns
    FROM queue_departures"""
_AT_ENTRY: Final = f"""
    SELECT message, {last_known("served_ns")} OVER (PARTITION BY place, flow ORDER BY time_ns, entry
               ROWS UNBOUNDED PRECEDING) AS served_ns
    FROM (SELECT CAST(NULL AS BIGINT) AS message, place, flow, time_ns, served_ns, 0 AS entry FROM queue_served
          UNION ALL SELECT message, place, flow, from_ns, NULL, 1 FROM queue_waits) both_kinds"""
_NEXT: Final = f"""
    SELECT message, {last_known("left_ns")} OVER (PARTITION BY place ORDER BY time_ns DESC, entry
               ROWS UNBOUNDED PRECEDING) AS next_ns
    FROM (SELECT CAST(NULL AS BIGINT) AS message, place, time_ns, time_ns AS left_ns, 0 AS entry FROM queue_departures
          UNION ALL SELECT message, place, from_ns, NULL, 1 FROM queue_waits) both_kinds"""
_KINDS: Final = f"""
    SELECT message, {last_known("kind")} OVER (PARTITION BY place ORDER BY time_ns, entry
               ROWS UNBOUNDED PRECEDING) AS kind
    FROM (SELECT CAST(NULL AS BIGINT) AS message, {PLACE} AS place, time_ns, kind, 0 AS entry FROM qdiscs
          UNION ALL SELECT message, place, from_ns, NULL, 1 FROM queue_waits) both_kinds"""
fixed(
    "queue_served",
    "a packet leaves a queueing discipline, with the time that the device spent on packets of its flow until then",
    columns("place flow time_ns before_ns served_ns", before_ns="when the packet before it left; NULL: none",
            served_ns="time spent on packets of the flow"),
    _SERVED,
    needs=("queue_departures",),
    temporary=True,
)  # fmt: skip
fixed(
    "queue_shares",
    "a message in a queueing discipline, and whose packets left meanwhile",
    columns(
        "message flow place kind from_ns until_ns last_ns own_ns others_ns",
        kind="kind of the queueing discipline; NULL: not recorded",
        from_ns="when it entered",
        until_ns="when it left",
        last_ns="time for which no other packet left any more",
        own_ns="time for packets of its own flow before it",
        others_ns="time for packets of other flows",
    ),
    f"""
    SELECT message, flow, place, kind, from_ns, until_ns, until_ns - own_from_ns AS last_ns, own_ns,
           own_from_ns - from_ns - own_ns AS others_ns
    FROM (SELECT w.*, coalesce(k.kind, d.kind) AS kind,
                 greatest(0, least(own_from_ns - from_ns,
                     u.served_ns - coalesce(e.served_ns, 0) - (until_ns - coalesce(u.before_ns, until_ns))
                     - CASE WHEN s.flow = w.flow AND n.next_ns < w.until_ns
                            THEN coalesce(from_ns - s.before_ns, 0) ELSE 0 END)) AS own_ns
          FROM queue_waits w
          JOIN queue_served u ON u.place = w.place AND u.flow = w.flow AND u.time_ns = w.until_ns
          LEFT JOIN (SELECT * FROM ({_AT_ENTRY}) a WHERE message IS NOT NULL) e ON e.message = w.message
          LEFT JOIN (SELECT * FROM ({_NEXT}) b WHERE message IS NOT NULL) n ON n.message = w.message
          LEFT JOIN queue_served s ON s.place = w.place AND s.time_ns = n.next_ns
          LEFT JOIN (SELECT * FROM ({_KINDS}) c WHERE message IS NOT NULL) k ON k.message = w.message
          LEFT JOIN device_queues d ON d.place = w.place) shares""",
    needs=("queue_waits", "queue_served", "queue_departures", "device_queues"),
)


@relation(
    "device_queues",
    "the root queueing discipline of a device, as the settings of the recording have it",
    columns("place name kind", kind="its kind, such as `fq_codel`; NULL: not recorded (`record --counters`)"),
    needs=("device_names",),
)
def _device_queues(context: Context) -> str:  # noqa: ARG001 # a relation's query has it
    return f"""
        SELECT d.place, d.name, s.kind FROM (SELECT {PLACE} AS place, netns, name FROM device_names) d
        LEFT JOIN (SELECT netns, subject, max_by(value, time_ns) AS kind FROM settings
                   WHERE source = 'link_setting' AND name = 'qdisc' AND present = 1 GROUP BY netns, subject) s
               ON s.netns = d.netns AND s.subject = d.name"""
