// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Receive latency: the application reads. */
#pragma once

#include "rx/socket.h"

static __always_inline void tcp_read(struct sock *sk, bool trusted, u32 copied_seq, u32 rcv_nxt)
{
	struct tcp_state *state = tcp_state_of(sk, false, trusted);
	bool wanted = process_wanted();

	/* It is let go of once this hook has run. */
	if (!state && tcp_bits(sk, syn_data_acked))
		state = tcp_adopt_syn(sk, trusted);
	if (state) {
		if (state->holes)
			tcp_fill_holes(state, rcv_nxt);
		tcp_take_segments(state, copied_seq, wanted);
		if (likely(!before(state->seen_seq, copied_seq)))
			return;
	}
	if (wanted && tcp_unseen(sk, state, copied_seq, rcv_nxt) && unseen_wanted(sk)) {
		discard(HOP_RX_TCP_READ, HOP_RX_UNSEEN);
		if (!state)
			state = tcp_state_of(sk, true, trusted);
	}
	if (state)
		state->seen_seq = copied_seq;
}

static __always_inline int tcp_read_traced(struct sock *sk)
{
	struct tcp_sock *tp = tcp_sock_of(sk);

	if (tp)
		tcp_read(sk, true, tp->copied_seq, tp->rcv_nxt);
	return 0;
}

/* The same where the verifier does not know the pointer. */
static __always_inline int tcp_read_probed(struct sock *sk)
{
	struct tcp_sock *tp = (void *)sk;

	tcp_read(sk, false, BPF_CORE_READ(tp, copied_seq), BPF_CORE_READ(tp, rcv_nxt));
	return 0;
}

static __always_inline int udp_consume(u64 head)
{
	struct stamp *stamp = stamp_find(head, HOP_RX_UDP_READ);

	if (!stamp)
		return 0;
	if (process_wanted())
		udp_read(head, stamp->first_ns, stamp->last_ns, stamp->group, stamp->stage);
	stamp->done = 1;
	stamp_end(stamp, HOP_END_READ_UDP);
	return 0;
}

/* Called for a peeked datagram, too: then somebody else still holds it. */
static __always_inline int udp_consume_traced(struct sk_buff *skb)
{
	return skb->users.refs.counter > 1 ? 0 : udp_consume(address(skb->head));
}

static __always_inline int udp_consume_probed(struct sk_buff *skb)
{
	return BPF_CORE_READ(skb, users.refs.counter) > 1 ? 0 : udp_consume((u64)BPF_CORE_READ(skb, head));
}

/* If its memory carries another packet by now, it was counted then. */
static __always_inline void udp_account_read(u64 head)
{
	struct stamp *stamp = stamp_slot(head);

	if (head && stamp->head == head && stamp->stage == HOP_STAGE_QUEUE)
		stamp_end(stamp, HOP_END_READ_UDP);
}

/* Where no function can be hooked: the call that returns took the datagram that was the next to be read. */
static __always_inline int udp_call_returns(struct sock *sk, s32 len_bytes, u32 flags)
{
	struct udp_state *state;
	u64 head;

	if (sk->sk_protocol != IPPROTO_UDP || len_bytes < 0 || flags & (MSG_PEEK | MSG_ERRQUEUE))
		return 0;
	state = udp_state_of(sk);
	if (!state) {
		discard(HOP_RX_UDP_READ, HOP_RX_NO_MEMORY);
		return 0;
	}
	if (!udp_next_is_known(state)) {
		if (process_wanted() && unseen_wanted(sk))
			discard(HOP_RX_UDP_READ, HOP_RX_UNSEEN);
	} else if (state->stage == HOP_STAGE_NONE) {
		discard(HOP_RX_UDP_READ, HOP_RX_NO_STAMP);
	} else if (state->stage != HOP_STAGE_UNWANTED && process_wanted()) {
		udp_read(state->head, state->first_ns, state->last_ns, state->group, state->stage);
	}
	udp_account_read(state->head);
	/* In this order: a datagram that is queued meanwhile is found by one of the two sides. */
	state->head = 0;
	atomic_add(&state->fence, 1);
	head = udp_first_in_queue(sk);
	if (head)
		udp_set_next(state, head);
	else
		state->emptied = 1;
	return 0;
}

/* A TCP socket goes, and what nobody has read goes with it. */
static __always_inline int tcp_destroyed(struct sock *sk)
{
	struct tcp_state *state = tcp_state_of(sk, false, true);

	if (state)
		tcp_leave_unread(state);
	return 0;
}
