// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Receive latency: the TCP segments that wait in a socket.
 *
 * TCP merges skbs as it queues them, so that a packet cannot be followed to its read. Bytes can: each segment that
 * arrives leaves the end of its sequence range here, and a read takes all those that lie before tp->copied_seq.
 * recvmsg, splice, sendfile and zero-copy receive all move it; MSG_PEEK does not.
 *
 * The kernel calls both ends with the socket's lock held: nothing here is shared.
 */
#pragma once

#include "common/tcp.h"
#include "rx/message.h"
#include "rx/reader.h"

static __noinline struct tcp_state *tcp_state_by_address(struct sock *sk, bool create)
{
	struct socket_key key = {
		.sk = (u64)sk,
		.hash = BPF_CORE_READ(sk, __sk_common.skc_hash),
		.port = BPF_CORE_READ(sk, __sk_common.skc_num),
		.peer_port = BPF_CORE_READ(sk, __sk_common.skc_dport),
	};
	struct tcp_state *state = bpf_map_lookup_elem(&tcp_states_by_address, &key);
	u32 zero = 0;
	void *empty;

	if (state || !create)
		return state;
	empty = bpf_map_lookup_elem(&tcp_state_empty, &zero);
	if (empty)
		bpf_map_update_elem(&tcp_states_by_address, &key, empty, BPF_NOEXIST);
	return bpf_map_lookup_elem(&tcp_states_by_address, &key);
}

/* `trusted`: the verifier knows the pointer for a socket. */
static __always_inline struct tcp_state *tcp_state_of(struct sock *sk, bool create, bool trusted)
{
	if (trusted && cfg_socket_storage)
		return bpf_sk_storage_get(&tcp_states, sk, NULL, create ? BPF_LOCAL_STORAGE_GET_F_CREATE : 0);
	return tcp_state_by_address(sk, create);
}

/* What the hooks know of a segment, however they were attached. */
struct arrival {
	u64 head;
	u32 seq;
	u32 end_seq;
	u32 rcv_nxt;
	u16 network;
	u16 transport;
	u8 tcp_flags;
	s32 joins; /* see socket_wanted() */
};

#define TCP_FIN 0x01

static __always_inline struct segment *segment_at(struct tcp_state *state, u32 index)
{
	barrier_var(index);
	return &state->segments[index & (HOP_SEGMENTS - 1)];
}

/* Holes that rcv_nxt has passed were filled by the last segment in order. */
static __noinline void tcp_fill_holes(struct tcp_state *state, u32 rcv_nxt)
{
	each_step(i, HOP_SEGMENTS, state->consumed + i != state->produced) {
		struct segment *segment = segment_at(state, state->consumed + i);

		if (!(segment->flags & SEGMENT_HOLE) || before(rcv_nxt, segment->end_seq))
			continue;
		segment->flags &= ~SEGMENT_HOLE;
		state->holes--;
		if (before(state->seen_seq, segment->end_seq))
			state->seen_seq = segment->end_seq;
		if (cfg_order == HOP_ORDER_APART && since_known(segment->first_ns)) {
			record(HOP_RX_TCP_ORDER, segment->group, segment->queued_ns, state->filled_ns);
			segment->queued_ns = state->filled_ns;
		}
	}
}

/* Has a segment with this end arrived out of order already? */
static __always_inline bool tcp_repeats_hole(struct tcp_state *state, u32 end_seq)
{
	each_step(i, HOP_SEGMENTS, state->consumed + i != state->produced) {
		struct segment *segment = segment_at(state, state->consumed + i);

		if (segment->flags & SEGMENT_HOLE && segment->end_seq == end_seq)
			return true;
	}
	return false;
}

/* The youngest takes the bytes over, and its sample speaks for both. */
static __always_inline void tcp_merge(struct tcp_state *state, u32 end_seq)
{
	struct segment *youngest = segment_at(state, state->produced - 1);

	if (state->produced == state->consumed || SAMPLES)
		return;
	discard(HOP_RX_TCP_READ, HOP_RX_MERGED);
	if (cfg_events)
		segment_grows(state, end_seq - youngest->end_seq);
	youngest->end_seq = state->seen_seq = end_seq;
}

/* Whether it is a segment of its own. */
static __always_inline bool tcp_push(struct tcp_state *state, struct stamp *stamp, u32 end_seq, bool late, u64 now_ns)
{
	struct segment *segment;

	if (state->produced - state->consumed >= HOP_SEGMENTS) {
		/* Full: the youngest takes the bytes over, and its sample speaks for both. */
		segment = segment_at(state, state->produced - 1);
		discard(HOP_RX_TCP_READ, HOP_RX_MERGED);
		end_many(HOP_END_MERGED, 1);
		if (before(segment->end_seq, end_seq)) {
			if (cfg_events)
				segment_grows(state, end_seq - segment->end_seq);
			segment->end_seq = end_seq;
		}
		return false;
	}
	segment = segment_at(state, state->produced);
	segment->first_ns = stamp->first_ns;
	segment->queued_ns = now_ns;
	segment->end_seq = end_seq;
	segment->group = stamp->group;
	segment->flags = late ? SEGMENT_HOLE | SEGMENT_WAS_LATE : 0;
	state->produced++;
	state->holes += late;
	state->reordered |= late;
	return true;
}

/* A segment that was next in order, and yet did not move rcv_nxt, found no room. Its bytes come again. */
static __noinline void tcp_forget_refused(struct tcp_state *state, u32 rcv_nxt)
{
	each_step(i, HOP_SEGMENTS, state->produced != state->consumed) {
		struct segment *segment = segment_at(state, state->produced - 1);

		if (segment->flags & SEGMENT_HOLE || !before(rcv_nxt, segment->end_seq))
			break;
		discard(HOP_RX_TCP_READ, HOP_RX_DUPLICATE);
		end_many(HOP_END_REPEATED, 1);
		state->produced--;
	}
	state->seen_seq = rcv_nxt;
}

/* Whether it waits as a segment of its own. */
static __noinline bool tcp_arrive(struct tcp_state *state, struct stamp *stamp, const struct arrival *arrival,
				  u32 end_seq)
{
	bool late = before(arrival->rcv_nxt, arrival->seq);
	u64 now_ns = stamp->last_ns;

	if (state->holes) {
		tcp_fill_holes(state, arrival->rcv_nxt);
		if (late && tcp_repeats_hole(state, end_seq)) {
			discard(HOP_RX_TCP_READ, HOP_RX_DUPLICATE);
			end_many(HOP_END_REPEATED, 1);
			return false;
		}
	}
	if (before(arrival->rcv_nxt, state->seen_seq))
		tcp_forget_refused(state, arrival->rcv_nxt);
	if (!late) {
		state->filled_ns = now_ns;
		state->seen_seq = end_seq;
	}
	return tcp_push(state, stamp, end_seq, late, now_ns);
}

/* One segment is read. */
__noinline int tcp_deliver(u64 first_ns, u64 queued_ns, u32 group, u64 now_ns)
{
	if (!now_ns)
		return 0;
	reader_took(true, first_ns, queued_ns, group, now_ns);
	return record(HOP_RX_TCP_TOTAL, group, first_ns, now_ns);
}

/* By a reader of this group, where groups are of readers; `now_ns` is 0 by one who is not wanted. */
static __always_inline void tcp_take(const struct tcp_state *state, u32 index, struct segment *segment, u32 reader,
				     u64 now_ns)
{
	u32 group = cfg_group_by == HOP_GROUP_PROCESS ? reader : segment->group;
	struct waiting_key key = {.number = (u64)index + 1};

	if (!since_known(segment->first_ns))
		return;
	if (cfg_order == HOP_ORDER_EXCLUDE && segment->flags & SEGMENT_WAS_LATE) {
		discard(HOP_RX_TCP_READ, HOP_RX_OUT_OF_ORDER);
		return;
	}
	tcp_deliver(segment->first_ns, segment->queued_ns, group, now_ns);
	if (cfg_events && now_ns) {
		key.place = number_of((u64)state);
		message_read(&key, segment->first_ns, segment->queued_ns, now_ns);
	}
}

/* After reordering the ring is not sorted: look at all of it, then let go of what is read at its start. */
static __noinline void tcp_take_reordered(struct tcp_state *state, u32 copied_seq, u32 reader, u64 now_ns)
{
	u32 taken = 0;

	each_step(i, HOP_SEGMENTS, state->consumed + i != state->produced) {
		struct segment *segment = segment_at(state, state->consumed + i);

		if (segment->flags & SEGMENT_DONE || before(copied_seq, segment->end_seq))
			continue;
		tcp_take(state, state->consumed + i, segment, reader, now_ns);
		segment->flags |= SEGMENT_DONE;
		taken++;
	}
	end_many(HOP_END_READ_TCP, taken);
	each_step(i, HOP_SEGMENTS, state->consumed != state->produced) {
		if (!(segment_at(state, state->consumed)->flags & SEGMENT_DONE))
			break;
		state->consumed++;
	}
	if (state->consumed == state->produced)
		state->reordered = 0;
}

/* The oldest segment is read, if it ends before copied_seq. Not static: so the verifier follows it once, rather than at each
 * turn of the loop below.
 */
__noinline int tcp_take_oldest(struct tcp_state *state, u32 copied_seq, u32 reader, u64 now_ns)
{
	struct segment *segment;

	if (!state || state->consumed == state->produced)
		return 0;
	segment = segment_at(state, state->consumed);
	if (before(copied_seq, segment->end_seq))
		return 0;
	tcp_take(state, state->consumed, segment, reader, now_ns);
	state->consumed++;
	return 1;
}

/* All segments that end before copied_seq are read. */
static __noinline void tcp_take_segments(struct tcp_state *state, u32 copied_seq, bool wanted)
{
	u32 reader, consumed = state->consumed;
	u64 now_ns;

	/* A part of a segment is no sample, and needs no look at the clock. */
	if (state->consumed == state->produced ||
	    (!state->reordered && before(copied_seq, segment_at(state, state->consumed)->end_seq)))
		return;
	now_ns = wanted ? bpf_ktime_get_ns() : 0;
	reader = wanted ? reader_group(0) : 0;
	if (state->reordered) {
		tcp_take_reordered(state, copied_seq, reader, now_ns);
		return;
	}
	/* Not by each_step(): a read may have many. */
	for (u32 i = 0; i < HOP_SEGMENTS; i++)
		if (!tcp_take_oldest(state, copied_seq, reader, now_ns))
			break;
	if (state->consumed != consumed)
		end_many(HOP_END_READ_TCP, state->consumed - consumed);
}

/* Nobody will read what waits. */
static __noinline void tcp_leave_unread(struct tcp_state *state)
{
	u32 unread = 0;

	each_step(i, HOP_SEGMENTS, state->consumed + i != state->produced) {
		if (!(segment_at(state, state->consumed + i)->flags & SEGMENT_DONE))
			unread++;
	}
	end_many(HOP_END_UNREAD, unread);
	state->consumed = state->produced;
}

#define RCV_SHUTDOWN 1

/* Were bytes before copied_seq not seen arriving? The peer's FIN has a number, too, and tcp_read_sock, which splice uses,
 * comes by without having read anything.
 */
static __noinline bool tcp_unseen(struct sock *sk, const struct tcp_state *state, u32 copied_seq, u32 rcv_nxt)
{
	bool fin = copied_seq == rcv_nxt && BPF_CORE_READ(sk, sk_shutdown) & RCV_SHUTDOWN;

	if (state)
		return before(state->seen_seq, copied_seq - fin);
	return BPF_CORE_READ((struct tcp_sock *)sk, bytes_received) > fin;
}
