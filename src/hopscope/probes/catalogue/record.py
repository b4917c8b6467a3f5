# SPDX-License-Identifier: Apache-2.0
"""The catalogue's points of recordings: each hook makes a record, and keeps nothing in mind but what it told before."""

from __future__ import annotations

from typing import Final

from hopscope.kernel.tls_functions import FUNCTIONS, Count
from hopscope.probes.point import HAND_OVER, AttachMethod, Point

_PREFIX: Final = "record."


def _tracepoint(hook: str, program: str) -> AttachMethod:
    return AttachMethod("tp_btf", (hook,), (f"record_{program}",))


def _point(name: str, marks: str, *ways: AttachMethod) -> Point:
    return Point(f"{_PREFIX}{name}", marks, ways)


# By where the number of bytes is: the program at the entry, and the one at returns; first of what writes.
_OF_LIBRARIES: Final = {
    (True, Count.RESULT): ("record_tls_write", "record_tls_written"),
    (True, Count.FOURTH_ARGUMENT): ("record_tls_write_ex", "record_tls_written"),
    (True, Count.GO_RESULT): ("record_go_write", "record_go_written"),
    (False, Count.RESULT): ("record_tls_read", "record_tls_given"),
    (False, Count.FOURTH_ARGUMENT): ("record_tls_read_ex", "record_tls_given"),
    (False, Count.GO_RESULT): ("record_go_read", "record_go_given"),
}


def _library(*, writes: bool) -> AttachMethod:
    functions = [each for each in FUNCTIONS if each.writes == writes]
    programs, returns = zip(*(_OF_LIBRARIES[writes, each.counted] for each in functions), strict=True)
    return AttachMethod("uprobe", tuple(each.name for each in functions), programs, returns=returns)


RECORD: Final = (
    _point(
        "rx.driver",
        "the driver hands a packet over, before GRO or the backlog queue",
        AttachMethod(
            "tp_btf",
            HAND_OVER,
            (
                "record_netif_rx",
                "record_gro_receive",
                "record_gro_frags",
                "record_receive",
                "record_receive_list",
            ),
        ),
    ),
    _point("rx.core", "the core takes the packet (__netif_receive_skb_core)", _tracepoint("netif_receive_skb", "core")),
    _point(
        "rx.ip",
        "IP begins (ip_rcv_core, ip6_rcv_core)",
        AttachMethod(
            "fentry", ("ip_rcv_core", "ip6_rcv_core"), ("record_ip_rcv_core_fentry", "record_ip6_rcv_core_fentry")
        ),
    ),
    _point(
        "rx.l4",
        "TCP or UDP begins (tcp_v4_rcv, udp_rcv, …)",
        AttachMethod(
            "fentry",
            ("tcp_v4_rcv", "tcp_v6_rcv", "udp_rcv", "udpv6_rcv"),
            (
                "record_tcp_v4_rcv_fentry",
                "record_tcp_v6_rcv_fentry",
                "record_udp_rcv_fentry",
                "record_udpv6_rcv_fentry",
            ),
        ),
        AttachMethod(
            "cgroup_skb",
            ("ingress",),
            ("record_l4_cgroup",),
            kfuncs=("bpf_cast_to_kern_ctx",),
            differs="after the socket look-up, where the socket filter runs; packets without a full socket "
            "(handshake, TIME_WAIT, closed port) are not seen",
        ),
    ),
    _point(
        "rx.tcp_queue",
        "the socket processes the segment, out of the backlog (tcp_rcv_established)",
        _tracepoint("tcp_probe", "tcp_queue"),
    ),
    _point(
        "rx.copy",
        "bytes of the packet are copied to the reader (skb_copy_datagram_iter)",
        _tracepoint("skb_copy_datagram_iovec", "copy"),
    ),
    _point("skb.free", "the kernel is done with the packet (consume_skb)", _tracepoint("consume_skb", "free")),
    _point("skb.drop", "the packet is dropped, with a reason (kfree_skb)", _tracepoint("kfree_skb", "drop")),
    _point("tx.queue", "the packet comes to a device (__dev_queue_xmit)", _tracepoint("net_dev_queue", "queue")),
    _point(
        "tx.enqueue", "it goes into a queueing discipline (dev_qdisc_enqueue)", _tracepoint("qdisc_enqueue", "enqueue")
    ),
    _point("tx.dequeue", "it comes out of it (dequeue_skb)", _tracepoint("qdisc_dequeue", "dequeue")),
    _point("tx.start", "the driver's function is called (xmit_one)", _tracepoint("net_dev_start_xmit", "start")),
    _point("tx.driver", "the driver's function has returned, and took it", _tracepoint("net_dev_xmit", "xmit")),
    _point(
        "tcp.retransmit",
        "TCP sends a segment again (tcp_retransmit_skb)",
        _tracepoint("tcp_retransmit_skb", "retransmit"),
    ),
    _point(
        "call.enter",
        "a system call that sends or receives is entered; read and write are recorded of threads that use sockets",
        _tracepoint("sys_enter", "call"),
    ),
    _point(
        "call.exit",
        "a system call on a socket, or one that waits for sockets, returns; of these, call.enter records all then",
        _tracepoint("sys_exit", "call_exit"),
    ),
    _point(
        "uring.submit",
        "a request of io_uring that is about a socket is taken (io_submit_sqe)",
        _tracepoint("io_uring_submit_req", "uring_submit"),
    ),
    _point(
        "uring.work",
        "it is given to a worker thread (io_queue_iowq)",
        AttachMethod(
            "tp_btf",
            ("io_uring_submit_req", "io_uring_queue_async_work"),
            ("record_uring_submit", "record_uring_work"),
        ),
    ),
    _point(
        "uring.complete",
        "it is complete, with its result (io_fill_cqe_req)",
        AttachMethod(
            "tp_btf", ("io_uring_submit_req", "io_uring_complete"), ("record_uring_submit", "record_uring_complete")
        ),
    ),
    _point(
        "tls.write",
        "a TLS library has taken plaintext from a program and returns (SSL_write, gnutls_record_send, …); --library",
        _library(writes=True),
    ),
    _point(
        "tls.read",
        "a TLS library has given plaintext to a program and returns (SSL_read, gnutls_record_recv, …); --library",
        _library(writes=False),
    ),
    _point(
        "tx.send",
        "a send call has the TCP socket to itself (tcp_sendmsg_locked)",
        AttachMethod("fentry", ("tcp_sendmsg_locked",), ("record_send_fentry",)),
        AttachMethod(
            "tp_btf",
            ("tcp_sendmsg_locked",),
            ("record_send_tp",),
            differs="at the first look of TCP at the bytes, some ten ns later",
        ),
    ),
    _point(
        "tx.sent",
        "a send call is done (sock_sendmsg)",
        _tracepoint("sock_send_length", "sent_tp"),
        AttachMethod(
            "fexit",
            ("inet_sendmsg", "inet6_sendmsg"),
            ("record_inet_sendmsg_fexit", "record_inet6_sendmsg_fexit"),
            differs="sendfile and splice do not come by here",
        ),
    ),
    _point(
        "tx.limit",
        "what keeps TCP from sending the rest has changed (tcp_write_xmit)",
        AttachMethod("fexit", ("tcp_write_xmit",), ("record_limit_tried",)),
        AttachMethod(
            "tp_btf",
            ("sock_send_length", "tcp_probe", "net_dev_queue"),
            ("record_limit_sent", "record_limit_acked", "record_limit_leaves"),
            differs="the socket is asked at the ends of send calls, when segments come, and when packets leave",
        ),
    ),
    _point(
        "tx.neighbour",
        "the packet waits for its neighbour's link-layer address (__neigh_event_send)",
        _tracepoint("neigh_event_send_done", "neighbour"),
    ),
    _point(
        "rx.ready",
        "the socket tells its reader that there is something (sk_data_ready)",
        _tracepoint("sk_data_ready", "ready_tp"),
        AttachMethod("fentry", ("sock_def_readable",), ("record_ready_fentry",)),
    ),
    _point("rx.read", "TCP: bytes were read (tcp_rcv_space_adjust)", _tracepoint("tcp_rcv_space_adjust", "read")),
    _point(
        "rx.received",
        "a receive call is done (sock_recvmsg)",
        _tracepoint("sock_recv_length", "received_tp"),
        AttachMethod(
            "fexit",
            ("inet_recvmsg", "inet6_recvmsg"),
            ("record_inet_recvmsg_fexit", "record_inet6_recvmsg_fexit"),
            differs="splice does not come by here",
        ),
    ),
    _point(
        "tcp.probe",
        "a segment comes to a TCP connection: its windows and round-trip time (tcp_rcv_established)",
        AttachMethod(
            "tp_btf",
            ("tcp_probe", "net_dev_queue", "inet_sock_set_state"),
            ("record_tcp_probe", "record_tcp_leaves", "record_tcp_closes"),
        ),
    ),
    _point("tcp.state", "a TCP socket changes its state", _tracepoint("inet_sock_set_state", "state")),
    _point(
        "rx.full", "a socket's receive buffer is full (sock_queue_rcv_skb)", _tracepoint("sock_rcvqueue_full", "full")
    ),
    _point("irq.enter", "a device's interrupt begins", _tracepoint("irq_handler_entry", "irq_enter")),
    _point("irq.exit", "a device's interrupt ends", _tracepoint("irq_handler_exit", "irq_exit")),
    _point("softirq.raise", "a softirq is asked for", _tracepoint("softirq_raise", "softirq_raise")),
    _point("softirq.enter", "a softirq begins", _tracepoint("softirq_entry", "softirq_enter")),
    _point("softirq.exit", "a softirq ends", _tracepoint("softirq_exit", "softirq_exit")),
    _point(
        "softirq.wait",
        "the receive softirq begins, after it was pending for 0.1 ms or more",
        AttachMethod(
            "tp_btf",
            ("softirq_raise", "softirq_entry", "softirq_exit"),
            ("record_pending_raise", "record_pending_enter", "record_pending_exit"),
        ),
    ),
    _point("napi.poll", "a NAPI poll ends", _tracepoint("napi_poll", "napi")),
    _point(
        "sched.switch",
        "a CPU goes from one thread to another, one of which uses sockets",
        _tracepoint("sched_switch", "switch"),
    ),
    _point("sched.wake", "a thread that uses sockets is woken", _tracepoint("sched_waking", "wake")),
    _point(
        "xdp.exception",
        "an XDP program aborts, or what it wants cannot be done",
        _tracepoint("xdp_exception", "xdp_exception"),
    ),
    _point(
        "xdp.redirect",
        "an XDP program sends a packet to another device or CPU",
        AttachMethod(
            "tp_btf",
            ("xdp_redirect", "xdp_redirect_err"),
            ("record_xdp_redirect", "record_xdp_redirect_err"),
        ),
    ),
    _point(
        "nf.verdict",
        "netfilter's functions at a hook have decided on a packet (nf_hook_slow)",
        AttachMethod("fexit", ("nf_hook_slow",), ("record_verdict",)),
    ),
    _point(
        "nf.rules",
        "netfilter's rules at a hook are done with a packet that they kept for 1 µs or more (nf_hook_slow)",
        AttachMethod(
            "netfilter_rules",
            ("INPUT", "OUTPUT", "PREROUTING", "POSTROUTING"),
            ("record_rules_begin",),
            returns=("record_rules_end",),
        ),
        AttachMethod(
            "fentry",
            ("nf_hook_slow",),
            ("record_rules_begin_fentry",),
            returns=("record_rules_end_fexit",),
            differs="also what the kernel registers there itself",
        ),
    ),
    _point(
        "threads",
        "threads begin, or get another name",
        AttachMethod("tp_btf", ("task_newtask", "task_rename"), ("record_newtask", "record_rename")),
    ),
)
