// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Receive latency, hop by hop. Bodies first, then the thin wrappers by which they are attached: several a body, of which
 * user space loads one (hopscope.probes.catalogue has the table).
 */
#include "rx_nic.h"
#include "rx_tcp.h"
#include "rx_udp.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define NET_RX_SOFTIRQ 3

/* ---- the CPU's way to the packet ---- */

INLINE u32 entry_group(struct cpu_state *cpu, struct net_device *dev)
{
	if (cfg_group_by == HOP_GROUP_INTERFACE)
		return group_of(cpu, dev->ifindex, dev->nd_net.net->ns.inum, dev->name);
	if (cfg_group_by == HOP_GROUP_NETNS)
		return group_of(cpu, 0, dev->nd_net.net->ns.inum, NULL);
	return 0;
}

SEC("tp_btf/softirq_raise")
int rx_softirq_raise(u64 *ctx)
{
	struct cpu_state *cpu;

	if ((u32)ctx[0] != NET_RX_SOFTIRQ)
		return 0;
	cpu = this_cpu();
	if (!cpu->raised_ns)
		cpu->raised_ns = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/softirq_entry")
int rx_softirq_entry(u64 *ctx)
{
	struct cpu_state *cpu;
	u64 now_ns, raised_ns;

	if ((u32)ctx[0] != NET_RX_SOFTIRQ)
		return 0;
	cpu = this_cpu();
	now_ns = bpf_ktime_get_ns();
	raised_ns = cpu->raised_ns;
	cpu->raised_ns = 0;
	cpu->poll_ns = now_ns;
	if (raised_ns)
		record(HOP_RX_SOFTIRQ, 0, raised_ns, now_ns);
	return 0;
}

/* The enum has no name by which CO-RE could find it; so since 4.12 (39e6c8208d7b). */
#define NAPI_STATE_IN_BUSY_POLL 6

/* Is this poll not of the softirq, but of the instance's own thread, of a reader that polls busily, or of netpoll? */
INLINE bool poll_outside(struct cpu_state *cpu, struct napi_struct *napi, s32 budget)
{
	bool was_busy = cpu->busy == (u64)napi;

	if (napi->state & 1 << NAPI_STATE_IN_BUSY_POLL) {
		cpu->busy = (u64)napi;
		return true;
	}
	/* The reader gives the instance back with a last poll on this CPU, for which it takes the mark away (busy_poll_stop). */
	if (was_busy) {
		cpu->busy = 0;
		return true;
	}
	if (core_exists(napi->thread) && (u64)napi->thread == bpf_get_current_task())
		return true;
	/* Netpoll can come in any context. It has no budget. */
	return !budget;
}

SEC("tp_btf/napi_poll")
int rx_napi_poll(u64 *ctx)
{
	struct napi_struct *napi = (void *)ctx[0];
	struct cpu_state *cpu = this_cpu();
	u64 now_ns, start_ns = cpu->poll_ns;
	struct net_device *dev = napi->dev;

	if (poll_outside(cpu, napi, ctx[2])) {
		discard(HOP_RX_NAPI, HOP_RX_OUTSIDE);
		return 0;
	}
	now_ns = bpf_ktime_get_ns();
	cpu->poll_ns = now_ns;
	if (!start_ns) {
		discard(HOP_RX_NAPI, HOP_RX_NO_STAMP);
		return 0;
	}
	/* The backlog queue, which lo and veth use, is a NAPI instance with no device. */
	record(HOP_RX_NAPI, dev ? entry_group(cpu, dev) : 0, start_ns, now_ns);
	return 0;
}

SEC("tp_btf/sched_switch")
int rx_sched_switch(u64 *ctx)
{
	this_cpu()->switched_in_ns = bpf_ktime_get_ns();
	return 0;
}

/* ---- the packet enters ---- */

INLINE bool entry_sampled(struct cpu_state *cpu)
{
	if (cpu->skip) {
		cpu->skip--;
		return false;
	}
	/* A random gap of N - 1 on average: no pattern in the traffic can hide from it. */
	cpu->skip = bpf_get_prandom_u32() % (2 * cfg_sample - 1);
	return true;
}

INLINE void enter(struct sk_buff *skb, struct stamp *stamp, u64 head, u32 stage)
{
	struct hop_rx_counters *counter;
	struct cpu_state *cpu = this_cpu();
	struct net_device *dev = skb->dev;
	bool wanted = true;

	if (cfg_interfaces || cfg_namespaces)
		wanted = device_wanted(dev->ifindex, dev->nd_net.net->ns.inum);
	if (wanted && cfg_sample > 1) {
		wanted = entry_sampled(cpu);
		counter = count();
		if (counter) {
			counter->packets++;
			counter->sampled += wanted;
		}
	}
	stamp->head = 0;
	barrier();
	stamp->stage = wanted ? stage : HOP_STAGE_UNWANTED;
	stamp->spent = 0;
	stamp->done = 0;
	if (wanted) {
		stamp->group = entry_group(cpu, dev);
		stamp->first_ns = stamp->last_ns = bpf_ktime_get_ns();
	}
	barrier();
	stamp->head = head;
}

/* Only a packet that comes fresh from a device has no skb_iif yet: one that a bridge passes up is still the same. */
INLINE int driver_hands_over(struct sk_buff *skb)
{
	u64 head = address(skb->head);
	struct stamp *stamp;

	if (skb->skb_iif)
		return 0;
	stamp = stamp_take(head);
	enter(skb, stamp, head, HOP_STAGE_DRIVER);
	if (cfg_nic_stamps && stamp->stage != HOP_STAGE_UNWANTED)
		nic_pass(skb, stamp, head);
	return 0;
}

SEC("tp_btf/netif_rx")
int rx_netif_rx(u64 *ctx)
{
	return driver_hands_over((void *)ctx[0]);
}

SEC("tp_btf/napi_gro_receive_entry")
int rx_napi_gro_receive(u64 *ctx)
{
	return driver_hands_over((void *)ctx[0]);
}

SEC("tp_btf/napi_gro_frags_entry")
int rx_napi_gro_frags(u64 *ctx)
{
	return driver_hands_over((void *)ctx[0]);
}

SEC("tp_btf/netif_receive_skb_entry")
int rx_netif_receive(u64 *ctx)
{
	return driver_hands_over((void *)ctx[0]);
}

SEC("tp_btf/netif_receive_skb_list_entry")
int rx_netif_receive_list(u64 *ctx)
{
	return driver_hands_over((void *)ctx[0]);
}

SEC("tp_btf/netif_receive_skb")
int rx_core(u64 *ctx)
{
	struct sk_buff *skb = (void *)ctx[0];
	struct cpu_state *cpu;
	struct stamp *stamp;
	u64 head;

	if (skb->skb_iif)
		return 0;
	head = address(skb->head);
	cpu = this_cpu();
	cpu->packet = (u64)skb;
	cpu->head = head;
	stamp = stamp_slot(head);
	if (unlikely(stamp->head != head || stamp->stage > HOP_STAGE_DRIVER)) {
		discard(HOP_RX_CORE, HOP_RX_NO_ENTRY);
		enter(skb, stamp_take(head), head, HOP_STAGE_CORE);
	} else if (stamp->stage == HOP_STAGE_DRIVER) {
		stamp_pass(stamp, HOP_RX_CORE, HOP_STAGE_CORE, bpf_ktime_get_ns());
	}
	return 0;
}

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

/* ---- the socket takes it ---- */

/* Settle what the socket had to say first. False: not wanted after all. */
INLINE bool settle(struct stamp *stamp, struct sock *sk, u64 head, u16 network, u16 transport, s32 joins, u32 l4_hop)
{
	if (!cfg_defer)
		return true;
	if (!socket_wanted(sk, head, network, transport, joins)) {
		stamp->stage = HOP_STAGE_UNWANTED;
		return false;
	}
	if (cfg_group_by == HOP_GROUP_CGROUP)
		stamp->group = group_of(this_cpu(), cgroup_id(socket_cgroup(sk)), 0, NULL);
	if (cfg_group_by == HOP_GROUP_PROTOCOL)
		stamp->group = l4_hop == HOP_RX_TCP ? HOP_GROUP_TCP : HOP_GROUP_UDP;
	stamp_settle(stamp, l4_hop);
	return true;
}

INLINE void tcp_queue(struct sock *sk, const struct arrival *arrival, bool trusted)
{
	u32 end_seq = arrival->end_seq - (arrival->tcp_flags & TCP_FIN);
	struct tcp_state *state;
	struct stamp *stamp;

	if (arrival->seq == end_seq)
		return;
	stamp = stamp_find(arrival->head, HOP_RX_TCP_QUEUE);
	if (!stamp)
		return;
	if (!before(arrival->rcv_nxt, end_seq)) {
		discard(HOP_RX_TCP_QUEUE, HOP_RX_DUPLICATE);
		return;
	}
	if (!settle(stamp, sk, arrival->head, arrival->network, arrival->transport, arrival->joins, HOP_RX_TCP))
		return;
	if (stamp->stage >= HOP_STAGE_QUEUE) {
		discard(HOP_RX_TCP_QUEUE, HOP_RX_AGAIN);
		return;
	}
	stamp_pass(stamp, HOP_RX_TCP_QUEUE, HOP_STAGE_QUEUE, bpf_ktime_get_ns());
	state = tcp_state_of(sk, true, trusted);
	if (state)
		tcp_arrive(state, stamp, arrival, end_seq);
	else
		discard(HOP_RX_TCP_READ, HOP_RX_NO_MEMORY);
	stamp->done = 1;
}

INLINE struct tcp_sock *tcp_sock_of(struct sock *sk)
{
	if (bpf_rdonly_cast)
		return bpf_rdonly_cast(sk, core_type_id(struct tcp_sock));
	return bpf_skc_to_tcp_sock(sk);
}

INLINE void read_control_block(struct arrival *arrival, const void *cb)
{
	struct tcp_skb_cb *tcp = (void *)cb;

	arrival->seq = probe_field(tcp, seq);
	arrival->end_seq = probe_field(tcp, end_seq);
	arrival->tcp_flags = probe_field(tcp, tcp_flags);
}

INLINE int tcp_queue_traced(struct sock *sk, struct sk_buff *skb)
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
		cb = bpf_rdonly_cast(skb->cb, core_type_id(struct tcp_skb_cb));
		arrival.seq = cb->seq;
		arrival.end_seq = cb->end_seq;
		arrival.tcp_flags = cb->tcp_flags;
	} else {
		read_control_block(&arrival, skb->cb);
	}
	tcp_queue(sk, &arrival, true);
	return 0;
}

SEC("tp_btf/tcp_probe")
int rx_tcp_queue_tp(u64 *ctx)
{
	return tcp_queue_traced((void *)ctx[0], (void *)ctx[1]);
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
SEC("fentry/tcp_rcv_state_process")
int rx_tcp_closing_fentry(u64 *ctx)
{
	struct sock *sk = (void *)ctx[0];

	if (!(1 << sk->__sk_common.skc_state & (TCPF_SYN_RECV | TCPF_FIN_WAIT1 | TCPF_FIN_WAIT2)) ||
	    sk->sk_shutdown & RCV_SHUTDOWN)
		return 0;
	return tcp_queue_traced(sk, (void *)ctx[1]);
}

SEC("kprobe/tcp_rcv_established")
int rx_tcp_queue_kprobe(struct pt_regs *ctx)
{
	struct sock *sk = ARG1(ctx);
	struct sk_buff *skb = ARG2(ctx);
	struct tcp_sock *tp = (void *)sk;
	struct arrival arrival = {
		.head = (u64)probe_field(skb, head),
		.rcv_nxt = probe_field(tp, rcv_nxt),
		.network = probe_field(skb, network_header),
		.transport = probe_field(skb, transport_header),
	};

	read_control_block(&arrival, skb->cb);
	tcp_queue(sk, &arrival, false);
	return 0;
}

INLINE int udp_queue(struct sock *sk, u64 head, u16 network, u16 transport, s32 joins)
{
	struct stamp *stamp = stamp_find(head, HOP_RX_UDP_QUEUE);

	if (stamp && settle(stamp, sk, head, network, transport, joins, HOP_RX_UDP))
		stamp_pass(stamp, HOP_RX_UDP_QUEUE, HOP_STAGE_QUEUE, bpf_ktime_get_ns());
	return 0;
}

SEC("fexit/__udp_enqueue_schedule_skb")
int rx_udp_queue_fexit(u64 *ctx)
{
	struct sk_buff *skb = (void *)ctx[1];

	if ((int)ctx[2]) /* refused: the buffer is full */
		return 0;
	return udp_queue((void *)ctx[0], address(skb->head), skb->network_header, skb->transport_header, 0);
}

SEC("kprobe/__udp_enqueue_schedule_skb")
int rx_udp_queue_kprobe(struct pt_regs *ctx)
{
	struct sk_buff *skb = ARG2(ctx);

	return udp_queue(ARG1(ctx), (u64)probe_field(skb, head), probe_field(skb, network_header),
			 probe_field(skb, transport_header), 1);
}

/* The datagram is known from the hook before, on the same CPU. */
INLINE int udp_ready(struct cpu_state *cpu, struct sock *sk)
{
	struct udp_state *state;
	u64 head = cpu->datagram;

	cpu->socket = 0;
	if (cfg_ready_records_udp)
		udp_queue(sk, head, cpu->network, cpu->transport, 0);
	state = bpf_sk_storage_get(&udp_states, sk, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
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
INLINE int tcp_ready(struct sock *sk)
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
SEC("tp_btf/sk_data_ready")
int rx_ready(u64 *ctx)
{
	struct cpu_state *cpu = this_cpu();
	struct sock *sk = (void *)ctx[0];

	if (cpu->socket == (u64)sk)
		return udp_ready(cpu, sk);
	if (cfg_ready_records_tcp && sk->sk_protocol == IPPROTO_TCP)
		return tcp_ready(sk);
	return 0;
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
