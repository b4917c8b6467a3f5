// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Recording: where the programs are attached, each of which makes a record. Bodies are in the headers
 * (hopscope.probes.catalogue.record has the table).
 */
#include "record/arrival.h"
#include "record/calls.h"
#include "record/limit.h"
#include "record/netfilter.h"
#include "record/tcp.h"
#include "record/tls.h"
#include "record/transmit.h"
#include "record/uring.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* ---- packets that are received ---- */

SEC("tp_btf/netif_rx")
int BPF_PROG(record_netif_rx, struct sk_buff *skb)
{
	return passes_gro(skb);
}

SEC("tp_btf/napi_gro_receive_entry")
int BPF_PROG(record_gro_receive, struct sk_buff *skb)
{
	return gro_takes(skb);
}

SEC("tp_btf/napi_gro_frags_entry")
int BPF_PROG(record_gro_frags, struct sk_buff *skb)
{
	return gro_takes(skb);
}

SEC("tp_btf/netif_receive_skb_entry")
int BPF_PROG(record_receive, struct sk_buff *skb)
{
	return passes_gro(skb);
}

SEC("tp_btf/netif_receive_skb_list_entry")
int BPF_PROG(record_receive_list, struct sk_buff *skb)
{
	return passes_gro(skb);
}

SEC("tp_btf/netif_receive_skb")
int BPF_PROG(record_core, struct sk_buff *skb)
{
	return core_takes(skb);
}

SEC("fentry/ip_rcv_core")
int BPF_PROG(record_ip_rcv_core_fentry, struct sk_buff *skb)
{
	return arrives(skb, HOP_POINT_RX_IP);
}

SEC("fentry/ip6_rcv_core")
int BPF_PROG(record_ip6_rcv_core_fentry, struct sk_buff *skb)
{
	return arrives(skb, HOP_POINT_RX_IP);
}

SEC("fentry/tcp_v4_rcv")
int BPF_PROG(record_tcp_v4_rcv_fentry, struct sk_buff *skb)
{
	return passes(skb, HOP_POINT_RX_L4, false);
}

SEC("fentry/tcp_v6_rcv")
int BPF_PROG(record_tcp_v6_rcv_fentry, struct sk_buff *skb)
{
	return passes(skb, HOP_POINT_RX_L4, false);
}

SEC("fentry/udp_rcv")
int BPF_PROG(record_udp_rcv_fentry, struct sk_buff *skb)
{
	return passes(skb, HOP_POINT_RX_L4, false);
}

SEC("fentry/udpv6_rcv")
int BPF_PROG(record_udpv6_rcv_fentry, struct sk_buff *skb)
{
	return passes(skb, HOP_POINT_RX_L4, false);
}

SEC("cgroup_skb/ingress")
int record_l4_cgroup(struct __sk_buff *ctx)
{
	struct sk_buff *skb = bpf_cast_to_kern_ctx(ctx);

	at_filter(skb);
	limit_filtered(skb);
	return 1;
}

SEC("tp_btf/tcp_probe")
int BPF_PROG(record_tcp_queue, struct sock *sk, struct sk_buff *skb)
{
	return elsewhere(skb, HOP_POINT_RX_TCP_QUEUE, true, skb->len);
}

SEC("tp_btf/skb_copy_datagram_iovec")
int BPF_PROG(record_copy, struct sk_buff *skb, s32 len_bytes)
{
	return elsewhere(skb, HOP_POINT_RX_COPY, false, len_bytes);
}

SEC("tp_btf/consume_skb")
int BPF_PROG(record_free, struct sk_buff *skb)
{
	return elsewhere(skb, HOP_POINT_SKB_FREE, false, skb->len);
}

/* An argument that not every kernel has is no parameter: it would be read on all of them. */
SEC("tp_btf/kfree_skb")
int BPF_PROG(record_drop, struct sk_buff *skb, void *location)
{
	return dropped(ctx, skb, (u64)location, cfg_drop_arguments > 2 ? ctx[2] : 0);
}

/* ---- packets that are sent ---- */

SEC("tp_btf/net_dev_queue")
int BPF_PROG(record_queue, struct sk_buff *skb)
{
	return device_takes(skb);
}

SEC("tp_btf/qdisc_enqueue")
int BPF_PROG(record_enqueue, struct Qdisc *qdisc, struct netdev_queue *queue, struct sk_buff *skb)
{
	know_qdisc(qdisc, skb->dev);
	return passes(skb, HOP_POINT_TX_ENQUEUE, false);
}

SEC("tp_btf/qdisc_dequeue")
int BPF_PROG(record_dequeue, struct Qdisc *qdisc, struct netdev_queue *queue, s32 packets, u64 skb)
{
	return queue_gives(qdisc, packets, skb);
}

SEC("tp_btf/net_dev_start_xmit")
int BPF_PROG(record_start, struct sk_buff *skb, struct net_device *dev)
{
	return driver_begins(skb, dev);
}

/* The packet may be gone: nothing of it can be looked at but its address. */
SEC("tp_btf/net_dev_xmit")
int BPF_PROG(record_xmit, u64 skb, s32 result, struct net_device *dev, u32 len_bytes)
{
	return driver_returns(skb, result, dev, len_bytes);
}

/* ---- calls and sockets ---- */

SEC("tp_btf/sys_enter")
int BPF_PROG(record_call, struct pt_regs *regs, u64 number)
{
	return call_begins(regs, number);
}

SEC("tp_btf/sys_exit")
int BPF_PROG(record_call_exit, struct pt_regs *regs, s64 result)
{
	return call_ends(regs, result);
}

SEC("tp_btf/io_uring_submit_req")
int BPF_PROG(record_uring_submit, struct io_kiocb *request)
{
	return uring_submits(request);
}

SEC("tp_btf/io_uring_queue_async_work")
int BPF_PROG(record_uring_work, struct io_kiocb *request)
{
	return uring_works(request);
}

/* What it completes with is in the third argument, or is that and the next one. */
SEC("tp_btf/io_uring_complete")
int BPF_PROG(record_uring_complete, void *ring, struct io_kiocb *request)
{
	struct io_uring_cqe *cqe = (void *)ctx[2];

	if (cfg_uring_arguments > 3)
		return uring_completes(ring, request, ctx[2], (s32)ctx[3]);
	return uring_completes(ring, request, BPF_CORE_READ(cqe, user_data), BPF_CORE_READ(cqe, res));
}

/* User space attaches these to libraries. */
SEC("uprobe")
int record_tls_write(struct pt_regs *regs)
{
	return tls_begins(regs, 0);
}

SEC("uprobe")
int record_tls_write_ex(struct pt_regs *regs)
{
	return tls_begins(regs, PT_REGS_PARM4(regs));
}

SEC("uprobe")
int record_tls_written(struct pt_regs *regs)
{
	return tls_ends(regs, HOP_POINT_TLS_WRITE);
}

SEC("uprobe")
int record_tls_read(struct pt_regs *regs)
{
	return tls_begins(regs, 0);
}

SEC("uprobe")
int record_tls_read_ex(struct pt_regs *regs)
{
	return tls_begins(regs, PT_REGS_PARM4(regs));
}

SEC("uprobe")
int record_tls_given(struct pt_regs *regs)
{
	return tls_ends(regs, HOP_POINT_TLS_READ);
}

/* And at each instruction of Go's functions that returns. */
SEC("uprobe")
int record_go_write(struct pt_regs *regs)
{
	return go_begins(regs);
}

SEC("uprobe")
int record_go_written(struct pt_regs *regs)
{
	return go_ends(regs, HOP_POINT_TLS_WRITE);
}

SEC("uprobe")
int record_go_read(struct pt_regs *regs)
{
	return go_begins(regs);
}

SEC("uprobe")
int record_go_given(struct pt_regs *regs)
{
	return go_ends(regs, HOP_POINT_TLS_READ);
}

SEC("tp_btf/tcp_sendmsg_locked")
int BPF_PROG(record_send_tp, struct sock *sk, struct msghdr *msg)
{
	return send_call(sk, msg);
}

SEC("fentry/tcp_sendmsg_locked")
int BPF_PROG(record_send_fentry, struct sock *sk, struct msghdr *msg)
{
	return socket_event(sk, HOP_POINT_TX_SEND, false, true, msg->msg_iter.count, 0);
}

SEC("tp_btf/sock_send_length")
int BPF_PROG(record_sent_tp, struct sock *sk, s32 result)
{
	return socket_used(sk, HOP_POINT_TX_SENT, false, result, 0);
}

SEC("tp_btf/sock_recv_length")
int BPF_PROG(record_received_tp, struct sock *sk, s32 result, u32 flags)
{
	return socket_used(sk, HOP_POINT_RX_RECEIVED, true, result, flags);
}

/* Before these tracepoints (6.3, 6e6eda44b939), the sockets' functions. */
#define SENT(name)                                                                                                     \
	SEC("fexit/" #name)                                                                                            \
	int BPF_PROG(record_##name##_fexit, struct socket *socket, struct msghdr *msg, u64 len_bytes, s32 result)      \
	{                                                                                                              \
		return socket_used(socket->sk, HOP_POINT_TX_SENT, false, result, 0);                                   \
	}

SENT(inet_sendmsg)
SENT(inet6_sendmsg)

#define RECEIVED(name)                                                                                                 \
	SEC("fexit/" #name)                                                                                            \
	int BPF_PROG(record_##name##_fexit, struct socket *socket, struct msghdr *msg, u64 len_bytes, u32 flags,       \
		     s32 result)                                                                                       \
	{                                                                                                              \
		return socket_used(socket->sk, HOP_POINT_RX_RECEIVED, true, result, flags);                            \
	}

RECEIVED(inet_recvmsg)
RECEIVED(inet6_recvmsg)

SEC("tp_btf/sk_data_ready")
int BPF_PROG(record_ready_tp, struct sock *sk)
{
	return socket_event(sk, HOP_POINT_RX_READY, true, false, 0, 0);
}

SEC("fentry/sock_def_readable")
int BPF_PROG(record_ready_fentry, struct sock *sk)
{
	return socket_event(sk, HOP_POINT_RX_READY, true, false, 0, 0);
}

SEC("tp_btf/tcp_rcv_space_adjust")
int BPF_PROG(record_read, struct sock *sk)
{
	return socket_event(sk, HOP_POINT_RX_READ, true, true, 0, 0);
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(record_state, struct sock *sk, u32 from, u32 to)
{
	return state_changes(sk, from, to);
}

SEC("tp_btf/sock_rcvqueue_full")
int BPF_PROG(record_full, struct sock *sk)
{
	return socket_event(sk, HOP_POINT_RX_FULL, true, false, 0, 0);
}

SEC("tp_btf/tcp_retransmit_skb")
int BPF_PROG(record_retransmit, struct sock *sk, struct sk_buff *skb)
{
	return retransmitted(sk, skb, cfg_retransmit_arguments > 2 ? ctx[2] : 0);
}

SEC("tp_btf/tcp_probe")
int BPF_PROG(record_tcp_probe, struct sock *sk)
{
	return tcp_probed(sk);
}

SEC("tp_btf/net_dev_queue")
int BPF_PROG(record_tcp_leaves, struct sk_buff *skb)
{
	return tcp_probed_leaving(skb);
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(record_tcp_closes, struct sock *sk, u32 from)
{
	return tcp_probed_closing(sk, from);
}

/* ---- what keeps messages from leaving ---- */

SEC("fexit/tcp_write_xmit")
int BPF_PROG(record_limit_tried, struct sock *sk, u32 mss, s32 nagle)
{
	return limit_tried(sk, mss, nagle);
}

SEC("tp_btf/sock_send_length")
int BPF_PROG(record_limit_sent, struct sock *sk)
{
	return limit_sent(sk);
}

SEC("tp_btf/tcp_probe")
int BPF_PROG(record_limit_acked, struct sock *sk)
{
	return limit_acked(sk);
}

SEC("tp_btf/net_dev_queue")
int BPF_PROG(record_limit_leaves, struct sk_buff *skb)
{
	return limit_leaves(skb);
}

SEC("tp_btf/neigh_event_send_done")
int BPF_PROG(record_neighbour, struct neighbour *neighbour, s32 waits)
{
	return waits ? neighbour_keeps(neighbour) : 0;
}

/* ---- what CPUs do ---- */

SEC("tp_btf/irq_handler_entry")
int BPF_PROG(record_irq_enter, u32 number, struct irqaction *action)
{
	return work(HOP_POINT_IRQ_ENTER, number, address(action->handler));
}

SEC("tp_btf/irq_handler_exit")
int BPF_PROG(record_irq_exit, u32 number, void *action, u32 result)
{
	return work(HOP_POINT_IRQ_EXIT, number, result);
}

SEC("tp_btf/softirq_raise")
int BPF_PROG(record_softirq_raise, u32 vector)
{
	return work(HOP_POINT_SOFTIRQ_RAISE, vector, 0);
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(record_softirq_enter, u32 vector)
{
	return work(HOP_POINT_SOFTIRQ_ENTER, vector, 0);
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(record_softirq_exit, u32 vector)
{
	return work(HOP_POINT_SOFTIRQ_EXIT, vector, 0);
}

/* How long the receive softirq is pending. */
SEC("tp_btf/softirq_raise")
int BPF_PROG(record_pending_raise, u32 vector)
{
	return receive_raised(vector);
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(record_pending_enter, u32 vector)
{
	return softirq_begins(vector);
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(record_pending_exit, u32 vector)
{
	return softirq_ends(vector);
}

SEC("tp_btf/napi_poll")
int BPF_PROG(record_napi, struct napi_struct *napi, s32 packets, s32 budget)
{
	return polled(napi, packets, budget);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(record_switch, bool preempted, struct task_struct *from, struct task_struct *to)
{
	return thread_switches(preempted, from, to);
}

SEC("tp_btf/sched_waking")
int BPF_PROG(record_wake, struct task_struct *task)
{
	return thread_wakes(task);
}

SEC("tp_btf/task_newtask")
int BPF_PROG(record_newtask, struct task_struct *task)
{
	return thread_begins(task);
}

SEC("tp_btf/task_rename")
int BPF_PROG(record_rename, struct task_struct *task)
{
	return thread_renamed(task);
}

/* ---- XDP and netfilter ---- */

SEC("tp_btf/xdp_exception")
int BPF_PROG(record_xdp_exception, struct net_device *dev, const struct bpf_prog *program, u32 action)
{
	return xdp_failed(dev, program, action);
}

SEC("tp_btf/xdp_redirect")
int BPF_PROG(record_xdp_redirect, struct net_device *dev, const struct bpf_prog *program, void *target, s32 error)
{
	return xdp_redirected(dev, program, error);
}

SEC("tp_btf/xdp_redirect_err")
int BPF_PROG(record_xdp_redirect_err, struct net_device *dev, const struct bpf_prog *program, void *target, s32 error)
{
	return xdp_redirected(dev, program, error);
}

SEC("fexit/nf_hook_slow")
int BPF_PROG(record_verdict, struct sk_buff *skb, struct nf_hook_state *state, void *entries, u32 first, s32 result)
{
	return verdict(skb, state, result);
}

/* User space sets the types: libbpf knows this section only from 1.3 on. */
SEC("netfilter")
int record_rules_begin(struct bpf_nf_ctx *ctx)
{
	rules_begin(ctx->skb, ctx->state);
	return 1; /* NF_ACCEPT */
}

SEC("netfilter")
int record_rules_end(struct bpf_nf_ctx *ctx)
{
	rules_end(ctx->skb, ctx->state);
	return 1;
}

SEC("fentry/nf_hook_slow")
int BPF_PROG(record_rules_begin_fentry, struct sk_buff *skb, struct nf_hook_state *state)
{
	if (is_ip(state))
		rules_begin(skb, state);
	return 0;
}

SEC("fexit/nf_hook_slow")
int BPF_PROG(record_rules_end_fexit, struct sk_buff *skb, struct nf_hook_state *state, void *entries, u32 first,
	     s32 result)
{
	if (is_ip(state) && result > 0)
		rules_end(skb, state);
	return 0;
}
