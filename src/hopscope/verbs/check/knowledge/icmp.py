# SPDX-License-Identifier: Apache-2.0
"""What is known of ICMP: what hosts and routers tell each other of packets that did not arrive."""

from __future__ import annotations

from typing import Final

from hopscope.verbs.check.conditions import Any, Rises
from hopscope.verbs.check.figures import Times
from hopscope.verbs.check.findings import Entry
from hopscope.verbs.check.knowledge.refs import FAMILIES, Ref, nstat, sysctl


def _family(digit: str, suffix: str, called: str) -> tuple[Entry, ...]:
    def icmp(name: str) -> Ref:
        return nstat(f"Icmp{digit}{name}")

    return (
        Entry(
            f"icmp{suffix}-unreachable-sent",
            "notice",
            "icmp",
            Rises(icmp("OutDestUnreachs"), at_least=50, per_s=10),
            f"This host told others {{times}} ({{per_s}} a second) that a destination is unreachable ({called})",
            "Datagrams come for ports where nobody listens, or for networks that this router cannot reach.",
            ("hopscope drops -g reason -g flow  # NO_SOCKET: which ports?",),
            "net/ipv4/icmp.c __icmp_send; net/ipv6/icmp.c icmp6_send",
            "A scan or a late DNS answer makes some; 10 a second are a service that is missing.",
        ),
        Entry(
            f"icmp{suffix}-unreachable-received",
            "notice",
            "icmp",
            Rises(icmp("InDestUnreachs"), at_least=50, per_s=10),
            f"Others told this host {{times}} ({{per_s}} a second) that what it sends to is unreachable ({called})",
            "A service that this host sends to is not there, a route is missing on the way, or packets are too large.",
            ("tcpdump -vni any 'icmp[0] == 3 or icmp6[0] == 1'  # who says so, of what?",),
            "net/ipv4/icmp.c icmp_unreach; net/ipv6/icmp.c icmpv6_notify",
            "Some are told to any busy host; 10 a second are a peer that is missing.",
        ),
        Entry(
            f"icmp{suffix}-checksum",
            "warning",
            "icmp",
            Rises(icmp("InCsumErrors"), at_least=3),
            f"{{by}} ICMP messages of {called} came in with a wrong checksum",
            "They were damaged between two hosts after the link's own checksum was right: a router, a card, memory.",
            ("tcpdump -vvni any icmp or icmp6  # from whom?",),
            "net/ipv4/icmp.c icmp_rcv; Documentation/networking/snmp_counter.rst IcmpInCsumErrors",
            "In a network in order there are none.",
        ),
    )


ENTRIES: Final = (
    *(entry for family in FAMILIES for entry in _family(*family)),
    Entry(
        "icmp-redirects",
        "notice",
        "icmp",
        Rises(nstat("IcmpInRedirects"), at_least=10),
        "A router told this host {times} to use another router",
        "The gateway that is configured sends the packets back out of the same interface: a detour for each of them.",
        ("ip route  # the gateway", "tcpdump -vni any 'icmp[0] == 5'  # which one would be right?"),
        "net/ipv4/icmp.c icmp_redirect",
        "One for each new destination is usual in networks with two routers; from 10 it is the configuration.",
    ),
    Entry(
        "icmp-rate-limited",
        "notice",
        "icmp",
        Any((Rises(nstat("IcmpOutRateLimitGlobal", "Linux 6.2"), at_least=50),
             Rises(nstat("IcmpOutRateLimitHost", "Linux 6.2"), at_least=50))),
        "{by} ICMP messages were not sent because of the rate limit",
        "Senders are not told that their packets are too large, or that a port is closed: they wait for a "
        "timeout. Path "
        "MTU discovery suffers most.",
        ("sysctl -w net.ipv4.icmp_msgs_per_sec={more}",),
        "net/ipv4/icmp.c icmp_global_allow, icmpv4_xrlim_allow; Documentation/networking/ip-sysctl.rst "
        "icmp_msgs_per_sec",
        "A scan runs into the limit, that is what it is for: a notice, from 50.",
        advice={"more": Times(sysctl("net.ipv4.icmp_msgs_per_sec"), 10, 10000)},
    ),
    Entry(
        "icmp6-too-big-received",
        "notice",
        "icmp",
        Rises(nstat("Icmp6InPktTooBigs"), at_least=20),
        "Routers told this host {times} that its IPv6 packets are too large",
        "Each is a packet lost and sent again. Tunnels on the way have a smaller MTU than this host's network.",
        ("tracepath -6 -n ADDRESS", "ip -6 route show cache  # mtu"),
        "net/ipv6/icmp.c icmpv6_rcv; RFC 8201",
        "One for each new destination behind a tunnel is how it works; 20 in a few seconds are a rule.",
    ),
    Entry(
        "icmp-hops-exceeded-received",
        "notice",
        "icmp",
        Any((Rises(nstat("IcmpInTimeExcds"), at_least=100, per_s=20),
             Rises(nstat("Icmp6InTimeExcds"), at_least=100, per_s=20))),
        "Routers told this host {times} ({per_s} a second) that its packets went round until their hops were over",
        "There is a routing loop on the way to something that this host sends to.",
        ("traceroute -n ADDRESS  # the same routers again and again?",),
        "net/ipv4/icmp.c icmp_unreach; RFC 792",
        "A traceroute makes a few a second; 20 are no traceroute.",
    ),
)  # fmt: skip
