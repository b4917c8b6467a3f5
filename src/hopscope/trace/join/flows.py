# SPDX-License-Identifier: Apache-2.0
"""Flows of several hosts: which are between them, and have one number on all of them, and which only look alike.

A flow's number is a hash of its addresses and ports. What one host talks to itself about (127.0.0.1, two sockets of one
host) may have the same number on another host, and is another flow. So may what a container behind NAT talks about, as
a container of another host has the same private address: of one flow there is one sender and one receiver. Where two
hosts have an end that sends a flow, or two have one that receives it, nobody knows whose it is on the wire: each has
its own.
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
# Of a datagram it is looked at for so long whether it comes to a socket here.
_SOON_NS: Final = 50_000_000
_EVERY_NS: Final = 1_000_000_000

# The sockets of datagrams often leave their peer open. A packet that comes to UDP is for a socket of this host; it has
# the flow that it had when its headers were looked at. One a second of each flow will do. Where events were lost,
# another packet may seem to be it: most of them decide.
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
    """What a host knows of flows.

    Attributes
    ----------
    keys
        Each flow's number → what it is of.
    sent, received
        Those that a socket of it sent, or was given.
    """

    keys: dict[int, Key] = field(default_factory=dict)
    sent: set[int] = field(default_factory=set)
    received: set[int] = field(default_factory=set)


def flows_of(parts: Iterable[Trace]) -> Seen:
    """Return what a host knows, of which these are the traces."""
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
    """Return new numbers for flows of a host that are not those of other hosts, although they are called the same.

    What comes back in a connection is of it. `seen`: what each host knows.
    """
    known = {key: flow for each in seen for flow, key in each.keys.items()}
    addressed = {flow: key[2] for key, flow in known.items()}
    # An end that receives what comes back is the one that sends.
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
    """Return the flows that come back where these go."""
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
    address = ip_address(destination)
    # A network's own broadcast address is not known, but looks like this as a rule.
    return address.is_multicast or (address.version == 4 and destination.endswith(".255"))


def _own(flow: int, host: int) -> int:
    digest = blake2b(f"{flow} of {host}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)
