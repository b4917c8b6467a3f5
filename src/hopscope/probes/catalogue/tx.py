# SPDX-License-Identifier: Apache-2.0
"""The catalogue's points on the way out, from the send call to the ACK."""

from __future__ import annotations

from typing import Final

from hopscope.probes.point import AttachMethod, Point

_STAMPS: Final = ("bpf_sock_ops_enable_tx_tstamp", "bpf_cast_to_kern_ctx", "bpf_rdonly_cast")


def _stamp(name: str) -> AttachMethod:
    """Return the way by one of the callbacks of BPF time stamping."""
    return AttachMethod("sockops", (name,), ("tx_stamped",), kfuncs=_STAMPS)


TX: Final = (
    Point(
        "tx.send",
        "a send call has the TCP socket to itself (tcp_sendmsg_locked)",
        (
            AttachMethod("fentry", ("tcp_sendmsg_locked",), ("tx_tcp_send_fentry",)),
            AttachMethod(
                "tp_btf",
                ("tcp_sendmsg_locked",),
                ("tx_tcp_send_tp",),
                differs="at the first look of TCP at the bytes, some ten ns later",
            ),
            AttachMethod("kprobe", ("tcp_sendmsg_locked",), ("tx_tcp_send_kprobe",)),
        ),
    ),
    Point("tx.tcp", "TCP has taken the bytes of the call (tcp_tx_timestamp)", (_stamp("TSTAMP_SENDMSG"),)),
    Point(
        "tx.sockets",
        "TCP sockets that exist at the start are switched on, and at the end off",
        (AttachMethod("iter", ("tcp",), ("tx_switch_on", "tx_switch_off"), kfuncs=_STAMPS),),
    ),
    Point(
        "tx.arrival",
        "a segment comes to the sending socket: what has held its bytes until now is seen (tcp_rcv_established)",
        (AttachMethod("tp_btf", ("tcp_probe",), ("tx_arrives",), kfuncs=_STAMPS),),
    ),
    Point(
        "tx.sched",
        "the message's last byte leaves TCP, to its first device (__dev_queue_xmit)",
        (
            _stamp("TSTAMP_SCHED"),
            AttachMethod(
                "tp_btf",
                ("net_dev_queue",),
                ("tx_queue",),
                helpers=("tx_xmit",),
                differs="every packet of the host runs it; a message begins at its send call, as hand-over is not "
                "seen; a call that another one of the same socket interrupts counts as two; at most 1,024 sockets at "
                "once",
            ),
        ),
    ),
    Point(
        "tx.qdisc",
        "the packet is out of the queueing discipline, the driver's function is called (net_dev_start_xmit)",
        (AttachMethod("tp_btf", ("net_dev_start_xmit",), ("tx_start_xmit",)),),
    ),
    Point("tx.driver", "the driver has the packet (skb_tx_timestamp)", (_stamp("TSTAMP_SND_SW"),)),
    Point("tx.nic", "the NIC has sent it, as the driver reports (skb_tstamp_tx)", (_stamp("TSTAMP_SND_HW"),)),
    Point(
        "tx.ack",
        "the message's last byte is acknowledged (tcp_ack_tstamp)",
        (
            _stamp("TSTAMP_ACK"),
            AttachMethod(
                "tp_btf",
                ("tcp_probe", "inet_sock_set_state"),
                ("tx_ack", "tx_state_tp"),
                differs="before TCP works on the ACK; what is acknowledged after the socket was closed is not seen",
            ),
        ),
    ),
    Point(
        "tx.udp_send",
        "a send call on UDP is entered (udp_sendmsg, udpv6_sendmsg)",
        (
            AttachMethod("fentry", ("udp_sendmsg", "udpv6_sendmsg"), ("tx_udp_send_fentry", "tx_udp6_send_fentry")),
            AttachMethod("kprobe", ("udp_sendmsg", "udpv6_sendmsg"), ("tx_udp_send_kprobe", "tx_udp6_send_kprobe")),
            AttachMethod(
                "tp_btf",
                ("sys_enter",),
                ("tx_send_call_tp",),
                differs="at the system call (sendto, sendmsg, sendmmsg, write, writev; not io_uring), of every socket; "
                "every system call of the host runs it; one entry for all datagrams of a sendmmsg",
            ),
        ),
    ),
    Point(
        "tx.udp",
        "a datagram leaves IP, to its first device (net_dev_queue)",
        (AttachMethod("tp_btf", ("net_dev_queue",), ("tx_queue",)),),
    ),
    Point(
        "tx.udp_qdisc",
        "it is out of the queueing discipline (net_dev_start_xmit)",
        (AttachMethod("tp_btf", ("net_dev_start_xmit",), ("tx_start_xmit",)),),
    ),
    Point(
        "tx.udp_driver",
        "the driver's function has returned (net_dev_xmit)",
        (AttachMethod("tp_btf", ("net_dev_xmit",), ("tx_xmit",)),),
    ),
    Point(
        "tx.udp_free",
        "the device is done with it: its memory is freed (consume_skb), or it was dropped (kfree_skb)",
        (AttachMethod("tp_btf", ("consume_skb", "kfree_skb"), ("tx_consumed", "tx_dropped")),),
    ),
)
