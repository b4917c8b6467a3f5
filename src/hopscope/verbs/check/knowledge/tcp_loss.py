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
        "{by} TCP segments with data were retransmitted ({share} of {of})",
        "Packets are lost, on this host or further along the path. Each loss costs at least one round trip, "
        "and makes most congestion control algorithms slow down.",
        _WHERE,
        "net/ipv4/tcp_output.c __tcp_retransmit_skb; Documentation/networking/snmp_counter.rst TCPOrigDataSent",
        "TCP probes for bandwidth until packets are lost: up to 1% over the public internet is usual.",
    ),
    Entry(
        "tcp-timeouts",
        "warning",
        "tcp",
        beyond(nstat("TcpExtTCPTimeouts"), _SYNS, at_least=10, above=0.001, of=(_SENT,)),
        "{times} no acknowledgement arrived before TCP's retransmission timer expired (0.2 seconds or more each)",
        "This is the slowest way to detect a loss: the connection stalls, and then restarts slowly. The last "
        "packets of an answer were lost, or all of them.",
        _WHERE,
        "net/ipv4/tcp_timer.c tcp_retransmit_timer; Documentation/networking/snmp_counter.rst TcpExtTCPTimeouts",
        "Peers that disappear cause some: from 10, and 1 in 1,000 of the segments sent.",
    ),
    Entry(
        "tcp-lost-retransmission",
        "warning",
        "tcp",
        Share(nstat("TcpExtTCPLostRetransmit"), (_RETRANSMITTED,), above=0.1, at_least=20),
        "{by} retransmitted TCP segments were lost again ({share} of them)",
        "Consecutive losses: a policer that drops everything above a rate, or a queue that stays full.",
        (*_WHERE, "tc -s qdisc  # a shaper on this host? compare with the provider's rate"),
        "net/ipv4/tcp_input.c tcp_mark_skb_lost; Documentation/networking/snmp_counter.rst TcpExtTCPLostRetransmit",
        "Random losses rarely hit one segment twice: from 20, and a tenth of the retransmissions.",
    ),
    Entry(
        "tcp-retransmission-failed",
        "warning",
        "tcp",
        Rises(nstat("TcpExtTCPRetransFail"), at_least=10),
        "{by} TCP segments could not be retransmitted: this host itself dropped them",
        "The queue of the interface is full, or a firewall rule drops outgoing packets.",
        ("tc -s qdisc  # dropped", "hopscope drops -g reason -g location"),
        "net/ipv4/tcp_output.c tcp_retransmit_skb; Documentation/networking/snmp_counter.rst TCPRetransFail",
        "A host that can send counts none; a handful may be one full queue.",
    ),
    Entry(
        "tcp-stuck-in-host",
        "warning",
        "tcp",
        Share(nstat("TcpExtTCPSpuriousRtxHostQueues"), (_SENT,), above=0.001, at_least=20),
        "{times} TCP tried to retransmit a segment that was still waiting in this host's own queue or NIC",
        "Packets wait longer on this host than a round trip takes: a standing queue, a shaper, or a NIC that "
        "does not send; on loopback and veth also a local reader that does not read.",
        ("hopscope tx  # where do they wait?", "tc -s qdisc  # backlog"),
        "net/ipv4/tcp_output.c skb_still_in_host_queue; snmp_counter.rst TcpExtTCPSpuriousRtxHostQueues",
        "On a link that is not full there are none; on loopback and veth, where the sent data is held by the "
        "receiver until it is read, a busy host has a few in a million.",
    ),
    Entry(
        "tcp-spurious-retransmission",
        "notice",
        "tcp",
        Judged((_TWICE, _RETRANSMITTED), _in_vain),
        "{times} a peer had already received what TCP retransmitted ({share} of the retransmissions)",
        "No data was lost: packets are delayed or reordered, or acknowledgements are lost.",
        ("ss -ti  # reordering, rtt/rttvar: which peers?",),
        "net/ipv4/tcp_input.c tcp_check_dsack; Documentation/networking/snmp_counter.rst TcpExtTCPDSACKRecv",
        "Tail loss probes (TLP) do so by design: from 100, and every second retransmission.",
    ),
    Entry(
        "tcp-delivered-twice",
        "notice",
        "tcp",
        beyond(_TWICE, _RETRANSMITTED, at_least=50),
        "{times} a peer received a TCP segment twice that was sent only once",
        "Something on the path duplicates packets: a mirror port that is connected back, a loop between "
        "switches, a bond.",
        ("tcpdump -ni any -c 100 tcp  # here, and at the peer: which appear twice?",),
        "net/ipv4/tcp_input.c tcp_check_dsack; RFC 2883",
        "Retransmissions are subtracted; a healthy network duplicates less than one in a million.",
    ),
    Entry(
        "tcp-spurious-timeouts",
        "notice",
        "tcp",
        Share(nstat("TcpExtTCPSpuriousRTOs"), (nstat("TcpExtTCPTimeouts"),), above=0.3, at_least=10),
        "{by} of TCP's timeouts were premature ({share}): the acknowledgement arrived later",
        "The round trip suddenly became longer: a mobile network, a standing queue, or a host that was paused.",
        ("ss -ti  # rto, rtt/rttvar: which peers?",),
        "net/ipv4/tcp_input.c tcp_process_loss (F-RTO, RFC 5682); snmp_counter.rst TcpExtTCPSpuriousRTOs",
        "Single ones happen by chance: from 10, and three in ten timeouts.",
    ),
    Entry(
        "tcp-reordering",
        "notice",
        "tcp",
        Any((Share(nstat("TcpExtTCPSACKReorder"), (_SENT,), above=0.01, at_least=50),
             Share(nstat("TcpExtTCPTSReorder"), (_SENT,), above=0.01, at_least=50))),
        "{times} packets that TCP sent arrived out of order at the peer",
        "Packets of one connection take several paths (a bond in round-robin mode, several queues, unequal routes).",
        ("ss -ti  # reordering: which peers?", "cat /proc/net/bonding/*  # mode"),
        "net/ipv4/tcp_input.c tcp_check_sack_reordering; snmp_counter.rst TcpExtTCPSACKReorder",
        "Wireless and mobile networks reorder a little: from 1 in 100 segments.",
    ),
    Entry(
        "tcp-receive-out-of-order",
        "notice",
        "tcp",
        Share(nstat("TcpExtTCPOFOQueue"), (_RECEIVED,), above=0.05, at_least=200),
        "{by} TCP segments ({share} of those received) arrived out of order and had to wait for others",
        "The preceding segments were lost on the path to this host, or overtaken.",
        ("hopscope drops  # are they lost on this host?", "ss -ti  # rcv_ooopack: from which peers?"),
        "net/ipv4/tcp_input.c tcp_data_queue_ofo; Documentation/networking/snmp_counter.rst TcpExtTCPOFOQueue",
        "One loss delays everything behind it, up to a full window: from one segment in twenty.",
    ),
    Entry(
        "tcp-duplicates-received",
        "notice",
        "tcp",
        Share(nstat("TcpExtTCPDSACKOldSent"), (_RECEIVED,), above=0.01, at_least=100),
        "{by} TCP segments ({share} of those received) were duplicates",
        "Peers retransmit data that this host already has: its acknowledgements are late or lost.",
        ("ss -tino  # rcv_rtt: from which peers?", "hopscope tx  # do acknowledgements wait here?"),
        "net/ipv4/tcp_input.c tcp_send_dupack; Documentation/networking/snmp_counter.rst TcpExtTCPDSACKOldSent",
        "Tail loss probes (TLP) cause duplicates by design: from 1 in 100.",
    ),
    Entry(
        "tcp-sack-reneging",
        "warning",
        "tcp",
        Rises(nstat("TcpExtTCPSACKReneging"), at_least=3),
        "{times} a peer discarded data that it had acknowledged selectively (SACK reneging)",
        "The peer is short of memory, or a middlebox rewrites acknowledgements.",
        ("ss -tino  # which peers?",),
        "net/ipv4/tcp_input.c tcp_check_sack_reneging; Documentation/networking/snmp_counter.rst",
        "Healthy peers do not do that; single ones may be a wrong guess of the kernel.",
    ),
    Entry(
        "tcp-mtu-probe-failed",
        "notice",
        "tcp",
        Rises(nstat("TcpExtTCPMTUPFail"), at_least=3),
        "{times} TCP probed for a larger MTU, and the packets did not arrive",
        "There is a smaller MTU on the path, without ICMP messages about it: with MTU probing off, connections "
        "would hang.",
        ("tracepath -n ADDRESS  # the path's mtu", "ip link  # this host's mtu"),
        "net/ipv4/tcp_input.c tcp_mtup_probe_failed; Documentation/networking/ip-sysctl.rst tcp_mtu_probing",
        "Probing occurs occasionally: from 3 in a few seconds.",
    ),
    Entry(
        "tcp-checksum",
        "warning",
        "tcp",
        Rises(nstat("TcpInCsumErrors"), at_least=3),
        "{by} TCP segments with a wrong checksum were received",
        "They were damaged between two hosts although the link's own checksum was correct: by a router, a NIC, "
        "or memory; or a sender's offload is broken.",
        ("tcpdump -vvni any tcp | grep incorrect  # from whom?", "ethtool -K DEVICE rx off  # does it go away?"),
        "net/ipv4/tcp_ipv4.c tcp_v4_rcv; Documentation/networking/snmp_counter.rst",
        "A healthy network has none; one or two may be a scanner.",
    ),
    Entry(
        "tcp-malformed",
        "warning",
        "tcp",
        beyond(nstat("TcpInErrs"), nstat("TcpInCsumErrors"), at_least=10),
        "{by} TCP segments with an invalid header were received",
        "A broken sender, scanner or tunnel.",
        ("hopscope drops -g reason -g flow",),
        "net/ipv4/tcp_ipv4.c tcp_v4_rcv; RFC 4022 tcpInErrs",
        "A healthy network has none; a few may be a scanner.",
    ),
    Entry(
        "tcp-old-timestamps",
        "notice",
        "tcp",
        Any((Share(nstat("TcpExtPAWSEstab"), (_RECEIVED,), above=0.0001, at_least=20),
             Rises(nstat("TcpExtPAWSActive"), at_least=20),
             Rises(nstat("TcpExtTSEcrRejected", "Linux 6.15"), at_least=20))),
        "{by} TCP segments were dropped because their timestamp was older than a previous one (PAWS)",
        "Packets are heavily reordered, or clients behind one NAT have different clocks.",
        ("ss -ti  # which peers?", "nstat TcpExtPAWSEstab TcpExtPAWSActive TcpExtTSEcrRejected"),
        "net/ipv4/tcp_input.c tcp_validate_incoming; RFC 7323; snmp_counter.rst TcpExtPAWSEstab",
        "Late duplicates cause a few: from 20, and 1 in 10,000.",
    ),
    Entry(
        "tcp-challenge-acks",
        "notice",
        "tcp",
        Rises(nstat("TcpExtTCPChallengeACK"), at_least=50, per_s=10),
        "{times} ({per_s} a second) TCP challenged a peer because of a suspicious segment (challenge ACK)",
        "Segments outside the window arrive: from a middlebox or a restarted peer that lost its state, or from "
        "an attacker.",
        ("ss -ti  # which peers?", "tcpdump -ni any 'tcp[tcpflags] & (tcp-rst|tcp-syn) != 0'"),
        "net/ipv4/tcp_input.c tcp_send_challenge_ack; RFC 5961",
        "Restarted peers cause a few: from 10 a second.",
    ),
)  # fmt: skip
