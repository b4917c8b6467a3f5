// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Recording: the first bytes of packets, in rings of their own: of frames as a device has them, and of payloads. */
#pragma once

#include "record/packet.h"

const volatile u32 cfg_snap = 0;    /* bytes of each packet; 0: none */
const volatile u32 cfg_capture = 0; /* room for bytes in each slot: as many as are captured of frames or payloads */

const volatile bool cfg_from_pages = 0; /* this kernel lets programs of tracepoints read there */

/* No header of that kind. */
#define UNSET 0xffff

static __always_inline struct hop_capture *capture_begins(const struct passing *passing)
{
	u32 cpu = bpf_get_smp_processor_id();
	void *ring = bpf_map_lookup_elem(&captures, &cpu);
	struct hop_capture *record;

	record = ring ? bpf_ringbuf_reserve(ring, sizeof(*record) + cfg_capture, 0) : NULL;
	if (!record) {
		barrier_var(cpu);
		atomic_add(&record_counters[cpu & (HOP_CPUS - 1)].captures_lost, 1);
		return NULL;
	}
	record->time_ns = passing->time_ns;
	record->skb = passing->skb;
	record->flow = passing->flow;
	record->seq = passing->seq;
	record->ifindex = passing->ifindex;
	record->netns = passing->netns;
	record->point = passing->point;
	record->pad = 0;
	return record;
}

/* From `start` on; what is in pages (a large packet's payload) is not captured. */
static __always_inline void capture(struct sk_buff *skb, const struct passing *passing, u64 start)
{
	struct hop_capture *record = capture_begins(passing);
	u32 linear;

	if (!record)
		return;
	linear = passing->head + skb->tail - start;
	if (linear > cfg_snap)
		linear = cfg_snap;
	record->len_bytes = passing->len_bytes + (u32)(passing->data - start);
	record->captured_bytes = linear;
	record->is_payload = false;
	bpf_probe_read_kernel(record + 1, linear, (void *)start);
	submit(record);
}

/* A frame may be longer than what it carries; what is larger than IP's header can say has 0 in it. */
static __always_inline u64 carried_end(const struct passing *passing)
{
	u64 end = passing->end, said;
	u16 words[3];

	if (bpf_probe_read_kernel(words, sizeof(words), (void *)passing->network))
		return end;
	if ((*(u8 *)words >> 4) == 4)
		said = words[1] ? passing->network + bpf_ntohs(words[1]) : end;
	else
		said = words[2] ? passing->network + sizeof(struct ip6_header) + bpf_ntohs(words[2]) : end;
	return said < end ? said : end;
}

/* Wherever they are, if the kernel finds them for us; else what is not in pages. */
static __always_inline void capture_payload(struct sk_buff *skb, const struct passing *passing)
{
	u32 offset = passing->payload - passing->data, len_bytes = carried_end(passing) - passing->payload;
	u32 wanted = len_bytes, linear = passing->readable_end - passing->payload;
	struct hop_capture *record;
	struct bpf_dynptr bytes;

	if (!passing->payload || (s32)len_bytes <= 0)
		return;
	record = capture_begins(passing);
	if (!record)
		return;
	if (wanted > cfg_bytes)
		wanted = cfg_bytes;
	record->len_bytes = len_bytes;
	record->is_payload = true;
	if (cfg_from_pages && bpf_dynptr_from_skb) {
		if (bpf_dynptr_from_skb(skb, 0, &bytes) || bpf_dynptr_read(record + 1, wanted, &bytes, offset, 0))
			wanted = 0;
	} else {
		if ((s32)linear < 0)
			linear = 0;
		if (wanted > linear)
			wanted = linear;
		if (wanted > cfg_bytes) /* for the verifier */
			wanted = cfg_bytes;
		if (bpf_probe_read_kernel(record + 1, wanted, (void *)passing->payload))
			wanted = 0;
	}
	record->captured_bytes = wanted;
	submit(record);
}

static __always_inline u64 frame_start(struct sk_buff *skb, const struct passing *passing)
{
	u16 mac = skb->mac_header;

	return mac == UNSET ? passing->data : passing->head + mac;
}
