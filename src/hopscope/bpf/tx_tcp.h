// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Transmit latency: the messages that are on the way in a TCP socket.
 *
 * A message is what one call sends; it is known by the sequence number behind its last byte. They leave TCP in order, so
 * that cursors into the socket's ring suffice. The kernel stamps a packet for the last message in it alone: those before it
 * in the same packet are found by the packet's range.
 *
 * Hand-over, departure and ACK happen with the socket's lock held. The driver does not hold it: it only sets the driver's
 * time of messages that have left.
 */
#pragma once

#include "tx_state.h"

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
	u8 unseen; /* its last byte left unseen */
	u32 pad;
	struct hop_tx_device device[HOP_DEVICES];
};

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
	/* The call that is in the kernel now. */
	u64 entry_ns;
	u64 entry_message; /* its struct msghdr ... */
	u64 entry_left;    /* ... and the bytes of it that TCP has not taken */
	u64 entry_sleeps;  /* voluntary context switches of the caller */
	u32 entry_seq;
	u8 known;
	u8 wanted;
	u16 pad;
	struct message messages[HOP_MESSAGES];
};

struct {
	MAP_UINT(type, BPF_MAP_TYPE_SK_STORAGE);
	MAP_UINT(map_flags, BPF_F_NO_PREALLOC);
	MAP_TYPE(key, int);
	MAP_TYPE(value, struct tx_state);
} tx_states SEC(".maps");

INLINE bool before(u32 a, u32 b)
{
	return (s32)(a - b) < 0;
}

INLINE struct message *message_at(struct tx_state *state, u32 index)
{
	opaque(index);
	return &state->messages[index & (HOP_MESSAGES - 1)];
}

/* ---- why it waits ---- */

#define TCP_NAGLE_OFF 1
#define TCP_NAGLE_CORK 2
#define SK_PACING_NEEDED 1
#define TSQ_THROTTLED 1
#define CHRONO_RWND 2

/* The socket's fields: read in place where the kernel allows the cast (6.2), else copied. */
#define as_type(sk, type) ((type *)bpf_rdonly_cast(sk, core_type_id(type)))
#define tcp_field(sk, field)                                                                                           \
	(bpf_rdonly_cast ? as_type(sk, struct tcp_sock)->field : probe_field((struct tcp_sock *)(sk), field))
#define sock_field(sk, field)                                                                                          \
	(bpf_rdonly_cast ? as_type(sk, struct sock)->field : probe_field((struct sock *)(sk), field))
#define tcp_bits(sk, field)                                                                                            \
	(bpf_rdonly_cast ? direct_bits(as_type(sk, struct tcp_sock), field)                                            \
			 : probe_bits((struct tcp_sock *)(sk), field))

/* Would TCP hold back the end of what it has to send, now? In the order of tcp_write_xmit. */
static __attribute__((noinline)) u32 tcp_cause(struct sock *sk, u64 now_ns)
{
	u32 snd_una = tcp_field(sk, snd_una), snd_nxt = tcp_field(sk, snd_nxt), snd_sml = tcp_field(sk, snd_sml);
	u32 unsent = tcp_field(sk, write_seq) - snd_nxt, packets_out = tcp_field(sk, packets_out);
	u32 in_flight = packets_out - tcp_field(sk, sacked_out) - tcp_field(sk, lost_out) + tcp_field(sk, retrans_out);
	u32 mss = tcp_field(sk, mss_cache), nagle = tcp_bits(sk, nonagle);
	u32 first = unsent < mss ? unsent : mss;
	bool small_waits = before(snd_una, snd_sml) && !before(snd_nxt, snd_sml);

	if (sock_field(sk, sk_pacing_status) == SK_PACING_NEEDED && tcp_field(sk, tcp_wstamp_ns) > now_ns)
		return HOP_CAUSE_PACING;
	if (in_flight >= tcp_field(sk, snd_cwnd))
		return HOP_CAUSE_CWND;
	if (before(snd_una + tcp_field(sk, snd_wnd), snd_nxt + first))
		return HOP_CAUSE_RWND;
	if (mss && unsent % mss && (nagle & TCP_NAGLE_CORK || (!nagle && packets_out && small_waits)))
		return HOP_CAUSE_NAGLE;
	if (sock_field(sk, sk_tsq_flags) & TSQ_THROTTLED)
		return HOP_CAUSE_TSQ;
	return HOP_CAUSE_NONE;
}

/* Ticks in which the receiver's window held this socket, as TCP_INFO has them. */
INLINE u32 rwnd_ticks(struct sock *sk)
{
	u32 ticks = tcp_field(sk, chrono_stat[CHRONO_RWND - 1]);

	if (tcp_bits(sk, chrono_type) == CHRONO_RWND)
		ticks += (u32)bpf_jiffies64() - tcp_field(sk, chrono_start);
	return ticks;
}

/* What held the message, now that it leaves. */
static __attribute__((noinline)) u32 tcp_verdict(struct message *message, struct sock *sk, bool youngest, u64 now_ns)
{
	u64 rwnd_ns = (u32)(rwnd_ticks(sk) - message->rwnd_ticks) * cfg_tick_ns;

	/* In the call that sent it: nothing did. */
	if (youngest && sock_field(sk, sk_lock.owned) && current_pid() == message->pid)
		return HOP_CAUSE_NONE;
	if (rwnd_ns && rwnd_ns * 2 >= now_ns - message->handed_ns)
		return HOP_CAUSE_RWND;
	if (message->cause)
		return message->cause;
	return tcp_bits(sk, is_cwnd_limited) ? HOP_CAUSE_CWND : HOP_CAUSE_OTHER;
}

/* ---- a message's way ---- */

INLINE bool message_sampled(struct tx_state *state)
{
	/* A look at the clock is much of what a message costs that is left out. */
	u64 now_ns = cfg_gap_ns ? bpf_ktime_get_ns() : 0;

	if (cfg_gap_ns && now_ns - state->followed_ns < cfg_gap_ns)
		return false;
	if (cfg_sample > 1) {
		if (state->skip) {
			state->skip--;
			return false;
		}
		/* A random gap of N - 1 on average: no pattern in the traffic can hide from it. */
		state->skip = bpf_get_prandom_u32() % (2 * cfg_sample - 1);
	}
	state->followed_ns = now_ns ? now_ns : bpf_ktime_get_ns();
	return true;
}

/* Make room for a message, or let it share the youngest one's. */
INLINE struct message *message_new(struct tx_state *state, u32 end_seq)
{
	struct message *message;

	if (state->produced - state->consumed >= HOP_MESSAGES) {
		message = message_at(state, state->produced - 1);
		if (!message->sched_ns && !message->unseen)
			message->end_seq = end_seq;
		discard(HOP_TX_TOTAL, HOP_TX_MERGED);
		return NULL;
	}
	message = message_at(state, state->produced);
	__builtin_memset(message, 0, sizeof(*message));
	message->end_seq = end_seq;
	return message;
}

/* The end of a message leaves TCP in a packet, to its first device. */
static __attribute__((noinline)) void message_leaves(struct message *message, struct pass *pass, u32 cause)
{
	message->sched_ns = pass->sched_ns;
	message->carrier = pass->key;
	message->cause = cause;
	message->devices = 1;
	message->device[0] = pass->device[0];
	record(HOP_TX_SCHED, message->group, message->handed_ns, message->sched_ns);
	if (cause != HOP_CAUSE_NONE)
		record(HOP_TX_SCHED + cause, message->group, message->handed_ns, message->sched_ns);
}

/* A packet leaves TCP: those of the messages that end in it do. */
static __attribute__((noinline)) void tcp_leave(struct tx_state *state, struct sock *sk, struct pass *pass)
{
	for (u32 i = 0; i < HOP_MESSAGES && state->next_sched != state->produced; i++) {
		struct message *message = message_at(state, state->next_sched);

		if (before(pass->key + 1, message->end_seq))
			break;
		state->next_sched++;
		if (before(pass->first_seq, message->end_seq)) {
			bool youngest = state->next_sched == state->produced;

			message_leaves(message, pass, tcp_verdict(message, sk, youngest, pass->sched_ns));
		} else {
			message->unseen = 1;
			discard(HOP_TX_SCHED, HOP_TX_COALESCED);
		}
	}
}

/* The same packet once more: to a device stacked below, or a retransmission. */
static __attribute__((noinline)) bool tcp_leave_again(struct tx_state *state, u32 key, u32 ifindex)
{
	struct hop_tx_counters *counter;
	bool retransmitted = false;

	for (u32 i = 0; i < HOP_MESSAGES; i++) {
		u32 index = state->consumed + i;
		struct message *message = message_at(state, index);

		if (!before(index, state->next_sched))
			break;
		if (message->carrier != key || !message->sched_ns || message->device[0].ifindex != ifindex)
			continue;
		if (message->retransmits < 0xffff)
			message->retransmits++;
		retransmitted = true;
	}
	counter = retransmitted ? count() : NULL;
	if (counter)
		atomic_add(&counter->retransmits, 1);
	return retransmitted;
}

/* The driver has the packet `key`. Not under the socket's lock. */
static __attribute__((noinline)) void tcp_driver(struct tx_state *state, struct pass *pass, u32 key, u64 now_ns)
{
	u32 start = state->next_driver, end = state->next_sched;
	bool all = true;

	if (before(start, state->consumed))
		start = state->consumed;
	for (u32 i = 0; i < HOP_MESSAGES && before(start + i, end); i++) {
		struct message *message = message_at(state, start + i);
		u64 from_ns = message->sched_ns;

		if (from_ns && !message->driver_ns && message->carrier == key) {
			if (pass) {
				message->qdisc_ns = pass->qdisc_ns;
				message->devices = pass->devices;
				__builtin_memcpy(message->device, pass->device, sizeof(message->device));
				if (cfg_qdisc) {
					record(HOP_TX_QDISC, message->group, from_ns, from_ns + pass->qdisc_ns);
					from_ns += pass->qdisc_ns;
				}
			} else if (cfg_qdisc) {
				discard(HOP_TX_QDISC, HOP_TX_NO_STAMP);
			}
			message->driver_ns = now_ns;
			/* By tracing, it is the call of the driver's function, where the queueing discipline ends. */
			record(cfg_stamped ? HOP_TX_DRIVER : HOP_TX_QDISC, message->group, from_ns, now_ns);
		}
		all = all && (message->driver_ns || message->unseen);
		if (all)
			state->next_driver = start + i + 1;
	}
}

static __attribute__((noinline)) void tcp_nic(struct tx_state *state, u32 key, u64 now_ns)
{
	for (u32 i = 0; i < HOP_MESSAGES && before(state->consumed + i, state->next_sched); i++) {
		struct message *message = message_at(state, state->consumed + i);

		if (message->carrier != key || !message->driver_ns || message->nic_ns)
			continue;
		message->nic_ns = now_ns;
		record(HOP_TX_NIC, message->group, message->driver_ns, now_ns);
	}
}

static __attribute__((noinline)) void message_event(struct tx_state *state, struct message *message, u64 done_ns)
{
	struct hop_tx_event event = {
		.cookie = state->cookie,
		.end_byte = message->end_byte,
		.entry_ns = message->entry_ns,
		.handed_ns = message->handed_ns,
		.sched_ns = message->sched_ns,
		.driver_ns = message->driver_ns,
		.nic_ns = message->nic_ns,
		.done_ns = done_ns,
		.qdisc_ns = message->qdisc_ns,
		.len_bytes = message->len_bytes,
		.pid = message->pid,
		.retransmits = message->retransmits,
		.cause = message->cause,
		.flags = message->flags,
		.group = message->group,
	};

	__builtin_memcpy(event.device, message->device, sizeof(event.device));
	emit(&event);
}

/* A message that no driver was seen with: its hops that begin or end there have no sample. */
INLINE void tcp_missed(u32 reason)
{
	discard(cfg_stamped ? HOP_TX_DRIVER : HOP_TX_QDISC, reason);
	discard(HOP_TX_ACK, reason);
}

/* All messages before `acked` are acknowledged. */
static __attribute__((noinline)) void tcp_acked(struct tx_state *state, u32 acked, u64 now_ns)
{
	struct hop_tx_counters *counter = count();
	u32 done = 0;

	for (u32 i = 0; i < HOP_MESSAGES && state->consumed != state->produced; i++) {
		struct message *message = message_at(state, state->consumed);
		u64 start_ns = message->entry_ns ? message->entry_ns : message->handed_ns;

		if (before(acked, message->end_seq))
			break;
		if (state->next_sched == state->consumed) {
			/* Never stamped: a segment that TCP cut off it took its last byte along. */
			state->next_sched++;
			message->unseen = 1;
			discard(HOP_TX_SCHED, HOP_TX_COALESCED);
		}
		if (message->driver_ns)
			record(HOP_TX_ACK, message->group, message->driver_ns, now_ns);
		else
			tcp_missed(message->unseen ? HOP_TX_COALESCED : HOP_TX_NO_STAMP);
		record(HOP_TX_TOTAL, message->group, start_ns, now_ns);
		if (cfg_events)
			message_event(state, message, now_ns);
		state->consumed++;
		done++;
	}
	if (counter && done)
		atomic_add(&counter->acked, done);
}

/* The socket is closed: what is on the way will not be acknowledged. */
static __attribute__((noinline)) void tcp_closed(struct tx_state *state)
{
	for (u32 i = 0; i < HOP_MESSAGES && state->consumed != state->produced; i++) {
		struct message *message = message_at(state, state->consumed);

		if (!message->sched_ns && !message->unseen)
			discard(HOP_TX_SCHED, HOP_TX_CLOSED);
		if (message->driver_ns)
			discard(HOP_TX_ACK, HOP_TX_CLOSED);
		else
			tcp_missed(HOP_TX_CLOSED);
		discard(HOP_TX_TOTAL, HOP_TX_CLOSED);
		message->flags |= HOP_TX_ABORTED;
		if (cfg_events)
			message_event(state, message, 0);
		state->consumed++;
	}
	state->next_sched = state->next_driver = state->produced;
}
