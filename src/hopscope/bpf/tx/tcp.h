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

#include "tx/fields.h"
#include "tx/flow.h"

/* ---- samples that are missing ---- */

/* A message that no driver was seen with: its hops that begin or end there have no sample. */
static __always_inline void missed_below(u32 reason)
{
	if (!cfg_stamped || cfg_qdisc)
		discard(HOP_TX_QDISC, reason);
	if (cfg_stamped) {
		discard(HOP_TX_DRIVER, reason);
		discard(HOP_TX_HOST, reason);
	}
	discard(HOP_TX_ACK, reason);
}

/* A message that is not followed. */
static __noinline void missed_all(u32 reason)
{
	if (cfg_send)
		discard(HOP_TX_TCP, reason);
	discard(HOP_TX_SCHED, reason);
	missed_below(reason);
	discard(HOP_TX_TOTAL, reason);
}

/* ---- a message's way ---- */

/* Does anything of what is followed wait in TCP? */
static __always_inline bool tcp_waits(struct tx_state *state)
{
	return state->next_sched != state->produced;
}

/* A look at what holds the bytes up to `end_seq`. */
static __always_inline void tcp_look(struct tx_state *state, struct sock *sk, u64 now_ns, u32 end_seq)
{
	if (tcp_waits(state)) {
		clocks_advance(&state->clocks, sk, now_ns, end_seq);
	} else {
		state->clocks.looked_ns = now_ns;
		state->clocks.cause = HOP_CAUSE_NONE;
	}
}

/* A look while nothing of what follows has happened yet: an ACK, or the call that hands over a message that is not followed. */
static __always_inline void tcp_look_between(struct tx_state *state, struct sock *sk, u64 now_ns, u32 end_seq)
{
	if (!tcp_waits(state))
		return;
	clocks_advance(&state->clocks, sk, now_ns, end_seq);
	clocks_note(&state->clocks, sk);
	state->clocks.in_call = 0;
}

/* New bytes leave, up to `next_seq`. What leaves in one try was held by what held the first of it. */
static __noinline void tcp_look_leaving(struct tx_state *state, struct sock *sk, u64 now_ns, u32 end_seq, u32 next_seq)
{
	struct clocks *clocks = &state->clocks;
	u64 try_ns = tcp_field(sk, tcp_clock_cache);

	if (clocks->try_ns == try_ns && clocks->cause) {
		clock_add(clocks, clocks->cause, now_ns - clocks->looked_ns);
		clocks->looked_ns = now_ns;
	} else {
		clocks_advance(clocks, sk, now_ns, end_seq);
		clocks->try_ns = try_ns;
	}
	clocks_leave(clocks, sk, next_seq);
}

/* A call hands over the bytes up to `end_seq`: what its message needs to know when it leaves. */
static __always_inline void tcp_begins(struct tx_state *state, struct message *message, struct sock *sk, u32 end_seq)
{
	message->cause = tcp_foretold(&state->clocks, sk, end_seq);
	__builtin_memcpy(message->held_ns, state->clocks.held_ns, sizeof(message->held_ns));
	state->clocks.in_call = 1;
}

/* Does the youngest message leave in the call that sent it? Then nothing held it. */
static __always_inline bool leaves_at_once(struct tx_state *state, struct message *message, struct sock *sk,
					   struct pass *pass)
{
	u32 mss = tcp_field(sk, mss_cache);

	if (state->next_sched + 1 != state->produced || !state->clocks.in_call || message->cause)
		return false;
	/* In the SYN: what there was no room for in it is a later packet's. */
	if (!cfg_stamped && BPF_CORE_READ(sk, __sk_common.skc_state) == TCP_SYN_SENT)
		return true;
	if (!sock_field(sk, sk_lock.owned) || current_pid() != message->pid)
		return false;
	/* Its call said that more would follow (MSG_MORE), and the rest of a packet was not filled. */
	return !(mss && (pass->key + 1 - pass->first_seq) % mss && before(tcp_field(sk, pushed_seq), message->end_seq));
}

/* One part of a message's wait, now that it leaves. What is found goes to memory: the verifier then follows one way on. */
static __noinline void message_part(struct message *message, struct clocks *clocks, u32 index)
{
	u64 part_ns;

	barrier_var(index);
	if (index >= CLOCKS)
		return;
	part_ns = clocks->held_ns[index] - message->held_ns[index];
	if (!part_ns)
		return;
	record(HOP_TX_SCHED + 1 + index, message->group, 0, part_ns);
	if (part_ns <= clocks->longest_ns)
		return;
	clocks->longest_ns = part_ns;
	message->cause = index + 1;
}

/* The parts of a message's wait, and the cause that has the longest one. */
static __noinline void message_parts(struct message *message, struct clocks *clocks)
{
	message->cause = HOP_CAUSE_OTHER;
	clocks->longest_ns = 0;
	for (u32 i = 0; i < CLOCKS; i++)
		message_part(message, clocks, i);
}

static __always_inline bool message_sampled(struct tx_state *state)
{
	/* A look at the clock is much of what a message costs that is left out. */
	u64 now_ns = cfg_gap_ns ? bpf_ktime_get_ns() : 0;

	if (cfg_budget && !sampling_takes())
		return false;
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
static __always_inline struct message *message_new(struct tx_state *state, u32 end_seq)
{
	struct message *message;

	if (state->produced - state->consumed >= HOP_MESSAGES) {
		message = message_at(state, state->produced - 1);
		if (!message->sched_ns && !message->unseen) {
			message->len_bytes += end_seq - message->end_seq;
			message->end_byte += end_seq - message->end_seq;
			message->end_seq = end_seq;
		}
		missed_all(HOP_TX_MERGED);
		return NULL;
	}
	message = message_at(state, state->produced);
	__builtin_memset(message, 0, sizeof(*message));
	message->end_seq = end_seq;
	return message;
}

/* Why a message that is done has no time below TCP. */
static __always_inline u32 why_missed(struct message *message)
{
	if (message->unseen == UNSEEN_SYN)
		return HOP_TX_FAST_OPEN;
	if (message->unseen)
		return message->unseen == UNSEEN_CALL ? HOP_TX_UNSTAMPED : HOP_TX_COALESCED;
	return message->dropped ? HOP_TX_DROPPED : HOP_TX_NO_STAMP;
}

/* Nothing is known of it below TCP yet. */
static __always_inline void message_above(struct message *message)
{
	__builtin_memset(message->held_ns, 0, sizeof(message->held_ns));
	barrier();
}

static __always_inline void message_unseen(struct message *message, u32 why)
{
	message_above(message);
	message->unseen = why;
	discard(HOP_TX_SCHED, why_missed(message));
}

/* The end of a message leaves TCP in a packet, to its first device. */
static __noinline void message_leaves(struct message *message, struct pass *pass)
{
	message_above(message);
	message->device[0] = pass->device[0];
	message->sched_ns = pass->sched_ns;
	message->carrier = pass->key;
	message->devices = 1;
	record(HOP_TX_SCHED, message->group, message->handed_ns, message->sched_ns);
}

/* A packet leaves TCP: those of the messages that end in it do. As in what follows, `turns` are HOP_MESSAGES, or UNCOUNTED in
 * the program that only kernels with BPF time stamps load.
 */
static __always_inline void tcp_leave(struct tx_state *state, struct sock *sk, struct pass *pass, u32 turns)
{
	each_step(i, turns, state->next_sched != state->produced) {
		struct message *message = message_at(state, state->next_sched);

		if (before(pass->key + 1, message->end_seq))
			break;
		if (before(pass->first_seq, message->end_seq)) {
			if (leaves_at_once(state, message, sk, pass))
				message->cause = HOP_CAUSE_NONE;
			else
				message_parts(message, &state->clocks);
			message_leaves(message, pass);
			if (cfg_fields)
				fields_note(state->cookie, state->next_sched, sk, HOP_TX_LEAVES);
		} else {
			message_unseen(message, UNSEEN_SPLIT);
		}
		/* Now the driver may look at it, without the lock. */
		barrier();
		state->next_sched++;
	}
}

/* The packet `key` at its first device once more: it is sent again, and not on its way to a device stacked below. */
static __noinline bool tcp_leaves_again(struct tx_state *state, u32 key, u32 ifindex)
{
	each_step(i, HOP_MESSAGES, before(state->consumed + i, state->next_sched)) {
		struct message *message = message_at(state, state->consumed + i);

		if (message->carrier == key && message->sched_ns)
			return message->device[0].ifindex == ifindex;
	}
	return false;
}

/* Bytes are sent again. A message that shares a packet with later ones is acknowledged before that packet's stamp: that
 * they are close holds no longer.
 */
static __noinline void tcp_sent_again(struct tx_state *state, u32 first_seq, u32 end_seq)
{
	struct hop_tx_counters *counter = count();
	bool followed = false;

	each_step(i, HOP_MESSAGES, before(state->consumed + i, state->produced)) {
		struct message *message = message_at(state, state->consumed + i);

		if (message->sched_ns && message->carrier + 1 != message->end_seq &&
		    !before(message->carrier, first_seq))
			message->late = 1;
		if (!before(message->end_seq - message->len_bytes, end_seq) || !before(first_seq, message->end_seq))
			continue;
		if (message->retransmits < 0xffff)
			message->retransmits++;
		followed = true;
	}
	if (counter && followed)
		atomic_add(&counter->retransmits, 1);
}

/* Did the message's last byte go in this packet? Packets that the kernel has cut on the way down keep the stamp's key; by
 * tracing they are known by their range.
 */
static __always_inline bool carries(struct message *message, u32 first_seq, u32 key)
{
	u32 last = message->end_seq - 1;

	return cfg_stamped ? message->carrier == key : !before(last, first_seq) && !before(key, last);
}

/* What is sent again before the driver had it was lost between TCP and the driver: TCP sends a packet again only when the
 * first one has left the host's queues.
 */
static __noinline void tcp_lost_below(struct tx_state *state, u32 first_seq, u32 key)
{
	each_step(i, HOP_MESSAGES, before(state->consumed + i, state->next_sched)) {
		struct message *message = message_at(state, state->consumed + i);

		if (message->sched_ns && !message->driver_ns && carries(message, first_seq, key))
			message->dropped = 1;
	}
}

/* The driver has a message. */
static __noinline void message_driven(struct message *message, struct pass *pass, u64 now_ns)
{
	bool complete = pass && pass_complete(pass);
	u64 from_ns = message->sched_ns;

	message->driver_ns = now_ns;
	if (pass) {
		message->devices = pass->devices;
		__builtin_memcpy(message->device, pass->device, sizeof(message->device));
	}
	if (!cfg_stamped) {
		/* It is the call of the driver's function, where the queueing discipline ends; another device may follow. */
		message->qdisc_ns = now_ns - from_ns;
	} else if (!cfg_qdisc) {
		record(HOP_TX_DRIVER, message->group, from_ns, now_ns);
	} else if (complete) {
		message->qdisc_ns = pass->qdisc_ns;
		record(HOP_TX_QDISC, message->group, from_ns, from_ns + pass->qdisc_ns);
		record(HOP_TX_DRIVER, message->group, from_ns + pass->qdisc_ns, now_ns);
	} else {
		discard(HOP_TX_QDISC, HOP_TX_NO_STAMP);
		discard(HOP_TX_DRIVER, HOP_TX_NO_STAMP);
	}
}

/* The driver has a packet. Not under the socket's lock. */
static __always_inline void tcp_driver(struct tx_state *state, struct sock *sk, struct pass *pass, u32 first_seq,
				       u32 key, u64 now_ns, u32 turns)
{
	u32 next = state->next_driver, end = state->next_sched;
	bool all = true;

	if (!cfg_stamped || before(next, state->consumed))
		next = state->consumed;
	each_step(i, turns, before(next, end)) {
		struct message *message = message_at(state, next++);

		/* By tracing, the last device counts; by stamps, it is the first one whose driver makes them. */
		bool lower = !cfg_stamped && pass && pass->devices > message->devices;

		if (message->sched_ns && (!message->driver_ns || lower) && !message->dropped &&
		    carries(message, first_seq, key)) {
			message_driven(message, pass, now_ns);
			if (cfg_fields)
				fields_note(state->cookie, next - 1, sk, HOP_TX_DRIVEN);
		}
		all = all && (message->driver_ns || message->unseen || message->dropped);
		if (all)
			state->next_driver = next;
	}
}

static __noinline void tcp_nic(struct tx_state *state, u32 key, u64 now_ns)
{
	each_step(i, HOP_MESSAGES, before(state->consumed + i, state->next_sched)) {
		struct message *message = message_at(state, state->consumed + i);

		if (message->carrier != key || !message->driver_ns || message->nic_ns)
			continue;
		message->nic_ns = now_ns;
		record(HOP_TX_NIC, message->group, message->driver_ns, now_ns);
	}
}

/* Of the first message that is on the way. */
static __noinline void message_event(struct tx_state *state, struct message *message, u64 done_ns)
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
	if (cfg_fields)
		fields_emit(&event, state->consumed);
	else
		emit(&event, NULL);
}

/* By tracing, the queueing disciplines' part is known when the message is done. */
static __always_inline void traced_qdisc(struct message *message)
{
	if (!cfg_stamped)
		record(HOP_TX_QDISC, message->group, message->sched_ns, message->driver_ns);
}

/* Is the beginning of its time unknown? */
static __always_inline bool begins_unseen(const struct message *message)
{
	return cfg_stamped && (message->late || (message->unseen && message->unseen != UNSEEN_SYN));
}

static __always_inline u64 message_begins(const struct message *message)
{
	return message->entry_ns ? message->entry_ns : message->handed_ns;
}

/* What is known once it is done, of a message that the driver had. */
static __always_inline void message_left(struct message *message, u32 why)
{
	traced_qdisc(message);
	if (begins_unseen(message))
		discard(HOP_TX_HOST, why);
	else if (cfg_stamped)
		record(HOP_TX_HOST, message->group, message_begins(message), message->driver_ns);
}

/* Its last byte is acknowledged. By stamps that is known of the last message in a packet. */
static __noinline void message_acked(struct tx_state *state, struct message *message, u64 now_ns)
{
	u32 why = message->driver_ns ? HOP_TX_COALESCED : why_missed(message);

	if (!message->driver_ns)
		missed_below(why);
	else
		message_left(message, why);
	if (begins_unseen(message)) {
		if (message->driver_ns)
			discard(HOP_TX_ACK, why);
		discard(HOP_TX_TOTAL, why);
		now_ns = 0;
	} else {
		if (message->driver_ns)
			record(HOP_TX_ACK, message->group, message->driver_ns, now_ns);
		record(HOP_TX_TOTAL, message->group, message_begins(message), now_ns);
	}
	if (cfg_events)
		message_event(state, message, now_ns);
}

/* All messages before `acked` are acknowledged. */
static __always_inline void tcp_acked(struct tx_state *state, struct sock *sk, u32 acked, u64 now_ns, u32 turns)
{
	struct hop_tx_counters *counter = count();
	u32 first = state->consumed, done;

	each_step(i, turns, state->consumed != state->produced) {
		struct message *message = message_at(state, state->consumed);

		if (before(acked, message->end_seq))
			break;
		if (state->next_sched == state->consumed) {
			/* Never stamped: a segment that TCP cut off it took its last byte along. */
			message_unseen(message, UNSEEN_SPLIT);
			barrier();
			state->next_sched++;
		}
		if (cfg_fields && !begins_unseen(message))
			fields_note(state->cookie, state->consumed, sk, HOP_TX_ACKED);
		message_acked(state, message, now_ns);
		state->consumed++;
	}
	done = state->consumed - first;
	if (counter && done)
		atomic_add(&counter->acked, done);
}

/* The socket is closed: what is on the way will not be acknowledged; some may have been, unseen. */
static __noinline void tcp_closed(struct tx_state *state, u32 snd_una)
{
	each_step(i, HOP_MESSAGES, state->consumed != state->produced) {
		struct message *message = message_at(state, state->consumed);
		u32 why = before(snd_una, message->end_seq) ? HOP_TX_CLOSED : HOP_TX_NO_STAMP;

		if (!message->sched_ns && !message->unseen) {
			message_above(message);
			message->cause = HOP_CAUSE_OTHER;
			discard(HOP_TX_SCHED, why);
		}
		if (message->driver_ns) {
			message_left(message, why);
			discard(HOP_TX_ACK, why);
		} else {
			missed_below(why);
		}
		discard(HOP_TX_TOTAL, why);
		if (why == HOP_TX_CLOSED)
			message->flags |= HOP_TX_ABORTED;
		if (cfg_events)
			message_event(state, message, 0);
		state->consumed++;
	}
	state->next_sched = state->next_driver = state->produced;
}
