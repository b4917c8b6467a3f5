// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Recording: the hooks, each of which makes a record (hopscope.probes.catalogue_record has the table). */
#include "record_work.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

const volatile u32 cfg_drop_arguments = 2; /* that this kernel's kfree_skb has: a third is a reason (since 5.17) */
const volatile bool cfg_drop_stacks = 0;

/* ---- packets ---- */

/* At a device. */
INLINE int passes(struct sk_buff *skb, u32 point, bool named)
{
	struct passing passing = {};

	passing_of(&passing, skb, point);
	if (skb->dev)
		passing_at_device(&passing, skb->dev);
	passing.named = named;
	record_here(&passing);
	return 0;
}

/* From a device: IP's header is where the data begins; its offset is not set yet. */
INLINE int arrives(struct sk_buff *skb, u32 point, bool named)
{
	struct passing passing = {};

	passing_of(&passing, skb, point);
	if (skb->dev)
		passing_at_device(&passing, skb->dev);
	passing.network = passing.data;
	passing.named = named;
	if (record_here(&passing) && cfg_snap && point == HOP_POINT_RX_DRIVER)
		capture(skb, &passing, frame_start(skb, &passing));
	return 0;
}

/* At a socket, or anywhere. What local sockets send to each other (AF_UNIX, netlink) has no protocol. */
INLINE int elsewhere(struct sk_buff *skb, u32 point, bool named, u32 len_bytes)
{
	struct passing passing = {};

	if (!skb->protocol)
		return 0;
	passing_of(&passing, skb, point);
	passing.len_bytes = len_bytes;
	passing.named = named;
	record_here(&passing);
	return 0;
}

#define ARRIVAL(name, hook)                                                                                            \
	SEC("tp_btf/" #hook)                                                                                           \
	int record_##name(u64 *ctx)                                                                                    \
	{                                                                                                              \
		return arrives((void *)ctx[0], HOP_POINT_RX_DRIVER, true);                                             \
	}

ARRIVAL(netif_rx, netif_rx)
ARRIVAL(gro_receive, napi_gro_receive_entry)
ARRIVAL(gro_frags, napi_gro_frags_entry)
ARRIVAL(receive, netif_receive_skb_entry)
ARRIVAL(receive_list, netif_receive_skb_list_entry)

SEC("tp_btf/netif_receive_skb")
int record_core(u64 *ctx)
{
	return arrives((void *)ctx[0], HOP_POINT_RX_CORE, false);
}

#define IP_BEGINS(name)                                                                                                \
	SEC("fentry/" #name)                                                                                           \
	int record_##name##_fentry(u64 *ctx)                                                                           \
	{                                                                                                              \
		return arrives((void *)ctx[0], HOP_POINT_RX_IP, false);                                                \
	}

IP_BEGINS(ip_rcv_core)
IP_BEGINS(ip6_rcv_core)

#define L4_BEGINS(name)                                                                                                \
	SEC("fentry/" #name)                                                                                           \
	int record_##name##_fentry(u64 *ctx)                                                                           \
	{                                                                                                              \
		return passes((void *)ctx[0], HOP_POINT_RX_L4, false);                                                 \
	}

L4_BEGINS(tcp_v4_rcv)
L4_BEGINS(tcp_v6_rcv)
L4_BEGINS(udp_rcv)
L4_BEGINS(udpv6_rcv)

/* This kind of program has no helper for the running thread. */
SEC("cgroup_skb/ingress")
int record_l4_cgroup(struct __sk_buff *ctx)
{
	struct sk_buff *skb = bpf_cast_to_kern_ctx(ctx);
	struct passing passing = {};

	passing_of(&passing, skb, HOP_POINT_RX_L4);
	if (skb->dev)
		passing_at_device(&passing, skb->dev);
	passing.tid = probe_field(current_task(), pid);
	record_packet(&passing);
	return 1;
}

SEC("tp_btf/tcp_probe")
int record_tcp_queue(u64 *ctx)
{
	struct sk_buff *skb = (void *)ctx[1];

	return elsewhere(skb, HOP_POINT_RX_TCP_QUEUE, true, skb->len);
}

SEC("tp_btf/skb_copy_datagram_iovec")
int record_copy(u64 *ctx)
{
	return elsewhere((void *)ctx[0], HOP_POINT_RX_COPY, false, ctx[1]);
}

SEC("tp_btf/consume_skb")
int record_free(u64 *ctx)
{
	struct sk_buff *skb = (void *)ctx[0];

	return elsewhere(skb, HOP_POINT_SKB_FREE, false, skb->len);
}

/* ---- drops ---- */

struct {
	MAP_UINT(type, BPF_MAP_TYPE_STACK_TRACE);
	MAP_UINT(max_entries, 1); /* set before load */
	MAP_UINT(key_size, 4);
	MAP_UINT(value_size, 8 * HOP_DROP_FRAMES);
} stacks SEC(".maps");

SEC("tp_btf/kfree_skb")
int record_drop(u64 *ctx)
{
	struct sk_buff *skb = (void *)ctx[0];
	struct passing passing = {};
	struct hop_drop *record;
	s32 stack = -1;

	if (!skb->protocol)
		return 0;
	passing_of(&passing, skb, HOP_POINT_SKB_DROP);
	passing_somewhere(&passing, skb->dev);
	passing.named = true;
	if (!record_here(&passing))
		return 0;
	if (cfg_drop_stacks)
		stack = bpf_get_stackid(ctx, &stacks, 0);
	record = reserve();
	if (!record)
		return 0;
	*record = (struct hop_drop){
		.time_ns = passing.time_ns,
		.point = HOP_POINT_DROP,
		.tid = passing.tid,
		.skb = passing.skb,
		.flow = passing.flow,
		.location = ctx[1],
		.reason = cfg_drop_arguments > 2 ? (u32)ctx[2] : 0,
		.stack = stack,
		.ifindex = passing.ifindex,
		.netns = passing.netns,
	};
	submit(record);
	return 0;
}

/* ---- transmit ---- */

/* TCP also sends while another process runs; of its sockets the calls tell before. */
INLINE bool sends_datagram(const struct sk_buff *skb)
{
	struct sock *sk = skb->sk;

	if (!sk || probe_field(sk, sk_protocol) == IPPROTO_TCP || !process_wanted())
		return false;
	return !cfg_cgroups || cgroup_wanted(socket_cgroup(sk));
}

SEC("tp_btf/net_dev_queue")
int record_queue(u64 *ctx)
{
	struct sk_buff *skb = (void *)ctx[0];
	struct passing passing = {};

	passing_of(&passing, skb, HOP_POINT_TX_QUEUE);
	if (skb->dev)
		passing_at_device(&passing, skb->dev);
	passing.named = true;
	passing.sent = cfg_by_process && sends_datagram(skb);
	record_here(&passing);
	return 0;
}

SEC("tp_btf/qdisc_enqueue")
int record_enqueue(u64 *ctx)
{
	return passes((void *)ctx[2], HOP_POINT_TX_ENQUEUE, false);
}

/* Several at once hang together by their pointers. */
#define MOST_AT_ONCE 64

/* No static function: so the verifier looks at it once, rather than at each turn of the loop. It takes a number, for one
 * that takes a pointer to an object came with 6.8 only.
 */
__attribute__((noinline)) int record_dequeued(u64 number)
{
	struct sk_buff *skb = (void *)number;
	struct net_device *dev = probe_field(skb, dev);
	struct passing passing = {
		.skb = number,
		.head = (u64)probe_field(skb, head),
		.data = (u64)probe_field(skb, data),
		.len_bytes = probe_field(skb, len),
		.ifindex = probe_field(dev, ifindex),
		.point = HOP_POINT_TX_DEQUEUE,
	};
	struct net *net = probe_field(dev, nd_net.net);

	passing.netns = probe_field(net, ns.inum);
	passing.network = passing.head + probe_field(skb, network_header);
	know_device(dev, passing.ifindex, passing.netns);
	record_here(&passing);
	return 0;
}

SEC("tp_btf/qdisc_dequeue")
int record_dequeue(u64 *ctx)
{
	u64 skb = ctx[3], number = 0;

	/* What was read is a number to the verifier. */
	bpf_probe_read_kernel(&number, sizeof(number), &skb);
	for (u32 i = 0; i < MOST_AT_ONCE && i < (s32)ctx[2] && number; i++) {
		record_dequeued(number);
		number = (u64)probe_field((struct sk_buff *)number, next);
	}
	return 0;
}

/* The wanted packets that drivers' functions of this CPU have in hand: of stacked devices, the same packet at each. */
#define MOST_IN_HAND 8

struct started {
	u64 skb[MOST_IN_HAND];
	u64 dev[MOST_IN_HAND];
} __attribute__((aligned(128)));

struct started starts[HOP_CPUS];

INLINE struct started *starts_here(void)
{
	u32 cpu = bpf_get_smp_processor_id();

	opaque(cpu);
	return &starts[cpu & (HOP_CPUS - 1)];
}

INLINE void start_add(u64 skb, u64 dev)
{
	struct started *started = starts_here();
	u32 place = 0;

	for (u32 i = 0; i < MOST_IN_HAND; i++)
		if (!started->skb[i])
			place = i;
	started->skb[place] = skb;
	started->dev[place] = dev;
}

INLINE bool start_take(u64 skb, u64 dev)
{
	struct started *started = starts_here();

	for (u32 i = 0; i < MOST_IN_HAND; i++)
		if (started->skb[i] == skb && started->dev[i] == dev) {
			started->skb[i] = 0;
			return true;
		}
	return false;
}

SEC("tp_btf/net_dev_start_xmit")
int record_start(u64 *ctx)
{
	struct sk_buff *skb = (void *)ctx[0];
	struct passing passing = {};

	passing_of(&passing, skb, HOP_POINT_TX_START);
	passing_at_device(&passing, (void *)ctx[1]);
	if (!record_here(&passing))
		return 0;
	if (LOOKED_AT)
		start_add(passing.skb, ctx[1]);
	if (cfg_snap)
		capture(skb, &passing, passing.data);
	return 0;
}

/* Above it the driver did not take the packet (include/linux/netdevice.h). */
#define NET_XMIT_MASK 0x0f

/* The packet may be gone: nothing of it can be looked at but its address. */
SEC("tp_btf/net_dev_xmit")
int record_xmit(u64 *ctx)
{
	struct net_device *dev = (void *)ctx[2];
	struct passing passing = {
		.skb = ctx[0],
		.len_bytes = ctx[3],
		.ifindex = dev->ifindex,
		.netns = dev->nd_net.net->ns.inum,
		.point = HOP_POINT_TX_DRIVER,
	};

	if (LOOKED_AT && !start_take(passing.skb, (u64)dev))
		return 0;
	if ((s32)ctx[1] > NET_XMIT_MASK)
		return 0;
	passing.judged = true;
	record_here(&passing);
	return 0;
}
