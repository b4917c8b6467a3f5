# SPDX-License-Identifier: Apache-2.0
"""What some kinds of queueing disciplines count beside what all count, as data.

Each is a struct of include/uapi/linux/pkt_sched.h that newer kernels only ever lengthened. Kinds that send attributes
instead (cake) or figures of the moment alone (sfq) are not among them.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

# Names by width: u and s are 32 bits, U and S are 64.
_LAYOUTS: Final = {
    "choke": "u:early u:pdrop u:other u:marked u:matched",
    "codel": "u:maxpacket u:count u:lastcount u:ldelay s:drop_next u:drop_overlimit u:ecn_mark u:dropping u:ce_mark",
    "fq": "U:gc_flows U:highprio_packets U:tcp_retrans U:throttled U:flows_plimit U:pkts_too_long U:allocation_errors "
    "S:time_next_delayed_flow u:flows u:inactive_flows u:throttled_flows u:unthrottle_latency_ns U:ce_mark "
    "U:horizon_drops U:horizon_caps U:fastpath_packets U:band0_drops U:band1_drops U:band2_drops "
    "u:band0_pkt_count u:band1_pkt_count u:band2_pkt_count",
    # The first tells a qdisc (0) from a class.
    "fq_codel": "u: u:maxpacket u:drop_overlimit u:ecn_mark u:new_flow_count u:new_flows_len u:old_flows_len "
    "u:ce_mark u:memory_usage u:drop_overmemory",
    "fq_pie": "u:packets_in u:dropped u:overlimit u:overmemory u:ecn_mark u:new_flow_count u:new_flows_len "
    "u:old_flows_len u:memory_usage",
    "hhf": "u:drop_overlimit u:hh_overlimit u:hh_tot_count u:hh_cur_count",
    "htb": "u:lends u:borrows u:giants s:tokens s:ctokens",
    "pie": "U:prob u:delay u:avg_dq_rate u:dq_rate_estimating u:packets_in u:dropped u:overlimit u:maxq u:ecn_mark",
    "red": "u:early u:pdrop u:other u:marked",
    "sfb": "u:earlydrop u:penaltydrop u:bucketdrop u:queuedrop u:childdrop u:marked u:maxqlen u:maxprob u:avgprob",
}
_WIDTHS: Final = {
    "u": struct.Struct("=I"),
    "s": struct.Struct("=i"),
    "U": struct.Struct("=Q"),
    "S": struct.Struct("=q"),
}


def own_figures(kind: str, data: bytes) -> Iterator[tuple[str, int]]:
    """Yield what a kind counts, as much of it as the kernel has and we know."""
    at = 0
    for field in _LAYOUTS.get(kind, "").split():
        width, _, name = field.partition(":")
        reader = _WIDTHS[width]
        if at + reader.size > len(data):
            return
        if name:
            yield name, reader.unpack_from(data, at)[0]
        at += reader.size
