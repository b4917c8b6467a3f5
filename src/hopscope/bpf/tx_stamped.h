// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Transmit latency of TCP by the kernel's BPF time stamps (6.15 and later): callbacks that only sockets with a flag make,
 * for packets that carry a message that was chosen. No other socket runs any of this.
 */
#pragma once

#include "tx_tcp.h"

/* include/uapi/linux/bpf.h; part of the kernel's ABI. */
enum {
	BPF_SOCK_OPS_TCP_CONNECT_CB = 3,
	BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB = 4,
	BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB = 5,
	BPF_SOCK_OPS_STATE_CB = 10,
	BPF_SOCK_OPS_TCP_LISTEN_CB = 11,
	BPF_SOCK_OPS_TSTAMP_SCHED_CB = 16,
	BPF_SOCK_OPS_TSTAMP_SND_SW_CB = 17,
	BPF_SOCK_OPS_TSTAMP_SND_HW_CB = 18,
	BPF_SOCK_OPS_TSTAMP_ACK_CB = 19,
	BPF_SOCK_OPS_TSTAMP_SENDMSG_CB = 20,
	BPF_SOCK_OPS_STATE_CB_FLAG = 1 << 2,
	SOL_TCP = 6,
	TCP_BPF_SOCK_OPS_CB_FLAGS = 1008,
	SOL_SOCKET = 1,
	SK_BPF_CB_FLAGS = 1009,
	TCP_CLOSE = 7,
	TCP_LISTEN = 10,
};

/* Sockets that exist before the start, of processes that are wanted, by inode; filled by user space. */
struct {
	MAP_UINT(type, BPF_MAP_TYPE_HASH);
	MAP_UINT(max_entries, 1); /* set before load */
	MAP_TYPE(key, u64);
	MAP_TYPE(value, u8);
} inodes SEC(".maps");

u64 sockets_switched; /* that existed before, told user space */

/* `ctx` is a context or a socket: the helpers take both. */
INLINE void stamping(void *ctx, int flags)
{
	bpf_setsockopt(ctx, SOL_SOCKET, SK_BPF_CB_FLAGS, &flags, sizeof(flags));
}

INLINE bool is_stamping(void *ctx)
{
	int flags = 0;

	bpf_getsockopt(ctx, SOL_SOCKET, SK_BPF_CB_FLAGS, &flags, sizeof(flags));
	return flags & SK_BPF_CB_TX_TIMESTAMPING;
}

/* ---- which sockets ----
 *
 * Who a socket belongs to is known when it connects or listens; what it accepts inherits the flag. Where it leads is known
 * once it is connected.
 */

INLINE void stamped_opens(struct bpf_sock_ops *ctx)
{
	if ((cfg_pids || cfg_comms) && process_wanted())
		stamping(ctx, SK_BPF_CB_TX_TIMESTAMPING);
}

INLINE void stamped_connected(struct bpf_sock_ops *ctx, struct sock *sk)
{
	bool wanted = (!cfg_pids && !cfg_comms) || is_stamping(ctx);

	if (!wanted)
		return;
	if (!socket_wanted(sk)) {
		stamping(ctx, 0);
		return;
	}
	stamping(ctx, SK_BPF_CB_TX_TIMESTAMPING);
	bpf_sock_ops_cb_flags_set(ctx, BPF_SOCK_OPS_STATE_CB_FLAG);
}

/* ---- callbacks ---- */

/* Read in place: a kernel that stamps allows the cast. */
INLINE u32 skb_key(struct sk_buff *skb)
{
	struct skb_shared_info *info = (void *)(address(skb->head) + skb->end);

	info = bpf_rdonly_cast(info, core_type_id(struct skb_shared_info));
	return info->tskey;
}

INLINE struct tx_state *stamped_state(struct bpf_sock_ops *ctx, bool create)
{
	struct bpf_sock *sk = ctx->sk;

	return sk ? bpf_sk_storage_get(&tx_states, sk, NULL, create ? BPF_LOCAL_STORAGE_GET_F_CREATE : 0) : NULL;
}

/* What the call took, and how. */
INLINE void stamped_call(struct tx_state *state, struct message *message)
{
	if (!state->entry_ns)
		return;
	message->entry_ns = state->entry_ns;
	if (probe_field(current_task(), nvcsw) != state->entry_sleeps)
		message->flags |= HOP_TX_SLEPT;
	record(HOP_TX_TCP, message->group, message->entry_ns, message->handed_ns);
	if (message->flags & HOP_TX_SLEPT)
		record(HOP_TX_TCP_SNDBUF, message->group, message->entry_ns, message->handed_ns);
}

static __attribute__((noinline)) void stamped_message(struct tx_state *state, struct message *message, struct sock *sk,
						      u32 len_bytes)
{
	message->handed_ns = state->followed_ns;
	message->end_byte = state->end_byte;
	message->len_bytes = len_bytes;
	message->pid = current_pid();
	message->group = sender_group(sk);
	message->cause = tcp_cause(sk, message->handed_ns);
	message->rwnd_ticks = rwnd_ticks(sk);
	stamped_call(state, message);
}

/* A send call has handed its bytes to TCP. They are behind those of the call before. */
INLINE void stamped_handed(struct bpf_sock_ops *ctx, struct bpf_sock_ops_kern *kern)
{
	struct sock *sk = kern->sk;
	struct tx_state *state = stamped_state(ctx, true);
	struct hop_tx_counters *counter = count();
	struct message *message;
	u32 len_bytes, write_seq = tcp_field(sk, write_seq);

	if (!state) {
		discard(HOP_TX_TOTAL, HOP_TX_NO_MEMORY);
		return;
	}
	if (!state->known) {
		state->known = 1;
		/* Another run's choice brings us here, too: the flag belongs to the socket. */
		state->wanted = socket_wanted(sk);
		state->cookie = bpf_get_socket_cookie(ctx);
		state->write_seq = state->entry_ns ? state->entry_seq : tcp_field(sk, snd_nxt);
		if (cfg_events)
			flow_remember(state->cookie, sk);
	}
	len_bytes = write_seq - state->write_seq;
	state->write_seq = write_seq;
	state->end_byte += len_bytes;
	if (counter && state->wanted && process_wanted()) {
		atomic_add(&counter->messages, 1);
		if (message_sampled(state)) {
			atomic_add(&counter->sampled, 1);
			bpf_sock_ops_enable_tx_tstamp(kern, 0);
			message = message_new(state, state->write_seq);
			if (message) {
				stamped_message(state, message, sk, len_bytes);
				state->produced++;
			}
		}
	}
	state->entry_ns = 0;
}

INLINE void stamped_leaves(struct bpf_sock_ops *ctx, struct bpf_sock_ops_kern *kern)
{
	struct sk_buff *skb = kern->skb;
	struct tx_state *state = stamped_state(ctx, false);
	u64 now_ns = bpf_ktime_get_ns(), head;
	u32 key, first_seq = 0, ifindex;
	struct pass *pass;

	if (!state)
		return;
	head = address(skb->head);
	key = skb_key(skb);
	ifindex = skb->dev->ifindex;
	if (before(state->write_seq, key + 1))
		return;
	if (state->next_sched != state->produced && !before(key + 1, message_at(state, state->next_sched)->end_seq)) {
		bpf_probe_read_kernel(&first_seq, 4, (void *)(head + skb->transport_header + 4));
		pass = pass_new(head, ifindex, now_ns);
		pass->first_seq = __builtin_bswap32(first_seq);
		pass->key = key;
		tcp_leave(state, kern->sk, pass);
		return;
	}
	if (tcp_leave_again(state, key, ifindex)) {
		pass_new(head, ifindex, now_ns);
		return;
	}
	pass = pass_find(head);
	if (pass)
		pass_next(pass, ifindex, now_ns);
}

SEC("sockops")
int tx_stamped(struct bpf_sock_ops *ctx)
{
	struct bpf_sock_ops_kern *kern = bpf_cast_to_kern_ctx(ctx);
	struct tx_state *state;

	switch (ctx->op) {
	case BPF_SOCK_OPS_TCP_CONNECT_CB:
	case BPF_SOCK_OPS_TCP_LISTEN_CB:
		stamped_opens(ctx);
		return 1;
	case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
	case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
		stamped_connected(ctx, kern->sk);
		return 1;
	case BPF_SOCK_OPS_STATE_CB:
		state = ctx->args[1] == TCP_CLOSE ? stamped_state(ctx, false) : NULL;
		if (state)
			tcp_closed(state);
		return 1;
	case BPF_SOCK_OPS_TSTAMP_SENDMSG_CB:
		stamped_handed(ctx, kern);
		return 1;
	case BPF_SOCK_OPS_TSTAMP_SCHED_CB:
		stamped_leaves(ctx, kern);
		return 1;
	case BPF_SOCK_OPS_TSTAMP_SND_SW_CB:
		state = stamped_state(ctx, false);
		if (state)
			tcp_driver(state, pass_find(address(kern->skb->head)), skb_key(kern->skb), bpf_ktime_get_ns());
		return 1;
	case BPF_SOCK_OPS_TSTAMP_SND_HW_CB:
		state = stamped_state(ctx, false);
		if (state)
			tcp_nic(state, skb_key(kern->skb), bpf_ktime_get_ns());
		return 1;
	case BPF_SOCK_OPS_TSTAMP_ACK_CB:
		state = stamped_state(ctx, false);
		if (state)
			tcp_acked(state, skb_key(kern->skb) + 1, bpf_ktime_get_ns());
		return 1;
	}
	return 1;
}

/* ---- sockets that exist already ---- */

INLINE u64 socket_inode(struct sock *sk)
{
	struct socket_alloc *file = (void *)probe_field(sk, sk_socket);

	return file ? probe_field(file, vfs_inode.i_ino) : 0;
}

SEC("iter/tcp")
int tx_switch_on(struct bpf_iter__tcp *ctx)
{
	struct sock_common *common = ctx->sk_common;
	struct tcp_sock *tp = common ? bpf_skc_to_tcp_sock(common) : NULL;
	struct sock *sk = (void *)tp;
	int flags = BPF_SOCK_OPS_STATE_CB_FLAG;
	u64 inode;

	if (!tp)
		return 0;
	if (cfg_pids || cfg_comms) {
		inode = socket_inode(sk);
		if (!bpf_map_lookup_elem(&inodes, &inode))
			return 0;
	} else if (probe_field(sk, __sk_common.skc_state) == TCP_LISTEN) {
		return 0;
	}
	if (probe_field(sk, __sk_common.skc_state) != TCP_LISTEN && !socket_wanted(sk))
		return 0;
	stamping(tp, SK_BPF_CB_TX_TIMESTAMPING);
	bpf_setsockopt(tp, SOL_TCP, TCP_BPF_SOCK_OPS_CB_FLAGS, &flags, sizeof(flags));
	sockets_switched++;
	return 0;
}

SEC("iter/tcp")
int tx_switch_off(struct bpf_iter__tcp *ctx)
{
	struct sock_common *common = ctx->sk_common;
	struct tcp_sock *tp = common ? bpf_skc_to_tcp_sock(common) : NULL;
	int flags = 0;

	if (!tp || !is_stamping(tp))
		return 0;
	stamping(tp, 0);
	bpf_setsockopt(tp, SOL_TCP, TCP_BPF_SOCK_OPS_CB_FLAGS, &flags, sizeof(flags));
	return 0;
}
