// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Recording: what happens to sockets, and in calls on them. */
#pragma once

#include "record/capture.h"

/* The hooks give sockets as such: they are read in place. */
static __always_inline u64 socket_flow(const struct sock *sk, bool receives, struct flow_key *key)
{
	const struct sock_common *common = &sk->__sk_common;
	u32 local[4] = {0, 0, bpf_htonl(0xffff), 0}, peer[4] = {0, 0, bpf_htonl(0xffff), 0};
	u16 local_port = bpf_htons(common->skc_num), peer_port = common->skc_dport;

	if (unlikely(!local_port)) /* a socket that is being closed has given it back, and yet knows it */
		local_port = BPF_CORE_READ((struct inet_sock *)sk, inet_sport);
	if (common->skc_family == AF_INET6 && bpf_core_field_exists(common->skc_v6_daddr)) {
		for (u32 i = 0; i < 4; i++) {
			local[i] = common->skc_v6_rcv_saddr.in6_u.u6_addr32[i];
			peer[i] = common->skc_v6_daddr.in6_u.u6_addr32[i];
		}
	} else {
		local[3] = common->skc_rcv_saddr;
		peer[3] = common->skc_daddr;
	}
	__builtin_memcpy(key->ends.address[0], receives ? peer : local, sizeof(local));
	__builtin_memcpy(key->ends.address[1], receives ? local : peer, sizeof(local));
	key->ends.port[0] = receives ? peer_port : local_port;
	key->ends.port[1] = receives ? local_port : peer_port;
	key->protocol = sk->sk_protocol;
	return flow_of(key);
}

static __always_inline bool is_tcp(const struct sock *sk)
{
	u16 family = sk->__sk_common.skc_family;

	return sk->sk_protocol == IPPROTO_TCP && (family == AF_INET || family == AF_INET6);
}

static __always_inline bool is_unconnected(const struct sock *sk)
{
	return sk->sk_protocol == IPPROTO_UDP && !sk->__sk_common.skc_dport;
}

/* The socket's own end, as packets have it. */
static __noinline u64 socket_end(const struct sock *sk)
{
	u32 netns = sk->__sk_common.skc_net.net->ns.inum;
	struct flow_key key = {};
	const u32 *local = key.ends.address[0];

	socket_flow(sk, false, &key);
	if (local[0] | local[1] | local[3])
		return end_of(local, key.ends.port[0], netns);
	return end_anywhere(key.ends.port[0], netns);
}

/* The flows of a socket of a wanted process, in both directions, are wanted from now on. Whose it is shows in calls alone:
 * else the running process is any that was interrupted, of which the socket knows the cgroup.
 */
static __noinline bool socket_of_process(struct sock *sk, u64 flow, bool receives, bool in_call)
{
	struct flow_key back = {};

	if (flow_wanted(flow))
		return true;
	if (((cfg_pids || cfg_comms) && !in_call) || !process_wanted())
		return false;
	if (cfg_cgroups && !cgroup_wanted(socket_cgroup(sk)))
		return false;
	want_flow(flow);
	want_flow(socket_flow(sk, !receives, &back));
	if (is_unconnected(sk))
		want_flow(socket_end(sk));
	return true;
}

/* Does it have packets at the interfaces that are asked for, or that the expression of pcap wants? */
static __always_inline bool socket_of_packets(const struct sock *sk, u64 flow)
{
	return flow_wanted(flow) || (is_unconnected(sk) && flow_wanted(socket_end(sk)));
}

/* One that sends to and receives from anybody has no flow of its own: any of its packets will do. */
static __always_inline bool socket_sampled(const struct sock *sk, u64 flow, const struct flow_key *key)
{
	return is_unconnected(sk) ? socket_of_packets(sk, flow) : flow_sampled(key);
}

/* `flow` and `key` are those that the socket receives, or sends. */
static __noinline bool socket_wanted(struct sock *sk, u64 flow, const struct flow_key *key, bool receives, bool in_call)
{
	if (!namespace_wanted(sk->__sk_common.skc_net.net->ns.inum))
		return false;
	if (cfg_own && own_flow(key))
		return false;
	if (!port_wanted(&key->ends) || !address_wanted(&key->ends))
		return false;
	if ((cfg_interfaces || cfg_pcap) && !socket_of_packets(sk, flow))
		return false;
	if (cfg_sample > 1 && !socket_sampled(sk, flow, key))
		return false;
	return !cfg_by_process || socket_of_process(sk, flow, receives, in_call);
}

/* The flow that a socket sends, which is known from here on; 0: it is not wanted. */
static __noinline u64 wanted_flow(struct sock *sk, struct flow_key *key)
{
	u64 flow;

	if (!key)
		return 0;
	flow = socket_flow(sk, false, key);
	if (!socket_wanted(sk, flow, key, false, false))
		return 0;
	if (!cfg_rules)
		know_flow(flow, key, MAIN_RING);
	return flow;
}

struct socket_event {
	s64 value;
	s32 len_bytes;
	u8 point;
	bool receives;
	bool in_call; /* the running thread uses the socket */
	u64 since_ns; /* how long it has been so: the record is of that time */
};

/* Returns the ring, also where that had no room. */
static __noinline u32 write_socket(struct sock *sk, const struct socket_event *event, const struct flow_key *key,
				   u64 flow, u32 tid)
{
	u32 protocol = key->protocol, netns = sk->__sk_common.skc_net.net->ns.inum, seq = 0, ring;

	if (protocol == IPPROTO_TCP)
		seq = event->receives ? BPF_CORE_READ((struct tcp_sock *)sk, copied_seq)
				      : BPF_CORE_READ((struct tcp_sock *)sk, write_seq);
	ring = PUT(hop_socket, key,
		   {
			   .time_ns = bpf_ktime_get_ns() - event->since_ns,
			   .point = event->point,
			   .protocol = protocol,
			   .tid = tid,
			   .sock = (u64)sk,
			   .flow = flow,
			   .value = event->value,
			   .seq = seq,
			   .len_bytes = event->len_bytes,
			   .netns = netns,
		   });
	if (cfg_rules && ring)
		know_flow(flow, key, ring);
	return ring;
}

/* Returns whether it was wanted. */
static __noinline bool record_socket(struct sock *sk, const struct socket_event *event)
{
	struct flow_key key = {};
	u16 family = sk->__sk_common.skc_family;
	u64 flow, begin_ns = 0;
	u32 tid, ring;

	if (family != AF_INET && family != AF_INET6)
		return false;
	flow = socket_flow(sk, event->receives, &key);
	if (!socket_wanted(sk, flow, &key, event->receives, event->in_call))
		return false;
	if (!cfg_rules)
		know_flow(flow, &key, MAIN_RING);
	tid = thread_here();
	if (event->in_call && !thread_in(&socket_threads, tid))
		thread_add(&socket_threads, tid);
	if (cfg_rules)
		begin_ns = bpf_ktime_get_ns() - event->since_ns;
	ring = write_socket(sk, event, &key, flow, tid);
	if (ring)
		thread_is_kept(tid, begin_ns, ring);
	return true;
}

/* ---- send calls of TCP ----
 *
 * The tracepoint comes at each look of TCP at what is left of the call. In a further look the call has as much less as TCP has
 * more, or nothing changed while it slept for room.
 */
#define LOOKS 4096

struct look {
	u64 message;
	u64 left;
	u32 tid;
	u32 write_seq;
};

struct look looks[LOOKS];

static __always_inline bool first_look(struct sock *sk, struct msghdr *msg, u64 *left_bytes)
{
	u32 tid = current_tid(), write_seq = BPF_CORE_READ((struct tcp_sock *)sk, write_seq), index = tid, moved;
	u64 left = BPF_CORE_READ(msg, msg_iter.count);
	struct look *look;
	bool same;

	barrier_var(index);
	look = &looks[index & (LOOKS - 1)];
	moved = write_seq - look->write_seq;
	same = look->tid == tid && look->message == (u64)msg && left <= look->left && moved == (u32)(look->left - left);
	if (same && !moved)
		same = !(BPF_CORE_READ(msg, msg_flags) & MSG_DONTWAIT);
	look->tid = tid;
	look->message = (u64)msg;
	look->left = left;
	look->write_seq = write_seq;
	*left_bytes = left;
	return !same;
}
