// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Recording: a packet's headers, whether it is wanted, and its record. */
#pragma once

#include "pcap.h"
#include "record_state.h"

/* Packets are filtered: what they are wanted for is in their headers, or it is their flow that is wanted. */
const volatile bool cfg_by_headers = 0;
/* Whether a packet is wanted shows in its headers alone. */
#define LOOKED_AT (cfg_by_headers || cfg_own)
/* Packets are wanted whose flow is that of a wanted process's socket. */
const volatile bool cfg_by_process = 0;
const volatile u32 cfg_interfaces = 0;
const volatile struct hop_interface cfg_interface[HOP_FILTERS] = {};

struct headers {
	struct flow_key key;
	u64 flow;
	u64 payload;      /* address */
	u64 readable_end; /* of what is not in pages */
	u32 seq;
	u8 tcp_flags;
};

struct ip4_header {
	u8 version_ihl;
	u8 tos;
	u16 total_bytes;
	u16 id;
	u16 fragment;
	u8 ttl;
	u8 protocol;
	u16 checksum;
	u32 source;
	u32 destination;
};

struct ip6_header {
	u32 version_class_label;
	u16 payload_bytes;
	u8 next_header;
	u8 hop_limit;
	u32 source[4];
	u32 destination[4];
};

struct tcp_header {
	u16 port[2];
	u32 seq;
	u32 ack;
	u8 data_offset;
	u8 flags;
	u16 window;
};

/* No longer than TCP's, of which it is read in the place. */
struct udp_header {
	u16 port[2];
	u16 bytes; /* with the header */
	u16 checksum;
	u32 first[2]; /* of the payload */
};

#define UDP_HEADER_BYTES 8
#define UDP_KEY_SHIFT 16
#define FRAGMENT_OFFSET 0x1fff

/* One read has all of the headers, unless IP's has options: it costs more than anything else here. */
#define FIRST_BYTES (sizeof(struct ip6_header) + sizeof(struct tcp_header))

/* A number of 16 bits for a datagram's first bytes, which routers leave as they are; 0 where they are fewer, or in pages.
 * They stand behind UDP's header, in what has been read already. A frame may be longer than what it carries.
 */
INLINE u32 udp_key(const struct headers *found, const struct udp_header *udp)
{
	u64 key;

	if (__builtin_bswap16(udp->bytes) < sizeof(*udp) || found->payload + sizeof(udp->first) > found->readable_end)
		return 0;
	key = flow_mix(0, (u64)udp->first[0] << 32 | udp->first[1]) >> 48;
	return key ? key : 1;
}

/* TCP's or UDP's header, which is at `l4` in the packet. */
INLINE void parse_l4(struct headers *found, const struct tcp_header *tcp, u64 l4)
{
	found->payload = l4;
	if (found->key.protocol != IPPROTO_TCP && found->key.protocol != IPPROTO_UDP)
		return;
	found->key.ends.port[0] = tcp->port[0];
	found->key.ends.port[1] = tcp->port[1];
	if (found->key.protocol == IPPROTO_UDP) {
		found->payload = l4 + UDP_HEADER_BYTES;
		found->seq |= udp_key(found, (const void *)tcp) << UDP_KEY_SHIFT;
		return;
	}
	found->seq = __builtin_bswap32(tcp->seq);
	found->tcp_flags = tcp->flags;
	found->payload = l4 + (tcp->data_offset >> 4) * 4;
}

INLINE void parse_ip4(struct headers *found, u64 network, const struct ip4_header *ip4)
{
	u64 l4 = network + (ip4->version_ihl & 15) * 4;
	struct tcp_header behind_options = {};

	found->key.ends.address[0][2] = found->key.ends.address[1][2] = __builtin_bswap32(0xffff);
	found->key.ends.address[0][3] = ip4->source;
	found->key.ends.address[1][3] = ip4->destination;
	found->key.protocol = ip4->protocol;
	found->seq = __builtin_bswap16(ip4->id);
	found->payload = l4;
	/* A later fragment has no ports: its flow is that of the addresses. */
	if (__builtin_bswap16(ip4->fragment) & FRAGMENT_OFFSET)
		return;
	if (likely(l4 == network + sizeof(*ip4))) {
		parse_l4(found, (void *)(ip4 + 1), l4);
	} else {
		bpf_probe_read_kernel(&behind_options, sizeof(behind_options), (void *)l4);
		parse_l4(found, &behind_options, l4);
	}
}

#define IPV6_HOP_BY_HOP 0
#define IPV6_ROUTING 43
#define IPV6_FRAGMENT 44
#define IPV6_DESTINATION 60
#define IPV6_FRAGMENT_OFFSET 0xfff8

struct ip6_extension {
	u8 next_header;
	u8 more; /* eight bytes each; of a fragment's header nothing */
	u16 fragment;
	u32 rest;
};

INLINE bool is_extension(u32 next_header)
{
	return next_header == IPV6_HOP_BY_HOP || next_header == IPV6_ROUTING || next_header == IPV6_FRAGMENT ||
	       next_header == IPV6_DESTINATION;
}

/* Behind extension headers, such as TCP's packets above 64 KiB have (hop by hop, "BIG TCP"). */
static __attribute__((noinline)) int parse_extensions(struct headers *found, u64 at)
{
	struct ip6_extension extension = {};
	u32 next_header = found->key.protocol;
	struct tcp_header tcp = {};

	for (u32 i = 0; i < 4 && is_extension(next_header); i++) {
		if (bpf_probe_read_kernel(&extension, sizeof(extension), (void *)at))
			return 0;
		at += next_header == IPV6_FRAGMENT ? 8 : (extension.more + 1) * 8;
		found->key.protocol = extension.next_header;
		found->payload = at;
		/* A later fragment has no ports, as with IPv4. */
		if (next_header == IPV6_FRAGMENT && __builtin_bswap16(extension.fragment) & IPV6_FRAGMENT_OFFSET)
			return 0;
		next_header = extension.next_header;
	}
	bpf_probe_read_kernel(&tcp, sizeof(tcp), (void *)at);
	parse_l4(found, &tcp, at);
	return 0;
}

/* The headers of a packet that begin at `network`; without a flow where it is no IP. */
INLINE bool parse(struct headers *found, u64 network)
{
	u32 bytes[FIRST_BYTES / sizeof(u32)];
	const struct ip4_header *ip4 = (void *)bytes;
	const struct ip6_header *ip6 = (void *)bytes;

	if (bpf_probe_read_kernel(bytes, sizeof(bytes), (void *)network))
		return false;
	if (ip4->version_ihl >> 4 == 4) {
		parse_ip4(found, network, ip4);
	} else if (ip4->version_ihl >> 4 == 6) {
		__builtin_memcpy(found->key.ends.address, ip6->source, 2 * sizeof(ip6->source));
		found->key.protocol = ip6->next_header;
		if (likely(!is_extension(ip6->next_header)))
			parse_l4(found, (void *)(ip6 + 1), network + sizeof(*ip6));
		else
			parse_extensions(found, network + sizeof(*ip6));
	} else {
		return false;
	}
	found->flow = flow_of(&found->key);
	return true;
}

#define IP4_PORTS (sizeof(struct ip4_header) / sizeof(u32))
#define IP6_PORTS (sizeof(struct ip6_header) / sizeof(u32))
#define IP4_PLAIN 0x45 /* without options */

static __attribute__((noinline)) bool own_headers(u64 network)
{
	struct headers found = {};

	parse(&found, network);
	return own_flow(&found.key);
}

/* Whether a packet is of our own, where its headers say nothing else that is needed: ports are enough for almost all. */
static __attribute__((noinline)) bool own_packet(u64 network)
{
	u32 bytes[IP6_PORTS + 1];
	const struct ip4_header *ip4 = (void *)bytes;
	const struct ip6_header *ip6 = (void *)bytes;
	u32 ports;

	if (bpf_probe_read_kernel(bytes, sizeof(bytes), (void *)network))
		return false;
	ports = ip4->version_ihl == IP4_PLAIN ? bytes[IP4_PORTS] : bytes[IP6_PORTS];
	if (likely(!(own_port(ports) | own_port(ports >> 16))) &&
	    (ip4->version_ihl == IP4_PLAIN || (ip4->version_ihl >> 4 == 6 && !is_extension(ip6->next_header))))
		return false;
	return own_headers(network);
}

INLINE bool interface_wanted(u32 ifindex, u32 netns)
{
	for (u32 i = 0; i < HOP_FILTERS && i < cfg_interfaces; i++)
		if (cfg_interface[i].ifindex == ifindex && cfg_interface[i].netns == netns)
			return true;
	return !cfg_interfaces;
}

/* What a hook knows of a packet. */
struct passing {
	u64 time_ns; /* this and the flow are known when it is recorded */
	u64 flow;
	u64 skb;
	u64 head;
	u64 data;         /* where skb->len begins */
	u64 network;      /* where IP's header begins; 0: not looked at, unless a filter needs it */
	u64 readable_end; /* of what is not in pages */
	u64 end;          /* of the packet, if nothing of it was in pages */
	u32 len_bytes;
	u32 ifindex;
	u32 netns;
	u32 tid;
	u8 point;
	bool named;  /* its flow is asked for at this point */
	bool sent;   /* a wanted process sends this datagram right now */
	bool judged; /* it is wanted, as was seen before: there are no headers to look at */
};

INLINE void passing_of(struct passing *passing, struct sk_buff *skb, u32 point)
{
	passing->skb = (u64)skb;
	passing->head = address(skb->head);
	passing->data = address(skb->data);
	passing->network = passing->head + skb->network_header;
	passing->readable_end = passing->head + skb->tail;
	passing->end = passing->data + skb->len;
	passing->len_bytes = skb->len;
	passing->point = point;
}

/* While a packet is at a device. In a socket, and in TCP's queues, something else is in the place of its device. */
INLINE void passing_at_device(struct passing *passing, struct net_device *dev)
{
	passing->ifindex = dev->ifindex;
	passing->netns = dev->nd_net.net->ns.inum;
	know_device(dev, passing->ifindex, passing->netns);
}

/* Wherever it is: what may be a device is one if its queue says that it is the queue's device. */
INLINE void passing_somewhere(struct passing *passing, struct net_device *dev)
{
	struct netdev_queue *queue = probe_field(dev, _tx);

	if (queue && probe_field(queue, dev) == dev)
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
static __attribute__((noinline)) int local_end(struct local_end *end, const struct passing *passing,
					       const struct flow_key *key)
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
INLINE void want_socket(const struct passing *passing, const struct headers *found)
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
INLINE bool place_wanted(const struct passing *passing, const struct headers *found)
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
static __attribute__((noinline)) int want_both_ways(const struct headers *found)
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
INLINE bool owner_wanted(const struct passing *passing, const struct headers *found)
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

INLINE bool headers_wanted(const struct passing *passing, const struct headers *found)
{
	if (cfg_own && own_flow(&found->key))
		return false;
	if (!port_wanted(&found->key.ends) || !address_wanted(&found->key.ends))
		return false;
	if (!pcap_wanted(passing->network, passing->readable_end - passing->network, passing->end - passing->network))
		return false;
	if (cfg_by_process && !owner_wanted(passing, found))
		return false;
	if ((cfg_interfaces || cfg_namespaces) && !place_wanted(passing, found))
		return false;
	if (cfg_sample > 1 && (!found->flow || !flow_sampled(&found->key)))
		return false;
	if (cfg_pcap || cfg_sample > 1)
		want_socket(passing, found);
	return true;
}

INLINE void write_packet(struct passing *passing, const struct headers *found)
{
	struct hop_packet *record;

	passing->time_ns = bpf_ktime_get_ns();
	passing->flow = found->flow;
	record = reserve();
	if (!record)
		return;
	record->time_ns = passing->time_ns;
	record->point = passing->point;
	record->tcp_flags = found->tcp_flags;
	record->header_bytes = found->flow ? found->payload - passing->data : 0;
	record->tid = passing->tid;
	record->skb = passing->skb;
	record->head = passing->head;
	record->flow = found->flow;
	record->len_bytes = passing->len_bytes;
	record->seq = found->seq;
	record->ifindex = passing->ifindex;
	record->netns = passing->netns;
	submit(record);
}

/* Looks at its headers; returns whether it was wanted. */
static __attribute__((noinline)) bool record_headed(struct passing *passing)
{
	struct headers found = {.readable_end = passing->readable_end};

	parse(&found, passing->network);
	if (LOOKED_AT && !passing->judged && !headers_wanted(passing, &found))
		return false;
	if (passing->named && found.flow)
		know_flow(found.flow, &found.key);
	write_packet(passing, &found);
	return true;
}

/* Returns whether it was wanted. Where no header is looked at nothing is called, and what is known of the packet stays in
 * registers: that is why the other way has a copy.
 */
INLINE bool record_packet(struct passing *passing)
{
	if (passing->named || (cfg_by_headers && !passing->judged)) {
		struct passing headed = *passing;
		bool wanted = record_headed(&headed);

		passing->time_ns = headed.time_ns;
		passing->flow = headed.flow;
		return wanted;
	}
	if (cfg_own && !passing->judged && own_packet(passing->network))
		return false;
	write_packet(passing, &(struct headers){});
	return true;
}

/* The same in a hook that the running thread is known in: it is told of after what is wanted, with the time of that. */
INLINE bool record_here(struct passing *passing)
{
	passing->tid = current_tid();
	if (!record_packet(passing))
		return false;
	know_thread(passing->tid, passing->time_ns);
	return true;
}
