// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Recording: a packet's headers, whether it is wanted, and its record. */
#pragma once

#include "common/pcap.h"
#include "record/rules.h"

/* Packets are filtered: what they are wanted for is in their headers, or it is their flow that is wanted. */
const volatile bool cfg_by_headers = 0;
/* Whether a packet is wanted shows in its headers alone. */
#define LOOKED_AT (cfg_by_headers || cfg_own || cfg_own_ethertype)
/* Packets are wanted whose flow is that of a wanted process's socket. */
const volatile bool cfg_by_process = 0;
const volatile u32 cfg_bytes = 0; /* of each packet's payload that are captured */
const volatile u32 cfg_interfaces = 0;
const volatile struct hop_interface cfg_interface[HOP_FILTERS] = {};

static __always_inline bool interface_wanted(u32 ifindex, u32 netns)
{
	for (u32 i = 0; i < HOP_FILTERS && i < cfg_interfaces; i++)
		if (cfg_interface[i].ifindex == ifindex && cfg_interface[i].netns == netns)
			return true;
	return !cfg_interfaces;
}

/* What a hook knows of a packet. */
struct passing {
	u64 time_ns; /* this, and the next three, are known when it is recorded */
	u64 flow;
	u64 payload; /* where TCP's or UDP's begins; 0: not looked at, or it has none */
	u32 seq;     /* of that */
	u32 reason;  /* why it was dropped */
	u64 skb;
	u64 head;
	u64 data;                     /* where skb->len begins */
	u64 network;                  /* where IP's header begins; 0: not looked at, unless a filter needs it */
	u64 readable_end;             /* of what is not in pages */
	u64 end;                      /* of the packet, if nothing of it was in pages */
	const struct net_device *dev; /* with conditions alone */
	u32 len_bytes;
	u32 ifindex;
	u32 netns;
	u32 tid;
	u32 ring;      /* that its record goes to; NO_RING: it has none */
	u16 ethertype; /* in network order */
	u8 point;
	bool named;  /* its flow is asked for at this point */
	bool sent;   /* a wanted process sends this datagram right now */
	bool judged; /* it is wanted, as was seen before: there are no headers to look at */
};

static __always_inline void passing_of(struct passing *passing, struct sk_buff *skb, u32 point)
{
	passing->skb = (u64)skb;
	passing->head = address(skb->head);
	passing->data = address(skb->data);
	passing->network = passing->head + skb->network_header;
	passing->readable_end = passing->head + skb->tail;
	passing->end = passing->data + skb->len;
	passing->len_bytes = skb->len;
	passing->ethertype = skb->protocol;
	passing->point = point;
}

/* While a packet is at a device. In a socket, and in TCP's queues, something else is in the place of its device. */
static __always_inline void passing_at_device(struct passing *passing, struct net_device *dev)
{
	passing->ifindex = dev->ifindex;
	passing->netns = dev->nd_net.net->ns.inum;
	if (cfg_rules)
		passing->dev = dev;
	know_device(dev, passing->ifindex, passing->netns);
}

/* Wherever it is: what may be a device is one if its queue says that it is the queue's device. */
static __always_inline void passing_somewhere(struct passing *passing, struct net_device *dev)
{
	struct netdev_queue *queue = BPF_CORE_READ(dev, _tx);

	if (queue && BPF_CORE_READ(queue, dev) == dev)
		passing_at_device(passing, dev);
}

/* The end of a packet that is here: what comes is for its destination, what goes is from its source. */
struct local_end {
	u64 exact;
	u64 anywhere;
};

/* From copies: of the originals the verifier may know which of the filters' values they are, and would go through the rest
 * with each of them.
 */
static __noinline int local_end(struct local_end *end, const struct passing *passing, const struct flow_key *key)
{
	const u32 *address = key->ends.address[0];
	const u16 *port = &key->ends.port[0];
	u32 copied[4] = {}, netns = 0;
	u16 copied_port = 0;

	if (passing->point < HOP_POINT_TX_QUEUE) {
		address = key->ends.address[1];
		port = &key->ends.port[1];
	}
	bpf_probe_read_kernel(copied, sizeof(copied), address);
	bpf_probe_read_kernel(&copied_port, sizeof(copied_port), port);
	bpf_probe_read_kernel(&netns, sizeof(netns), &passing->netns);
	end->exact = end_of(copied, copied_port, netns);
	end->anywhere = end_anywhere(copied_port, netns);
	return 0;
}

/* What its socket does is wanted, too. */
static __always_inline void want_socket(const struct passing *passing, const struct headers *found)
{
	struct local_end end = {};

	/* At an interface is one end; what an expression wants, and what is in the sample, comes by both. */
	if (!cfg_pcap && cfg_sample <= 1 && flow_wanted(found->flow))
		return;
	want_flow(found->flow);
	if (found->key.protocol != IPPROTO_UDP || !passing->netns)
		return;
	local_end(&end, passing, &found->key);
	want_flow(end.exact);
	want_flow(end.anywhere);
}

/* By its device where it is at one; elsewhere by its flow, which was wanted at a device. */
static __always_inline bool place_wanted(const struct passing *passing, const struct headers *found)
{
	if (!passing->netns)
		return flow_wanted(found->flow);
	if (!interface_wanted(passing->ifindex, passing->netns) || !namespace_wanted(passing->netns))
		return false;
	if (cfg_interfaces)
		want_socket(passing, found);
	else
		want_flow(found->flow);
	return true;
}

/* A flow, and what comes back. */
static __noinline int want_both_ways(const struct headers *found)
{
	struct flow_key back = {.protocol = found->key.protocol};

	for (u32 end = 0; end < 2; end++) {
		__builtin_memcpy(back.ends.address[end], found->key.ends.address[1 - end],
				 sizeof(back.ends.address[0]));
		back.ends.port[end] = found->key.ends.port[1 - end];
	}
	want_flow(found->flow);
	want_flow(flow_of(&back));
	return 0;
}

/* By its flow, and that of a socket that is not connected by one end of it. */
static __always_inline bool owner_wanted(const struct passing *passing, const struct headers *found)
{
	if (flow_wanted(found->flow))
		return true;
	if (!passing->sent || !found->flow) {
		struct local_end end = {};

		if (found->key.protocol != IPPROTO_UDP || !passing->netns)
			return false;
		local_end(&end, passing, &found->key);
		if (!flow_wanted(end.exact) && !flow_wanted(end.anywhere))
			return false;
	}
	want_both_ways(found);
	return true;
}

/* What the fragments of a datagram have in common. */
static __noinline u64 datagram_of(const struct headers *found)
{
	struct flow_key key = {.protocol = found->key.protocol};

	__builtin_memcpy(key.ends.address, found->key.ends.address, sizeof(key.ends.address));
	return flow_mix(flow_of(&key), found->seq & 0xffff);
}

/* Whether a later fragment is wanted for its ports shows in the first one. */
static __always_inline bool fragment_wanted(const struct headers *found)
{
	bool by_ports = cfg_ports || cfg_by_process || cfg_sample > 1;

	return !by_ports || flow_wanted(datagram_of(found));
}

static __always_inline bool ports_wanted(const struct passing *passing, const struct headers *found)
{
	if (found->fragment == LATER_FRAGMENT)
		return fragment_wanted(found);
	if (!port_wanted(&found->key.ends))
		return false;
	if (cfg_by_process && !owner_wanted(passing, found))
		return false;
	return cfg_sample <= 1 || (found->flow && flow_sampled(&found->key));
}

static __always_inline bool headers_wanted(const struct passing *passing, const struct headers *found)
{
	if (cfg_own && own_flow(&found->key))
		return false;
	if (!address_wanted(&found->key.ends) || !ports_wanted(passing, found))
		return false;
	if (!pcap_wanted(passing->network, passing->readable_end - passing->network, passing->end - passing->network))
		return false;
	if ((cfg_interfaces || cfg_namespaces) && !place_wanted(passing, found))
		return false;
	if (found->fragment == FIRST_FRAGMENT)
		want_flow(datagram_of(found));
	if (cfg_pcap || cfg_sample > 1)
		want_socket(passing, found);
	return true;
}

static __always_inline bool has_payload(const struct headers *found)
{
	u32 protocol = found->key.protocol;

	return (protocol == IPPROTO_TCP || protocol == IPPROTO_UDP) && found->fragment != LATER_FRAGMENT;
}

static __always_inline void fill_packet(struct hop_packet *record, const struct passing *passing,
					const struct headers *found)
{
	record->time_ns = passing->time_ns;
	record->point = passing->point;
	record->tcp_flags = found->tcp_flags;
	record->header_bytes = found->payload ? found->payload - passing->data : 0;
	record->tid = passing->tid;
	record->skb = passing->skb;
	record->head = passing->head;
	record->flow = found->flow;
	record->len_bytes = passing->len_bytes;
	record->seq = found->seq;
	record->ifindex = passing->ifindex;
	record->netns = passing->netns;
}

static __always_inline u32 packet_ring(const struct passing *passing, const struct headers *found,
				       const struct flow_key *key)
{
	struct hop_packet draft;

	if (!cfg_rules)
		return MAIN_RING;
	fill_packet(&draft, passing, found);
	return ring_of(&draft, key, passing->dev, passing->reason);
}

static __always_inline void begin_packet(struct passing *passing, const struct headers *found)
{
	passing->time_ns = bpf_ktime_get_ns();
	passing->flow = found->flow;
	if (cfg_bytes && has_payload(found)) {
		passing->payload = found->payload;
		passing->seq = found->seq + (found->tcp_flags >> 1 & 1); /* behind the number of a SYN */
	}
}

static __always_inline void write_packet(const struct passing *passing, const struct headers *found)
{
	struct hop_packet *record = reserve(passing->ring);

	if (!record)
		return;
	fill_packet(record, passing, found);
	submit(record);
}

/* Makes a record of a packet whose headers are known, if it is kept. */
static __always_inline void record_known(struct passing *passing, const struct headers *found)
{
	begin_packet(passing, found);
	passing->ring = packet_ring(passing, found, &found->key);
	if (!passing->ring)
		return;
	/* What is compared is known to user space, too. */
	if (found->flow && (passing->named || cfg_rules_headers))
		know_flow(found->flow, &found->key, passing->ring);
	write_packet(passing, found);
}

/* Looks at its headers; returns whether it was wanted. */
static __noinline bool record_headed(struct passing *passing)
{
	struct headers found = {.readable_end = passing->readable_end};

	parse(&found, passing->network);
	if (LOOKED_AT && !passing->judged && !headers_wanted(passing, &found))
		return false;
	record_known(passing, &found);
	return true;
}

/* Returns whether it was wanted. Where no header is looked at nothing is called, and what is known of the packet stays in
 * registers: that is why the other ways have a copy.
 */
static __always_inline bool record_packet(struct passing *passing)
{
	struct headers none = {};

	if (cfg_own_ethertype && !passing->judged && passing->ethertype == cfg_own_ethertype)
		return false;
	if (passing->named || ((cfg_by_headers || cfg_rules_headers) && !passing->judged)) {
		struct passing headed = *passing;
		bool wanted = record_headed(&headed);

		passing->time_ns = headed.time_ns;
		passing->flow = headed.flow;
		passing->payload = headed.payload;
		passing->seq = headed.seq;
		passing->ring = headed.ring;
		return wanted;
	}
	if (cfg_own && !passing->judged && own_packet(passing->network))
		return false;
	begin_packet(passing, &none);
	passing->ring = packet_ring(passing, &none, &no_key);
	if (passing->ring)
		write_packet(passing, &none);
	return true;
}

/* The same in a hook that the running thread is known in: it is told of after what is wanted, with the time of that. */
static __always_inline bool record_here(struct passing *passing)
{
	passing->tid = current_tid();
	if (!record_packet(passing))
		return false;
	if (passing->ring)
		know_thread(passing->tid, passing->time_ns, passing->ring);
	return true;
}
