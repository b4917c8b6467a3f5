// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Transmit latency: what is remembered of a TCP socket, its messages and the send calls that are in the kernel. */
#pragma once

#include "tx/cause.h"

enum unseen {
	UNSEEN_SPLIT = 1, /* in a packet without a stamp */
	UNSEEN_CALL = 2,  /* before the call's end said that it was the last one */
	UNSEEN_SYN = 3,   /* in the SYN, by Fast Open */
};

enum opening {
	OPENING_UNWANTED = 1, /* by a process that is not wanted */
	OPENING_WANTED = 2,
};

static __always_inline struct message *message_at(struct tx_state *state, u32 index)
{
	barrier_var(index);
	return &state->messages[index & (HOP_MESSAGES - 1)];
}

/* What is known of a socket is of a time before programs were detached: nothing is on the way, and `write_seq` was handed over. */
static __noinline void state_renew(struct tx_state *state, u32 write_seq)
{
	state->epoch = sampling.epoch;
	state->consumed = state->next_sched = state->next_driver = state->produced;
	state->write_seq = write_seq;
	state->opening = 0;
	for (u32 i = 0; i < CALLS; i++)
		state->calls[i].entry_ns = 0;
}

/* ---- the send call ---- */

/* The call of this thread; where more threads send at once than there is room for, one takes the place of another. */
static __always_inline struct call *call_of(struct tx_state *state, u64 thread)
{
	for (u32 i = 0; i < CALLS; i++)
		if (state->calls[i].thread == thread)
			return &state->calls[i];
	for (u32 i = 0; i < CALLS; i++)
		if (!state->calls[i].entry_ns)
			return &state->calls[i];
	return &state->calls[thread & (CALLS - 1)];
}

/* Is this a further look at the same call? What it has less to hand over is what TCP has more, or it slept for room:
 * then another thread may have had the socket.
 */
static __always_inline bool same_call(struct call *call, u64 thread, struct msghdr *msg, u64 left, u32 write_seq)
{
	u32 moved = write_seq - call->write_seq;

	if (!call->entry_ns || call->thread != thread || call->message != (u64)msg || left > call->left)
		return false;
	if (left < call->left)
		return moved == (u32)(call->left - left);
	return !(BPF_CORE_READ(msg, msg_flags) & MSG_DONTWAIT) && (!moved || cfg_stamped);
}

/* Note a look at a send call; return it if it is a new one. Where each call is seen once, each look is one. */
static __noinline struct call *call_new(struct tx_state *state, struct sock *sk, struct msghdr *msg, bool once)
{
	u64 thread = bpf_get_current_pid_tgid(), left = BPF_CORE_READ(msg, msg_iter.count);
	struct call *call = call_of(state, thread);
	u32 write_seq = tcp_field(sk, write_seq);
	bool same = !once && same_call(call, thread, msg, left, write_seq);

	call->left = left;
	call->write_seq = write_seq;
	if (same)
		return NULL;
	call->thread = thread;
	call->message = (u64)msg;
	call->entry_ns = bpf_ktime_get_ns();
	call->sleeps = BPF_CORE_READ(current_task(), nvcsw);
	return call;
}
