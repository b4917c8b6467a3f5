# SPDX-License-Identifier: Apache-2.0
"""What is known of neighbour tables (ARP and IPv6 neighbour discovery)."""

from __future__ import annotations

from typing import Final

from hopscope.verbs.check.conditions import Fill, Rises
from hopscope.verbs.check.figures import Times
from hopscope.verbs.check.findings import Entry
from hopscope.verbs.check.knowledge.refs import Ref, sysctl

_TABLES: Final = (("arp", "ipv4", "IPv4"), ("ndisc", "ipv6", "IPv6"))


def _entries(table: str, family: str, called: str) -> tuple[Entry, ...]:
    limit = sysctl(f"net.{family}.neigh.default.gc_thresh3")
    larger = {
        f"thresh{step}": Times(sysctl(f"net.{family}.neigh.default.gc_thresh{step}"), 4, least)
        for step, least in ((1, 1024), (2, 4096), (3, 8192))
    }
    fixes = tuple(
        f"sysctl -w net.{family}.neigh.default.gc_thresh{step}={{thresh{step}}}"
        for step in sorted((1, 2, 3), reverse=True)
    )

    def of_table(name: str) -> Ref:
        return Ref("neighbour", (name,), subjects=f"{table} cpu *")

    return (
        Entry(
            f"{table}-table-overflow",
            "critical",
            "neighbour",
            Rises(of_table("table_fulls")),
            f"The {called} neighbour table was full {{times}}: new neighbours were refused",
            "Nothing can be sent to a neighbour without an entry. Large flat networks, and hosts with many "
            "containers, need more entries than the default of 1,024.",
            fixes,
            "net/core/neighbour.c neigh_alloc; Documentation/networking/ip-sysctl.rst gc_thresh3",
            "A table that is large enough never overflows.",
            advice=larger,
        ),
        Entry(
            f"{table}-table-filling",
            "warning",
            "neighbour",
            Fill(Ref("neighbour", ("entries",), subjects=table), limit, above=0.8),
            f"The {called} neighbour table is {{share}} full: {{now}} of {{limit}} entries",
            "Above the limit, new neighbours are refused; above gc_thresh2, entries are evicted and resolved again.",
            fixes,
            "net/core/neighbour.c neigh_forced_gc; Documentation/networking/ip-sysctl.rst gc_thresh3",
            "A full table costs connections; at four fifths there is time to act.",
            advice=larger,
        ),
        Entry(
            f"{table}-unresolved-drop",
            "warning",
            "neighbour",
            Rises(of_table("unresolved_discards"), at_least=50, per_s=10),
            f"{{by}} {called} packets were dropped while the address of their neighbour was being resolved",
            "A neighbour does not answer, or only slowly: it is down, or the route to it is wrong. More "
            "packets than the queue can hold waited for the answer.",
            (f"ip -{family[-1]} neigh show nud incomplete nud failed  # which?", "ip route get ADDRESS"),
            "net/core/neighbour.c __neigh_event_send; Documentation/networking/ip-sysctl.rst unres_qlen_bytes",
            "The first packets to a new neighbour may exceed the queue: below 10 a second.",
        ),
        Entry(
            f"{table}-failed",
            "notice",
            "neighbour",
            Rises(of_table("res_failed"), at_least=15, per_s=3),
            f"{{by}} {called} neighbours did not answer address resolution",
            "Something on this host tries to reach unused addresses on a connected network: a scan, a dead "
            "backend, a wrong netmask.",
            (f"ip -{family[-1]} neigh show nud failed  # which?",),
            "net/core/neighbour.c neigh_timer_handler",
            "A dead host is queried three times in 3 seconds: below 3 a second, it may be one or two hosts.",
        ),
    )


ENTRIES: Final = tuple(entry for table in _TABLES for entry in _entries(*table))
