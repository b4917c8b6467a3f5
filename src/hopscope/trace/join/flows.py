# SPDX-License-Identifier: Apache-2.0
"""Flows of several hosts: flows between hosts share one number, and flows that only have equal addresses do not.

The number of a flow is a hash of its addresses and ports. Local flows (127.0.0.1, two sockets of one host) may have the
same number on several hosts, as may flows of containers with equal private addresses behind NAT. A flow has one sender
and one receiver: if sockets of two hosts send it, or sockets of two hosts receive it, each host has a flow of its own.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from hashlib import blake2b
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from hopscope.trace.names import points

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from hopscope.store.trace import Trace

    # Source, its port, destination, its port, protocol.
    Key = tuple[str, int, str, int, int]

_UDP: Final = 17
_SENDS: Final = ("tx.send", "tx.sent")
_READS: Final = ("rx.read", "rx.received")
# Time within which a datagram must reach a socket of the host.
_SOON_NS: Final = 50_000_000
_EVERY_NS: Final = 1_000_000_000

# UDP sockets are often unconnected. A packet that reaches UDP is for a socket of this host; its flow is known from
# where its headers were parsed. One packet per second and flow is sufficient. As lost events may cause mismatches, the
# majority decides.
_DELIVERED: Final = f"""
    SELECT flow FROM (
        SELECT c.flow, c.time_ns, min(CASE WHEN e.point = {{l4}} THEN e.time_ns END) AS l4_ns,
               min(CASE WHEN e.flow <> 0 AND e.flow <> c.flow THEN e.time_ns END) AS other_ns
        FROM (SELECT p.flow, min_by(p.skb, p.time_ns) AS skb, min(p.time_ns) AS time_ns
              FROM packets p JOIN flows f ON f.flow = p.flow AND f.protocol = {_UDP} WHERE p.point = {{driver}}
              GROUP BY p.flow, p.time_ns - p.time_ns % {_EVERY_NS}) c
        JOIN packets e ON e.skb = c.skb AND e.time_ns > c.time_ns AND e.time_ns < c.time_ns + {_SOON_NS}
        GROUP BY c.flow, c.time_ns) seen
    GROUP BY flow HAVING 2 * count(CASE WHEN l4_ns < coalesce(other_ns, l4_ns + 1) THEN 1 END) > count(*)"""


@dataclass(slots=True)
class Seen:
    """The flows of a host.

    Attributes
    ----------
    keys
        Flow number → its addresses, ports and protocol.
    sent, received
        Flows that its sockets sent, or received.
    """

    keys: dict[int, Key] = field(default_factory=dict)
    sent: set[int] = field(default_factory=set)
    received: set[int] = field(default_factory=set)


def flows_of(parts: Iterable[Trace]) -> Seen:
    """Return the flows of the host of these traces."""
    found = Seen()
    for trace in parts:
        columns = trace.columns("SELECT flow, source, source_port, destination, destination_port, protocol FROM flows")
        flow, *key = (values.tolist() for values in columns.values())
        found.keys |= zip(flow, zip(*key, strict=True), strict=True)
        found.sent |= _of_calls(trace, _SENDS)
        found.received |= _of_calls(trace, _READS)
        number = points(trace)
        if {"rx.driver", "rx.l4"} <= number.keys():
            found.received |= _numbers(trace, _DELIVERED.format(driver=number["rx.driver"], l4=number["rx.l4"]))
    return found


def _of_calls(trace: Trace, names: Sequence[str]) -> set[int]:
    listed = ", ".join(str(points(trace).get(name, -1)) for name in names)
    return _numbers(trace, f"SELECT DISTINCT flow FROM sockets WHERE flow <> 0 AND point IN ({listed})")


def _numbers(trace: Trace, query: str) -> set[int]:
    return {int(flow) for (flow,) in trace.rows(query)}


def own_numbers(seen: Sequence[Seen]) -> list[dict[int, int]]:
    """Return new numbers for flows of a host that differ from flows of other hosts with the same number.

    A flow and its reverse are treated alike. `seen`: the flows of each host.
    """
    known = {key: flow for each in seen for flow, key in each.keys.items()}
    addressed = {flow: key[2] for key, flow in known.items()}
    # The end that receives the reverse flow is the sender.
    begins = [each.sent | _backwards(each.received, each, known) for each in seen]
    ends = [each.received | _backwards(each.sent, each, known) for each in seen]
    local = [
        (first & last) | {flow for flow, key in each.keys.items() if _is_loopback(key)}
        for each, first, last in zip(seen, begins, ends, strict=True)
    ]
    own = [set(inside) for inside in local]
    for side in (begins, ends):
        claimed = [flows - inside for flows, inside in zip(side, local, strict=True)]
        claims = Counter(flow for flows in claimed for flow in flows)
        for flows, found in zip(claimed, own, strict=True):
            found |= {
                flow for flow in flows if claims[flow] > 1 and flow in addressed and not _is_for_many(addressed[flow])
            }
    hosts_of = Counter(flow for each in seen for flow in each.keys.keys() | _backwards(each.keys, each, known))
    return [
        {flow: _own(flow, host) for flow in flows if hosts_of[flow] > 1 and flow in seen[host].keys}
        for host, flows in enumerate(own)
    ]


def _backwards(flows: Collection[int], seen: Seen, known: dict[Key, int]) -> set[int]:
    """Return the reverse flows of these."""
    found = set()
    for flow in flows:
        if flow in seen.keys:
            source, source_port, destination, destination_port, protocol = seen.keys[flow]
            back = known.get((destination, destination_port, source, source_port, protocol))
            if back is not None:
                found.add(back)
    return found


def _is_loopback(key: Key) -> bool:
    return key[0] == key[2] or key[0].startswith("127.") or key[0] == "::1"


def _is_for_many(destination: str) -> bool:
    try:
        address = ip_address(destination)
    except ValueError:  # a recording may have anything there
        return False
    # The broadcast address of a subnet is unknown, but usually ends like this.
    return address.is_multicast or (address.version == 4 and destination.endswith(".255"))


def _own(flow: int, host: int) -> int:
    digest = blake2b(f"{flow} of {host}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)
