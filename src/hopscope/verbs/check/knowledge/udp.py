# SPDX-License-Identifier: Apache-2.0
"""What is known of UDP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.verbs.check.conditions import Hit, Judged, Rises, Share, Shown, counted, rising
from hopscope.verbs.check.figures import Times
from hopscope.verbs.check.findings import Entry
from hopscope.verbs.check.knowledge.refs import FAMILIES, Ref, nstat, optional, sysctl
from hopscope.verbs.check.knowledge.tcp_memory import filled

if TYPE_CHECKING:
    from hopscope.verbs.check.scene import Place, Scene

_SOCKETS: Final = Ref("udp_socket", ("drops",), subjects="*")
# Full buffers, wrong checksums, and what an application's own filter (SO_ATTACH_FILTER) does not want.
_ERRORS: Final = (nstat("UdpInErrors"), optional(nstat("Udp6InErrors")))
_UDP_MEM: Final = sysctl("net.ipv4.udp_mem")
_MEMORY: Final = ("sysctl -w net.ipv4.udp_mem='{mem_low} {mem_pressure} {mem_most}'", "ss -uanm  # skmem: whose?")
_MEMORY_SIZES: Final = {
    "mem_low": Times(_UDP_MEM, 2, 4096, field=0), "mem_pressure": Times(_UDP_MEM, 2, 8192, field=1),
    "mem_most": Times(_UDP_MEM, 2, 16384, field=2),
}  # fmt: skip


def _lost_uncounted(scene: Scene, place: Place) -> Hit | None:
    """Judge what sockets lost that is in no counter of a namespace: where UDP's memory is used up."""
    by = scene.by(_SOCKETS, place) - sum(scene.by(ref, place) for ref in _ERRORS)
    if by < 10:
        return None
    rows = [row for ref in (_SOCKETS, *_ERRORS) for row in counted(ref, scene, place)]
    return Hit(tuple(rows), rising("by", by, scene))


def _family(digit: str, suffix: str, called: str) -> tuple[Entry, ...]:
    def udp(name: str) -> Ref:
        return nstat(f"Udp{digit}{name}")

    return (
        Entry(
            f"udp{suffix}-receive-buffer",
            "warning",
            "udp",
            Shown(
                Share(udp("RcvbufErrors"), (udp("InDatagrams"), udp("RcvbufErrors")), above=0.0001, at_least=10),
                (_SOCKETS,),
            ),
            f"{{by}} UDP datagrams over {called} ({{share}}) were dropped because a socket's receive buffer was full",
            "The application reads more slowly than datagrams arrive, or they arrive in bursts that its buffer "
            "cannot hold. UDP does not retransmit them.",
            (
                "ss -uanmp  # d in skmem: whose drops grow?",
                "sysctl -w net.core.rmem_max={larger}  # and let the application ask for it with SO_RCVBUF",
            ),
            "net/ipv4/udp.c __udp_enqueue_schedule_skb; Documentation/networking/ip-sysctl.rst",
            "A healthy receiver loses none; an occasional burst (below 10 or 1 in 10,000) is hardly noticeable.",
            advice={"larger": Times(sysctl("net.core.rmem_max"), 2, 4194304)},
        ),
        Entry(
            f"udp{suffix}-send-buffer",
            "notice",
            "udp",
            Share(udp("SndbufErrors"), (udp("OutDatagrams"), udp("SndbufErrors")), above=0.01, at_least=100),
            f"{{by}} UDP datagrams over {called} ({{share}}) could not be sent: the send buffer or the queue was full",
            "The application sends faster than the link can carry. If it ignores the error, the datagrams are lost.",
            (
                "tc -s qdisc  # dropped, backlog",
                "sysctl -w net.core.wmem_max={larger}  # and let the application ask for it with SO_SNDBUF",
            ),
            "net/ipv4/udp.c udp_sendmsg",
            "Non-blocking senders retry until there is room, and each attempt is counted: a notice, from 1 in 100.",
            advice={"larger": Times(sysctl("net.core.wmem_max"), 2, 4194304)},
        ),
        Entry(
            f"udp{suffix}-checksum",
            "warning",
            "udp",
            Rises(udp("InCsumErrors"), at_least=3),
            f"{{by}} UDP datagrams over {called} with a wrong checksum were received",
            "They were damaged between two hosts although the link's own checksum was correct: by a router, a "
            "NIC, or memory; or a sender's offload is broken.",
            (
                "tcpdump -vvni any udp | grep 'bad udp cksum'  # from whom?",
                "ethtool -K DEVICE rx off  # does it go away?",
            ),
            "net/ipv4/udp.c udp_queue_rcv_one_skb, __udp4_lib_rcv",
            "A healthy network has none; one or two may be a scanner.",
        ),
        Entry(
            f"udp{suffix}-no-port",
            "notice",
            "udp",
            Rises(udp("NoPorts"), at_least=50, per_s=10),
            f"{{by}} UDP datagrams over {called} ({{per_s}} a second) arrived for ports without a listener",
            "A service is not running, or its clients have not noticed that it moved.",
            ("hopscope drops -g reason -g flow  # NO_SOCKET: which ports?",),
            "net/ipv4/udp.c __udp4_lib_rcv; RFC 4113 udpNoPorts",
            "Late answers and scans cause some: from 10 a second.",
        ),
        Entry(
            f"udp{suffix}-memory",
            "critical",
            "udp",
            Rises(udp("MemErrors"), at_least=3),
            f"{{by}} UDP datagrams over {called} were dropped because UDP's memory (udp_mem) is exhausted",
            "All UDP sockets of the host together hold too much unread data.",
            _MEMORY,
            "net/ipv4/udp.c __udp_queue_rcv_skb; Documentation/networking/ip-sysctl.rst udp_mem",
            "A host with enough memory never reaches this point.",
            advice=_MEMORY_SIZES,
        ),
    )


ENTRIES: Final = (
    *(entry for family in FAMILIES for entry in _family(*family)),
    Entry(
        "udp-lost-uncounted",
        "critical",
        "udp",
        Judged((*_ERRORS, optional(_SOCKETS)), _lost_uncounted),
        "UDP sockets lost {by} datagrams that no other counter includes: UDP's memory (udp_mem) is exhausted",
        "When all UDP sockets of the host together hold too much unread data, new datagrams are dropped; "
        "recent kernels count this only at the socket.",
        _MEMORY,
        'net/ipv4/udp.c __udp_enqueue_schedule_skb ("TODO: update SNMP values"); ip-sysctl.rst udp_mem',
        "Every other loss is counted elsewhere, too; below 10, the readings may not be simultaneous.",
        advice=_MEMORY_SIZES,
    ),
    Entry(
        "udp-memory-filling",
        "warning",
        "udp",
        filled(Ref("sockstat", ("UDP.mem",)), _UDP_MEM, above=0.6),
        "UDP uses {now} of at most {limit} pages ({share})",
        "Above the limit, datagrams are dropped for all sockets.",
        _MEMORY,
        "net/ipv4/udp.c __udp_enqueue_schedule_skb; Documentation/networking/ip-sysctl.rst udp_mem",
        "Sockets that are read hold little; at two thirds, some application does not read.",
        advice=_MEMORY_SIZES,
    ),
)  # fmt: skip
