// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Recording: for how long netfilter's rules at a hook kept a packet, and what they made of it. */
#pragma once

#include "record/work.h"

#define NFPROTO_IPV4 2
#define NFPROTO_IPV6 10

/* The packet that is at a hook of a CPU, by hook: rules for what is sent may be interrupted by those for what comes. */
struct evaluation {
	u64 skb;
	u64 begin_ns;
};

struct evaluation evaluations[HOP_CPUS * 8];

static __always_inline struct evaluation *evaluation_at(const struct nf_hook_state *state)
{
	u32 index = bpf_get_smp_processor_id() * 8 + (state->hook & 7);

	barrier_var(index);
	return &evaluations[index & (HOP_CPUS * 8 - 1)];
}

static __always_inline void rules_begin(struct sk_buff *skb, const struct nf_hook_state *state)
{
	struct evaluation *evaluation = evaluation_at(state);

	evaluation->skb = (u64)skb;
	evaluation->begin_ns = bpf_ktime_get_ns();
}

static __always_inline bool at_hook_wanted(struct sk_buff *skb, const struct hop_work *event, struct headers *found,
					   bool leaves)
{
	struct passing passing = {};

	passing_of(&passing, skb, leaves ? HOP_POINT_TX_QUEUE : HOP_POINT_RX_IP);
	passing.ifindex = event->ifindex;
	passing.netns = event->netns;
	found->readable_end = passing.readable_end;
	parse(found, passing.network);
	return !LOOKED_AT || headers_wanted(&passing, found);
}

static __always_inline void event_at_hook(struct hop_work *event, const struct nf_hook_state *state)
{
	event->extra = state->pf << 8 | state->hook;
	if (state->out)
		work_at_device(event, state->out);
	else if (state->in)
		work_at_device(event, state->in);
}

static __always_inline const struct net_device *device_at_hook(const struct nf_hook_state *state)
{
	return state->out ? state->out : state->in;
}

/* The record is made at the end: most rules take less time than it would. What a rule keeps, drops, or hands to a program
 * (NFQUEUE) does not come to the end. This kind of program has no helper for the running thread.
 */
static __always_inline void rules_end(struct sk_buff *skb, const struct nf_hook_state *state)
{
	struct evaluation *evaluation = evaluation_at(state);
	struct hop_work event = {.point = HOP_POINT_NF_RULES};
	struct headers found = {};
	u32 ring;

	if (evaluation->skb != (u64)skb)
		return;
	evaluation->skb = 0;
	event.time_ns = bpf_ktime_get_ns();
	event.value = event.time_ns - evaluation->begin_ns;
	if (event.value < HOP_RULES_NS)
		return;
	event_at_hook(&event, state);
	if (!at_hook_wanted(skb, &event, &found, state->out != NULL) || !found.flow)
		return;
	if (!cfg_rules)
		know_flow(found.flow, &found.key, MAIN_RING);
	event.subject = found.flow;
	event.tid = BPF_CORE_READ(current_task(), pid);
	ring = write_work(&event, device_at_hook(state));
	if (ring && cfg_rules)
		know_flow(found.flow, &found.key, ring);
}

static __always_inline bool is_ip(const struct nf_hook_state *state)
{
	return state->pf == NFPROTO_IPV4 || state->pf == NFPROTO_IPV6;
}

/* What all of a hook's functions together made of a packet: 1 goes on, 0 taken by one of them, below 0 dropped. */
static __always_inline int verdict(struct sk_buff *skb, const struct nf_hook_state *state, s32 result)
{
	struct hop_work event = {.point = HOP_POINT_NF_VERDICT, .subject = (u64)skb, .value = result};
	struct headers found = {};

	event_at_hook(&event, state);
	if (LOOKED_AT && !at_hook_wanted(skb, &event, &found, state->out != NULL))
		return 0;
	return record_work_at(&event, device_at_hook(state));
}
