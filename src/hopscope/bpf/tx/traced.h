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

	if (state && !epoch_is_ours(state->epoch)) {
		if (!create)
			return NULL;
		state_renew(state, tcp_field(sk, write_seq));
	}
	if (state || !create)
		return state;
	empty = bpf_map_lookup_elem(&traced_empty, &zero);
	if (empty)
		bpf_map_update_elem(&traced_states, &key, empty, BPF_NOEXIST);
	state = bpf_map_lookup_elem(&traced_states, &key);
	if (state)
		state->epoch = sampling.epoch;
	return state;
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
	if (cfg_fields)
		fields_begin(state->cookie, state->produced, sk);
	state->produced++;
}

/* The first that is seen of a socket. */
static __noinline void traced_know(struct tx_state *state, struct sock *sk, u32 write_seq)
{
	state->known = 1;
	state->wanted = socket_wanted(sk);
	state->cookie = BPF_CORE_READ(sk, __sk_common.skc_cookie.counter);
	if (!state->cookie)
		state->cookie = bpf_ktime_get_ns();
	state->write_seq = write_seq;
	if (cfg_events && state->wanted)
		flow_remember(state->cookie, sk);
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
	if (!state->known)
		traced_know(state, sk, tcp_field(sk, write_seq));
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

/* A SYN with data leaves within the call that connects, which no hook at the send call has seen. TCP's clock is that of the
 * moment when it began to make the SYN.
 */
static __noinline void traced_fast_open(struct sock *sk, u32 first_seq)
{
	struct tcp_fastopen_request *request = tcp_field(sk, fastopen_req);
	struct tx_state *state = request ? traced_state(sk, true) : NULL;
	struct hop_tx_counters *counter = count();
	struct call *call;

	if (!state || !counter)
		return;
	traced_know(state, sk, first_seq);
	if (!state->wanted || !message_wanted(sk))
		return;
	state->may_sleep = 1;
	/* What there is no room for in the SYN is a later look at the same call. */
	call = call_of(state, bpf_get_current_pid_tgid());
	call->thread = bpf_get_current_pid_tgid();
	call->message = (u64)BPF_CORE_READ(request, data);
	call->left = BPF_CORE_READ(request, size);
	call->write_seq = first_seq;
	call->entry_ns = tcp_field(sk, tcp_clock_cache);
	atomic_add(&counter->messages, 1);
	if (!message_sampled(state))
		return;
	atomic_add(&counter->sampled, 1);
	traced_message(state, sk, call->left, first_seq, call->entry_ns);
	message_at(state, 0)->cause = HOP_CAUSE_NONE;
}

/* Sequence numbers of a packet on its way down: false if it has no bytes. */
static __always_inline bool traced_range(struct sk_buff *skb, u64 head, u32 *first_seq, u32 *key)
{
	u16 transport = skb->transport_header;
	u32 data = (u32)(address(skb->data) - head), seq = 0;
	u8 offset[2] = {};
	s32 payload;

	bpf_probe_read_kernel(&seq, 4, (void *)(head + transport + 4));
	bpf_probe_read_kernel(offset, sizeof(offset), (void *)(head + transport + 12));
	payload = (s32)(skb->len - (transport - data) - (offset[0] >> 4) * 4);
	/* A SYN has a number before its data. */
	*first_seq = bpf_ntohl(seq) + (offset[1] >> 1 & 1);
	*key = *first_seq + payload - 1;
	return payload > 0;
}

/* A packet of a socket whose send calls have not been seen. */
static __noinline void traced_unknown(struct sk_buff *skb, struct sock *sk, u64 head)
{
	u32 first_seq, key;

	if (!traced_range(skb, head, &first_seq, &key))
		return;
	if (is_mptcp(sk)) {
		if (socket_wanted(sk) && message_wanted(sk))
			discard(HOP_TX_TOTAL, HOP_TX_MPTCP);
	} else if (BPF_CORE_READ(sk, __sk_common.skc_state) == TCP_SYN_SENT) {
		traced_fast_open(sk, first_seq);
	}
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

	if (!state) {
		traced_unknown(skb, sk, head);
		state = traced_state(sk, false);
	}
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
	tcp_driver(state, sk, pass, first_seq, key, now_ns, HOP_MESSAGES);
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
	tcp_acked(state, sk, acked, bpf_ktime_get_ns(), HOP_MESSAGES);
}

/* The answer to a SYN with data does not pass tcp_probe. */
static __always_inline void traced_opens(struct sock *sk)
{
	struct tx_state *state = traced_state(sk, false);

	if (state && state->produced != state->consumed)
		tcp_acked(state, sk, tcp_field(sk, snd_una), bpf_ktime_get_ns(), HOP_MESSAGES);
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
