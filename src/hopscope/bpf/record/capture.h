// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Recording: the first bytes of packets, in rings of their own, as a device has them. */
#pragma once

#include "record/packet.h"

const volatile u32 cfg_snap = 0; /* bytes of each packet; 0: none */

/* No header of that kind. */
#define UNSET 0xffff

/* From `start` on; what is in pages (a large packet's payload) is not captured. */
static __always_inline void capture(struct sk_buff *skb, const struct passing *passing, u64 start)
{
	u32 cpu = bpf_get_smp_processor_id(), linear;
	void *ring = bpf_map_lookup_elem(&captures, &cpu);
	struct hop_capture *record;

	record = ring ? bpf_ringbuf_reserve(ring, sizeof(*record) + cfg_snap, 0) : NULL;
	if (!record) {
		barrier_var(cpu);
		atomic_add(&record_counters[cpu & (HOP_CPUS - 1)].captures_lost, 1);
		return;
	}
	linear = passing->head + skb->tail - start;
	if (linear > cfg_snap)
		linear = cfg_snap;
	record->time_ns = passing->time_ns;
	record->skb = passing->skb;
	record->ifindex = passing->ifindex;
	record->netns = passing->netns;
	record->len_bytes = passing->len_bytes + (u32)(passing->data - start);
	record->captured_bytes = linear;
	record->point = passing->point;
	record->pad = 0;
	bpf_probe_read_kernel(record + 1, linear, (void *)start);
	submit(record);
}

static __always_inline u64 frame_start(struct sk_buff *skb, const struct passing *passing)
{
	u16 mac = skb->mac_header;

	return mac == UNSET ? passing->data : passing->head + mac;
}
