# SPDX-License-Identifier: Apache-2.0
"""What is known of connection tracking."""

from __future__ import annotations

from typing import Final

from hopscope.verbs.check.conditions import Fill, Rises, Shown
from hopscope.verbs.check.figures import Now, Times
from hopscope.verbs.check.findings import Entry
from hopscope.verbs.check.knowledge.beyond import beyond
from hopscope.verbs.check.knowledge.refs import Ref

_MODULE: Final = "only where the module nf_conntrack is loaded"
_COUNT: Final = Ref("conntrack", ("count",), subjects="", since=_MODULE)
_MAX: Final = Ref("conntrack", ("max",), subjects="", since=_MODULE)
_BUCKETS: Final = Ref("conntrack", ("buckets",), subjects="", since=_MODULE)
_LARGER: Final = {"larger": Times(_MAX, 2, 262144), "max": Now(_MAX)}
_FIXES: Final = (
    "sysctl -w net.netfilter.nf_conntrack_max={larger}",
    "conntrack -L | awk '{print $1, $4}' | sort | uniq -c | sort -n  # which states fill it?",
    "nft add rule inet raw prerouting tcp dport 80 notrack  # or exempt traffic that needs no tracking",
)


def _per_cpu(name: str) -> Ref:
    return Ref("conntrack", (name,), subjects="cpu *", since=_MODULE)


ENTRIES: Final = (
    Entry(
        "conntrack-full",
        "critical",
        "conntrack",
        Shown(beyond(_per_cpu("drop"), _per_cpu("insert_failed"), at_least=1), (_COUNT, _MAX)),
        "{by} [packet was|packets were] dropped because the connection tracking table was full",
        "New connections fail at random, and existing ones that were evicted from the table break. The kernel "
        "logs: nf_conntrack: table full, dropping packet.",
        _FIXES,
        "net/netfilter/nf_conntrack_core.c __nf_conntrack_alloc; Documentation/networking/nf_conntrack-sysctl.rst",
        "A table that is large enough never drops.",
        advice=_LARGER,
    ),
    Entry(
        "conntrack-early-drop",
        "warning",
        "conntrack",
        Shown(Rises(_per_cpu("early_drop")), (_COUNT, _MAX)),
        "{by} tracked [connection was|connections were] evicted early to make room for new ones",
        "The table is full. Connections that have not been answered yet are evicted first; then packets are dropped.",
        _FIXES,
        "net/netfilter/nf_conntrack_core.c early_drop; Documentation/networking/nf_conntrack-sysctl.rst",
        "A table that is large enough never has to.",
        advice=_LARGER,
    ),
    Entry(
        "conntrack-filling",
        "warning",
        "conntrack",
        Fill(_COUNT, _MAX, above=0.8),
        "The connection tracking table is {share} full: {now} of {limit} connections",
        "When it is full, new connections are dropped.",
        _FIXES,
        "net/netfilter/nf_conntrack_standalone.c nf_conntrack_count; Documentation/networking/nf_conntrack-sysctl.rst",
        "A full table costs connections; at four fifths there is time to act.",
        advice=_LARGER,
    ),
    Entry(
        "conntrack-insert-failed",
        "warning",
        "conntrack",
        Rises(_per_cpu("insert_failed"), at_least=10),
        "{by} packets were dropped because their connection could not be added to the connection tracking table",
        "Two packets of one new connection raced, or NAT found no free port. The usual case is two "
        "simultaneous DNS queries from one socket: the name is resolved only after 5 seconds.",
        (
            "conntrack -S  # insert_failed, on which CPU?",
            "conntrack -L -p udp --dport 53  # DNS? use one query at a time (single-request), or TCP",
        ),
        "net/netfilter/nf_conntrack_core.c __nf_conntrack_confirm",
        "Races of a few packets happen on any busy NAT host: below 10 in a few seconds.",
    ),
    Entry(
        "conntrack-invalid",
        "notice",
        "conntrack",
        Rises(_per_cpu("invalid"), at_least=100, per_s=100),
        "{by} packets ({per_s} a second) could not be assigned to any connection",
        "If a rule drops invalid packets, these are lost. Causes: asymmetric routes, or connections whose "
        "entry timed out.",
        ("sysctl -w net.netfilter.nf_conntrack_log_invalid=6  # logs those of TCP", "conntrack -S"),
        "net/netfilter/nf_conntrack_core.c nf_conntrack_in; nf_conntrack-sysctl.rst nf_conntrack_log_invalid",
        "The internet sends stray packets to any server; 100 a second are more than that.",
    ),
    Entry(
        "conntrack-long-chains",
        "notice",
        "conntrack",
        Fill(_COUNT, _BUCKETS, above=4.0, at_least=65536),
        "{now} tracked connections share {limit} hash buckets",
        "Each packet has to search a list of that many connections.",
        ("sysctl -w net.netfilter.nf_conntrack_buckets={buckets}",),
        "Documentation/networking/nf_conntrack-sysctl.rst nf_conntrack_buckets",
        "Up to four per bucket was the kernel's default for years.",
        advice={"buckets": Times(_BUCKETS, 4, 65536)},
    ),
)  # fmt: skip
