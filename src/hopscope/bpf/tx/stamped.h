// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Transmit latency of TCP by the kernel's BPF time stamps (6.15 and later): callbacks that only sockets with a flag make,
 * for packets that carry a message that was chosen. No other socket runs any of this.
 */
#pragma once

#include "tx/sockets.h"
#include "tx/tcp.h"

/* ---- callbacks ---- */

/* Read in place: a kernel that stamps allows the cast. */
static __always_inline u32 skb_key(struct sk_buff *skb)
{
	struct skb_shared_info *info = (void *)(address(skb->head) + skb->end);

	info = bpf_rdonly_cast(info, bpf_core_type_id_kernel(struct skb_shared_info));
	return info->tskey;
}

/* What a packet is known by on its way down; `sk` is a number, with which the verifier allows arithmetic. */
static __always_inline u64 stamped_id(u64 sk, u32 key)
{
	return sk ^ (u64)key << 32 ^ key;
}

u64 sockets_followed; /* that have a state, some 8 KiB each; user space sets it to 0 when programs are attached again */

/* Another run's choice brings us here, too: the flag belongs to the socket. What is not wanted has no state.
 * `storage` is the socket as the program knows it.
 */
static __always_inline struct tx_state *stamped_create(void *storage, struct sock *sk)
{
	struct tx_state *state = bpf_sk_storage_get(&tx_states, storage, NULL, 0);

	if (state && !epoch_is_ours(state->epoch)) {
		state_renew(state, tcp_field(sk, write_seq));
		atomic_add(&sockets_followed, 1);
		state->counted = 1;
	}
	if (state || sockets_followed >= cfg_sockets || !socket_wanted(sk))
		return state;
	state = bpf_sk_storage_get(&tx_states, storage, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (state) {
		atomic_add(&sockets_followed, 1);
		state->epoch = sampling.epoch;
		state->counted = 1;
	}
	return state;
}

static __always_inline struct tx_state *stamped_state(struct bpf_sock_ops *ctx)
{
	struct bpf_sock *sk = ctx->sk;

	struct tx_state *state = sk ? bpf_sk_storage_get(&tx_states, sk, NULL, 0) : NULL;

	return state && epoch_is_ours(state->epoch) ? state : NULL;
}

/* The first that is seen of a socket. */
static __noinline void stamped_know(struct tx_state *state, struct sock *sk, u64 cookie, u32 write_seq)
{
	state->known = 1;
	state->cookie = cookie;
	state->write_seq = write_seq;
	if (cfg_events)
		flow_remember(cookie, sk);
}

/* What the call took, and how. */
static __noinline void stamped_call(struct message *message, struct call *call)
{
	if (!call->entry_ns) {
		if (cfg_send)
			discard(HOP_TX_TCP, HOP_TX_NO_SEND);
		return;
	}
	message->entry_ns = call->entry_ns;
	if (BPF_CORE_READ(current_task(), nvcsw) != call->sleeps)
		message->flags |= HOP_TX_SLEPT;
	record(HOP_TX_TCP, message->group, message->entry_ns, message->handed_ns);
	if (message->flags & HOP_TX_SLEPT)
		record(HOP_TX_TCP_SNDBUF, message->group, message->entry_ns, message->handed_ns);
}

static __noinline void stamped_message(struct tx_state *state, struct message *message, struct sock *sk, u32 len_bytes)
{
	message->handed_ns = state->followed_ns;
	message->end_byte = state->end_byte;
	message->len_bytes = len_bytes;
	message->pid = current_pid();
	message->group = sender_group(sk);
	tcp_begins(state, message, sk, message->end_seq);
}

static __always_inline void stamped_sampled(struct tx_state *state, struct bpf_sock_ops_kern *kern, struct call *call,
					    u32 len_bytes)
{
	struct sock *sk = kern->sk;
	struct message *message;

	bpf_sock_ops_enable_tx_tstamp(kern, 0);
	tcp_look(state, sk, state->followed_ns, state->write_seq - len_bytes);
	clocks_note(&state->clocks, sk);
	if (tcp_autocorks(sk, kern->skb))
		state->clocks.throttled = 1;
	message = message_new(state, state->write_seq);
	if (!message)
		return;
	stamped_message(state, message, sk, len_bytes);
	stamped_call(message, call);
	if (cfg_fields)
		fields_begin(state->cookie, state->produced, sk);
	state->produced++;
}

/* A send call has handed its bytes to TCP. They are behind those of the call before. */
static __always_inline void stamped_handed(struct bpf_sock_ops *ctx, struct bpf_sock_ops_kern *kern)
{
	struct sock *sk = kern->sk;
	struct bpf_sock *storage = ctx->sk;
	struct tx_state *state = storage ? stamped_create(storage, sk) : NULL;
	struct hop_tx_counters *counter = count();
	u32 len_bytes, write_seq = tcp_field(sk, write_seq);
	u64 thread = bpf_get_current_pid_tgid();
	struct begin *begin;
	struct call *call;

	if (!counter || !storage)
		return;
	if (!state) {
		if (socket_wanted(sk) && message_wanted(sk)) {
			atomic_add(&counter->messages, 1);
			atomic_add(&counter->sampled, 1);
			missed_all(HOP_TX_NO_MEMORY);
		}
		return;
	}
	if (!state->known) {
		begin = bpf_sk_storage_get(&tx_begins, storage, NULL, 0);
		stamped_know(state, sk, bpf_get_socket_cookie(ctx), begin ? begin->write_seq : tcp_field(sk, snd_nxt));
	}
	len_bytes = write_seq - state->write_seq;
	/* Where the call began is not known: the socket's state is of a time before programs were detached. */
	if (cfg_budget && !len_bytes)
		return;
	call = call_of(state, thread);
	if (call->thread != thread)
		call->entry_ns = 0;
	state->write_seq = write_seq;
	state->end_byte += len_bytes;
	if (message_wanted(sk)) {
		atomic_add(&counter->messages, 1);
		if (message_sampled(state)) {
			atomic_add(&counter->sampled, 1);
			stamped_sampled(state, kern, call, len_bytes);
		} else {
			tcp_look_between(state, sk, bpf_ktime_get_ns(), write_seq - len_bytes);
		}
	}
	call->entry_ns = 0;
}

/* Bytes that a call handed over, and that had all left at its end: then there is nothing to stamp. */
static __always_inline void stamped_unstamped(struct tx_state *state, struct sock *sk, u32 write_seq)
{
	u32 len_bytes = write_seq - state->write_seq;
	struct hop_tx_counters *counter = count();

	if (!len_bytes)
		return;
	state->write_seq = write_seq;
	state->end_byte += len_bytes;
	if (!counter || !message_wanted(sk))
		return;
	atomic_add(&counter->messages, 1);
	if (!message_sampled(state))
		return;
	atomic_add(&counter->sampled, 1);
	missed_all(HOP_TX_UNSTAMPED);
}

/* The entry of a send call is only noted: TCP's own callback makes it a message. */
static __always_inline void stamped_enter(struct sock *sk, struct msghdr *msg, bool once)
{
	struct tx_state *state;
	struct begin *begin;
	struct call *call;
	bool ended;

	if (!(sk->sk_bpf_cb_flags & SK_BPF_CB_TX_TIMESTAMPING))
		return;
	state = stamped_create(sk, sk);
	if (!state)
		return;
	if (!state->known) {
		begin = bpf_sk_storage_get(&tx_begins, sk, NULL, 0);
		stamped_know(state, sk, bpf_get_socket_cookie(sk), begin ? begin->write_seq : tcp_field(sk, write_seq));
	}
	call = call_of(state, bpf_get_current_pid_tgid());
	ended = call->entry_ns && call->thread == bpf_get_current_pid_tgid();
	call = call_new(state, sk, msg, once);
	if (call && ended)
		stamped_unstamped(state, sk, call->write_seq);
}

/* ---- Fast Open: the call that connects hands its bytes over, and they leave in the SYN ----
 *
 * The kernel stamps neither. The call is seen as TCP connects, what the SYN took along when the answer to it has come. Until
 * then the message is in the place where the first one will be.
 */

static __noinline void fast_open_called(struct tx_state *state, struct sock *sk, struct tcp_fastopen_request *request)
{
	u64 now_ns = bpf_ktime_get_ns(), thread = bpf_get_current_pid_tgid();
	struct message *message = message_at(state, 0);
	struct call *call = call_of(state, thread);

	__builtin_memset(message, 0, sizeof(*message));
	message->entry_ns = message->handed_ns = now_ns;
	message->pid = current_pid();
	message->group = sender_group(sk);
	if (cfg_fields)
		fields_begin(state->cookie, 0, sk);
	state->opening = message_wanted(sk) ? OPENING_WANTED : OPENING_UNWANTED;
	/* For the case that there is no room in the SYN for all of it: TCP then hands the rest over, and is stamped. */
	call->thread = thread;
	call->entry_ns = now_ns;
	call->message = (u64)BPF_CORE_READ(request, data);
	call->left = BPF_CORE_READ(request, size);
	call->write_seq = state->write_seq;
	call->sleeps = BPF_CORE_READ(current_task(), nvcsw);
}

/* TCP is about to send a SYN. */
static __always_inline void stamped_fast_open(struct bpf_sock_ops *ctx, struct sock *sk)
{
	struct tcp_fastopen_request *request = tcp_field(sk, fastopen_req);
	struct tx_state *state;

	if (!request || !stamped_connected(ctx, sk))
		return;
	state = ctx->sk ? stamped_create(ctx->sk, sk) : NULL;
	if (!state)
		return;
	/* The SYN has a number, too. */
	stamped_know(state, sk, bpf_get_socket_cookie(ctx), tcp_field(sk, write_seq) + 1);
	fast_open_called(state, sk, request);
}

/* The bytes that left in the SYN are a message. */
static __noinline void fast_open_message(struct tx_state *state, u32 write_seq)
{
	struct message *message = message_at(state, 0);
	struct hop_tx_counters *counter = count();
	u32 len_bytes = write_seq - state->write_seq;
	bool wanted = state->opening == OPENING_WANTED;

	state->opening = 0;
	state->write_seq = write_seq;
	state->end_byte += len_bytes;
	if (!counter || !len_bytes || !wanted)
		return;
	atomic_add(&counter->messages, 1);
	if (!message_sampled(state))
		return;
	atomic_add(&counter->sampled, 1);
	message->end_seq = write_seq;
	message->end_byte = state->end_byte;
	message->len_bytes = len_bytes;
	if (cfg_send)
		discard(HOP_TX_TCP, HOP_TX_FAST_OPEN);
	message_unseen(message, UNSEEN_SYN);
	state->produced = state->next_sched = state->next_driver = 1;
}

/* The answer to the SYN has come, and acknowledges the data, or not: then TCP sends them again. */
static __noinline void fast_open_answered(struct tx_state *state, struct sock *sk)
{
	struct tcp_fastopen_request *request = tcp_field(sk, fastopen_req);
	struct message *message = message_at(state, 0);
	u32 write_seq = tcp_field(sk, write_seq);
	struct hop_tx_counters *counter = count();

	/* The call is waiting here with the rest: the message is whole when it hands that over. */
	if (write_seq != state->write_seq && request &&
	    BPF_CORE_READ(request, size) > (u32)(write_seq - state->write_seq)) {
		state->opening = 0;
		return;
	}
	state->calls[0].entry_ns = 0;
	fast_open_message(state, write_seq);
	if (!state->produced)
		return;
	if (before(tcp_field(sk, snd_una), write_seq)) {
		message->late = 1;
		return;
	}
	if (cfg_fields)
		fields_note(state->cookie, 0, sk, HOP_TX_ACKED);
	message_acked(state, message, bpf_ktime_get_ns());
	state->consumed = 1;
	if (counter)
		atomic_add(&counter->acked, 1);
}

/* A connection is there. */
static __always_inline void stamped_established(struct bpf_sock_ops *ctx, struct sock *sk)
{
	struct tx_state *state = stamped_state(ctx);

	if (state && state->opening)
		fast_open_answered(state, sk);
	else
		stamped_connected(ctx, sk);
}

static __always_inline void stamped_leaves(struct bpf_sock_ops *ctx, struct bpf_sock_ops_kern *kern)
{
	struct sk_buff *skb = kern->skb;
	struct tx_state *state = stamped_state(ctx);
	u64 now_ns = bpf_ktime_get_ns(), head;
	u32 key, first_seq = 0, ifindex;
	struct pass *pass;

	if (!state)
		return;
	head = address(skb->head);
	key = skb_key(skb);
	ifindex = skb->dev->ifindex;
	/* A device that leads out of the socket's namespace (a container's macvlan): the number of the one below means nothing
	 * here.
	 */
	if (BPF_CORE_READ(skb->dev, nd_net.net) != BPF_CORE_READ(kern->sk, __sk_common.skc_net.net))
		ifindex = 0;
	if (state->next_sched != state->produced && !before(key + 1, message_at(state, state->next_sched)->end_seq)) {
		bpf_probe_read_kernel(&first_seq, 4, (void *)(head + skb->transport_header + 4));
		pass = pass_new(stamped_id((u64)BPF_CORE_READ(kern, sk), key), ifindex, now_ns);
		pass->first_seq = bpf_ntohl(first_seq);
		pass->key = key;
		tcp_look_leaving(state, kern->sk, now_ns, state->write_seq, key + 1);
		tcp_leave(state, kern->sk, pass, UNCOUNTED);
		return;
	}
	if (tcp_leaves_again(state, key, ifindex)) {
		tcp_lost_below(state, key, key);
		/* What the queueing discipline refused does not count as sent with TCP, nor the next try as a retransmission. */
		if (before(tcp_field(kern->sk, snd_nxt), key + 1))
			tcp_sent_again(state, key, key + 1);
		return;
	}
	pass = pass_find(stamped_id((u64)BPF_CORE_READ(kern, sk), key));
	if (pass)
		pass_next(pass, ifindex, now_ns);
}

static __always_inline void stamped_driver(struct bpf_sock_ops *ctx, struct bpf_sock_ops_kern *kern)
{
	struct tx_state *state = stamped_state(ctx);
	u32 key = skb_key(kern->skb);

	if (!state)
		return;
	/* The small queue waits for a packet to be done with. Until then the flag shows. */
	if (throttled(kern->sk))
		state->clocks.throttled = 1;
	tcp_driver(state, kern->sk, pass_find(stamped_id((u64)BPF_CORE_READ(kern, sk), key)), 0, key,
		   bpf_ktime_get_ns(), UNCOUNTED);
}

/* Where a packet ends that begins at `seq` and waits for its ACK; there if there is none. */
static __noinline u32 unacked_end(struct sock *sk, u32 seq)
{
	struct rb_node *node = BPF_CORE_READ(sk, tcp_rtx_queue.rb_node);

	each_step(i, 32, node) {
		struct sk_buff *skb = (void *)node; /* its first member */
		struct tcp_skb_cb *cb = (void *)skb->cb;
		u32 first_seq = BPF_CORE_READ(cb, seq);

		if (first_seq == seq)
			return BPF_CORE_READ(cb, end_seq);
		node = before(seq, first_seq) ? BPF_CORE_READ(node, rb_left) : BPF_CORE_READ(node, rb_right);
	}
	return seq;
}

static __always_inline void stamped_again(struct bpf_sock_ops *ctx, struct sock *sk)
{
	struct tx_state *state = ctx->args[2] ? NULL : stamped_state(ctx);

	if (state)
		tcp_sent_again(state, ctx->args[0], unacked_end(sk, ctx->args[0]));
}

/* What MPTCP has sent over this connection since the last time. */
static __always_inline void stamped_mptcp(struct bpf_sock_ops *ctx, struct sock *sk)
{
	struct bpf_sock *storage = is_mptcp(sk) ? ctx->sk : NULL;
	struct begin *begin = storage ? bpf_sk_storage_get(&tx_begins, storage, NULL, 0) : NULL;

	if (begin)
		mptcp_count(begin, sk);
}

static __always_inline void stamped_closes(struct bpf_sock_ops *ctx, struct sock *sk)
{
	struct tx_state *state = ctx->args[1] == TCP_CLOSE ? stamped_state(ctx) : NULL;

	if (ctx->args[1] == TCP_CLOSE)
		stamped_mptcp(ctx, sk);
	if (!state)
		return;
	if (state->opening)
		fast_open_message(state, tcp_field(sk, write_seq));
	tcp_closed(state, tcp_field(sk, snd_una));
	if (state->counted) {
		state->counted = 0;
		atomic_add(&sockets_followed, -1);
	}
}

/* TCP is about to free what is acknowledged: the window has moved, and what left is not counted as in flight. */
static __always_inline void stamped_ack(struct bpf_sock_ops *ctx, struct bpf_sock_ops_kern *kern)
{
	struct tx_state *state = stamped_state(ctx);
	u64 now_ns = bpf_ktime_get_ns();

	if (!state)
		return;
	if (tcp_waits(state)) {
		clocks_advance(&state->clocks, kern->sk, now_ns, state->write_seq);
		state->clocks.in_call = 0;
	}
	tcp_acked(state, kern->sk, skb_key(kern->skb) + 1, now_ns, UNCOUNTED);
}

/* A segment comes to a socket. */
static __always_inline void stamped_arrives(struct sock *sk)
{
	struct tx_state *state;

	if (!(sk->sk_bpf_cb_flags & SK_BPF_CB_TX_TIMESTAMPING))
		return;
	state = bpf_sk_storage_get(&tx_states, sk, NULL, 0);
	if (state && epoch_is_ours(state->epoch) && tcp_waits(state))
		tcp_look_between(state, sk, bpf_ktime_get_ns(), state->write_seq);
}

static __always_inline void stamped_event(struct bpf_sock_ops *ctx)
{
	struct bpf_sock_ops_kern *kern = bpf_cast_to_kern_ctx(ctx);
	struct tx_state *state;

	switch (ctx->op) {
	case BPF_SOCK_OPS_TCP_CONNECT_CB:
		stamped_opens(ctx);
		stamped_fast_open(ctx, kern->sk);
		return;
	case BPF_SOCK_OPS_TCP_LISTEN_CB:
		stamped_opens(ctx);
		return;
	case BPF_SOCK_OPS_RTT_CB:
		stamped_mptcp(ctx, kern->sk);
		return;
	case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
	case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
		stamped_established(ctx, kern->sk);
		return;
	case BPF_SOCK_OPS_STATE_CB:
		stamped_closes(ctx, kern->sk);
		return;
	case BPF_SOCK_OPS_RETRANS_CB:
		stamped_again(ctx, kern->sk);
		return;
	case BPF_SOCK_OPS_TSTAMP_SENDMSG_CB:
		stamped_handed(ctx, kern);
		return;
	case BPF_SOCK_OPS_TSTAMP_SCHED_CB:
		stamped_leaves(ctx, kern);
		return;
	case BPF_SOCK_OPS_TSTAMP_SND_SW_CB:
		stamped_driver(ctx, kern);
		return;
	case BPF_SOCK_OPS_TSTAMP_SND_HW_CB:
		state = stamped_state(ctx);
		if (state)
			tcp_nic(state, skb_key(kern->skb), bpf_ktime_get_ns());
		return;
	case BPF_SOCK_OPS_TSTAMP_ACK_CB:
		stamped_ack(ctx, kern);
		return;
	}
}
