# SPDX-License-Identifier: Apache-2.0
"""What is known of interfaces and their queueing disciplines."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from hopscope.verbs.check.conditions import Any, Figure, Hit, Judged, Rises, Share, Shown, standing
from hopscope.verbs.check.figures import Now, Times
from hopscope.verbs.check.findings import Entry
from hopscope.verbs.check.knowledge.refs import Ref, link, nstat

if TYPE_CHECKING:
    from hopscope.verbs.check.scene import Place, Scene

# Simple queues, whose length is that of the interface. Any other has a limit of its own.
_FIFOS: Final = ("* pfifo_fast *", "* pfifo *", "* bfifo *")
# Filters that may drop on purpose stand at these; they queue nothing.
_FILTERS: Final = ("* ingress *", "* clsact *")
# They count what the queues below them count.
_SUMS: Final = ("* mq *", "* mqprio *")
_LENGTH: Final = Ref("link_setting", ("tx_queue_len",), subjects="{device}")
_QLEN: Final = Ref("qdisc", ("qlen",))


def _qdisc(name: str) -> Ref:
    return Ref("qdisc", (name,))


_FIFO_DROPS: Final = Ref("qdisc", ("drops",), only=_FIFOS)
_OTHER_DROPS: Final = Ref("qdisc", ("drops",), but=(*_FIFOS, *_FILTERS, *_SUMS))


def _standing_queue(scene: Scene, place: Place) -> Hit | None:
    before = sum(scene.before.numbers.get(key, 0) for key in scene.keys(_QLEN, place))
    now = scene.value(_QLEN, place) or 0
    if min(before, now) < 500:
        return None
    return Hit(standing(_QLEN, scene, place), {"least": Figure(min(before, now), "count", "max")})


ENTRIES: Final = (
    Entry(
        "device-rx-dropped",
        "warning",
        "device",
        Share(link("rx_dropped"), (link("rx_packets"),), above=0.001, at_least=50),
        "{by} received packets ({share}) were dropped at {where} before any protocol accepted them",
        "No protocol handles them (an unknown Ethernet type, a VLAN that is not configured), or the driver had "
        "no memory, or a program attached to the interface dropped them.",
        ("hopscope drops -g reason -g location --interface {device}", "ip -s -s link show dev {device}"),
        "include/uapi/linux/if_link.h rtnl_link_stats64.rx_dropped; net/core/dev.c __netif_receive_skb_core",
        "Switches send a few frames a second that the host does not use (LLDP, spanning tree): below 50, or 1 "
        "in 1,000.",
    ),
    Entry(
        "device-rx-nohandler",
        "notice",
        "device",
        Rises(link("rx_nohandler"), at_least=1000, per_s=1000),
        "{by} packets ({per_s} a second) reached {where}, an inactive member of a bond or team",
        "The switch sends traffic to the inactive port instead of the active one.",
        ("cat /proc/net/bonding/*  # which is active?",),
        "include/uapi/linux/if_link.h rtnl_link_stats64.rx_nohandler",
        "Broadcasts come to every port; 1,000 packets a second are more than that.",
    ),
    Entry(
        "device-tx-dropped",
        "warning",
        "device",
        Share(link("tx_dropped"), (link("tx_packets"), link("tx_dropped")), above=0.001, at_least=10),
        "{by} packets ({share}) were dropped by {where} on transmission",
        "The driver refused them: the other end of a veth or tunnel is down or full, or the card has no room.",
        ("hopscope drops -g reason -g location --interface {device}", "ip -s -s link show dev {device}"),
        "include/uapi/linux/if_link.h rtnl_link_stats64.tx_dropped",
        "A working interface sends all packets; single packets are lost while it is being set up.",
    ),
    Entry(
        "device-tx-carrier",
        "warning",
        "device",
        Rises(link("tx_carrier_errors"), at_least=3),
        "{by} packets could not be sent by {where}: it had no carrier, or no route to the destination",
        "The link was down at that moment; for a tunnel, there is no route to its other end.",
        ("ip -d link show dev {device}", "ethtool {device}"),
        "include/uapi/linux/if_link.h rtnl_link_stats64.tx_carrier_errors",
        "None on a link that is up.",
    ),
    Entry(
        "device-mtu-too-small",
        "warning",
        "device",
        Rises(nstat("IpFragFails"), at_least=10),
        "{by} IPv4 packets were too long for the outgoing interface, and must not be fragmented",
        "The sender is notified (ICMP fragmentation needed). If a firewall drops that message, connections "
        "open but hang as soon as full-sized packets are sent.",
        ("ip link  # which mtu is smaller than the others?", "tracepath -n ADDRESS"),
        "net/ipv4/ip_output.c ip_fragment, ip_forward.c ip_exceeds_mtu; RFC 1191",
        "Senders learn the path MTU from the first packet and keep it for 10 minutes: a few are normal.",
    ),
    Entry(
        "device-mtu-too-small-6",
        "warning",
        "device",
        Any((Rises(nstat("Ip6InTooBigErrors"), at_least=10), Rises(nstat("Ip6FragFails"), at_least=10))),
        "{by} IPv6 packets were too long for the outgoing interface",
        "The sender is notified (ICMPv6 packet too big). If a firewall drops that message, connections open "
        "but hang as soon as full-sized packets are sent.",
        ("ip link  # which mtu is smaller than the others?", "tracepath -6 -n ADDRESS"),
        "net/ipv6/ip6_output.c ip6_forward, ip6_fragment; RFC 8201",
        "Senders learn the path MTU from the first packet and keep it for 10 minutes: a few are normal.",
    ),
    Entry(
        "qdisc-fifo-drop",
        "warning",
        "qdisc",
        Share(_FIFO_DROPS, (_qdisc("packets"), _FIFO_DROPS), above=0.001, at_least=10),
        "{by} packets ({share}) were dropped by the full transmit queue of {where}",
        "More is sent than the link can carry. A longer queue absorbs longer bursts, but increases the delay "
        "for everyone; fq_codel shares the link fairly instead.",
        (
            "tc qdisc replace dev {device} root fq_codel",
            "ip link set dev {device} txqueuelen {longer}  # now {length}",
        ),
        "net/sched/sch_generic.c pfifo_fast_enqueue; tc-pfifo_fast(8)",
        "A link with spare capacity drops none; below 1 in 1,000, TCP hardly slows down.",
        advice={"length": Now(_LENGTH), "longer": Times(_LENGTH, 2, 1000)},
    ),
    Entry(
        "qdisc-drop",
        "warning",
        "qdisc",
        Share(_OTHER_DROPS, (_qdisc("packets"), _OTHER_DROPS), above=0.01, at_least=10),
        "{by} packets ({share}) were dropped by the queueing discipline {where}",
        "It receives more than its rate, its limit or its delay target allows. A shaper drops on purpose: in "
        "that case the senders do not slow down as they should, or its rate is too low.",
        ("tc -s -d qdisc show dev {device}  # which limit?", "tc -s class show dev {device}"),
        "net/sched/sch_api.c tc_fill_qdisc; tc(8), tc-fq_codel(8), tc-tbf(8), tc-htb(8)",
        "Shapers and CoDel drop packets to make TCP slow down: up to 1% is normal operation.",
    ),
    Entry(
        "qdisc-standing-queue",
        "warning",
        "qdisc",
        Judged((_QLEN,), _standing_queue),
        "At least {least} packets waited in the queue of {where} at both readings",
        "A standing queue delays everything that is sent through this interface: 500 full-sized packets are 6 "
        "ms at 1 Gbit/s and 60 ms at 100 Mbit/s.",
        (
            "hopscope tx  # how long do packets wait?",
            "tc qdisc replace dev {device} root fq_codel",
        ),
        "net/sched/sch_api.c tc_fill_qdisc; RFC 8289",
        "Bursts fill a queue for milliseconds; a queue that is full twice in a row is a standing queue.",
    ),
    Entry(
        "qdisc-requeues",
        "notice",
        "qdisc",
        Share(_qdisc("requeues"), (_qdisc("packets"),), above=0.1, at_least=1000),
        "{by} packets ({share}) were put back into the queue of {where} because the card's ring was full",
        "The ring is too short for the bursts, or the NIC is slow to report completed transmissions; CPU time "
        "is wasted.",
        ("ethtool -g {device}  # tx: below its maximum?", "ethtool -c {device}  # tx-usecs, tx-frames"),
        "net/sched/sch_generic.c dev_requeue_skb",
        "Busy NICs do so occasionally; one packet in ten is too often.",
    ),
    Entry(
        "qdisc-flow-limit",
        "warning",
        "qdisc",
        Rises(Ref("qdisc", ("flows_plimit",), since="fq only"), at_least=10),
        "{by} packets were dropped by {where} because one flow had its limit of packets queued",
        "A sender without congestion control, usually UDP, sends faster than the link can carry.",
        ("tc -s qdisc show dev {device}", "tc qdisc change dev {device} root fq flow_limit 1000  # default 100"),
        "net/sched/sch_fq.c fq_enqueue; tc-fq(8) flow_limit",
        "TCP's own limits prevent it; a handful may be one burst.",
    ),
    Entry(
        "qdisc-shaped",
        "notice",
        "qdisc",
        Share(replace(_qdisc("overlimits"), only=("* tbf *", "* htb *", "* hfsc *", "* cake *")), (_qdisc("packets"),),
              above=0.5, at_least=1000),
        "{where} held packets back {times} while it sent {of}",
        "The configured rate is the bottleneck: packets wait for the shaper, not for the network.",
        ("tc -s -d qdisc show dev {device}  # rate", "tc -s class show dev {device}"),
        "net/sched/sch_tbf.c tbf_dequeue qdisc_qstats_overlimit; tc-tbf(8)",
        "A shaper that works as intended counts these, too: reported only as a notice, if it holds back at "
        "least every second packet.",
    ),
    Entry(
        "qdisc-class-drop",
        "warning",
        "qdisc",
        Shown(
            Share(Ref("class", ("drops",)), (Ref("class", ("packets",)), Ref("class", ("drops",))), above=0.01,
                  at_least=10),
            (Ref("class", ("backlog_bytes",)),),
        ),
        "{by} packets ({share}) were dropped by the class {where}",
        "This class receives more than its rate and its queue allow.",
        ("tc -s -d class show dev {device}",),
        "net/sched/sch_api.c tc_fill_tclass; tc-htb(8)",
        "Shapers drop packets to make TCP slow down: up to 1% is normal operation.",
    ),
)  # fmt: skip
