// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Receive latency, hop by hop: the thin wrappers by which bodies are attached, several a body, of which user space loads one
 * (hopscope.probes.catalogue has the table). They are here and, for the ways to the core and into the socket, in the headers.
 */
#include "rx_entry.h"
#include "rx_socket.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* ---- IP, TCP and UDP begin ---- */

INLINE int reach(const void *skb, u64 head, u32 hop, u32 stage)
{
	struct stamp *stamp;

	stamp_follow(skb, head, stage == HOP_STAGE_L4);
	stamp = stamp_find(head, hop);
	if (stamp)
		stamp_pass(stamp, hop, stage, bpf_ktime_get_ns());
	return 0;
}

/* The packet is the first argument of a traced function. */
INLINE int reach_traced(u64 *ctx, u32 hop, u32 stage)
{
	struct sk_buff *skb = (void *)ctx[0];

	return reach(skb, address(skb->head), hop, stage);
}

SEC("fentry/ip_rcv_core")
int rx_ip_fentry(u64 *ctx)
{
	return reach_traced(ctx, HOP_RX_IP, HOP_STAGE_IP);
}

SEC("fentry/ip6_rcv_core")
int rx_ip6_fentry(u64 *ctx)
{
	return reach_traced(ctx, HOP_RX_IP, HOP_STAGE_IP);
}

INLINE int reach_probed(struct pt_regs *ctx, u32 hop, u32 stage)
{
	struct sk_buff *skb = ARG1(ctx);

	return reach(skb, (u64)probe_field(skb, head), hop, stage);
}

SEC("kprobe/ip_rcv_core")
int rx_ip_kprobe(struct pt_regs *ctx)
{
	return reach_probed(ctx, HOP_RX_IP, HOP_STAGE_IP);
}

SEC("kprobe/ip6_rcv_core")
int rx_ip6_kprobe(struct pt_regs *ctx)
{
	return reach_probed(ctx, HOP_RX_IP, HOP_STAGE_IP);
}

/* User space sets the type: libbpf knows this section only from 1.3 on. */
SEC("netfilter")
int rx_ip_netfilter(struct bpf_nf_ctx *ctx)
{
	struct sk_buff *skb = ctx->skb;

	reach(skb, address(skb->head), HOP_RX_IP, HOP_STAGE_IP);
	return 1; /* NF_ACCEPT */
}

SEC("fentry/tcp_v4_rcv")
int rx_tcp_fentry(u64 *ctx)
{
	return reach_traced(ctx, HOP_RX_TCP, HOP_STAGE_L4);
}

SEC("fentry/tcp_v6_rcv")
int rx_tcp6_fentry(u64 *ctx)
{
	return reach_traced(ctx, HOP_RX_TCP, HOP_STAGE_L4);
}

SEC("fentry/udp_rcv")
int rx_udp_fentry(u64 *ctx)
{
	return reach_traced(ctx, HOP_RX_UDP, HOP_STAGE_L4);
}

SEC("fentry/udpv6_rcv")
int rx_udp6_fentry(u64 *ctx)
{
	return reach_traced(ctx, HOP_RX_UDP, HOP_STAGE_L4);
}

SEC("kprobe/tcp_v4_rcv")
int rx_tcp_kprobe(struct pt_regs *ctx)
{
	return reach_probed(ctx, HOP_RX_TCP, HOP_STAGE_L4);
}

SEC("kprobe/tcp_v6_rcv")
int rx_tcp6_kprobe(struct pt_regs *ctx)
{
	return reach_probed(ctx, HOP_RX_TCP, HOP_STAGE_L4);
}

SEC("kprobe/udp_rcv")
int rx_udp_kprobe(struct pt_regs *ctx)
{
	return reach_probed(ctx, HOP_RX_UDP, HOP_STAGE_L4);
}

SEC("kprobe/udpv6_rcv")
int rx_udp6_kprobe(struct pt_regs *ctx)
{
	return reach_probed(ctx, HOP_RX_UDP, HOP_STAGE_L4);
}

/* Where the socket filter runs: the socket is known, and it is not yet locked or full. */
SEC("cgroup_skb/ingress")
int rx_l4_cgroup(struct __sk_buff *ctx)
{
	struct sk_buff *skb = bpf_cast_to_kern_ctx(ctx);
	struct cpu_state *cpu;
	struct sock *sk = skb->sk;
	u64 head = address(skb->head);

	if (!sk)
		return 1;
	if (sk->sk_protocol == IPPROTO_TCP) {
		if (cfg_cgroup_records_tcp)
			reach(skb, head, HOP_RX_TCP, HOP_STAGE_L4);
	} else if (sk->sk_protocol == IPPROTO_UDP) {
		if (cfg_cgroup_records_udp)
			reach(skb, head, HOP_RX_UDP, HOP_STAGE_L4);
		cpu = this_cpu();
		cpu->socket = (u64)sk;
		cpu->datagram = head;
		cpu->network = skb->network_header;
		cpu->transport = skb->transport_header;
	}
	return 1;
}

/* ---- the application reads ---- */

SEC("tp_btf/tcp_rcv_space_adjust")
int rx_tcp_read_tp(u64 *ctx)
{
	struct sock *sk = (void *)ctx[0];
	struct tcp_sock *tp = tcp_sock_of(sk);

	if (tp)
		tcp_read(sk, true, tp->copied_seq, tp->rcv_nxt);
	return 0;
}

SEC("kprobe/tcp_rcv_space_adjust")
int rx_tcp_read_kprobe(struct pt_regs *ctx)
{
	struct sock *sk = ARG1(ctx);
	struct tcp_sock *tp = (void *)sk;

	tcp_read(sk, false, probe_field(tp, copied_seq), probe_field(tp, rcv_nxt));
	return 0;
}

INLINE int udp_consume(u64 head)
{
	struct stamp *stamp = stamp_find(head, HOP_RX_UDP_READ);

	if (!stamp)
		return 0;
	if (process_wanted())
		udp_read(stamp->first_ns, stamp->last_ns, stamp->group, stamp->stage);
	stamp->done = 1;
	return 0;
}

/* Called for a peeked datagram, too: then somebody else still holds it. */
SEC("fentry/skb_consume_udp")
int rx_udp_read_fentry(u64 *ctx)
{
	struct sk_buff *skb = (void *)ctx[1];

	return skb->users.refs.counter > 1 ? 0 : udp_consume(address(skb->head));
}

SEC("kprobe/skb_consume_udp")
int rx_udp_read_kprobe(struct pt_regs *ctx)
{
	struct sk_buff *skb = ARG2(ctx);

	return probe_field(skb, users.refs.counter) > 1 ? 0 : udp_consume((u64)probe_field(skb, head));
}

/* Where no function can be hooked: the call that returns took the datagram that was the next to be read. */
SEC("tp_btf/sock_recv_length")
int rx_udp_read_tp(u64 *ctx)
{
	struct sock *sk = (void *)ctx[0];
	struct udp_state *state;
	u64 head;

	if (sk->sk_protocol != IPPROTO_UDP || (s32)ctx[1] < 0 || (u32)ctx[2] & (MSG_PEEK | MSG_ERRQUEUE))
		return 0;
	state = bpf_sk_storage_get(&udp_states, sk, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!state) {
		discard(HOP_RX_UDP_READ, HOP_RX_NO_MEMORY);
		return 0;
	}
	if (!udp_next_is_known(state)) {
		if (process_wanted() && unseen_wanted(sk))
			discard(HOP_RX_UDP_READ, HOP_RX_UNSEEN);
	} else if (state->stage == HOP_STAGE_NONE) {
		discard(HOP_RX_UDP_READ, HOP_RX_NO_STAMP);
	} else if (state->stage != HOP_STAGE_UNWANTED && process_wanted()) {
		udp_read(state->first_ns, state->last_ns, state->group, state->stage);
	}
	/* In this order: a datagram that is queued meanwhile is found by one of the two sides. */
	state->head = 0;
	atomic_add(&state->fence, 1);
	head = udp_first_in_queue(sk);
	if (head)
		udp_set_next(state, head);
	else
		state->emptied = 1;
	return 0;
}
