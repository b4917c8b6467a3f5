// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Transmit latency: the hooks at devices, which every packet of the host passes. */
#pragma once

#include "tx/datagram.h"
#include "tx/stamped.h"
#include "tx/traced.h"

#define TCP_TIME_WAIT 6
#define TCP_NEW_SYN_RECV 12

/* Is there a socket to it, and a full one? */
static __always_inline bool has_socket(struct sock *sk)
{
	u8 state = sk ? BPF_CORE_READ(sk, __sk_common.skc_state) : TCP_TIME_WAIT;

	return state != TCP_TIME_WAIT && state != TCP_NEW_SYN_RECV;
}

/* It comes from within a driver's function: a further device, stacked below. */
static __always_inline void queued_below(struct cpu_state *cpu, struct sk_buff *skb, u64 head)
{
	struct pass *pass = cpu->head == head ? pass_find(head) : pass_move(cpu->head, head);

	cpu->head = head;
	cpu->below = 1;
	/* The kernel's time stamps tell of TCP themselves. */
	if (pass && (pass->followed || !cfg_stamped))
		pass_next(pass, skb->dev->ifindex, bpf_ktime_get_ns());
}

/* The packet that was at this address before was given back unseen. */
static __always_inline void forget_datagram(u64 head)
{
	struct pass *pass = pass_find(head);

	if (!pass || !pass->followed)
		return;
	pass_replaced(pass);
	pass_forget(head);
}

/* A packet comes to a device. */
static __always_inline int device_takes(struct sk_buff *skb)
{
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
	if (BPF_CORE_READ(sk, sk_protocol) == IPPROTO_TCP) {
		if (!cfg_stamped)
			traced_leaves(skb, sk, head);
	} else if (cfg_datagrams) {
		datagram_leaves(skb, sk, head);
	}
	return 0;
}

/* A CPU has a packet in the hands of a driver. */
static __always_inline void driver_enters(struct cpu_state *cpu, struct pass *pass, u64 head)
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
static __always_inline int driver_begins(struct sk_buff *skb)
{
	struct sock *sk = skb->sk;
	u64 head = address(skb->head), now_ns;
	struct pass *pass;
	bool stamped = cfg_stamped && has_socket(sk) && sk->sk_bpf_cb_flags & SK_BPF_CB_TX_TIMESTAMPING;
	bool traced;

	if (stamped)
		head = stamped_id((u64)BPF_CORE_READ(skb, sk), skb_key(skb));
	pass = pass_find(head);
	traced = !cfg_stamped && !(pass && pass->followed) && has_socket(sk) &&
		 BPF_CORE_READ(sk, sk_protocol) == IPPROTO_TCP;
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

static __always_inline bool is_local(struct net_device *dev)
{
	struct rtnl_link_ops *ops = (void *)dev->rtnl_link_ops;
	char kind[8] = {};

	if (dev->flags & IFF_LOOPBACK)
		return true;
	if (!ops)
		return false;
	bpf_probe_read_kernel(kind, sizeof(kind), BPF_CORE_READ(ops, kind));
	return kind[0] == 'v' && kind[1] == 'e' && kind[2] == 't' && kind[3] == 'h' && !kind[4];
}

#define NET_XMIT_MASK 0xf /* of what the function returns; only above it the packet was not taken */

/* The driver's function has returned. The packet may be gone: only its device is looked at. */
static __always_inline int driver_returns(u64 skb, s32 result, struct net_device *dev)
{
	struct cpu_state *cpu = this_cpu();
	u64 head = cpu->head, now_ns;
	struct pass *pass;

	if (!cpu->depth || *nested_skb(cpu, cpu->depth - 1) != skb)
		return 0;
	cpu->depth--;
	if (!cpu->depth)
		cpu->head = 0;
	pass = cpu->below ? NULL : pass_find(head);
	if (!pass || !pass->followed || pass->done_ns || pass->sched_ns != cpu->sched_ns)
		return 0;
	now_ns = bpf_ktime_get_ns();
	if (result >= NET_XMIT_MASK) {
		/* Not taken: it goes back into the queue. */
		pass->last_ns = now_ns;
		cpu->below = 1;
		return 0;
	}
	datagram_driver(pass, now_ns);
	/* It is with its receiver, on this host: when that frees it says nothing about the device. */
	if (is_local(dev))
		pass_forget(head);
	return 0;
}
