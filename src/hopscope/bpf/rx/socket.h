// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Receive latency: the socket takes the packet. */
#pragma once

#include "rx/tcp.h"
#include "rx/udp.h"

/* Settle what the socket had to say first. False: not wanted after all. */
static __always_inline bool settle(struct stamp *stamp, struct sock *sk, u64 head, u16 network, u16 transport,
				   s32 joins, u32 l4_hop)
{
	if (!cfg_defer)
		return true;
	if (!socket_wanted(sk, head, network, transport, joins)) {
		stamp->stage = HOP_STAGE_UNWANTED;
		return false;
	}
	if (cfg_group_by == HOP_GROUP_CGROUP)
		stamp->group = group_of(this_cpu(), cgroup_id(socket_cgroup(sk)), 0, NULL);
	if (GROUPS_OF_FLOWS)
		stamp->group = packet_group(sk, head, network, transport);
	if (cfg_group_by == HOP_GROUP_PROTOCOL)
		stamp->group = l4_hop == HOP_RX_TCP ? HOP_GROUP_TCP : HOP_GROUP_UDP;
	stamp_settle(stamp, l4_hop);
	return true;
}

/* There is no stamp: was the packet wanted? One that is not has a stamp that says so. */
static __always_inline void unstamped(struct sock *sk, u64 head, u32 hop)
{
	if (cfg_defer && stamp_slot(head)->head != head && unseen_wanted(sk))
		discard(hop, HOP_RX_NO_STAMP);
}

/* Data that comes in a SYN (Fast Open) is queued before there is a hook with its socket. It is the first that waits there: it
 * joins the segments as soon as there are any, or when it is read. NULL: its stamp is gone.
 */
static __noinline struct stamp *syn_stamp(struct sock *sk, struct arrival *arrival)
{
	struct sk_buff *skb = BPF_CORE_READ(sk, sk_receive_queue.next);
	struct tcp_skb_cb *cb = (void *)skb->cb;
	struct stamp *stamp;

	if (BPF_CORE_READ(sk, sk_receive_queue.qlen) == 0)
		return NULL;
	arrival->head = (u64)BPF_CORE_READ(skb, head);
	arrival->network = BPF_CORE_READ(skb, network_header);
	arrival->transport = BPF_CORE_READ(skb, transport_header);
	arrival->tcp_flags = BPF_CORE_READ(cb, tcp_flags);
	arrival->seq = BPF_CORE_READ(cb, seq);
	arrival->end_seq = BPF_CORE_READ(cb, end_seq) - (arrival->tcp_flags & TCP_FIN);
	stamp = stamp_slot(arrival->head);
	if (stamp->head != arrival->head || stamp->done || stamp->stage >= HOP_STAGE_QUEUE)
		return NULL;
	return stamp;
}

/* From here on, it is counted with the socket's segments. */
static __always_inline void tcp_joins(struct stamp *stamp)
{
	if (cfg_socket_facts)
		account_entered(stamp);
	stamp_end(stamp, HOP_END_JOINED);
}

/* What the socket has received so far, and where it is in the stream, count the same bytes. */
static __always_inline void tcp_waits(const struct tcp_state *state, const struct stamp *stamp, struct sock *sk,
				      u32 len_bytes, u32 end_seq)
{
	s32 ahead = end_seq - tcp_field(sk, rcv_nxt);

	if (cfg_events)
		segment_waits(state, stamp, sk, len_bytes,
			      BPF_CORE_READ((struct tcp_sock *)sk, bytes_received) + ahead);
}

/* Where it begins to have bytes that had not come before. */
static __always_inline u32 fresh_seq(const struct arrival *arrival)
{
	return before(arrival->seq, arrival->rcv_nxt) ? arrival->rcv_nxt : arrival->seq;
}

/* NULL: it is not there, or not wanted. */
static __always_inline struct tcp_state *tcp_adopt_syn(struct sock *sk, bool trusted)
{
	struct arrival arrival = {.joins = -1};
	struct stamp *stamp = syn_stamp(sk, &arrival);
	struct tcp_state *state;

	if (!stamp || stamp->stage == HOP_STAGE_UNWANTED ||
	    !settle(stamp, sk, arrival.head, arrival.network, arrival.transport, arrival.joins, HOP_RX_TCP))
		return NULL;
	state = tcp_state_of(sk, true, trusted);
	if (!state)
		return NULL;
	discard(HOP_RX_TCP_QUEUE, HOP_RX_SKIPPED_STAGE);
	stamp->stage = HOP_STAGE_QUEUE;
	tcp_joins(stamp);
	if (tcp_push(state, stamp, arrival.end_seq, false, stamp->last_ns))
		tcp_waits(state, stamp, sk, arrival.end_seq - arrival.seq, arrival.end_seq);
	state->seen_seq = arrival.end_seq;
	stamp->done = 1;
	return state;
}

/* The state of a socket that gets its first data with an ACK now. */
static __always_inline struct tcp_state *tcp_first_state(struct sock *sk, bool trusted)
{
	struct tcp_state *state = NULL;

	if (tcp_bits(sk, syn_data_acked) && tcp_field(sk, copied_seq) != tcp_field(sk, rcv_nxt)) {
		state = tcp_adopt_syn(sk, trusted);
		if (!state && unseen_wanted(sk))
			discard(HOP_RX_TCP_READ, HOP_RX_UNSEEN);
	}
	return state ? state : tcp_state_of(sk, true, trusted);
}

static __always_inline void tcp_queue(struct sock *sk, const struct arrival *arrival, bool trusted)
{
	u32 end_seq = arrival->end_seq - (arrival->tcp_flags & TCP_FIN);
	struct tcp_state *state;
	struct stamp *stamp;

	if (arrival->seq == end_seq)
		return;
	stamp = stamp_find(arrival->head, HOP_RX_TCP_QUEUE);
	if (!stamp) {
		unstamped(sk, arrival->head, HOP_RX_TCP_QUEUE);
		return;
	}
	if (!before(arrival->rcv_nxt, end_seq)) {
		discard(HOP_RX_TCP_QUEUE, HOP_RX_DUPLICATE);
		stamp_end(stamp, HOP_END_DUPLICATE);
		return;
	}
	if (!settle(stamp, sk, arrival->head, arrival->network, arrival->transport, arrival->joins, HOP_RX_TCP))
		return;
	if (stamp->stage >= HOP_STAGE_QUEUE) {
		discard(HOP_RX_TCP_QUEUE, HOP_RX_AGAIN);
		return;
	}
	stamp_pass(stamp, HOP_RX_TCP_QUEUE, HOP_STAGE_QUEUE, bpf_ktime_get_ns());
	tcp_joins(stamp);
	stamp->done = 1;
	/* MPTCP takes it from here to a queue of its own. */
	if (is_mptcp(sk)) {
		discard(HOP_RX_TCP_READ, HOP_RX_MPTCP);
		end_many(HOP_END_MPTCP, 1);
		return;
	}
	state = tcp_state_of(sk, false, trusted);
	if (!state)
		state = tcp_first_state(sk, trusted);
	if (state) {
		if (tcp_arrive(state, stamp, arrival, end_seq))
			tcp_waits(state, stamp, sk, end_seq - fresh_seq(arrival), end_seq);
	} else {
		discard(HOP_RX_TCP_READ, HOP_RX_NO_MEMORY);
		end_many(HOP_END_NO_MEMORY, 1);
	}
}

static __always_inline struct tcp_sock *tcp_sock_of(struct sock *sk)
{
	if (bpf_rdonly_cast)
		return bpf_rdonly_cast(sk, bpf_core_type_id_kernel(struct tcp_sock));
	return bpf_skc_to_tcp_sock(sk);
}

static __always_inline void read_control_block(struct arrival *arrival, const void *cb)
{
	struct tcp_skb_cb *tcp = (void *)cb;

	arrival->seq = BPF_CORE_READ(tcp, seq);
	arrival->end_seq = BPF_CORE_READ(tcp, end_seq);
	arrival->tcp_flags = BPF_CORE_READ(tcp, tcp_flags);
}

static __always_inline int tcp_queue_traced(struct sock *sk, struct sk_buff *skb)
{
	struct arrival arrival = {
		.head = address(skb->head),
		.network = skb->network_header,
		.transport = skb->transport_header,
	};
	struct tcp_sock *tp = tcp_sock_of(sk);
	struct tcp_skb_cb *cb;

	if (!tp)
		return 0;
	arrival.rcv_nxt = tp->rcv_nxt;
	if (bpf_rdonly_cast) {
		cb = bpf_rdonly_cast(skb->cb, bpf_core_type_id_kernel(struct tcp_skb_cb));
		arrival.seq = cb->seq;
		arrival.end_seq = cb->end_seq;
		arrival.tcp_flags = cb->tcp_flags;
	} else {
		read_control_block(&arrival, skb->cb);
	}
	tcp_queue(sk, &arrival, true);
	return 0;
}

/* include/net/tcp_states.h */
#define TCPF_ESTABLISHED (1 << 1)
#define TCPF_SYN_SENT (1 << 2)
#define TCPF_SYN_RECV (1 << 3)
#define TCPF_FIN_WAIT1 (1 << 4)
#define TCPF_FIN_WAIT2 (1 << 5)
#define TCPF_CLOSE_WAIT (1 << 8)
#define TCPF_LISTEN (1 << 10)
#define TCPF_SEEN (TCPF_ESTABLISHED | TCPF_SYN_SENT | TCPF_SYN_RECV | TCPF_CLOSE_WAIT | TCPF_LISTEN)

/* Segments that come while the connection opens or closes do not pass tcp_probe. After close(2) data is refused. */
static __always_inline int tcp_queue_closing(struct sock *sk, struct sk_buff *skb)
{
	if (!(1 << sk->__sk_common.skc_state & (TCPF_SYN_RECV | TCPF_FIN_WAIT1 | TCPF_FIN_WAIT2)) ||
	    sk->sk_shutdown & RCV_SHUTDOWN)
		return 0;
	return tcp_queue_traced(sk, skb);
}

/* The same where the verifier does not know the pointers. */
static __always_inline int tcp_queue_probed(struct sock *sk, struct sk_buff *skb)
{
	struct tcp_sock *tp = (void *)sk;
	struct arrival arrival = {
		.head = (u64)BPF_CORE_READ(skb, head),
		.rcv_nxt = BPF_CORE_READ(tp, rcv_nxt),
		.network = BPF_CORE_READ(skb, network_header),
		.transport = BPF_CORE_READ(skb, transport_header),
	};

	read_control_block(&arrival, skb->cb);
	tcp_queue(sk, &arrival, false);
	return 0;
}

static __always_inline int udp_queue(struct sock *sk, u64 head, u32 identity, u16 network, u16 transport, s32 joins)
{
	struct stamp *stamp;
	u64 now_ns;

	stamp_follow_segment(head, identity);
	stamp = stamp_find(head, HOP_RX_UDP_QUEUE);
	if (!stamp) {
		unstamped(sk, head, HOP_RX_UDP_QUEUE);
	} else if (settle(stamp, sk, head, network, transport, joins, HOP_RX_UDP)) {
		if (cfg_socket_facts && stamp->stage < HOP_STAGE_QUEUE)
			account_entered(stamp);
		now_ns = bpf_ktime_get_ns();
		if (cfg_events && stamp->stage < HOP_STAGE_QUEUE)
			datagram_waits(sk, stamp, head, (u32)network << 16 | transport, now_ns);
		stamp_pass(stamp, HOP_RX_UDP_QUEUE, HOP_STAGE_QUEUE, now_ns);
	}
	return 0;
}

static __always_inline int udp_queue_traced(struct sock *sk, struct sk_buff *skb)
{
	return udp_queue(sk, address(skb->head), skb_identity(skb), skb->network_header, skb->transport_header, 0);
}

static __always_inline int udp_queue_probed(struct sock *sk, struct sk_buff *skb)
{
	return udp_queue(sk, (u64)BPF_CORE_READ(skb, head), skb_identity(skb), BPF_CORE_READ(skb, network_header),
			 BPF_CORE_READ(skb, transport_header), 1);
}

/* The datagram is known from the hook before, on the same CPU. */
static __always_inline int udp_ready(struct cpu_state *cpu, struct sock *sk)
{
	struct udp_state *state;
	u64 head = cpu->datagram;

	cpu->socket = 0;
	if (cfg_ready_records_udp)
		udp_queue(sk, head, 0, cpu->network, cpu->transport, 0);
	state = udp_state_of(sk);
	if (!state) {
		discard(HOP_RX_UDP_READ, HOP_RX_NO_MEMORY);
		return 0;
	}
	atomic_add(&state->fence, 1);
	if (!state->head)
		udp_queued(state, sk, head);
	return 0;
}

/* The segment is known as the last in the queue. If TCP merged it with the one before, it has its sample with that one. */
static __always_inline int tcp_ready(struct sock *sk)
{
	struct arrival arrival = {.joins = -1};
	struct tcp_state *state;
	struct sk_buff *skb = sk->sk_receive_queue.prev;
	u32 end_seq;

	/* In these states data has passed tcp_probe. */
	if (1 << sk->__sk_common.skc_state & TCPF_SEEN || (u64)skb == (u64)&sk->sk_receive_queue)
		return 0;
	read_control_block(&arrival, skb->cb);
	end_seq = arrival.end_seq - (arrival.tcp_flags & TCP_FIN);
	state = tcp_state_of(sk, false, true);
	if (state && state->produced) {
		if (!before(state->seen_seq, end_seq))
			return 0;
		if (before(arrival.seq, state->seen_seq)) {
			tcp_merge(state, end_seq);
			return 0;
		}
		if (before(state->seen_seq, arrival.seq))
			discard(HOP_RX_TCP_READ, HOP_RX_UNSEEN);
	}
	arrival.head = address(skb->head);
	arrival.network = skb->network_header;
	arrival.transport = skb->transport_header;
	arrival.rcv_nxt = arrival.seq;
	tcp_queue(sk, &arrival, true);
	return 0;
}

/* Where no function can be hooked. */
static __always_inline int socket_ready(struct sock *sk)
{
	struct cpu_state *cpu = this_cpu();

	if (cpu->socket == (u64)sk)
		return udp_ready(cpu, sk);
	if (cfg_ready_records_tcp && sk->sk_protocol == IPPROTO_TCP)
		return tcp_ready(sk);
	return 0;
}
