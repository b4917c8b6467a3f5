// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Transmit latency: what is remembered of a TCP socket, its messages and the send calls that are in the kernel. */
#pragma once

#include "tx_cause.h"

enum unseen {
	UNSEEN_SPLIT = 1, /* in a packet without a stamp */
	UNSEEN_CALL = 2,  /* before the call's end said that it was the last one */
};

struct message {
	u64 entry_ns; /* 0: not seen */
	u64 handed_ns;
	u64 sched_ns; /* 0: has not left */
	u64 driver_ns;
	u64 nic_ns;
	u64 qdisc_ns;
	u64 end_byte;
	u32 end_seq;
	u32 carrier; /* the key of the packet that its last byte left in */
	u32 len_bytes;
	u32 pid;
	u32 rwnd_ticks; /* the kernel's account of the receiver's window, at hand-over */
	u16 group;
	u16 retransmits;
	u8 cause;
	u8 flags;
	u8 devices;
	u8 unseen;  /* its last byte left unseen, enum unseen */
	u8 dropped; /* between TCP and the driver, the first time */
	u8 late;    /* its ACK may have come long before that of its packet */
	u8 pad[2];
	struct hop_tx_device device[HOP_DEVICES];
};

/* A send call that is in the kernel now, of one thread. */
struct call {
	u64 thread;
	u64 entry_ns;  /* 0: it has ended */
	u64 message;   /* its struct msghdr, */
	u64 left;      /* the bytes of it that TCP had not taken at the last look, */
	u64 sleeps;    /* and the voluntary context switches of the caller at its entry */
	u32 write_seq; /* at the last look */
	u32 pad;
};

#define CALLS 4 /* of several threads on one socket; a power of two */

struct tx_state {
	u32 produced;
	u32 consumed;    /* acknowledged */
	u32 next_sched;  /* the first that has not left TCP */
	u32 next_driver; /* the first that may not have left the driver */
	u32 write_seq;   /* what was handed over */
	u32 skip;        /* messages to leave out before the next one is followed */
	u64 end_byte;
	u64 cookie;
	u64 followed_ns; /* the last one that was followed */
	struct call calls[CALLS];
	u8 known;
	u8 wanted;
	u8 may_sleep; /* traced: the last call */
	u8 counted;   /* stamped: among the sockets that are followed */
	u8 pad[4];
	struct message messages[HOP_MESSAGES];
};

/* Linux 7.2 makes socket storage by kmalloc_nolock, which gives no more than two pages (6.18 still does it otherwise). A larger
 * map can be had there, too, but no socket gets any of it.
 */
#define STORAGE_HEAD 128 /* no less than struct bpf_local_storage_elem without the value */
_Static_assert(sizeof(struct tx_state) + STORAGE_HEAD <= 8192, "socket storage is too large");

struct {
	MAP_UINT(type, BPF_MAP_TYPE_SK_STORAGE);
	MAP_UINT(map_flags, BPF_F_NO_PREALLOC);
	MAP_TYPE(key, int);
	MAP_TYPE(value, struct tx_state);
} tx_states SEC(".maps");

INLINE struct message *message_at(struct tx_state *state, u32 index)
{
	opaque(index);
	return &state->messages[index & (HOP_MESSAGES - 1)];
}

/* ---- the send call ---- */

/* The call of this thread; where more threads send at once than there is room for, one takes the place of another. */
INLINE struct call *call_of(struct tx_state *state, u64 thread)
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
INLINE bool same_call(struct call *call, u64 thread, struct msghdr *msg, u64 left, u32 write_seq)
{
	u32 moved = write_seq - call->write_seq;

	if (!call->entry_ns || call->thread != thread || call->message != (u64)msg || left > call->left)
		return false;
	if (left < call->left)
		return moved == (u32)(call->left - left);
	return !(probe_field(msg, msg_flags) & MSG_DONTWAIT) && (!moved || cfg_stamped);
}

/* Note a look at a send call; return it if it is a new one. Where each call is seen once, each look is one. */
static __attribute__((noinline)) struct call *call_new(struct tx_state *state, struct sock *sk, struct msghdr *msg,
						       bool once)
{
	u64 thread = bpf_get_current_pid_tgid(), left = probe_field(msg, msg_iter.count);
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
	call->sleeps = probe_field(current_task(), nvcsw);
	return call;
}
