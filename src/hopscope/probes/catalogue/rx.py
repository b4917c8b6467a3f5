# SPDX-License-Identifier: Apache-2.0
"""The catalogue's points on the way in, from the driver to the application's read."""

from __future__ import annotations

from typing import Final

from hopscope.probes.point import HAND_OVER, AttachMethod, Point

RX: Final = (
    Point(
        "rx.softirq",
        "NET_RX softirq raised and entered, per CPU",
        (AttachMethod("tp_btf", ("softirq_raise", "softirq_entry"), ("rx_softirq_raise", "rx_softirq_entry")),),
    ),
    Point(
        "rx.napi",
        "a NAPI poll ends (net_rx_action)",
        (AttachMethod("tp_btf", ("napi_poll",), ("rx_napi_poll",), helpers=("rx_softirq_entry",)),),
    ),
    Point(
        "rx.driver",
        "the driver hands a packet over, before GRO or the backlog queue",
        (
            AttachMethod(
                "tp_btf",
                HAND_OVER,
                (
                    "rx_netif_rx",
                    "rx_napi_gro_receive",
                    "rx_napi_gro_frags",
                    "rx_netif_receive",
                    "rx_netif_receive_list",
                ),
            ),
        ),
    ),
    Point(
        "rx.core",
        "the core takes the packet (__netif_receive_skb_core)",
        (AttachMethod("tp_btf", ("netif_receive_skb",), ("rx_core",)),),
    ),
    Point(
        "rx.ip",
        "IP begins (ip_rcv_core, ip6_rcv_core)",
        (
            AttachMethod("fentry", ("ip_rcv_core", "ip6_rcv_core"), ("rx_ip_fentry", "rx_ip6_fentry")),
            AttachMethod("kprobe", ("ip_rcv_core", "ip6_rcv_core"), ("rx_ip_kprobe", "rx_ip6_kprobe")),
            AttachMethod(
                "netfilter",
                ("PREROUTING",),
                ("rx_ip_netfilter",),
                differs="after the header checks of ip_rcv_core, first in PREROUTING; packets with a broken header are "
                "not seen; a namespace made during the run is seen from the next interval on",
            ),
        ),
    ),
    Point(
        "rx.forward",
        "IP sends the packet on (ip_forward, ip6_forward)",
        (
            AttachMethod("fentry", ("ip_forward", "ip6_forward"), ("rx_forward_fentry", "rx_forward6_fentry")),
            AttachMethod("kprobe", ("ip_forward", "ip6_forward"), ("rx_forward_kprobe", "rx_forward6_kprobe")),
            AttachMethod(
                "netfilter_forward",
                ("FORWARD",),
                ("rx_forward_netfilter",),
                differs="first in FORWARD; a namespace made during the run is seen from the next interval on",
            ),
        ),
    ),
    Point(
        "rx.tcp",
        "TCP begins (tcp_v4_rcv, tcp_v6_rcv)",
        (
            AttachMethod("fentry", ("tcp_v4_rcv", "tcp_v6_rcv"), ("rx_tcp_fentry", "rx_tcp6_fentry")),
            AttachMethod("kprobe", ("tcp_v4_rcv", "tcp_v6_rcv"), ("rx_tcp_kprobe", "rx_tcp6_kprobe")),
            AttachMethod(
                "cgroup_skb",
                ("ingress",),
                ("rx_l4_cgroup",),
                kfuncs=("bpf_cast_to_kern_ctx",),
                differs="after the socket look-up, where the socket filter runs; packets without a full socket "
                "(handshake, TIME_WAIT, closed port) are not seen",
            ),
        ),
    ),
    Point(
        "rx.udp",
        "UDP begins (udp_rcv, udpv6_rcv)",
        (
            AttachMethod("fentry", ("udp_rcv", "udpv6_rcv"), ("rx_udp_fentry", "rx_udp6_fentry")),
            AttachMethod("kprobe", ("udp_rcv", "udpv6_rcv"), ("rx_udp_kprobe", "rx_udp6_kprobe")),
            AttachMethod(
                "cgroup_skb",
                ("ingress",),
                ("rx_l4_cgroup",),
                kfuncs=("bpf_cast_to_kern_ctx",),
                differs="after the socket look-up, where the socket filter runs; datagrams to a closed port are not "
                "seen",
            ),
        ),
    ),
    Point(
        "rx.tcp_queue",
        "the socket processes the segment, out of the backlog, and queues it (tcp_rcv_established)",
        (
            AttachMethod("tp_btf", ("tcp_probe",), ("rx_tcp_queue_tp",)),
            AttachMethod("kprobe", ("tcp_rcv_established",), ("rx_tcp_queue_kprobe",)),
        ),
    ),
    Point(
        "rx.tcp_closing",
        "the same for a segment that comes while the connection opens or closes (tcp_rcv_state_process)",
        (
            AttachMethod("fentry", ("tcp_rcv_state_process",), ("rx_tcp_closing_fentry",)),
            AttachMethod(
                "tp_btf",
                ("sk_data_ready",),
                ("rx_ready",),
                kfuncs=("bpf_rdonly_cast",),
                differs="when the socket tells its reader, after our own FIN only; data that arrives out of order or "
                "fills a hole is not seen then; a segment that TCP merges with one that waits shares its sample",
            ),
        ),
    ),
    Point(
        "rx.udp_queue",
        "the datagram is in the socket's queue (__udp_enqueue_schedule_skb)",
        (
            AttachMethod("fexit", ("__udp_enqueue_schedule_skb",), ("rx_udp_queue_fexit",)),
            AttachMethod(
                "kprobe",
                ("__udp_enqueue_schedule_skb",),
                ("rx_udp_queue_kprobe",),
                differs="before the datagram is queued; those that a full buffer refuses are counted, too",
            ),
            AttachMethod(
                "tp_btf",
                ("sk_data_ready",),
                ("rx_ready",),
                helpers=("rx_l4_cgroup",),
                kfuncs=("bpf_cast_to_kern_ctx", "bpf_rdonly_cast"),
                differs="when the socket tells its reader; where several CPUs fill one socket at once, some are "
                "missing",
            ),
        ),
    ),
    Point(
        "rx.wake",
        "the reader comes on a CPU (schedule)",
        (AttachMethod("tp_btf", ("sched_switch",), ("rx_sched_switch",)),),
    ),
    Point(
        "rx.tcp_read",
        "the application has read the bytes (tcp_rcv_space_adjust)",
        (
            AttachMethod("tp_btf", ("tcp_rcv_space_adjust",), ("rx_tcp_read_tp",)),
            AttachMethod("kprobe", ("tcp_rcv_space_adjust",), ("rx_tcp_read_kprobe",)),
        ),
    ),
    Point(
        "rx.udp_read",
        "the application has read the datagram (skb_consume_udp)",
        (
            AttachMethod("fentry", ("skb_consume_udp",), ("rx_udp_read_fentry",)),
            AttachMethod("kprobe", ("skb_consume_udp",), ("rx_udp_read_kprobe",)),
            AttachMethod(
                "tp_btf",
                ("sock_recv_length",),
                ("rx_udp_read_tp",),
                helpers=("rx_ready", "rx_l4_cgroup"),
                kfuncs=("bpf_cast_to_kern_ctx", "bpf_rdonly_cast"),
                differs="at the return of the call that reads; with several threads on one socket, datagrams that are "
                "read at the same time may be taken for one another",
            ),
        ),
    ),
    Point(
        "rx.drop",
        "the packet is dropped, with a reason (kfree_skb), or its TCP socket is destroyed",
        (AttachMethod("tp_btf", ("kfree_skb", "tcp_destroy_sock"), ("rx_drop", "rx_tcp_destroy")),),
    ),
)
