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
            f"This host reported {{times}} ({{per_s}} a second) to others that a destination is unreachable ({called})",
            "Datagrams arrive for ports without a listener, or for networks that this router cannot reach.",
            ("hopscope drops -g reason -g flow  # NO_SOCKET: which ports?",),
            "net/ipv4/icmp.c __icmp_send; net/ipv6/icmp.c icmp6_send",
            "A scan or a late DNS answer causes some; 10 a second indicate a missing service.",
        ),
        Entry(
            f"icmp{suffix}-unreachable-received",
            "notice",
            "icmp",
            Rises(icmp("InDestUnreachs"), at_least=50, per_s=10),
            f"Other hosts reported {{times}} ({{per_s}} a second) that a destination of this host is unreachable "
            f"({called})",
            "A service that this host uses is not running, a route is missing on the path, or packets are too large.",
            ("tcpdump -vni any 'icmp[0] == 3 or icmp6[0] == 1'  # who reports which destination?",),
            "net/ipv4/icmp.c icmp_unreach; net/ipv6/icmp.c icmpv6_notify",
            "Any busy host receives some; 10 a second indicate a missing peer.",
        ),
        Entry(
            f"icmp{suffix}-checksum",
            "warning",
            "icmp",
            Rises(icmp("InCsumErrors"), at_least=3),
            f"{{by}} ICMP messages of {called} came in with a wrong checksum",
            "They were damaged between two hosts although the link's own checksum was correct: by a router, a "
            "NIC, or memory.",
            ("tcpdump -vvni any icmp or icmp6  # from whom?",),
            "net/ipv4/icmp.c icmp_rcv; Documentation/networking/snmp_counter.rst IcmpInCsumErrors",
            "A healthy network has none.",
        ),
    )


ENTRIES: Final = (
    *(entry for family in FAMILIES for entry in _family(*family)),
    Entry(
        "icmp-redirects",
        "notice",
        "icmp",
        Rises(nstat("IcmpInRedirects"), at_least=10),
        "A router told this host {times} to use a different router",
        "The configured gateway sends the packets back out of the same interface: a detour for each of them.",
        ("ip route  # the gateway", "tcpdump -vni any 'icmp[0] == 5'  # which one would be right?"),
        "net/ipv4/icmp.c icmp_redirect",
        "One for each new destination is usual in networks with two routers; 10 or more indicate a "
        "configuration error.",
    ),
    Entry(
        "icmp-rate-limited",
        "notice",
        "icmp",
        Any((Rises(nstat("IcmpOutRateLimitGlobal", "Linux 6.2"), at_least=50),
             Rises(nstat("IcmpOutRateLimitHost", "Linux 6.2"), at_least=50))),
        "{by} ICMP messages were not sent because of the rate limit",
        "Senders are not notified that their packets are too large, or that a port is closed: they wait for a "
        "timeout. Path MTU discovery suffers most.",
        ("sysctl -w net.ipv4.icmp_msgs_per_sec={more}",),
        "net/ipv4/icmp.c icmp_global_allow, icmpv4_xrlim_allow; Documentation/networking/ip-sysctl.rst "
        "icmp_msgs_per_sec",
        "A scan reaches the limit, which is its purpose: a notice, from 50.",
        advice={"more": Times(sysctl("net.ipv4.icmp_msgs_per_sec"), 10, 10000)},
    ),
    Entry(
        "icmp6-too-big-received",
        "notice",
        "icmp",
        Rises(nstat("Icmp6InPktTooBigs"), at_least=20),
        "Routers told this host {times} that its IPv6 packets are too large",
        "Each is a packet that was lost and retransmitted. Tunnels on the path have a smaller MTU than this "
        "host's network.",
        ("tracepath -6 -n ADDRESS", "ip -6 route show cache  # mtu"),
        "net/ipv6/icmp.c icmpv6_rcv; RFC 8201",
        "One for each new destination behind a tunnel is normal; 20 in a few seconds are not.",
    ),
    Entry(
        "icmp-hops-exceeded-received",
        "notice",
        "icmp",
        Any((Rises(nstat("IcmpInTimeExcds"), at_least=100, per_s=20),
             Rises(nstat("Icmp6InTimeExcds"), at_least=100, per_s=20))),
        "Routers told this host {times} ({per_s} a second) that the hop limit of its packets was exceeded",
        "There is a routing loop on the path to one of this host's destinations.",
        ("traceroute -n ADDRESS  # the same routers again and again?",),
        "net/ipv4/icmp.c icmp_unreach; RFC 792",
        "A traceroute causes a few a second; 20 are not from a traceroute.",
    ),
)  # fmt: skip
