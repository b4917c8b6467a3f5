# SPDX-License-Identifier: Apache-2.0
"""What is known of TCP connections: how they begin and end."""

from __future__ import annotations

from typing import Final

from hopscope.verbs.check.conditions import Any, Fill, Rises, Share, Shown
from hopscope.verbs.check.figures import Times
from hopscope.verbs.check.findings import Entry
from hopscope.verbs.check.knowledge import backlog
from hopscope.verbs.check.knowledge.beyond import beyond
from hopscope.verbs.check.knowledge.refs import Ref, nstat, sysctl

# Connections that this host itself ended with a reset, by why.
_OWN_ENDS: Final = ("Data", "Close", "Timeout", "Memory", "Linger")
_OPENED: Final = (nstat("TcpActiveOpens"), nstat("TcpPassiveOpens"))
_SYN_BACKLOG: Final = {"syns": Times(sysctl("net.ipv4.tcp_max_syn_backlog"), 2, 4096), **backlog.ADVICE}

ENTRIES: Final = (
    Entry(
        "tcp-listen-overflow",
        "critical",
        "tcp",
        Shown(Rises(nstat("TcpExtListenOverflows"), at_least=3), (backlog.QUEUES,)),
        "{by} TCP segments (SYN or final ACK) were refused because a listener's accept queue was full",
        "Segments are counted, not connection attempts: a client retransmits a refused SYN several times, so the "
        "attempts are fewer. It sees a connection that hangs for a second or more, or fails. The application does not "
        "call accept() fast enough, or its backlog is too small.",
        (
            "ss -ltn  # Recv-Q above Send-Q: which listener?",
            *backlog.FIXES,
        ),
        "net/ipv4/tcp_ipv4.c tcp_v4_syn_recv_sock; Documentation/networking/snmp_counter.rst",
        "A listener that keeps up never overflows; one or two may be one burst.",
        advice=backlog.ADVICE,
    ),
    Entry(
        "tcp-listen-drop",
        "warning",
        "tcp",
        beyond(nstat("TcpExtListenDrops"), nstat("TcpExtListenOverflows"), nstat("TcpExtTCPReqQFullDrop"), at_least=5),
        "{by} TCP segments (SYN or final ACK) were dropped by listeners for reasons other than a full queue",
        "Segments are counted, retransmissions included, not connection attempts. There was no memory or no route for "
        "the answer, or the first packet was invalid.",
        ("hopscope drops -g reason -g location",),
        "Documentation/networking/snmp_counter.rst TcpExtListenDrops",
        "A healthy listener drops none; a few may be scans.",
    ),
    Entry(
        "tcp-syn-queue-full",
        "critical",
        "tcp",
        Rises(nstat("TcpExtTCPReqQFullDrop"), at_least=3),
        "{by} SYNs were dropped because a listener's queue of half-open connections was full",
        "SYNs are counted, retransmissions included, not connection attempts. SYN cookies are off, so that a SYN "
        "flood, or many slow clients at once, locks others out.",
        (
            "sysctl -w net.ipv4.tcp_syncookies=1",
            "sysctl -w net.ipv4.tcp_max_syn_backlog={syns}",
            *backlog.FIXES,
        ),
        "net/ipv4/tcp_input.c tcp_syn_flood_action; Documentation/networking/ip-sysctl.rst tcp_max_syn_backlog",
        "A queue that is large enough never overflows.",
        advice=_SYN_BACKLOG,
    ),
    Entry(
        "tcp-syn-cookies",
        "warning",
        "tcp",
        Rises(nstat("TcpExtSyncookiesSent"), at_least=10),
        "{by} SYN cookies were sent because a listener's queue of half-open connections was full",
        "Connections still open, but without window scaling and SACK if the client sends no timestamps. "
        "Causes: a SYN flood, or a backlog that is too small for the load.",
        (
            "ss -tn state syn-recv | wc -l  # how many, from where?",
            *backlog.FIXES,
            "sysctl -w net.ipv4.tcp_max_syn_backlog={syns}",
        ),
        "net/ipv4/tcp_input.c tcp_syn_flood_action; Documentation/networking/ip-sysctl.rst tcp_syncookies",
        "A queue that is large enough needs none; a handful may be one burst.",
        advice=_SYN_BACKLOG,
    ),
    Entry(
        "tcp-syn-cookies-failed",
        "notice",
        "tcp",
        Rises(nstat("TcpExtSyncookiesFailed"), at_least=10),
        "{by} packets with an invalid SYN cookie were received",
        "Stray or forged acknowledgements, or answers to cookies that arrived too late.",
        ("tcpdump -ni any 'tcp[tcpflags] == tcp-ack'  # from whom?",),
        "net/ipv4/syncookies.c cookie_v4_check; Documentation/networking/snmp_counter.rst TcpExtSyncookiesFailed",
        "Packets of connections that ended long ago cause a few.",
    ),
    Entry(
        "tcp-syn-retransmission",
        "warning",
        "tcp",
        Share(nstat("TcpExtTCPSynRetrans"), (*_OPENED, nstat("TcpExtTCPSynRetrans")), above=0.2, at_least=25),
        "{by} SYNs had to be retransmitted ({share} of those sent or answered)",
        "Connections take one, three or seven seconds to open, or do not open at all: a peer is down, a "
        "firewall silently drops packets, or packets are lost.",
        ("ss -tn state syn-sent  # to whom?", "ss -tn state syn-recv  # from whom?"),
        "net/ipv4/tcp_output.c __tcp_retransmit_skb; Documentation/networking/snmp_counter.rst TCPSynRetrans",
        "Unfinished scans cause some on any public server: from 5 a second, and one in five.",
    ),
    Entry(
        "tcp-attempts-failed",
        "warning",
        "tcp",
        Share(nstat("TcpAttemptFails"), _OPENED, above=0.3, at_least=25),
        "{by} TCP connections could not be opened ({share} of the attempts)",
        "A peer refuses (no listener) or does not answer, or clients give up before this host accepts them.",
        ("ss -tn state syn-sent  # to whom?", "hopscope drops -g reason -g flow"),
        "net/ipv4/tcp.c tcp_done; RFC 4022 tcpAttemptFails",
        "Health checks of dead backends fail occasionally: from 5 a second, and three in ten.",
    ),
    Entry(
        "tcp-resets-sent",
        "notice",
        "tcp",
        Share(nstat("TcpOutRsts"), _OPENED, above=0.9, at_least=100),
        "{by} TCP resets were sent, while {of} connections were opened",
        "Clients connect to ports without a listener, or applications close connections that still have unread data.",
        (
            "hopscope drops -g reason -g flow  # NO_SOCKET: which ports?",
            "nstat TcpExtTCPAbortOnData TcpExtTCPAbortOnClose",
        ),
        "net/ipv4/tcp_ipv4.c tcp_v4_send_reset; RFC 4022 tcpOutRsts",
        "Many clients end connections by reset. Reported from 100, and one for each opened connection.",
    ),
    Entry(
        "tcp-connections-reset",
        "notice",
        "tcp",
        beyond(nstat("TcpEstabResets"), *(nstat(f"TcpExtTCPAbortOn{why}") for why in _OWN_ENDS), at_least=50,
               above=0.5, of=_OPENED),
        "{by} established TCP connections were reset by their peers, while {of} were opened",
        "The other end, or a firewall or load balancer in between, ended them without a proper close.",
        ("tcpdump -ni any 'tcp[tcpflags] & tcp-rst != 0'  # by whom?",),
        "net/ipv4/tcp_input.c tcp_reset; RFC 4022 tcpEstabResets",
        "Connections that this host aborts itself are counted elsewhere, too, and excluded. Browsers and "
        "health checks use resets: from 50, and half as many as connections were opened.",
    ),
    Entry(
        "tcp-abort-timeout",
        "warning",
        "tcp",
        Rises(nstat("TcpExtTCPAbortOnTimeout"), at_least=5),
        "{by} TCP connections were aborted because the peer stopped answering",
        "The peer or the network to it failed: sent data was not acknowledged for minutes.",
        ("ss -tno  # timer:(on,...): which peers?", "dmesg | tail"),
        "net/ipv4/tcp_timer.c tcp_write_err; Documentation/networking/snmp_counter.rst TcpExtTCPAbortOnTimeout",
        "Mobile clients disappear occasionally: below 5 in a few seconds.",
    ),
    Entry(
        "tcp-abort-data",
        "notice",
        "tcp",
        Rises(nstat("TcpExtTCPAbortOnData"), at_least=100, per_s=20),
        "{by} TCP connections ({per_s} a second) were reset by this host: data arrived after the application "
        "had closed them, or it resets them on purpose (SO_LINGER of 0)",
        "The peer receives a reset instead of a regular close, and the data that it sent is lost.",
        ("hopscope drops -g reason -g process  # whose?",),
        "net/ipv4/tcp.c tcp_close, tcp_disconnect; Documentation/networking/snmp_counter.rst TcpExtTCPAbortOnData",
        "Clients of busy servers occasionally disconnect like this: a notice, from 20 a second.",
    ),
    Entry(
        "tcp-abort-close",
        "notice",
        "tcp",
        Rises(nstat("TcpExtTCPAbortOnClose"), at_least=100, per_s=20),
        "Applications closed {by} TCP connections ({per_s} a second) before they had read all data",
        "The peer receives a reset instead of a regular close, and may lose data that it has not read yet.",
        ("hopscope drops -g reason -g process  # QUEUE_PURGE: whose?",),
        "net/ipv4/tcp.c __tcp_close; Documentation/networking/snmp_counter.rst TcpExtTCPAbortOnClose",
        "Some applications do so once they have read enough: a notice, from 20 a second.",
    ),
    Entry(
        "tcp-abort-failed",
        "warning",
        "tcp",
        Rises(nstat("TcpExtTCPAbortFailed")),
        "{by} TCP [reset|resets] could not be sent: there was no memory, or the interface's queue was full",
        "Peers keep connections open that no longer exist on this host.",
        ("free -m", "tc -s qdisc  # dropped"),
        "net/ipv4/tcp_output.c tcp_send_active_reset; Documentation/networking/snmp_counter.rst TcpExtTCPAbortFailed",
        "A host with enough memory and room in its queues never fails here.",
    ),
    Entry(
        "tcp-time-wait-overflow",
        "warning",
        "tcp",
        Rises(nstat("TcpExtTCPTimeWaitOverflow")),
        "{by} closed TCP [connection|connections] skipped TIME_WAIT because there were too many",
        "Old packets may then be mistaken for those of a new connection. The cause is many short connections: "
        "keep them open, or let the other side close first.",
        ("sysctl -w net.ipv4.tcp_max_tw_buckets={larger}",),
        "net/ipv4/tcp_minisocks.c tcp_time_wait; Documentation/networking/ip-sysctl.rst tcp_max_tw_buckets",
        "Below the limit there are none.",
        advice={"larger": Times(sysctl("net.ipv4.tcp_max_tw_buckets"), 2, 262144)},
    ),
    Entry(
        "tcp-time-wait-filling",
        "warning",
        "tcp",
        Fill(Ref("sockstat", ("TCP.tw",)), sysctl("net.ipv4.tcp_max_tw_buckets"), above=0.8),
        "{now} of at most {limit} sockets are in TIME_WAIT ({share})",
        "The cause is many short connections: keep them open, or let the other side close first. Ports to one "
        "destination may run out earlier: a client has 28,000 for each.",
        (
            "sysctl -w net.ipv4.tcp_max_tw_buckets={larger}",
            "ss -tan state time-wait | awk '{print $4}' | sort | uniq -c",
        ),
        "net/ipv4/tcp_minisocks.c tcp_time_wait; Documentation/networking/ip-sysctl.rst tcp_max_tw_buckets",
        "At four fifths there is time to act.",
        advice={"larger": Times(sysctl("net.ipv4.tcp_max_tw_buckets"), 2, 262144)},
    ),
    Entry(
        "tcp-orphans",
        "warning",
        "tcp",
        Fill(Ref("sockstat", ("TCP.orphan",)), sysctl("net.ipv4.tcp_max_orphans"), above=0.5),
        "{now} orphaned TCP connections (no longer open in any process) are still being closed, {share} of the limit",
        "Peers do not acknowledge the last data. From a quarter to the whole of the limit on, the kernel resets them.",
        (
            "ss -tano state fin-wait-1 state last-ack state closing  # to whom?",
            "sysctl -w net.ipv4.tcp_orphan_retries=3",
        ),
        "net/ipv4/tcp.c tcp_check_oom; Documentation/networking/ip-sysctl.rst tcp_max_orphans",
        "Connections to clients that disappear cause a few; half of the limit indicates an attack or a broken "
        "client.",
    ),
    Entry(
        "tcp-fast-open-overflow",
        "warning",
        "tcp",
        Rises(nstat("TcpExtTCPFastOpenListenOverflow"), at_least=10),
        "{by} TCP Fast Open requests were refused because a listener's queue for them was full",
        "The connections open in the regular way, one round trip later.",
        ("ss -ltn  # Recv-Q against Send-Q", " # let the application pass a longer queue to TCP_FASTOPEN"),
        "net/ipv4/tcp_fastopen.c tcp_fastopen_queue_check; snmp_counter.rst TcpExtTCPFastOpenListenOverflow",
        "A sufficiently long queue never overflows; a handful may be one burst.",
    ),
    Entry(
        "tcp-authentication",
        "warning",
        "tcp",
        Any((Rises(nstat("TcpExtTCPMD5NotFound"), at_least=3), Rises(nstat("TcpExtTCPMD5Unexpected"), at_least=3),
             Rises(nstat("TcpExtTCPMD5Failure"), at_least=3), Rises(nstat("TcpExtTCPAOBad", "Linux 6.7"), at_least=3),
             Rises(nstat("TcpExtTCPAOKeyNotFound", "Linux 6.7"), at_least=3),
             Rises(nstat("TcpExtTCPAORequired", "Linux 6.7"), at_least=3))),
        "{by} TCP segments were dropped because their signature (MD5 or AO) was missing or wrong",
        "Usually a BGP session whose two ends have different keys.",
        ("dmesg | grep -i -e md5 -e 'TCP: AO'",),
        "net/ipv4/tcp_ipv4.c tcp_inbound_hash; RFC 2385, RFC 5925",
        "Only sessions with keys are counted, and with the same key none fails.",
    ),
)  # fmt: skip
