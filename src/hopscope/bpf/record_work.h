// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Recording: the hooks of sockets and calls, of interrupts, softirqs, polls and the scheduler, and of XDP. */
#pragma once

#include "record_socket.h"

/* ---- calls ---- */

static const u8 socket_calls[512] = {
	[NR_sendto] = 1, [NR_sendmsg] = 1, [NR_sendmmsg] = 1, [NR_recvfrom] = 1, [NR_recvmsg] = 1, [NR_recvmmsg] = 1,
	[NR_write] = 2,  [NR_writev] = 2,  [NR_pwritev2] = 2, [NR_read] = 2,     [NR_readv] = 2,   [NR_preadv2] = 2,
};

/* Calls that any file may be the object of are recorded of threads that use sockets: nothing else is known of them yet. */
SEC("tp_btf/sys_enter")
int record_call(u64 *ctx)
{
	u64 number = ctx[1];
	struct hop_socket *record;
	u32 tid;

	if (number >= 512 || !socket_calls[number])
		return 0;
	tid = current_tid();
	if (socket_calls[number] == 2 && !thread_in(&socket_threads, tid))
		return 0;
	if ((cfg_by_process && !process_wanted()) || (cfg_by_headers && !thread_in(&socket_threads, tid)))
		return 0;
	tid = this_thread();
	record = reserve();
	if (!record)
		return 0;
	*record = (struct hop_socket){
		.time_ns = bpf_ktime_get_ns(),
		.point = HOP_POINT_CALL_ENTER,
		.tid = tid,
		.value = number,
	};
	submit(record);
	return 0;
}

/* ---- sockets ---- */

INLINE int socket_event(struct sock *sk, u32 point, bool receives, bool in_call, s32 len_bytes, s64 value)
{
	struct socket_event event = {
		.point = point,
		.receives = receives,
		.in_call = in_call,
		.len_bytes = len_bytes,
		.value = value,
	};

	return record_socket(sk, &event);
}

INLINE int send_call(struct sock *sk, struct msghdr *msg)
{
	u64 left = 0;

	if (!first_look(sk, msg, &left))
		return 0;
	return socket_event(sk, HOP_POINT_TX_SEND, false, true, left, 0);
}

SEC("tp_btf/tcp_sendmsg_locked")
int record_send_tp(u64 *ctx)
{
	return send_call((void *)ctx[0], (void *)ctx[1]);
}

SEC("fentry/tcp_sendmsg_locked")
int record_send_fentry(u64 *ctx)
{
	struct msghdr *msg = (void *)ctx[1];

	return socket_event((void *)ctx[0], HOP_POINT_TX_SEND, false, true, msg->msg_iter.count, 0);
}

SEC("tp_btf/sock_send_length")
int record_sent_tp(u64 *ctx)
{
	return socket_event((void *)ctx[0], HOP_POINT_TX_SENT, false, true, ctx[1], 0);
}

SEC("tp_btf/sock_recv_length")
int record_received_tp(u64 *ctx)
{
	return socket_event((void *)ctx[0], HOP_POINT_RX_RECEIVED, true, true, ctx[1], ctx[2]);
}

/* Before these tracepoints (6.3, 6e6eda44b939), the sockets' functions: what they return is behind their arguments. */
#define SENT(name)                                                                                                     \
	SEC("fexit/" #name)                                                                                            \
	int record_##name##_fexit(u64 *ctx)                                                                            \
	{                                                                                                              \
		struct socket *socket = (void *)ctx[0];                                                                \
                                                                                                                       \
		return socket_event(socket->sk, HOP_POINT_TX_SENT, false, true, ctx[3], 0);                            \
	}

SENT(inet_sendmsg)
SENT(inet6_sendmsg)

#define RECEIVED(name)                                                                                                 \
	SEC("fexit/" #name)                                                                                            \
	int record_##name##_fexit(u64 *ctx)                                                                            \
	{                                                                                                              \
		struct socket *socket = (void *)ctx[0];                                                                \
                                                                                                                       \
		return socket_event(socket->sk, HOP_POINT_RX_RECEIVED, true, true, ctx[4], ctx[3]);                    \
	}

RECEIVED(inet_recvmsg)
RECEIVED(inet6_recvmsg)

SEC("tp_btf/sk_data_ready")
int record_ready_tp(u64 *ctx)
{
	return socket_event((void *)ctx[0], HOP_POINT_RX_READY, true, false, 0, 0);
}

SEC("fentry/sock_def_readable")
int record_ready_fentry(u64 *ctx)
{
	return socket_event((void *)ctx[0], HOP_POINT_RX_READY, true, false, 0, 0);
}

SEC("tp_btf/tcp_rcv_space_adjust")
int record_read(u64 *ctx)
{
	return socket_event((void *)ctx[0], HOP_POINT_RX_READ, true, true, 0, 0);
}

/* Into these states calls bring it, connect(2) and listen(2); into others packets and timers, too. */
#define TCP_SYN_SENT 2
#define TCP_LISTEN 10

SEC("tp_btf/inet_sock_set_state")
int record_state(u64 *ctx)
{
	u32 from = ctx[1], to = ctx[2];

	return socket_event((void *)ctx[0], HOP_POINT_TCP_STATE, false, to == TCP_SYN_SENT || to == TCP_LISTEN, 0,
			    from << 8 | to);
}

SEC("tp_btf/sock_rcvqueue_full")
int record_full(u64 *ctx)
{
	return socket_event((void *)ctx[0], HOP_POINT_RX_FULL, true, false, 0, 0);
}

const volatile u32 cfg_retransmit_arguments =
	2; /* that this kernel's tracepoint has: a third is an error (since 6.16) */

/* The packet waits in the socket and has no headers yet: its flow is the socket's. */
SEC("tp_btf/tcp_retransmit_skb")
int record_retransmit(u64 *ctx)
{
	struct sock *sk = (void *)ctx[0];
	struct sk_buff *skb = (void *)ctx[1];
	struct tcp_skb_cb *cb = (void *)skb->cb;
	struct hop_packet *record;
	struct flow_key key = {};
	u64 flow = socket_flow(sk, false, &key);
	u32 netns = socket_netns(sk), tid;

	if (cfg_retransmit_arguments > 2 && (s32)ctx[2])
		return 0;
	if (!socket_wanted(sk, flow, &key, false, false))
		return 0;
	know_flow(flow, &key);
	tid = this_thread();
	record = reserve();
	if (!record)
		return 0;
	*record = (struct hop_packet){
		.time_ns = bpf_ktime_get_ns(),
		.point = HOP_POINT_TCP_RETRANSMIT,
		.tid = tid,
		.skb = (u64)skb,
		.head = address(skb->head),
		.flow = flow,
		.len_bytes = skb->len,
		.seq = probe_field(cb, seq),
		.netns = netns,
	};
	submit(record);
	return 0;
}

/* ---- what CPUs do ---- */

INLINE int record_work(struct hop_work *event)
{
	struct hop_work *record;

	event->tid = this_thread();
	record = reserve();
	if (!record)
		return 0;
	event->time_ns = bpf_ktime_get_ns();
	*record = *event;
	submit(record);
	return 0;
}

INLINE int work(u32 point, u64 subject, s64 value)
{
	struct hop_work event = {.point = point, .subject = subject, .value = value};

	return record_work(&event);
}

INLINE void work_at_device(struct hop_work *event, struct net_device *dev)
{
	event->ifindex = dev->ifindex;
	event->netns = dev->nd_net.net->ns.inum;
	know_device(dev, event->ifindex, event->netns);
}

SEC("tp_btf/irq_handler_entry")
int record_irq_enter(u64 *ctx)
{
	return work(HOP_POINT_IRQ_ENTER, (u32)ctx[0], 0);
}

SEC("tp_btf/irq_handler_exit")
int record_irq_exit(u64 *ctx)
{
	return work(HOP_POINT_IRQ_EXIT, (u32)ctx[0], (u32)ctx[2]);
}

SEC("tp_btf/softirq_raise")
int record_softirq_raise(u64 *ctx)
{
	return work(HOP_POINT_SOFTIRQ_RAISE, (u32)ctx[0], 0);
}

SEC("tp_btf/softirq_entry")
int record_softirq_enter(u64 *ctx)
{
	return work(HOP_POINT_SOFTIRQ_ENTER, (u32)ctx[0], 0);
}

SEC("tp_btf/softirq_exit")
int record_softirq_exit(u64 *ctx)
{
	return work(HOP_POINT_SOFTIRQ_EXIT, (u32)ctx[0], 0);
}

/* The backlog queue, which lo and veth use, is an instance with no device. */
SEC("tp_btf/napi_poll")
int record_napi(u64 *ctx)
{
	struct napi_struct *napi = (void *)ctx[0];
	struct hop_work event = {
		.point = HOP_POINT_NAPI_POLL,
		.subject = (u64)napi,
		.value = (s32)ctx[1],
		.extra = ctx[2],
	};

	if (napi->dev) {
		work_at_device(&event, napi->dev);
		if (!interface_wanted(event.ifindex, event.netns) || !namespace_wanted(event.netns))
			return 0;
	}
	return record_work(&event);
}

/* The state of the thread that leaves: 0 where it would like to go on. */
SEC("tp_btf/sched_switch")
int record_switch(u64 *ctx)
{
	struct task_struct *from = (void *)ctx[1], *to = (void *)ctx[2];
	u32 from_tid = from->pid, to_tid = to->pid;

	if (!thread_in(&socket_threads, from_tid) && !thread_in(&socket_threads, to_tid))
		return 0;
	return work(HOP_POINT_SCHED_SWITCH, to_tid, ctx[0] ? 0 : task_state(from));
}

SEC("tp_btf/sched_waking")
int record_wake(u64 *ctx)
{
	struct task_struct *task = (void *)ctx[0];
	u32 tid = task->pid;

	if (!thread_in(&socket_threads, tid))
		return 0;
	return work(HOP_POINT_SCHED_WAKE, tid, 0);
}

/* A number is another's from here on. The end of the first one is no good: after its tracepoint the thread closes its
 * sockets, and is made known once more.
 */
SEC("tp_btf/task_newtask")
int record_newtask(u64 *ctx)
{
	struct task_struct *task = (void *)ctx[0];
	u32 tid = task->pid;

	thread_remove(&known_threads, tid);
	thread_remove(&socket_threads, tid);
	return 0;
}

SEC("tp_btf/task_rename")
int record_rename(u64 *ctx)
{
	struct task_struct *task = (void *)ctx[0];

	thread_remove(&known_threads, task->pid);
	return 0;
}

/* ---- XDP ---- */

INLINE int xdp(struct net_device *dev, u32 point, u64 program, u32 action, s32 error)
{
	struct hop_work event = {.point = point, .subject = program, .value = action, .extra = error};

	work_at_device(&event, dev);
	if (!interface_wanted(event.ifindex, event.netns) || !namespace_wanted(event.netns))
		return 0;
	return record_work(&event);
}

#define XDP_REDIRECT 4

SEC("tp_btf/xdp_exception")
int record_xdp_exception(u64 *ctx)
{
	const struct bpf_prog *program = (void *)ctx[1];

	return xdp((void *)ctx[0], HOP_POINT_XDP_EXCEPTION, program->aux->id, ctx[2], 0);
}

INLINE int redirected(u64 *ctx)
{
	const struct bpf_prog *program = (void *)ctx[1];

	return xdp((void *)ctx[0], HOP_POINT_XDP_REDIRECT, program->aux->id, XDP_REDIRECT, ctx[3]);
}

SEC("tp_btf/xdp_redirect")
int record_xdp_redirect(u64 *ctx)
{
	return redirected(ctx);
}

SEC("tp_btf/xdp_redirect_err")
int record_xdp_redirect_err(u64 *ctx)
{
	return redirected(ctx);
}

/* ---- netfilter ---- */

INLINE bool verdict_wanted(struct sk_buff *skb, const struct hop_work *event, bool leaves)
{
	struct passing passing = {};
	struct headers found = {};

	passing_of(&passing, skb, leaves ? HOP_POINT_TX_QUEUE : HOP_POINT_RX_IP);
	passing.ifindex = event->ifindex;
	passing.netns = event->netns;
	parse(&found, passing.network);
	return headers_wanted(&passing, &found);
}

/* What all of a hook's functions together made of a packet: 1 goes on, 0 taken by one of them, below 0 dropped. */
SEC("fexit/nf_hook_slow")
int record_verdict(u64 *ctx)
{
	struct sk_buff *skb = (void *)ctx[0];
	const struct nf_hook_state *state = (void *)ctx[1];
	struct hop_work event = {
		.point = HOP_POINT_NF_VERDICT,
		.subject = (u64)skb,
		.value = (s32)ctx[4],
		.extra = state->pf << 8 | state->hook,
	};

	if (state->out)
		work_at_device(&event, state->out);
	else if (state->in)
		work_at_device(&event, state->in);
	if (LOOKED_AT && !verdict_wanted(skb, &event, state->out != NULL))
		return 0;
	return record_work(&event);
}
