// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The headers of a packet, as far as they say whose it is. */
#pragma once

#include "common/own.h"

static __always_inline u64 flow_mix(u64 hash, u64 word)
{
	hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
	return hash ^ hash >> 29;
}

static __always_inline u64 flow_of(const struct flow_key *key)
{
	u64 hash = key->protocol;

	for (u32 end = 0; end < 2; end++) {
		hash = flow_mix(hash, (u64)key->ends.address[end][0] << 32 | key->ends.address[end][1]);
		hash = flow_mix(hash, (u64)key->ends.address[end][2] << 32 | key->ends.address[end][3]);
	}
	hash = flow_mix(hash, (u64)key->ends.port[0] << 16 | key->ends.port[1]);
	return hash ^ hash >> 32;
}

struct headers {
	struct flow_key key;
	u64 flow;
	u64 payload;      /* address */
	u64 readable_end; /* of what is not in pages */
	u32 seq;
	u8 tcp_flags;
	u8 fragment; /* enum fragment */
};

enum fragment {
	NO_FRAGMENT = 0,
	FIRST_FRAGMENT = 1,
	LATER_FRAGMENT = 2, /* has no ports: its flow is that of the addresses */
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
#define MORE_FRAGMENTS 0x2000

/* One read has all of the headers, unless IP's has options: it costs more than anything else here. */
#define FIRST_BYTES (sizeof(struct ip6_header) + sizeof(struct tcp_header))

/* A number of 16 bits for a datagram's first bytes, which routers leave as they are; 0 where they are fewer, or in pages.
 * They stand behind UDP's header, in what has been read already. A frame may be longer than what it carries.
 */
static __always_inline u32 udp_key(const struct headers *found, const struct udp_header *udp)
{
	u64 key;

	if (bpf_ntohs(udp->bytes) < sizeof(*udp) || found->payload + sizeof(udp->first) > found->readable_end)
		return 0;
	key = flow_mix(0, (u64)udp->first[0] << 32 | udp->first[1]) >> 48;
	return key ? key : 1;
}

/* TCP's or UDP's header, which is at `l4` in the packet. */
static __always_inline void parse_l4(struct headers *found, const struct tcp_header *tcp, u64 l4)
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
	found->seq = bpf_ntohl(tcp->seq);
	found->tcp_flags = tcp->flags;
	found->payload = l4 + (tcp->data_offset >> 4) * 4;
}

static __always_inline void parse_ip4(struct headers *found, u64 network, const struct ip4_header *ip4)
{
	u64 l4 = network + (ip4->version_ihl & 15) * 4;
	struct tcp_header behind_options = {};

	found->key.ends.address[0][2] = found->key.ends.address[1][2] = bpf_htonl(0xffff);
	found->key.ends.address[0][3] = ip4->source;
	found->key.ends.address[1][3] = ip4->destination;
	found->key.protocol = ip4->protocol;
	found->seq = bpf_ntohs(ip4->id);
	found->payload = l4;
	if (unlikely(bpf_ntohs(ip4->fragment) & (FRAGMENT_OFFSET | MORE_FRAGMENTS))) {
		found->fragment = bpf_ntohs(ip4->fragment) & FRAGMENT_OFFSET ? LATER_FRAGMENT : FIRST_FRAGMENT;
		if (found->fragment == LATER_FRAGMENT)
			return;
	}
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
	u32 id;
};

static __always_inline bool is_extension(u32 next_header)
{
	return next_header == IPV6_HOP_BY_HOP || next_header == IPV6_ROUTING || next_header == IPV6_FRAGMENT ||
	       next_header == IPV6_DESTINATION;
}

/* Behind extension headers, such as TCP's packets above 64 KiB have (hop by hop, "BIG TCP"). */
static __noinline int parse_extensions(struct headers *found, u64 at)
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
		if (next_header == IPV6_FRAGMENT) {
			found->seq = bpf_ntohl(extension.id) & 0xffff;
			found->fragment = FIRST_FRAGMENT;
			if (bpf_ntohs(extension.fragment) & IPV6_FRAGMENT_OFFSET) {
				found->fragment = LATER_FRAGMENT;
				return 0;
			}
		}
		next_header = extension.next_header;
	}
	bpf_probe_read_kernel(&tcp, sizeof(tcp), (void *)at);
	parse_l4(found, &tcp, at);
	return 0;
}

/* The headers of a packet that begin at `network`; without a flow where it is no IP. */
static __always_inline bool parse(struct headers *found, u64 network)
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

static __noinline bool own_headers(u64 network)
{
	struct headers found = {};

	parse(&found, network);
	return own_flow(&found.key);
}

/* Whether a packet is of our own, where its headers say nothing else that is needed: ports are enough for almost all. */
static __noinline bool own_packet(u64 network)
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
