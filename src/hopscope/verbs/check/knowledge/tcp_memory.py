# SPDX-License-Identifier: Apache-2.0
"""What is known of TCP's memory: buffers, windows, limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.verbs.check.conditions import Any, Figure, Hit, Judged, Rises, Share, Shown, standing
from hopscope.verbs.check.figures import Now, Times
from hopscope.verbs.check.findings import Entry
from hopscope.verbs.check.knowledge.refs import Ref, nstat, sysctl

if TYPE_CHECKING:
    from hopscope.verbs.check.scene import Place, Scene

_RECEIVED: Final = nstat("TcpInSegs")
_PAGES: Final = Ref("sockstat", ("TCP.mem",))
_RMEM: Final = sysctl("net.ipv4.tcp_rmem")
_TCP_MEM: Final = sysctl("net.ipv4.tcp_mem")
_BUFFERS: Final = (
    "ss -tnmo  # skmem: rb (limit) and r (used): whose?",
    "sysctl -w net.ipv4.tcp_rmem='{rmem_least} {rmem_usual} {rmem_most}'",
)
_BUFFER_SIZES: Final = {
    "rmem_least": Times(_RMEM, 1, 4096, field=0), "rmem_usual": Times(_RMEM, 1, 131072, field=1),
    "rmem_most": Times(_RMEM, 2, 6291456, field=2),
}  # fmt: skip
_MEMORY: Final = ("sysctl -w net.ipv4.tcp_mem='{mem_low} {mem_pressure} {mem_most}'", "ss -tnmo  # skmem: whose?")
_MEMORY_SIZES: Final = {
    "mem_low": Times(_TCP_MEM, 2, 4096, field=0), "mem_pressure": Times(_TCP_MEM, 2, 8192, field=1),
    "mem_most": Times(_TCP_MEM, 2, 16384, field=2),
}  # fmt: skip


def filled(pages: Ref, limits: Ref, above: float) -> Judged:
    """Return the condition that memory in pages is above this part of the last of three limits in a word."""

    def judge(scene: Scene, place: Place) -> Hit | None:
        now = scene.value(pages, place)
        last = Now(limits, field=2).figure(scene, place)
        limit = last.value if last else None
        if now is None or not isinstance(limit, int) or not limit or now <= above * limit:
            return None
        figures = {
            "now": Figure(now, "count", "max"), "limit": Figure(limit, "count", "max"),
            "share": Figure(now / limit, "share", "max"),
        }  # fmt: skip
        return Hit((*standing(pages, scene, place, now / limit), *standing(limits, scene, place)), figures)

    return Judged((limits, pages), judge)


ENTRIES: Final = (
    Entry(
        "tcp-memory-pressure",
        "critical",
        "tcp",
        Shown(Rises(nstat("TcpExtTCPMemoryPressures")), (_PAGES,)),
        "TCP entered memory pressure {times}: the sockets of this host together use too much memory",
        "The kernel shrinks the windows of all connections and discards received data until it is below the limit.",
        _MEMORY,
        "net/ipv4/tcp.c tcp_enter_memory_pressure; Documentation/networking/ip-sysctl.rst tcp_mem",
        "A host with enough memory never reaches this point.",
        advice=_MEMORY_SIZES,
    ),
    Entry(
        "tcp-memory-filling",
        "warning",
        "tcp",
        filled(_PAGES, _TCP_MEM, above=0.6),
        "TCP uses {now} of at most {limit} pages ({share})",
        "Above the second value of tcp_mem, windows are shrunk; above the third, no more data is accepted.",
        _MEMORY,
        "net/core/sock.c __sk_mem_raise_allocated; Documentation/networking/ip-sysctl.rst tcp_mem",
        "By default, memory pressure begins at two thirds of the limit: reported shortly before.",
        advice=_MEMORY_SIZES,
    ),
    Entry(
        "tcp-abort-memory",
        "critical",
        "tcp",
        Rises(nstat("TcpExtTCPAbortOnMemory")),
        "{by} TCP [connection was|connections were] aborted because there was no memory, or because of too "
        "many orphaned connections",
        "Too many orphaned connections, or tcp_mem is exhausted: undelivered data is lost.",
        (*_MEMORY, "sysctl -w net.ipv4.tcp_max_orphans={orphans}"),
        "net/ipv4/tcp.c tcp_check_oom; Documentation/networking/snmp_counter.rst TcpExtTCPAbortOnMemory",
        "A host with room never does so.",
        advice={**_MEMORY_SIZES, "orphans": Times(sysctl("net.ipv4.tcp_max_orphans"), 2, 65536)},
    ),
    Entry(
        "tcp-receive-pruned",
        "critical",
        "tcp",
        Any((Rises(nstat("TcpExtRcvPruned")), Rises(nstat("TcpExtOfoPruned"), at_least=10))),
        "{times} TCP discarded received data because a socket's receive buffer was full",
        "The peer has to retransmit it. The application reads slowly while small packets with a large overhead "
        "arrive, or memory is short.",
        _BUFFERS,
        "net/ipv4/tcp_input.c tcp_prune_queue, tcp_prune_ofo_queue; snmp_counter.rst TcpExtRcvPruned",
        "Sufficiently large buffers never overflow like this.",
        advice=_BUFFER_SIZES,
    ),
    Entry(
        "tcp-receive-collapsed",
        "notice",
        "tcp",
        Share(nstat("TcpExtTCPRcvCollapsed"), (_RECEIVED,), above=0.01, at_least=100),
        "{by} received TCP segments ({share}) were collapsed because a socket's receive buffer was full",
        "Collapsing costs CPU time, and is the last step before data is discarded. Causes: small packets, and "
        "a slow reader.",
        _BUFFERS,
        "net/ipv4/tcp_input.c tcp_collapse; Documentation/networking/snmp_counter.rst TcpExtTCPRcvCollapsed",
        "Slow readers cause some: from 1 in 100 segments.",
        advice=_BUFFER_SIZES,
    ),
    Entry(
        "tcp-receive-queue-drop",
        "warning",
        "tcp",
        Any((Rises(nstat("TcpExtTCPRcvQDrop"), at_least=3), Rises(nstat("TcpExtTCPOFODrop"), at_least=3))),
        "{by} TCP segments were dropped because there was no room in the receive buffer of their socket",
        "The peer has to retransmit them. TCP's memory is exhausted, or segments have much overhead and little data.",
        _BUFFERS,
        "net/ipv4/tcp_input.c tcp_data_queue, tcp_data_queue_ofo; snmp_counter.rst TCPRcvQDrop, TcpExtTCPOFODrop",
        "The window prevents this; one or two may be a race.",
        advice=_BUFFER_SIZES,
    ),
    Entry(
        "tcp-backlog-drop",
        "warning",
        "tcp",
        Rises(nstat("TcpExtTCPBacklogDrop"), at_least=10),
        "{by} TCP segments were dropped because the backlog of their socket was full",
        "While a thread holds the socket lock, segments wait in its backlog, which is as large as both "
        "buffers. A thread holds the lock for long (a large send or receive), or was not scheduled.",
        ("hopscope rx  # how long do segments wait?", *_BUFFERS),
        "net/ipv4/tcp_ipv4.c tcp_add_backlog; Documentation/networking/snmp_counter.rst TCPBacklogDrop",
        "None if threads are scheduled in time; a handful may be one stall.",
        advice=_BUFFER_SIZES,
    ),
    Entry(
        "tcp-memory-reserve-drop",
        "critical",
        "tcp",
        Rises(nstat("TcpExtPFMemallocDrop")),
        "{by} [packet was|packets were] dropped: received into memory reserved for emergencies",
        "The host is nearly out of memory.",
        ("free -m", "sysctl -w vm.min_free_kbytes=N  # twice what it is now"),
        "net/core/filter.c sk_filter_trim_cap; Documentation/networking/snmp_counter.rst",
        "A host with free memory never does so.",
    ),
    Entry(
        "tcp-zero-window-sent",
        "notice",
        "tcp",
        Rises(nstat("TcpExtTCPToZeroWindowAdv"), at_least=10),
        "{times} this host told a peer to stop sending: data arrived faster than the application read it (zero "
        "window)",
        "The sender waits until the application reads. The application or its CPU is the bottleneck, not the "
        "network: normal if a sender is as fast as it can be, a fault if the application should keep up.",
        (
            "ss -tn  # Recv-Q that stays high: whose?",
            "hopscope rx --hop rx.tcp_wake --hop rx.tcp_read  # how long does data wait?",
        ),
        "net/ipv4/tcp_output.c tcp_select_window; snmp_counter.rst TcpExtTCPToZeroWindowAdv",
        "Readers that do not get a CPU immediately cause some, mostly with nearby senders: from 10 in a few seconds.",
    ),
    Entry(
        "tcp-zero-window-drop",
        "warning",
        "tcp",
        Rises(nstat("TcpExtTCPZeroWindowDrop"), at_least=10),
        "{by} TCP segments were dropped because they arrived while the window was closed",
        "The application does not read, and the peer sends nevertheless; it has to retransmit them.",
        ("ss -tn  # Recv-Q that stays high: whose?",),
        "net/ipv4/tcp_input.c tcp_data_queue; Documentation/networking/snmp_counter.rst TCPZeroWindowDrop",
        "Probes of one byte are sent into a closed window by design: below 10.",
    ),
    Entry(
        "tcp-zero-window-received",
        "notice",
        "tcp",
        Rises(nstat("TcpExtTCPWinProbe"), at_least=20, per_s=2),
        "{times} this host probed peers that had closed their receive window",
        "The application at the other end does not read. The senders on this host wait for it, whatever the "
        "state of the network.",
        ("ss -tno  # timer:(persist,...): to whom?",),
        "net/ipv4/tcp_output.c tcp_send_probe0; Documentation/networking/snmp_counter.rst TCPWinProbe",
        "Paused readers are probed at growing intervals: 2 a second indicate several that do not read.",
    ),
    Entry(
        "tcp-write-queue-too-big",
        "warning",
        "tcp",
        Rises(nstat("TcpExtTCPWqueueTooBig")),
        "{times} TCP could not split a segment to retransmit it: the write queue is too full",
        "The connection may stall. The send buffer is far too small for its segments (a protection against an "
        "attack).",
        ("ss -tnmo  # skmem: tb (limit) and w (used)", "sysctl net.ipv4.tcp_wmem  # larger, or no small SO_SNDBUF"),
        "net/ipv4/tcp_output.c tcp_fragment; CVE-2019-11478",
        "Buffers of a reasonable size never reach this limit.",
    ),
)  # fmt: skip
