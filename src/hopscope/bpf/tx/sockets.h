// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Transmit latency: for which TCP sockets the kernel makes its time stamps. */
#pragma once

#include "tx/cause.h"

/* include/uapi/linux/bpf.h; part of the kernel's ABI. */
enum {
	BPF_SOCK_OPS_TCP_CONNECT_CB = 3,
	BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB = 4,
	BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB = 5,
	BPF_SOCK_OPS_RETRANS_CB = 9,
	BPF_SOCK_OPS_STATE_CB = 10,
	BPF_SOCK_OPS_TCP_LISTEN_CB = 11,
	BPF_SOCK_OPS_RTT_CB = 12,
	BPF_SOCK_OPS_TSTAMP_SCHED_CB = 16,
	BPF_SOCK_OPS_TSTAMP_SND_SW_CB = 17,
	BPF_SOCK_OPS_TSTAMP_SND_HW_CB = 18,
	BPF_SOCK_OPS_TSTAMP_ACK_CB = 19,
	BPF_SOCK_OPS_TSTAMP_SENDMSG_CB = 20,
	BPF_SOCK_OPS_RETRANS_CB_FLAG = 1 << 1,
	BPF_SOCK_OPS_STATE_CB_FLAG = 1 << 2,
	BPF_SOCK_OPS_RTT_CB_FLAG = 1 << 3,
	SOL_TCP = 6,
	TCP_BPF_SOCK_OPS_CB_FLAGS = 1008,
	SOL_SOCKET = 1,
	SK_BPF_CB_FLAGS = 1009,
	TCP_CLOSE = 7,
	TCP_LISTEN = 10,
};

u64 sockets_switched; /* that existed before, told user space */

/* `ctx` is a context or a socket: the helpers take both. */
static __always_inline void stamping(void *ctx, int flags)
{
	bpf_setsockopt(ctx, SOL_SOCKET, SK_BPF_CB_FLAGS, &flags, sizeof(flags));
}

static __always_inline bool is_stamping(void *ctx)
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

static __always_inline void stamped_opens(struct bpf_sock_ops *ctx)
{
	if ((cfg_pids || cfg_comms) && process_wanted())
		stamping(ctx, SK_BPF_CB_TX_TIMESTAMPING);
}

/* Which callbacks we want of it. */
static __always_inline u32 wanted_cb_flags(struct sock *sk)
{
	u32 flags = BPF_SOCK_OPS_RETRANS_CB_FLAG | BPF_SOCK_OPS_STATE_CB_FLAG;

	return is_mptcp(sk) ? flags | BPF_SOCK_OPS_RTT_CB_FLAG : flags;
}

static __always_inline void begin_note(struct begin *begin, struct sock *sk, u32 cb_flags)
{
	begin->write_seq = tcp_field(sk, write_seq);
	begin->cb_flags = wanted_cb_flags(sk) & ~cb_flags;
	begin->mptcp_packets = tcp_field(sk, data_segs_out);
}

/* MPTCP hands bytes over past tcp_sendmsg, and the kernel makes no stamps for it: its packets with data are counted. At
 * each sample of the round-trip time, and when the socket is closed.
 */
static __always_inline void mptcp_count(struct begin *begin, struct sock *sk)
{
	u32 packets = tcp_field(sk, data_segs_out), new = packets - begin->mptcp_packets;

	begin->mptcp_packets = packets;
	if (new)
		discard_many(HOP_TX_TOTAL, HOP_TX_MPTCP, new);
}

/* A socket whose both ends are known is switched on, if it is wanted. */
static __always_inline bool stamped_connected(struct bpf_sock_ops *ctx, struct sock *sk)
{
	struct bpf_sock *storage = ctx->sk;
	struct begin *begin;

	if ((cfg_pids || cfg_comms) && !is_stamping(ctx))
		return false;
	/* The flag stays where only the process is wanted: another run may have set it. */
	if (!storage || !socket_wanted(sk))
		return false;
	stamping(ctx, SK_BPF_CB_TX_TIMESTAMPING);
	begin = bpf_sk_storage_get(&tx_begins, storage, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (begin)
		begin_note(begin, sk, ctx->cb_flags);
	bpf_sock_ops_cb_flags_set(ctx, ctx->cb_flags | wanted_cb_flags(sk));
	return true;
}

/* ---- sockets that exist already ---- */

static __always_inline u64 socket_inode(struct sock *sk)
{
	struct socket_alloc *file = (void *)BPF_CORE_READ(sk, sk_socket);

	return file ? BPF_CORE_READ(file, vfs_inode.i_ino) : 0;
}

static __always_inline int cb_flags(struct tcp_sock *tp)
{
	int flags = 0;

	bpf_getsockopt(tp, SOL_TCP, TCP_BPF_SOCK_OPS_CB_FLAGS, &flags, sizeof(flags));
	return flags;
}

static __always_inline void set_cb_flags(struct tcp_sock *tp, int flags)
{
	bpf_setsockopt(tp, SOL_TCP, TCP_BPF_SOCK_OPS_CB_FLAGS, &flags, sizeof(flags));
}

static __always_inline int switch_on(struct sock_common *common)
{
	struct tcp_sock *tp = common ? bpf_skc_to_tcp_sock(common) : NULL;
	struct sock *sk = (void *)tp;
	struct begin *begin;
	bool listens;
	u64 inode;

	if (!tp)
		return 0;
	listens = BPF_CORE_READ(sk, __sk_common.skc_state) == TCP_LISTEN;
	if (cfg_pids || cfg_comms) {
		inode = socket_inode(sk);
		if (!bpf_map_lookup_elem(&inodes, &inode))
			return 0;
	} else if (listens) {
		return 0;
	}
	if (!listens && !socket_wanted(sk))
		return 0;
	if (!listens) {
		begin = bpf_sk_storage_get(&tx_begins, tp, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
		if (begin)
			begin_note(begin, sk, cb_flags(tp));
		set_cb_flags(tp, cb_flags(tp) | wanted_cb_flags(sk));
	}
	stamping(tp, SK_BPF_CB_TX_TIMESTAMPING);
	sockets_switched++;
	return 0;
}

static __always_inline int switch_off(struct sock_common *common)
{
	struct tcp_sock *tp = common ? bpf_skc_to_tcp_sock(common) : NULL;
	struct begin *begin;

	if (!tp || !is_stamping(tp))
		return 0;
	stamping(tp, 0);
	begin = bpf_sk_storage_get(&tx_begins, tp, NULL, 0);
	if (begin)
		set_cb_flags(tp, cb_flags(tp) & ~begin->cb_flags);
	return 0;
}
