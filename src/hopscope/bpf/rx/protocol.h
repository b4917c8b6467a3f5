// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Receive latency: IP, TCP and UDP begin. */
#pragma once

#include "rx/state.h"

static __always_inline int reach(const void *skb, u64 head, u32 hop, u32 stage)
{
	struct stamp *stamp;

	stamp_follow(skb, head, stage == HOP_STAGE_L4);
	stamp = stamp_find(head, hop);
	if (!stamp)
		return 0;
	stamp->skb = skb_identity(skb);
	if (stage == HOP_STAGE_L4)
		stamp->way = hop == HOP_RX_TCP ? HOP_PLACE_TCP : HOP_PLACE_UDP;
	stamp_pass(stamp, hop, stage, bpf_ktime_get_ns());
	return 0;
}

static __always_inline int reach_traced(struct sk_buff *skb, u32 hop, u32 stage)
{
	return reach(skb, address(skb->head), hop, stage);
}

/* The same where the verifier does not know the pointer. */
static __always_inline int reach_probed(struct sk_buff *skb, u32 hop, u32 stage)
{
	return reach(skb, (u64)BPF_CORE_READ(skb, head), hop, stage);
}

/* Where the socket filter runs: the socket is known, and it is not yet locked or full. */
static __always_inline void reach_filter(struct sk_buff *skb)
{
	struct cpu_state *cpu;
	struct sock *sk = skb->sk;
	u64 head = address(skb->head);

	if (!sk)
		return;
	if (sk->sk_protocol == IPPROTO_TCP) {
		if (cfg_cgroup_records_tcp)
			reach(skb, head, HOP_RX_TCP, HOP_STAGE_L4);
	} else if (sk->sk_protocol == IPPROTO_UDP) {
		stamp_follow(skb, head, false); /* a datagram in fragments has the data of the first */
		stamp_follow_segment(head, skb_identity(skb));
		if (cfg_cgroup_records_udp)
			reach(skb, head, HOP_RX_UDP, HOP_STAGE_L4);
		cpu = this_cpu();
		cpu->socket = (u64)sk;
		cpu->datagram = head;
		cpu->network = skb->network_header;
		cpu->transport = skb->transport_header;
	}
}
