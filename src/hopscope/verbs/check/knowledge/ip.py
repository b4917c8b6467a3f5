# SPDX-License-Identifier: Apache-2.0
"""What is known of IP: routes, headers, fragments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.verbs.check.conditions import Fill, Hit, Judged, Rises, Share, counted, rising
from hopscope.verbs.check.figures import Times
from hopscope.verbs.check.findings import Entry
from hopscope.verbs.check.knowledge.beyond import beyond
from hopscope.verbs.check.knowledge.refs import FAMILIES, Ref, nstat, optional, sysctl

if TYPE_CHECKING:
    from hopscope.verbs.check.scene import Place, Scene


def _headers(digit: str, *, hops: bool, at_least: int, per_s: float) -> Judged:
    """Return the condition on packets with a bad header, or with no hops left, which the same counter counts.

    The messages to their senders tell which: not how many, as their rate is limited.
    """
    errors, told = nstat(f"Ip{digit}InHdrErrors"), nstat(f"Icmp{digit}OutTimeExcds")
    sums = () if digit else (nstat("IpExtInCsumErrors"),)

    def judge(scene: Scene, place: Place) -> Hit | None:
        by = scene.by(errors, place) - sum(scene.by(each, place) for each in sums)
        if bool(scene.by(told, place)) != hops or by < at_least or by < per_s * scene.seconds:
            return None
        rows = [row for ref in (errors, *sums, told) for row in counted(ref, scene, place)]
        return Hit(tuple(rows), rising("by", by, scene))

    return Judged((errors, told, *sums), judge)


def _family(digit: str, suffix: str, called: str) -> tuple[Entry, ...]:
    def ip(name: str) -> Ref:
        return nstat(f"Ip{digit}{name}")

    frag = "net.ipv6.ip6frag" if digit else "net.ipv4.ipfrag"
    memory = Ref("sockstat", (f"FRAG{digit}.memory",))
    return (
        Entry(
            f"ip{suffix}-reassembly-timeout",
            "warning",
            "ip",
            Share(ip("ReasmTimeout"), (ip("ReasmReqds"),), above=0.001, at_least=3),
            f"{{by}} fragmented {called} packets were discarded because fragments were still missing at the timeout",
            "A fragment was lost in transit, and with it the whole packet. The sender's packets are too large "
            "for the path: make it send smaller ones, or use TCP.",
            ("ip -s -s link  # are they lost on this host?", "tracepath -n ADDRESS  # the path's mtu"),
            "net/ipv4/ip_fragment.c ip_expire; RFC 8900",
            "A single fragment lost is one timeout: from 3, and 1 in 1,000 fragments.",
        ),
        Entry(
            f"ip{suffix}-reassembly-failure",
            "warning",
            "ip",
            beyond(ip("ReasmFails"), ip("ReasmTimeout"), at_least=5, above=0.001, of=(ip("ReasmReqds"),)),
            f"{{by}} fragmented {called} packets could not be reassembled",
            "There was no memory left for fragments, or fragments overlap or form a packet that is too long: "
            "broken senders, or an attack.",
            (f"sysctl -w {frag}_high_thresh={{larger}}", "hopscope drops -g reason  # which?"),
            "net/ipv4/ip_fragment.c ip_frag_queue, ip_defrag; Documentation/networking/ip-sysctl.rst "
            "ipfrag_high_thresh",
            "Healthy senders do not cause this: from 5, and 1 in 1,000 fragments.",
            advice={"larger": Times(sysctl(f"{frag}_high_thresh"), 4, 16777216)},
        ),
        Entry(
            f"ip{suffix}-fragment-memory",
            "warning",
            "ip",
            Fill(memory, sysctl(f"{frag}_high_thresh"), above=0.8),
            f"Fragments of {called} packets use {{share}} of their memory limit: {{now}} of {{limit}} bytes",
            "When it is full, new fragments are dropped, and with each of them a whole packet.",
            (f"sysctl -w {frag}_high_thresh={{larger}}",),
            "net/ipv4/inet_fragment.c inet_frag_alloc; Documentation/networking/ip-sysctl.rst ipfrag_high_thresh",
            "Fragments are reassembled within milliseconds unless some are lost: the memory is nearly always empty.",
            advice={"larger": Times(sysctl(f"{frag}_high_thresh"), 4, 16777216)},
        ),
        Entry(
            f"ip{suffix}-discards-in",
            "warning",
            "ip",
            Share(ip("InDiscards"), (ip("InReceives"),), above=0.0001, at_least=10),
            f"{{by}} received {called} packets ({{share}}) were discarded although they were valid",
            "Usually for lack of memory, or because the receiving protocol or a policy refused them.",
            ("hopscope drops -g reason -g location",),
            "Documentation/networking/snmp_counter.rst IpInDiscards; RFC 4293",
            "A healthy host discards none: from 10, and 1 in 10,000.",
        ),
        Entry(
            f"ip{suffix}-discards-out",
            "warning",
            "ip",
            beyond(
                ip("OutDiscards"), nstat(f"Udp{digit}SndbufErrors"), at_least=10, above=0.001, of=(ip("OutRequests"),)
            ),
            f"{{by}} {called} packets were discarded on output ({{share}} of those sent)",
            "An output queue was full, or there was no memory for them.",
            ("hopscope drops -g reason -g location", "tc -s qdisc  # dropped"),
            "Documentation/networking/snmp_counter.rst IpOutDiscards; net/ipv4/ip_output.c ip_send_skb",
            "Data refused because of a full send buffer is not counted here. From 10, and 1 in 1,000.",
        ),
        Entry(
            f"ip{suffix}-hops-exceeded",
            "warning",
            "ip",
            _headers(digit, hops=True, at_least=50, per_s=10),
            f"{{by}} {called} packets were not forwarded: their hop limit (TTL) was exceeded",
            "In a routing loop, packets circulate until their hop limit is reached.",
            ("traceroute -n ADDRESS  # the same routers again and again?", "ip route get ADDRESS"),
            "net/ipv4/ip_forward.c ip_forward; net/ipv6/ip6_output.c ip6_forward",
            "A traceroute causes a few; 10 a second are not from a traceroute.",
        ),
        Entry(
            f"ip{suffix}-header-errors",
            "warning",
            "ip",
            _headers(digit, hops=False, at_least=10, per_s=0),
            f"{{by}} {called} packets with an invalid header were dropped",
            "A broken sender, or a device on the path that damages packets.",
            ("hopscope drops -g reason -g location",),
            "net/ipv4/ip_input.c ip_rcv_core, net/ipv6/ip6_input.c ip6_rcv_core; snmp_counter.rst IpInHdrErrors",
            "Not reported if hop limits were exceeded at the same time, as the two cannot be distinguished. A "
            "few may be scanners.",
        ),
    )


_MARTIANS: Final = tuple(Ref("route", (name,), subjects="cpu *") for name in ("in_martian_src", "in_martian_dst"))
_REVERSE_PATH: Final = nstat("TcpExtIPReversePathFilter")


def _martians(scene: Scene, place: Place) -> Hit | None:
    """Judge addresses that cannot be, without those that the reverse path filter has counted in its namespace, too.

    A filter of a namespace that is not looked at cannot be told apart.
    """
    filtered = sum(scene.by(_REVERSE_PATH, each) for each in scene.places(_REVERSE_PATH))
    by = sum(scene.by(ref, place) for ref in _MARTIANS) - filtered
    if by < 10:
        return None
    return Hit(tuple(row for ref in _MARTIANS for row in counted(ref, scene, place)), rising("by", by, scene))


ENTRIES: Final = (
    Entry(
        "ip-no-route-out",
        "warning",
        "ip",
        Rises(nstat("IpOutNoRoutes"), at_least=3),
        "{by} IPv4 packets could not be sent: there is no route to their destination",
        "Connections to these destinations fail immediately with ENETUNREACH. A route is missing, or an "
        "application uses a wrong address.",
        ("ip route get ADDRESS  # of the destination", "ip route show table all"),
        "net/ipv4/route.c ip_route_output_key_hash_rcu; RFC 4293 ipSystemStatsOutNoRoutes",
        "A host with correct routes counts none; one or two may be a name lookup while a link comes up.",
    ),
    Entry(
        "ip6-no-route-out",
        "notice",
        "ip",
        Rises(nstat("Ip6OutNoRoutes"), at_least=10),
        "{by} IPv6 packets could not be sent: there is no route to their destination",
        "Programs that try IPv6 first fall back to IPv4; those that cannot fail with ENETUNREACH.",
        ("ip -6 route get ADDRESS  # of the destination", "ip -6 route show table all"),
        "net/ipv6/route.c ip6_route_output_flags; RFC 4293 ipSystemStatsOutNoRoutes",
        "Hosts without IPv6 routes count one for each name that has an IPv6 address, so it is a notice, from 10.",
    ),
    Entry(
        "ip-no-route-in",
        "warning",
        "ip",
        Rises(nstat("IpExtInNoRoutes"), at_least=10),
        "{by} IPv4 packets that this host should forward were dropped: it has no route to their destination",
        "A route is missing on this host, or the senders have a wrong gateway.",
        ("ip route get ADDRESS from SOURCE iif DEVICE", "ip route show table all"),
        "net/ipv4/route.c ip_route_input_slow",
        "Any router receives scans of unused addresses: below 10 in a few seconds.",
    ),
    Entry(
        "ip6-no-route-in",
        "warning",
        "ip",
        Rises(nstat("Ip6InNoRoutes"), at_least=10),
        "{by} IPv6 packets that this host received were dropped: it has no route to their destination",
        "A route is missing on this host, or the senders have a wrong gateway.",
        ("ip -6 route get ADDRESS from SOURCE iif DEVICE", "ip -6 route show table all"),
        "net/ipv6/route.c ip6_pkt_drop",
        "Any router receives scans of unused addresses: below 10 in a few seconds.",
    ),
    Entry(
        "ip-not-for-us",
        "warning",
        "ip",
        Rises(nstat("IpInAddrErrors"), at_least=10, per_s=2),
        "{by} IPv4 packets arrived for addresses that this host does not have, and it does not forward",
        "Another host routes to this host by mistake, an address was removed, or forwarding should be enabled.",
        (
            "tcpdump -ni DEVICE 'not host OWN_ADDRESS'  # from whom, to where?",
            "sysctl -w net.ipv4.ip_forward=1  # if it should be a router",
        ),
        "net/ipv4/route.c ip_route_input_slow; Documentation/networking/snmp_counter.rst IpInAddrErrors",
        "Stray packets arrive while addresses move: below 2 a second.",
    ),
    Entry(
        "ip-reverse-path",
        "warning",
        "ip",
        Rises(nstat("TcpExtIPReversePathFilter"), at_least=10),
        "{by} IPv4 packets were dropped by the reverse path filter: replies would leave through a different "
        "interface",
        "Asymmetric routing with a strict filter, or forged source addresses. There is no other sign of these drops.",
        ("sysctl -w net.ipv4.conf.DEVICE.rp_filter=2  # loose, where routes are asymmetric", "ip route get SENDER"),
        "net/ipv4/fib_frontend.c __fib_validate_source; Documentation/networking/ip-sysctl.rst rp_filter",
        "With consistent routes none is dropped; any public address receives a few forged packets.",
    ),
    Entry(
        "ip-martians",
        "warning",
        "ip",
        Judged((_MARTIANS[0], optional(_MARTIANS[1]), optional(_REVERSE_PATH)), _martians),
        "{by} IPv4 packets were dropped because of an impossible source address (martians)",
        "A wrong netmask or route, two networks on one link, or forged addresses.",
        ("sysctl -w net.ipv4.conf.all.log_martians=1  # dmesg then shows address and interface",),
        "net/ipv4/route.c ip_handle_martian_source; Documentation/networking/ip-sysctl.rst log_martians",
        "With consistent netmasks and routes there are none; any public address receives a few forged packets.",
    ),
    Entry(
        "ip-unknown-protocol",
        "notice",
        "ip",
        Rises(nstat("IpInUnknownProtos"), at_least=10),
        "{by} IPv4 packets arrived with a protocol that this host does not support",
        "A tunnel or a protocol whose module is not loaded, or a scan.",
        ("tcpdump -ni any 'ip and not tcp and not udp and not icmp'  # ip[9] is the protocol: which, from whom?",),
        "net/ipv4/ip_input.c ip_protocol_deliver_rcu; snmp_counter.rst IpInUnknownProtos",
        "Scans cause some: from 10.",
    ),
    Entry(
        "ip-checksum",
        "warning",
        "ip",
        Rises(nstat("IpExtInCsumErrors"), at_least=3),
        "{by} IPv4 packets with a wrong header checksum were dropped",
        "They were damaged between two hosts although the link's own checksum was correct: by a router, a NIC, "
        "or memory.",
        ("tcpdump -vvni DEVICE ip | grep 'bad cksum'  # from whom?",),
        "net/ipv4/ip_input.c ip_rcv_core",
        "A healthy network has none.",
    ),
    Entry(
        "ip-truncated",
        "warning",
        "ip",
        Rises(nstat("IpExtInTruncatedPkts"), at_least=3),
        "{by} IPv4 packets were shorter than their header states",
        "A broken NIC, driver or tunnel truncates them.",
        ("hopscope drops -g reason -g interface",),
        "net/ipv4/ip_input.c ip_rcv_core; Documentation/networking/snmp_counter.rst IpExtInTruncatedPkts",
        "A healthy network has none.",
    ),
    Entry(
        "ip-fragmenting",
        "notice",
        "ip",
        Share(nstat("IpFragCreates"), (nstat("IpOutTransmits", "Linux 6.5"),), above=0.1, at_least=1000),
        "{share} of the IPv4 packets sent were fragments ({by})",
        "Every fragment must arrive, fragments cannot be spread over queues by port, and reassembly costs "
        "memory at the receiver.",
        ("ip link  # mtu; a tunnel needs a smaller one than the link below",),
        "net/ipv4/ip_output.c ip_do_fragment; RFC 8900",
        "Large UDP datagrams (NFS, DNS) are fragmented by design: reported as a notice, from a tenth of all packets.",
    ),
    Entry(
        "ip-congestion-marks",
        "notice",
        "ip",
        Share(nstat("IpExtInCEPkts"), (nstat("IpExtInECT0Pkts"), nstat("IpExtInECT1Pkts"), nstat("IpExtInCEPkts")),
              above=0.05, at_least=100),
        "{share} of the received ECN-capable packets were marked: there is congestion on the path ({by})",
        "There is a standing queue between the senders and this host. The senders slow down; nothing is lost yet.",
        ("ss -ti  # ecn, ecnseen: which peers?",),
        "net/ipv4/ip_input.c ip_rcv_core; RFC 3168; Documentation/networking/snmp_counter.rst IpExtInCEPkts",
        "Some marks are normal with ECN; one packet in twenty indicates a bottleneck.",
    ),
    *(entry for family in FAMILIES for entry in _family(*family)),
)  # fmt: skip
