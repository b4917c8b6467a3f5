# SPDX-License-Identifier: Apache-2.0
"""Whose packets were ahead in a queue, and what else kept packets on their way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.model.cause import BY_NAME
from hopscope.term.format import part, plural, time
from hopscope.trace.packets.continues import PLACE
from hopscope.verbs.explain.suspects import OF, Found, flow_name, fullest_queue, largest

if TYPE_CHECKING:
    from hopscope.store.trace import Trace


def shaper(trace: Trace, cause: str) -> Found:
    """Return the queueing discipline."""
    device, kind = fullest_queue(trace, cause)
    return Found(
        f"the queueing discipline {kind} of {device} delayed packets on purpose",
        f"{kind} on {device}",
        advice=f"tc -s qdisc show dev {device}   (in its network namespace)",
    )


def others(trace: Trace, cause: str) -> Found:
    """Return the flow that was ahead with most bytes."""
    device, kind = fullest_queue(trace, cause)
    rows = trace.rows(
        f"SELECT d.flow, sum(p.len_bytes) FROM explained e JOIN queue_shares q ON q.message = e.message"
        f" JOIN queue_departures d ON d.place = q.place AND d.time_ns > q.from_ns AND d.time_ns < q.until_ns"
        f" AND d.flow <> q.flow JOIN (SELECT {PLACE} AS place, time_ns, len_bytes FROM packets) p"
        " ON p.place = d.place AND p.time_ns = d.time_ns GROUP BY 1 ORDER BY 2 DESC LIMIT 5"
    )
    if not rows:
        return Found(f"packets of other flows were ahead in the queue of {device}", confidence="medium")
    whole = sum(each[1] for each in rows)
    first = flow_name(trace, rows[0][0])
    return Found(
        f"packets of other flows were ahead in the queue of {device} ({kind or 'unknown queueing discipline'}), most of"
        f" them of {first}",
        first,
        (f"{first} had {part(rows[0][1] / whole)} of the bytes that left meanwhile, of {plural(len(rows), 'flow')}",),
        advice=f"tc -s qdisc show dev {device}   (fq_codel or fq give each flow its turn)",
    )


def own(trace: Trace, cause: str) -> Found:
    """Return the flow."""
    device, kind = fullest_queue(trace, cause)
    flow = largest(trace, cause, "flow")
    return Found(
        f"earlier packets of the same flow were in the queue of {device} ({kind or 'unknown queueing discipline'})",
        flow_name(trace, flow),
    )


# What a stream waits for was lost a little before what waits for it was sent.
_BEFORE_NS: Final = 1_000_000_000
# Reasons of TCP for what it drops because it has it: nobody waits for that (enum skb_drop_reason).
_HAD: Final = "'TCP_OLD_DATA', 'TCP_OLD_SEQUENCE', 'TCP_OLD_ACK', 'TCP_OFOMERGE'"


def lost(trace: Trace, cause: str) -> Found:
    """Return where and why packets were dropped."""
    held = BY_NAME[cause].column
    rows = trace.rows(
        "SELECT coalesce(r.name, CAST(d.reason AS STRING)), coalesce(s.name, ''), count(DISTINCT d.time_ns)"
        " FROM drops d"
        f" JOIN (SELECT m.flow, m.begins_ns, coalesce(m.order_ns, m.resent_ns, m.ends_ns) AS until_ns FROM {OF}"
        f" WHERE c.{held} > 0) h ON h.flow = d.flow AND d.time_ns >= h.begins_ns - {_BEFORE_NS}"
        " AND d.time_ns < h.until_ns"
        " LEFT JOIN reasons r ON r.reason = d.reason"
        " LEFT JOIN drop_places s ON s.address = d.location"
        f" WHERE coalesce(r.name, '') NOT IN ({_HAD})"
        " GROUP BY 1, 2 ORDER BY 3 DESC, 1 LIMIT 1"
    )
    again = int(trace.rows(f"SELECT coalesce(sum(m.retransmits), 0) FROM {OF} WHERE c.{held} > 0")[0][0])
    what = "lost bytes had to be sent again" if cause == "retransmission" else "earlier bytes of the stream were lost"
    evidence = (f"{plural(again, 'retransmission')} of these messages",) if again else ()
    if not rows:
        return Found(f"{what}; where they were lost was not seen on this host", "the network", evidence, "medium",
                     "sudo hopscope drops; ethtool -S DEVICE   (drops of the kernel, and of the NIC)")  # fmt: skip
    reason, place, count = rows[0]
    where = f" in {place}" if place else ""
    return Found(
        f"{what}: packets were dropped on this host ({reason}{where})",
        f"{reason}{where}",
        (*evidence, f"{plural(int(count), 'packet')} of these flows dropped for this reason"),
        advice="sudo hopscope drops   (where, and by which rule)",
    )


def neighbour(trace: Trace, cause: str) -> Found:
    """Return whose address was looked for."""
    flow = largest(trace, cause, "flow")
    devices = trace.rows(
        f"SELECT d.name, count(*) FROM packets p JOIN points n ON n.point = p.point AND n.name = 'tx.neighbour' JOIN"
        f" device_names d ON d.ifindex = p.ifindex AND d.netns = p.netns WHERE p.flow = {flow or 0} GROUP BY 1"
        " ORDER BY 2 DESC"
    )
    device = f" on {devices[0][0]}" if devices else ""
    rows = trace.rows(f"SELECT destination FROM flow_names WHERE flow = {flow}") if flow is not None else []
    address = str(rows[0][0]) if rows else "the destination"
    return Found(
        f"the link-layer address of the next hop to {address}{device} was being resolved (ARP or neighbour discovery)",
        f"{address}{device}",
        advice=f"ip route get {address}; ip neigh   (state of the neighbour)",
    )


# By number, enum nf_inet_hooks, as nft names them.
_HOOKS: Final = ("prerouting", "input", "forward", "output", "postrouting")


def netfilter(trace: Trace, cause: str) -> Found:
    """Return the hook with the rules."""
    held = BY_NAME[cause].column
    rows = trace.rows(
        "SELECT e.extra % 256, min(d.name), count(*), CAST(sum(e.value) / count(*) AS BIGINT)"
        " FROM cpu e JOIN points n ON n.point = e.point AND n.name = 'nf.rules'"
        " LEFT JOIN final_translations t ON t.flow = e.subject AND e.time_ns >= t.from_ns AND e.time_ns < t.until_ns"
        " LEFT JOIN device_names d ON d.ifindex = e.ifindex AND d.netns = e.netns"
        f" WHERE coalesce(t.original, e.subject) IN (SELECT m.flow FROM {OF} WHERE c.{held} > 0)"
        " GROUP BY 1 ORDER BY sum(e.value) DESC, 1 LIMIT 1"
    )
    if not rows:
        return Found("netfilter's rules were evaluated", confidence="medium")
    number, device, count, mean_ns = rows[0]
    hook = _HOOKS[number] if number < len(_HOOKS) else f"hook {number}"
    at = f"{hook} on {device}" if device else hook
    return Found(
        f"netfilter's rules at the hook {at} were evaluated for each packet",
        at,
        (f"{plural(int(count), 'packet')} of these flows, {time(int(mean_ns))} each on average",),
        advice="nft -a list ruleset; iptables -L -v   (sets and maps take the place of many rules)",
    )
