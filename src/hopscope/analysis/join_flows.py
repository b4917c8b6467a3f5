# SPDX-License-Identifier: Apache-2.0
"""Flows of several hosts: which are between them, and have one number on all of them, and which only look alike.

A flow's number is a hash of its addresses and ports. What one host talks to itself about (127.0.0.1, two sockets of one
host) may have the same number on another host, and is another flow.
"""

from __future__ import annotations

from collections import Counter
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from hopscope.store.trace import Trace

# Both ends are sockets of this host: what one writes, another one here reads.
_BOTH_ENDS: Final = """
    SELECT flow FROM sockets s JOIN points p ON p.point = s.point
    WHERE flow <> 0 AND p.name IN ('tx.send', 'tx.sent', 'rx.read', 'rx.received')
    GROUP BY flow
    HAVING count(CASE WHEN p.name LIKE 'tx.%' THEN 1 END) > 0 AND count(CASE WHEN p.name LIKE 'rx.%' THEN 1 END) > 0"""
_LOOPBACK: Final = "SELECT flow FROM flows WHERE source = destination OR source LIKE '127.%' OR source = '::1'"


def local_flows(trace: Trace) -> set[int]:
    """Return the flows of a trace whose two ends are on its host."""
    return {int(flow) for (flow,) in trace.rows(f"{_BOTH_ENDS} UNION {_LOOPBACK}")}


def all_flows(trace: Trace) -> set[int]:
    """Return the flows of a trace."""
    return {int(flow) for flow in trace.columns("SELECT flow FROM flows")["flow"].tolist()}


def own_numbers(flows: Sequence[Collection[int]], local: Sequence[Collection[int]]) -> list[dict[int, int]]:
    """Return new numbers for flows that are local to a host while another host has one of the same number.

    Parameters
    ----------
    flows, local
        Of each host: all, and those of them that are local.
    """
    hosts_of = Counter(flow for each in flows for flow in each)
    return [{flow: _own(flow, host) for flow in ours if hosts_of[flow] > 1} for host, ours in enumerate(local)]


def _own(flow: int, host: int) -> int:
    digest = blake2b(f"{flow} of {host}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)
