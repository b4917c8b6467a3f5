# SPDX-License-Identifier: Apache-2.0
"""What is known of TCP data that is lost, late or out of order on its way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.verbs.check.conditions import Any, Figure, Hit, Judged, Rises, Share, counted, rising
from hopscope.verbs.check.findings import Entry
from hopscope.verbs.check.knowledge.beyond import beyond
from hopscope.verbs.check.knowledge.refs import nstat

if TYPE_CHECKING:
    from hopscope.verbs.check.scene import Place, Scene

_RETRANSMITTED: Final = nstat("TcpRetransSegs")
_SYNS: Final = nstat("TcpExtTCPSynRetrans")
_SENT: Final = nstat("TcpExtTCPOrigDataSent")
_RECEIVED: Final = nstat("TcpInSegs")
_TWICE: Final = nstat("TcpExtTCPDSACKRecv")
_WHERE: Final = ("hopscope drops  # are they lost on this host?", "ss -tino  # retrans: to which peers?")


def _in_vain(scene: Scene, place: Place) -> Hit | None:
    """Judge what was sent again in vain: no more than was sent again, as the network, too, may make two of one."""
    again = scene.by(_RETRANSMITTED, place)
    by = min(scene.by(_TWICE, place), again)
    if by < 100 or by < 0.5 * again:
        return None
    rows = (*counted(_TWICE, scene, place), *counted(_RETRANSMITTED, scene, place))
    return Hit(rows, rising("by", by, scene) | {"share": Figure(by / again, "share", "share", by, again)})


ENTRIES: Final = (
    Entry(
        "tcp-retransmission",
        "warning",
        "tcp",
        beyond(_RETRANSMITTED, _SYNS, at_least=50, above=0.01, of=(_SENT,)),
        "{by} TCP segments with data were sent again ({share} of {of})",
        "Packets are lost on the way, here or further on. Each loss costs a round trip at least, and makes most "
        "congestion controls slow down.",
        _WHERE,
        "net/ipv4/tcp_output.c __tcp_retransmit_skb; Documentation/networking/snmp_counter.rst TCPOrigDataSent",
        "TCP finds out how fast it can go by losing now and then: up to 1% over the open internet is usual.",
    ),
    Entry(
        "tcp-timeouts",
        "warning",
        "tcp",
        beyond(nstat("TcpExtTCPTimeouts"), _SYNS, at_least=10, above=0.001, of=(_SENT,)),
        "{times} no acknowledgement came until TCP's timer ran out (0.2 seconds or more each)",
        "The worst way to notice a loss: the connection stands still, and then begins slowly. The last packets of an "
        "answer were lost, or all of them.",
        _WHERE,
        "net/ipv4/tcp_timer.c tcp_retransmit_timer; Documentation/networking/snmp_counter.rst TcpExtTCPTimeouts",
        "Peers that vanish make some: from 10, and 1 in 1,000 of the segments sent.",
    ),
    Entry(
        "tcp-lost-retransmission",
        "warning",
        "tcp",
        Share(nstat("TcpExtTCPLostRetransmit"), (_RETRANSMITTED,), above=0.1, at_least=20),
        "{by} TCP segments that were sent again were lost again ({share} of them)",
        "Loss in a row: a policer that drops all above a rate, or a queue that stays full.",
        (*_WHERE, "tc -s qdisc  # a shaper here? and see the provider's rate"),
        "net/ipv4/tcp_input.c tcp_mark_skb_lost; Documentation/networking/snmp_counter.rst TcpExtTCPLostRetransmit",
        "Losses by chance rarely hit one segment twice: from 20, and a tenth of those sent again.",
    ),
    Entry(
        "tcp-retransmission-failed",
        "warning",
        "tcp",
        Rises(nstat("TcpExtTCPRetransFail"), at_least=10),
        "{by} TCP segments could not be sent again: this host itself dropped them",
        "The queue of the interface is full, or a firewall rule drops what leaves.",
        ("tc -s qdisc  # dropped", "hopscope drops -g reason -g location"),
        "net/ipv4/tcp_output.c tcp_retransmit_skb; Documentation/networking/snmp_counter.rst TCPRetransFail",
        "A host that can send counts none; a handful may be one full queue.",
    ),
    Entry(
        "tcp-stuck-in-host",
        "warning",
        "tcp",
        Share(nstat("TcpExtTCPSpuriousRtxHostQueues"), (_SENT,), above=0.001, at_least=20),
        "{times} TCP wanted to send again what still waited in this host's own queue or card",
        "Packets wait longer here than a round trip takes: a queue that stands, a shaper, or a card that does "
        "not send; on loopback and veth also a reader on this host that does not read.",
        ("hopscope tx  # where do they wait?", "tc -s qdisc  # backlog"),
        "net/ipv4/tcp_output.c skb_still_in_host_queue; snmp_counter.rst TcpExtTCPSpuriousRtxHostQueues",
        "On a link that is not full there are none; on loopback and veth, where what is sent is the receiver's until "
        "it is read, a busy host has a few in a million.",
    ),
    Entry(
        "tcp-spurious-retransmission",
        "notice",
        "tcp",
        Judged((_TWICE, _RETRANSMITTED), _in_vain),
        "{times} a peer had already got what TCP sent again ({share} of the retransmissions)",
        "Nothing was lost: packets are delayed or overtake each other, or acknowledgements are lost.",
        ("ss -ti  # reordering, rtt/rttvar: which peers?",),
        "net/ipv4/tcp_input.c tcp_check_dsack; Documentation/networking/snmp_counter.rst TcpExtTCPDSACKRecv",
        "Probes for the last packet (TLP) do so by design: from 100, and every second retransmission.",
    ),
    Entry(
        "tcp-delivered-twice",
        "notice",
        "tcp",
        beyond(_TWICE, _RETRANSMITTED, at_least=50),
        "{times} a peer got a TCP segment twice that was sent only once",
        "Something on the way duplicates packets: a mirror port that is wired back, a loop between switches, a bond.",
        ("tcpdump -ni any -c 100 tcp  # here, and at the peer: which appear twice?",),
        "net/ipv4/tcp_input.c tcp_check_dsack; RFC 2883",
        "Retransmissions are taken off; networks that duplicate one in a million are in order.",
    ),
    Entry(
        "tcp-spurious-timeouts",
        "notice",
        "tcp",
        Share(nstat("TcpExtTCPSpuriousRTOs"), (nstat("TcpExtTCPTimeouts"),), above=0.3, at_least=10),
        "{by} of TCP's timeouts were premature ({share}): the acknowledgement came after all",
        "The round trip suddenly became longer: a mobile network, a standing queue, or a host that was paused.",
        ("ss -ti  # rto, rtt/rttvar: which peers?",),
        "net/ipv4/tcp_input.c tcp_process_loss (F-RTO, RFC 5682); snmp_counter.rst TcpExtTCPSpuriousRTOs",
        "Single ones are chance: from 10, and three in ten timeouts.",
    ),
    Entry(
        "tcp-reordering",
        "notice",
        "tcp",
        Any((Share(nstat("TcpExtTCPSACKReorder"), (_SENT,), above=0.01, at_least=50),
             Share(nstat("TcpExtTCPTSReorder"), (_SENT,), above=0.01, at_least=50))),
        "{times} packets that TCP sent arrived out of order at the peer",
        "Packets of one connection take several ways (a bond in round-robin mode, several queues, unequal paths).",
        ("ss -ti  # reordering: which peers?", "cat /proc/net/bonding/*  # mode"),
        "net/ipv4/tcp_input.c tcp_check_sack_reordering; snmp_counter.rst TcpExtTCPSACKReorder",
        "Wireless and mobile networks reorder a little: from 1 in 100 segments.",
    ),
    Entry(
        "tcp-receive-out-of-order",
        "notice",
        "tcp",
        Share(nstat("TcpExtTCPOFOQueue"), (_RECEIVED,), above=0.05, at_least=200),
        "{by} TCP segments ({share} of those received) came out of order and had to wait for others",
        "What lies before them was lost on the way to this host, or overtaken.",
        ("hopscope drops  # are they lost on this host?", "ss -ti  # rcv_ooopack: from which peers?"),
        "net/ipv4/tcp_input.c tcp_data_queue_ofo; Documentation/networking/snmp_counter.rst TcpExtTCPOFOQueue",
        "One loss lets all that is behind it wait, up to a window full: from one segment in twenty.",
    ),
    Entry(
        "tcp-duplicates-received",
        "notice",
        "tcp",
        Share(nstat("TcpExtTCPDSACKOldSent"), (_RECEIVED,), above=0.01, at_least=100),
        "{by} TCP segments ({share} of those received) had come before",
        "Peers send again what this host has: our acknowledgements are late or lost.",
        ("ss -tino  # rcv_rtt: from which peers?", "hopscope tx  # do acknowledgements wait here?"),
        "net/ipv4/tcp_input.c tcp_send_dupack; Documentation/networking/snmp_counter.rst TcpExtTCPDSACKOldSent",
        "Probes for the last packet (TLP) come twice by design: from 1 in 100.",
    ),
    Entry(
        "tcp-sack-reneging",
        "warning",
        "tcp",
        Rises(nstat("TcpExtTCPSACKReneging"), at_least=3),
        "{times} a peer threw away data that it had said to have (SACK reneging)",
        "The peer is short of memory, or something between rewrites acknowledgements.",
        ("ss -tino  # which peers?",),
        "net/ipv4/tcp_input.c tcp_check_sack_reneging; Documentation/networking/snmp_counter.rst",
        "Peers in order do not do that; single ones may be a hasty guess of the kernel's.",
    ),
    Entry(
        "tcp-mtu-probe-failed",
        "notice",
        "tcp",
        Rises(nstat("TcpExtTCPMTUPFail"), at_least=3),
        "{times} TCP tried larger packets and they did not arrive",
        "There is a smaller MTU on the way, and nobody says so: with MTU probing off, connections would hang.",
        ("tracepath -n ADDRESS  # the path's mtu", "ip link  # this host's mtu"),
        "net/ipv4/tcp_input.c tcp_mtup_probe_failed; Documentation/networking/ip-sysctl.rst tcp_mtu_probing",
        "Probing tries now and then: from 3 in a few seconds.",
    ),
    Entry(
        "tcp-checksum",
        "warning",
        "tcp",
        Rises(nstat("TcpInCsumErrors"), at_least=3),
        "{by} TCP segments came in with a wrong checksum",
        "They were damaged between two hosts after the link's own checksum was right: a router, a card, memory; or a "
        "sender's offload is broken.",
        ("tcpdump -vvni any tcp | grep incorrect  # from whom?", "ethtool -K DEVICE rx off  # does it go away?"),
        "net/ipv4/tcp_ipv4.c tcp_v4_rcv; Documentation/networking/snmp_counter.rst",
        "In a network in order there are none; one or two may be a scanner.",
    ),
    Entry(
        "tcp-malformed",
        "warning",
        "tcp",
        beyond(nstat("TcpInErrs"), nstat("TcpInCsumErrors"), at_least=10),
        "{by} TCP segments came in with a header that makes no sense",
        "A broken sender, scanner or tunnel.",
        ("hopscope drops -g reason -g flow",),
        "net/ipv4/tcp_ipv4.c tcp_v4_rcv; RFC 4022 tcpInErrs",
        "In a network in order there are none; a few may be a scanner.",
    ),
    Entry(
        "tcp-old-timestamps",
        "notice",
        "tcp",
        Any((Share(nstat("TcpExtPAWSEstab"), (_RECEIVED,), above=0.0001, at_least=20),
             Rises(nstat("TcpExtPAWSActive"), at_least=20),
             Rises(nstat("TcpExtTSEcrRejected", "Linux 6.15"), at_least=20))),
        "{by} TCP segments were dropped because their timestamp is older than one that came before (PAWS)",
        "Packets overtake each other by far, or clients behind one NAT have different clocks.",
        ("ss -ti  # which peers?", "nstat TcpExtPAWSEstab TcpExtPAWSActive TcpExtTSEcrRejected"),
        "net/ipv4/tcp_input.c tcp_validate_incoming; RFC 7323; snmp_counter.rst TcpExtPAWSEstab",
        "Late duplicates make a few: from 20, and 1 in 10,000.",
    ),
    Entry(
        "tcp-challenge-acks",
        "notice",
        "tcp",
        Rises(nstat("TcpExtTCPChallengeACK"), at_least=50, per_s=10),
        "{times} ({per_s} a second) TCP asked a peer whether a suspicious segment was really its own",
        "Segments outside of the window come in: a middlebox or a restarted peer that lost its state, or an attempt to "
        "break in.",
        ("ss -ti  # which peers?", "tcpdump -ni any 'tcp[tcpflags] & (tcp-rst|tcp-syn) != 0'"),
        "net/ipv4/tcp_input.c tcp_send_challenge_ack; RFC 5961",
        "Restarted peers make a few: from 10 a second.",
    ),
)  # fmt: skip
