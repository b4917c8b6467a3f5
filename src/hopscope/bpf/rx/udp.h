// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Receive latency: the datagram that a UDP socket's reader will have next, and its read. */
#pragma once

#include "rx/message.h"
#include "rx/reader.h"

/* Looks at memory, about a ns each, so many times. */
#define UDP_LOOKS 32
#define UDP_PATIENCE 16

/* NULL: there is no memory for it. What it says of the time before programs were detached is forgotten. */
static __always_inline struct udp_state *udp_state_of(struct sock *sk)
{
	struct udp_state *state = bpf_sk_storage_get(&udp_states, sk, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!state || epoch_is_ours(state->epoch))
		return state;
	state->epoch = sampling.epoch;
	state->head = 0;
	state->emptied = 0;
	return state;
}

/* The reader takes from a queue of its own, and refills it from the socket's. */
static __always_inline u64 udp_first_in_queue(struct sock *sk)
{
	struct udp_sock *udp = bpf_rdonly_cast(sk, bpf_core_type_id_kernel(struct udp_sock));
	struct sk_buff *next = udp->reader_queue.next;

	if ((u64)next == (u64)&udp->reader_queue) {
		next = udp->inet.sk.sk_receive_queue.next;
		if ((u64)next == (u64)&udp->inet.sk.sk_receive_queue)
			return 0;
	}
	return address(next->head);
}

static __noinline void udp_set_next(struct udp_state *state, u64 head)
{
	struct stamp *stamp = stamp_slot(head);

	state->stage = stamp->stage;
	barrier();
	state->first_ns = stamp->first_ns;
	state->last_ns = stamp->last_ns;
	state->group = stamp->group;
	barrier();
	if (stamp->head == head && (state->stage == HOP_STAGE_UNWANTED || since_known(state->first_ns)))
		stamp->done = 1;
	else
		state->stage = HOP_STAGE_NONE;
	state->head = head;
}

/* A datagram was queued while none was known to be next. If another stands before it, the reader is just about to look
 * for itself, or, before its first look, that one is older than this run. If none does, the reader has taken it already.
 */
static __always_inline void udp_queued(struct udp_state *state, struct sock *sk, u64 head)
{
	u64 first = udp_first_in_queue(sk);

	if (!first || first == head)
		udp_set_next(state, head);
	else if (!state->emptied)
		udp_set_next(state, first);
}

/* Not static: so the verifier follows it once, rather than at each turn of a loop. */
__noinline int udp_look_again(struct udp_state *state)
{
	if (state)
		udp_set_next(state, state->head);
	return 0;
}

/* Not static, for the same reason. */
__noinline int udp_looks(struct udp_state *state)
{
	volatile u64 *head = state ? &state->head : NULL;

	for (u32 i = 0; head && i < UDP_LOOKS; i++) {
		if (!*head)
			continue;
		if (state->stage <= HOP_STAGE_UNWANTED || state->stage >= HOP_STAGE_QUEUE)
			return 1;
		udp_look_again(state);
	}
	return 0;
}

/* A reader that does not sleep can take a datagram, and return, before the CPU that queued it has said so here. That CPU
 * is a few hundred ns from it: wait, but never long, for what was queued before the start is not told by anybody.
 */
static __noinline bool udp_next_is_known(struct udp_state *state)
{
	for (u32 i = 0; i < UDP_PATIENCE; i++)
		if (udp_looks(state))
			return true;
	return *(volatile u64 *)&state->head;
}

static __noinline void udp_read(u64 head, u64 first_ns, u64 last_ns, u32 group, u32 stage)
{
	struct waiting_key key = {.place = head};
	u64 now_ns;

	if (stage != HOP_STAGE_QUEUE) {
		/* With a filter on the socket, a datagram that was not seen before it is not known to be wanted. */
		if (cfg_defer)
			return;
		discard(HOP_RX_UDP_READ, HOP_RX_SKIPPED_STAGE);
	}
	group = reader_group(group);
	now_ns = bpf_ktime_get_ns();
	reader_took(false, first_ns, last_ns, group, now_ns);
	record(HOP_RX_UDP_TOTAL, group, first_ns, now_ns);
	if (cfg_events)
		message_read(&key, first_ns, last_ns, now_ns);
}
