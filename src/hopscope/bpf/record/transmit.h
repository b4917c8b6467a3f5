// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Recording: packets on their way to a device and through its driver. */
#pragma once

#include "record/passes.h"

/* TCP also sends while another process runs; of its sockets the calls tell before. */
static __always_inline bool sends_datagram(const struct sk_buff *skb)
{
	struct sock *sk = skb->sk;

	if (!sk || BPF_CORE_READ(sk, sk_protocol) == IPPROTO_TCP || !process_wanted())
		return false;
	return !cfg_cgroups || cgroup_wanted(socket_cgroup(sk));
}

static __always_inline int device_takes(struct sk_buff *skb)
{
	struct passing passing = {};

	passing_of(&passing, skb, HOP_POINT_TX_QUEUE);
	if (skb->dev)
		passing_at_device(&passing, skb->dev);
	passing.named = true;
	passing.sent = cfg_by_process && sends_datagram(skb);
	if (record_here(&passing) && passing.ring && cfg_bytes)
		capture_payload(skb, &passing);
	return 0;
}

/* The queueing disciplines of which a record was made. A new one at the address of an old one has another kind or handle. */
#define QDISCS 256

struct known_qdisc {
	u64 qdisc;
	u64 ops;
	u64 handle;
};

struct known_qdisc known_qdiscs[QDISCS];

static __noinline bool tell_qdisc(struct Qdisc *qdisc, struct net_device *dev)
{
	struct net *net = BPF_CORE_READ(dev, nd_net.net);
	struct Qdisc_ops *ops = BPF_CORE_READ(qdisc, ops);
	struct hop_device *record = reserve_name(NAMES_RING);

	if (!record)
		return false;
	*record = (struct hop_device){
		.time_ns = bpf_ktime_get_ns(),
		.point = HOP_POINT_QDISC,
		.handle = BPF_CORE_READ(qdisc, handle),
		.ifindex = BPF_CORE_READ(dev, ifindex),
		.netns = BPF_CORE_READ(net, ns.inum),
	};
	BPF_CORE_READ_INTO(&record->name, ops, id);
	submit(record);
	return true;
}

static __always_inline void know_qdisc(struct Qdisc *qdisc, struct net_device *dev)
{
	u64 number = number_of((u64)qdisc), ops = (u64)qdisc->ops, handle = qdisc->handle;
	u32 index = number >> 8;
	struct known_qdisc *known;

	barrier_var(index);
	known = &known_qdiscs[index & (QDISCS - 1)];
	if (likely(known->qdisc == number && known->ops == ops && known->handle == handle))
		return;
	if (!tell_qdisc(qdisc, dev))
		return;
	known->qdisc = number;
	known->ops = ops;
	known->handle = handle;
}

/* Several at once hang together by their pointers. */
#define MOST_AT_ONCE 64

/* No static function: so the verifier looks at it once, rather than at each turn of the loop. It takes a number, for one
 * that takes a pointer to an object came with 6.8 only.
 */
__noinline int record_at(u64 number, u32 point, bool named)
{
	struct sk_buff *skb = (void *)number;
	struct net_device *dev = BPF_CORE_READ(skb, dev);
	struct passing passing = {
		.skb = number,
		.head = (u64)BPF_CORE_READ(skb, head),
		.data = (u64)BPF_CORE_READ(skb, data),
		.len_bytes = BPF_CORE_READ(skb, len),
		.ifindex = BPF_CORE_READ(dev, ifindex),
		.ethertype = BPF_CORE_READ(skb, protocol),
		.point = point,
		.named = named,
	};
	struct net *net = BPF_CORE_READ(dev, nd_net.net);

	passing.netns = BPF_CORE_READ(net, ns.inum);
	passing.network = passing.head + BPF_CORE_READ(skb, network_header);
	passing.readable_end = passing.head + BPF_CORE_READ(skb, tail);
	passing.end = passing.data + passing.len_bytes;
	if (cfg_rules)
		passing.dev = dev;
	know_device(dev, passing.ifindex, passing.netns);
	record_here(&passing);
	return 0;
}

/* Queueing disciplines that empty queues go past (include/net/sch_generic.h). Of the others, those that shape cut packets for it:
 * the pieces have not been seen before.
 */
#define TCQ_F_CAN_BYPASS 4

static __always_inline int queue_gives(struct Qdisc *qdisc, s32 packets, u64 skb)
{
	bool named = !(qdisc->flags & TCQ_F_CAN_BYPASS);
	u64 number = number_of(skb);

	for (u32 i = 0; i < MOST_AT_ONCE && i < packets && number; i++) {
		record_at(number, HOP_POINT_TX_DEQUEUE, named);
		number = (u64)BPF_CORE_READ((struct sk_buff *)number, next);
	}
	return 0;
}

/* The wanted packets that drivers' functions of this CPU have in hand: of stacked devices, the same packet at each. */

struct started {
	u64 skb[MOST_IN_HAND];
	u64 dev[MOST_IN_HAND];
} __attribute__((aligned(128)));

struct started starts[HOP_CPUS];

static __always_inline struct started *starts_here(void)
{
	u32 cpu = bpf_get_smp_processor_id();

	barrier_var(cpu);
	return &starts[cpu & (HOP_CPUS - 1)];
}

static __noinline int start_flow(u32 place, u64 network, u64 readable_end)
{
	struct started_flow *started = bpf_map_lookup_elem(&started_flows, &place);
	struct headers found = {.readable_end = readable_end};

	if (!started)
		return 0;
	parse(&found, network);
	started->flow = found.flow;
	started->key = found.key;
	return 0;
}

static __always_inline u32 start_add(u64 skb, u64 dev)
{
	struct started *started = starts_here();
	u32 place = 0;

	for (u32 i = 0; i < MOST_IN_HAND; i++)
		if (!started->skb[i])
			place = i;
	started->skb[place] = skb;
	started->dev[place] = dev;
	return place;
}

static __always_inline bool start_take(u64 skb, u64 dev, u32 *place)
{
	struct started *started = starts_here();

	for (u32 i = 0; i < MOST_IN_HAND; i++)
		if (started->skb[i] == skb && started->dev[i] == dev) {
			started->skb[i] = 0;
			*place = i;
			return true;
		}
	return false;
}

static __always_inline int driver_begins(struct sk_buff *skb, struct net_device *dev)
{
	struct passing passing = {};

	passing_of(&passing, skb, HOP_POINT_TX_START);
	passing_at_device(&passing, dev);
	if (!record_here(&passing))
		return 0;
	if (LOOKED_AT || cfg_rules_headers) {
		u32 place = start_add(passing.skb, (u64)dev);

		if (cfg_rules_headers)
			start_flow(place, passing.network, passing.readable_end);
	}
	if (cfg_snap && passing.ring)
		capture(skb, &passing, passing.data);
	return 0;
}

/* Above it the driver did not take the packet (include/linux/netdevice.h). */
#define NET_XMIT_MASK 0x0f

static __noinline int record_returned(struct passing *passing, u32 place)
{
	struct started_flow *started = bpf_map_lookup_elem(&started_flows, &place);
	struct headers found = {};

	if (started) {
		found.flow = started->flow;
		found.key = started->key;
	}
	passing->tid = current_tid();
	record_known(passing, &found);
	if (passing->ring)
		know_thread(passing->tid, passing->time_ns, passing->ring);
	return 0;
}

/* The packet may be gone: nothing of it can be looked at but its address. */
static __always_inline int driver_returns(u64 skb, s32 result, struct net_device *dev, u32 len_bytes)
{
	struct passing passing = {
		.skb = skb,
		.len_bytes = len_bytes,
		.ifindex = dev->ifindex,
		.netns = dev->nd_net.net->ns.inum,
		.point = HOP_POINT_TX_DRIVER,
	};
	u32 place = 0;

	if ((LOOKED_AT || cfg_rules_headers) && !start_take(passing.skb, (u64)dev, &place))
		return 0;
	if (result > NET_XMIT_MASK)
		return 0;
	passing.judged = true;
	if (cfg_rules)
		passing.dev = dev;
	if (cfg_rules_headers) {
		struct passing returned = passing;

		return record_returned(&returned, place);
	}
	record_here(&passing);
	return 0;
}

/* The packet that has just been put behind those that wait for their neighbour's address. */
static __always_inline int neighbour_keeps(struct neighbour *neighbour)
{
	u64 queue = number_of((u64)&neighbour->arp_queue), last = (u64)BPF_CORE_READ(neighbour, arp_queue.prev);

	if (last && last != queue)
		record_at(last, HOP_POINT_TX_NEIGHBOUR, true);
	return 0;
}
