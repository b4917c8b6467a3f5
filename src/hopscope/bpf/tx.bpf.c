// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Transmit latency, hop by hop. Bodies are in the headers; here are the hooks that every packet of the host passes, and the
 * thin wrappers by which they are attached (hopscope.probes.catalogue has the table).
 */
#include "tx_datagram.h"
#include "tx_stamped.h"
#include "tx_traced.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* ---- the send call ---- */

/* `once`: the hook sees each call a single time. */
INLINE int tcp_send_enters(u64 *ctx, bool once)
{
	struct sock *sk = (void *)ctx[0];

	if (cfg_stamped)
		stamped_enter(sk, (void *)ctx[1], once);
	else
		traced_enter(sk, (void *)ctx[1], once);
	return 0;
}

SEC("tp_btf/tcp_sendmsg_locked")
int tx_tcp_send_tp(u64 *ctx)
{
	return tcp_send_enters(ctx, false);
}

SEC("fentry/tcp_sendmsg_locked")
int tx_tcp_send_fentry(u64 *ctx)
{
	return tcp_send_enters(ctx, true);
}

SEC("kprobe/tcp_sendmsg_locked")
int tx_tcp_send_kprobe(struct pt_regs *ctx)
{
	traced_enter(ARG1(ctx), ARG2(ctx), true);
	return 0;
}

SEC("fentry/udp_sendmsg")
int tx_udp_send_fentry(u64 *ctx)
{
	send_enters((void *)ctx[0], 0);
	return 0;
}

SEC("fentry/udpv6_sendmsg")
int tx_udp6_send_fentry(u64 *ctx)
{
	send_enters((void *)ctx[0], 0);
	return 0;
}

SEC("kprobe/udp_sendmsg")
int tx_udp_send_kprobe(struct pt_regs *ctx)
{
	send_enters(ARG1(ctx), 0);
	return 0;
}

SEC("kprobe/udpv6_sendmsg")
int tx_udp6_send_kprobe(struct pt_regs *ctx)
{
	send_enters(ARG1(ctx), 0);
	return 0;
}

SEC("tp_btf/sys_enter")
int tx_send_call_tp(u64 *ctx)
{
	switch (ctx[1]) {
	case NR_sendto:
	case NR_sendmsg:
	case NR_sendmmsg:
	case NR_write:
	case NR_writev:
		send_enters(NULL, (u32)(u64)ARG1((struct pt_regs *)ctx[0]));
	}
	return 0;
}

/* ---- below TCP and UDP ---- */

#define TCP_TIME_WAIT 6
#define TCP_NEW_SYN_RECV 12

/* Is there a socket to it, and a full one? */
INLINE bool has_socket(struct sock *sk)
{
	u8 state = sk ? probe_field(sk, __sk_common.skc_state) : TCP_TIME_WAIT;

	return state != TCP_TIME_WAIT && state != TCP_NEW_SYN_RECV;
}

/* It comes from within a driver's function: a further device, stacked below. */
INLINE void queued_below(struct cpu_state *cpu, struct sk_buff *skb, u64 head)
{
	struct pass *pass = cpu->head == head ? pass_find(head) : pass_move(cpu->head, head);

	cpu->head = head;
	cpu->below = 1;
	/* The kernel's time stamps tell of TCP themselves. */
	if (pass && (pass->followed || !cfg_stamped))
		pass_next(pass, skb->dev->ifindex, bpf_ktime_get_ns());
}

/* The packet that was at this address before was given back unseen. */
INLINE void forget_datagram(u64 head)
{
	struct pass *pass = pass_find(head);

	if (!pass || !pass->followed)
		return;
	pass_replaced(pass);
	pass_forget(head);
}

/* A packet comes to a device. */
SEC("tp_btf/net_dev_queue")
int tx_queue(u64 *ctx)
{
	struct sk_buff *skb = (void *)ctx[0];
	struct cpu_state *cpu = this_cpu();
	struct sock *sk = skb->sk;
	u64 head = address(skb->head);

	if (cpu->depth && (cpu->head == head || *nested_skb(cpu, cpu->depth - 1) == (u64)skb)) {
		queued_below(cpu, skb, head);
		return 0;
	}
	if (cfg_datagrams)
		forget_datagram(head);
	if (!has_socket(sk))
		return 0;
	if (probe_field(sk, sk_protocol) == IPPROTO_TCP) {
		if (!cfg_stamped)
			traced_leaves(skb, sk, head);
	} else if (cfg_datagrams) {
		datagram_leaves(skb, sk, head);
	}
	return 0;
}

/* A CPU has a packet in the hands of a driver. */
INLINE void driver_enters(struct cpu_state *cpu, struct pass *pass, u64 head)
{
	if (cpu->head != head)
		cpu->depth = 0;
	cpu->head = head;
	cpu->below = 0;
	cpu->sched_ns = pass->sched_ns;
	*nested_skb(cpu, cpu->depth) = pass->skb;
	cpu->depth++;
}

/* It has left the queueing discipline, the driver's function is called. */
SEC("tp_btf/net_dev_start_xmit")
int tx_start_xmit(u64 *ctx)
{
	struct sk_buff *skb = (void *)ctx[0];
	struct sock *sk = skb->sk;
	u64 head = address(skb->head), now_ns;
	struct pass *pass;
	bool stamped = cfg_stamped && has_socket(sk) && sk->sk_bpf_cb_flags & SK_BPF_CB_TX_TIMESTAMPING;
	bool traced;

	if (stamped)
		head = stamped_id((u64)probe_field(skb, sk), skb_key(skb));
	pass = pass_find(head);
	traced = !cfg_stamped && !(pass && pass->followed) && has_socket(sk) &&
		 probe_field(sk, sk_protocol) == IPPROTO_TCP;
	if (!pass && !traced)
		return 0;
	now_ns = bpf_ktime_get_ns();
	if (pass) {
		pass->qdisc_ns += now_ns - pass->last_ns;
		pass->left_ns = now_ns;
		pass->skb = (u64)skb;
		/* The kernel's time stamps tell of further devices themselves. */
		if (!stamped)
			driver_enters(this_cpu(), pass, head);
	}
	if (traced)
		traced_driver(sk, skb, head, pass, now_ns);
	return 0;
}

INLINE bool is_local(struct net_device *dev)
{
	struct rtnl_link_ops *ops = (void *)dev->rtnl_link_ops;
	char kind[8] = {};

	if (dev->flags & IFF_LOOPBACK)
		return true;
	if (!ops)
		return false;
	bpf_probe_read_kernel(kind, sizeof(kind), probe_field(ops, kind));
	return kind[0] == 'v' && kind[1] == 'e' && kind[2] == 't' && kind[3] == 'h' && !kind[4];
}

#define NET_XMIT_MASK 0xf /* of what the function returns; only above it the packet was not taken */

/* The driver's function has returned. The packet may be gone: only its device is looked at. */
SEC("tp_btf/net_dev_xmit")
int tx_xmit(u64 *ctx)
{
	struct cpu_state *cpu = this_cpu();
	u64 head = cpu->head, now_ns;
	struct pass *pass;

	if (!cpu->depth || *nested_skb(cpu, cpu->depth - 1) != ctx[0])
		return 0;
	cpu->depth--;
	if (!cpu->depth)
		cpu->head = 0;
	pass = cpu->below ? NULL : pass_find(head);
	if (!pass || !pass->followed || pass->done_ns || pass->sched_ns != cpu->sched_ns)
		return 0;
	now_ns = bpf_ktime_get_ns();
	if ((int)ctx[1] >= NET_XMIT_MASK) {
		/* Not taken: it goes back into the queue. */
		pass->last_ns = now_ns;
		cpu->below = 1;
		return 0;
	}
	datagram_driver(pass, now_ns);
	/* It is with its receiver, on this host: when that frees it says nothing about the device. */
	if (is_local((void *)ctx[2]))
		pass_forget(head);
	return 0;
}

SEC("tp_btf/consume_skb")
int tx_consumed(u64 *ctx)
{
	datagram_freed((void *)ctx[0], false);
	return 0;
}

SEC("tp_btf/kfree_skb")
int tx_dropped(u64 *ctx)
{
	datagram_freed((void *)ctx[0], true);
	return 0;
}

/* ---- TCP, by tracing ---- */

SEC("tp_btf/tcp_probe")
int tx_ack(u64 *ctx)
{
	traced_ack((void *)ctx[0], (void *)ctx[1]);
	return 0;
}

SEC("tp_btf/inet_sock_set_state")
int tx_state_tp(u64 *ctx)
{
	if ((int)ctx[2] == TCP_CLOSE)
		traced_closes((void *)ctx[0]);
	return 0;
}
