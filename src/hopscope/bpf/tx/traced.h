// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Transmit latency of TCP by tracing, where the kernel has no BPF time stamps: every socket of the host runs these. The
 * send call's entry says what it wants to hand over; what it did shows at the next call. Hand-over itself is not seen.
 */
#pragma once

#include "tx/tcp.h"

static __noinline struct tx_state *traced_state(struct sock *sk, bool create)
{
	struct socket_key key = {
		.sk = (u64)sk,
		.hash = BPF_CORE_READ(sk, __sk_common.skc_hash),
	};
	struct tx_state *state = bpf_map_lookup_elem(&traced_states, &key);
	u32 zero = 0;
	void *empty;

	if (state || !create)
		return state;
	empty = bpf_map_lookup_elem(&traced_empty, &zero);
	if (empty)
		bpf_map_update_elem(&traced_states, &key, empty, BPF_NOEXIST);
	return bpf_map_lookup_elem(&traced_states, &key);
}

static __always_inline void traced_forget(struct sock *sk)
{
	struct socket_key key = {
		.sk = (u64)sk,
		.hash = BPF_CORE_READ(sk, __sk_common.skc_hash),
	};

	bpf_map_delete_elem(&traced_states, &key);
}

/* The call before this one may have handed over less than it wanted. */
static __noinline void traced_settle(struct tx_state *state, struct sock *sk, u32 write_seq)
{
	struct message *message = message_at(state, state->produced - 1);
	struct hop_tx_counters *counter = count();
	u32 excess = message->end_seq - write_seq;

	if (state->produced == state->consumed || message->sched_ns || !before(write_seq, message->end_seq))
		return;
	message->end_seq = write_seq;
	message->end_byte -= excess;
	message->len_bytes -= excess;
	if (!message->len_bytes) {
		/* Nothing at all: it was no message. */
		state->produced--;
		if (counter) {
			atomic_add(&counter->messages, -1);
			atomic_add(&counter->sampled, -1);
		}
		return;
	}
	if (!before(tcp_field(sk, snd_nxt), write_seq)) {
		message_unseen(message, UNSEEN_CALL);
		barrier();
		state->next_sched = state->produced;
	}
	if (!before(tcp_field(sk, snd_una), write_seq))
		tcp_closed(state, write_seq);
}

static __noinline void traced_message(struct tx_state *state, struct sock *sk, u64 left, u32 write_seq, u64 entry_ns)
{
	struct message *message;

	tcp_look(state, sk, entry_ns, write_seq);
	clocks_note(&state->clocks, sk);
	message = message_new(state, write_seq + (u32)left);
	if (!message)
		return;
	message->entry_ns = message->handed_ns = entry_ns;
	message->end_byte = state->end_byte + left;
	message->len_bytes = left;
	message->pid = current_pid();
	message->group = sender_group(sk);
	tcp_begins(state, message, sk, message->end_seq);
	state->produced++;
}

static __noinline void traced_enter(struct sock *sk, struct msghdr *msg, bool once)
{
	struct tx_state *state = traced_state(sk, true);
	struct hop_tx_counters *counter = count();
	struct call *call;
	u32 write_seq;

	if (!state || !counter) {
		missed_all(HOP_TX_NO_MEMORY);
		return;
	}
	if (!state->known) {
		state->known = 1;
		state->wanted = socket_wanted(sk);
		state->cookie = BPF_CORE_READ(sk, __sk_common.skc_cookie.counter);
		if (!state->cookie)
			state->cookie = bpf_ktime_get_ns();
		state->write_seq = tcp_field(sk, write_seq);
		if (cfg_events && state->wanted)
			flow_remember(state->cookie, sk);
	}
	call = state->wanted ? call_new(state, sk, msg, once) : NULL;
	if (!call)
		return;
	write_seq = call->write_seq;
	state->may_sleep = !(BPF_CORE_READ(msg, msg_flags) & MSG_DONTWAIT);
	traced_settle(state, sk, write_seq);
	state->end_byte += (u32)(write_seq - state->write_seq);
	state->write_seq = write_seq;
	if (!call->left || !message_wanted(sk))
		return;
	atomic_add(&counter->messages, 1);
	if (!message_sampled(state)) {
		tcp_look_between(state, sk, call->entry_ns, write_seq);
		return;
	}
	atomic_add(&counter->sampled, 1);
	traced_message(state, sk, call->left, write_seq, call->entry_ns);
}

/* Sequence numbers of a packet on its way down: false if it has no bytes. */
static __always_inline bool traced_range(struct sk_buff *skb, u64 head, u32 *first_seq, u32 *key)
{
	u16 transport = skb->transport_header;
	u32 data = (u32)(address(skb->data) - head), seq = 0;
	u8 offset = 0;
	s32 payload;

	bpf_probe_read_kernel(&seq, 4, (void *)(head + transport + 4));
	bpf_probe_read_kernel(&offset, 1, (void *)(head + transport + 12));
	payload = (s32)(skb->len - (transport - data) - (offset >> 4) * 4);
	*first_seq = bpf_ntohl(seq);
	*key = *first_seq + payload - 1;
	return payload > 0;
}

/* A call, which the verifier of kernels without its iterator takes less to follow. */
static __noinline void traced_ends(struct tx_state *state, struct sock *sk, struct pass *pass)
{
	tcp_leave(state, sk, pass, HOP_MESSAGES);
}

static __always_inline void traced_leaves(struct sk_buff *skb, struct sock *sk, u64 head)
{
	struct tx_state *state = traced_state(sk, false);
	u64 now_ns = bpf_ktime_get_ns();
	u32 first_seq, key, ifindex;
	struct pass *pass;

	if (!state || state->produced == state->consumed || !traced_range(skb, head, &first_seq, &key))
		return;
	ifindex = skb->dev->ifindex;
	/* TCP counts new bytes as sent once their packet has passed here. */
	if (!before(tcp_field(sk, snd_nxt), key + 1))
		tcp_sent_again(state, first_seq, key + 1);
	else if (tcp_waits(state))
		tcp_look_leaving(state, sk, now_ns, tcp_field(sk, write_seq), key + 1);
	tcp_lost_below(state, first_seq, key);
	if (state->next_sched == state->produced || before(key + 1, message_at(state, state->next_sched)->end_seq))
		return;
	pass = pass_new(head, ifindex, now_ns);
	pass->first_seq = first_seq;
	pass->key = key;
	traced_ends(state, sk, pass);
}

/* The driver's function is called with a packet. What is cut on its way down has an address that nobody knows, or knows
 * of another packet: the range tells. In a tunnel it cannot be read.
 */
static __always_inline void traced_driver(struct sock *sk, struct sk_buff *skb, u64 head, struct pass *pass, u64 now_ns)
{
	struct tx_state *state = traced_state(sk, false);
	u32 first_seq, key;

	if (!state || state->consumed == state->next_sched)
		return;
	if (!BPF_CORE_READ_BITFIELD_PROBED(skb, encapsulation)) {
		if (!traced_range(skb, head, &first_seq, &key))
			return;
		if (pass && (before(first_seq, pass->first_seq) || before(pass->key, key)))
			pass = NULL;
	} else if (pass) {
		first_seq = pass->first_seq;
		key = pass->key;
	} else {
		return;
	}
	tcp_driver(state, pass, first_seq, key, now_ns, HOP_MESSAGES);
}

static __always_inline void traced_ack(struct sock *sk, struct sk_buff *skb)
{
	struct tcp_skb_cb *cb = (void *)skb->cb;
	struct tx_state *state = traced_state(sk, false);
	u32 acked = BPF_CORE_READ(cb, ack_seq);

	if (!state || state->produced == state->consumed)
		return;
	tcp_look_between(state, sk, bpf_ktime_get_ns(), tcp_field(sk, write_seq));
	if (before(tcp_field(sk, snd_nxt), acked))
		return;
	/* A call that does not sleep is not in the kernel while the socket takes in a packet. */
	if (!state->may_sleep)
		traced_settle(state, sk, tcp_field(sk, write_seq));
	tcp_acked(state, acked, bpf_ktime_get_ns(), HOP_MESSAGES);
}

static __always_inline void traced_closes(struct sock *sk)
{
	struct tx_state *state = traced_state(sk, false);

	if (!state)
		return;
	traced_settle(state, sk, tcp_field(sk, write_seq));
	tcp_closed(state, tcp_field(sk, snd_una));
	traced_forget(sk);
}
