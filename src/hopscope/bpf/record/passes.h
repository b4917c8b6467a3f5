// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Recording: a packet passes a hook, or is dropped. */
#pragma once

#include "record/capture.h"

const volatile u32 cfg_drop_arguments = 2; /* that this kernel's kfree_skb has: a third is a reason (since 5.17) */
const volatile bool cfg_drop_stacks = 0;

/* At a device. */
static __always_inline int passes(struct sk_buff *skb, u32 point, bool named)
{
	struct passing passing = {};

	passing_of(&passing, skb, point);
	if (skb->dev)
		passing_at_device(&passing, skb->dev);
	passing.named = named;
	record_here(&passing);
	return 0;
}

/* From a device: IP's header is where the data begins; its offset is not set yet. Returns when, or 0 if it is not wanted. */
static __always_inline u64 arrived(struct sk_buff *skb, u32 point, bool named)
{
	struct passing passing = {};

	passing_of(&passing, skb, point);
	if (skb->dev)
		passing_at_device(&passing, skb->dev);
	passing.network = passing.data;
	passing.named = named;
	if (!record_here(&passing))
		return 0;
	if (!passing.ring)
		return passing.time_ns;
	if (cfg_snap && point == HOP_POINT_RX_DRIVER)
		capture(skb, &passing, frame_start(skb, &passing));
	if (cfg_bytes && point == HOP_POINT_RX_DRIVER)
		capture_payload(skb, &passing);
	return passing.time_ns;
}

static __always_inline int arrives(struct sk_buff *skb, u32 point)
{
	arrived(skb, point, false);
	return 0;
}

/* At a socket, or anywhere. What local sockets send to each other (AF_UNIX, netlink) has no protocol. */
static __always_inline int elsewhere(struct sk_buff *skb, u32 point, bool named, u32 len_bytes)
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

/* At a cgroup's filter. This kind of program has no helper for the running thread. */
static __noinline int at_filter(struct sk_buff *skb)
{
	struct passing passing = {};

	passing_of(&passing, skb, HOP_POINT_RX_L4);
	if (skb->dev)
		passing_at_device(&passing, skb->dev);
	passing.tid = BPF_CORE_READ(current_task(), pid);
	record_packet(&passing);
	return 0;
}

/* ---- drops ---- */

static __always_inline int dropped(void *ctx, struct sk_buff *skb, u64 location, u32 reason)
{
	struct passing passing = {};
	struct hop_drop *record;
	s32 stack = -1;

	if (!skb->protocol)
		return 0;
	passing_of(&passing, skb, HOP_POINT_SKB_DROP);
	passing_somewhere(&passing, skb->dev);
	passing.named = true;
	passing.reason = reason;
	if (!record_here(&passing) || !passing.ring)
		return 0;
	if (cfg_drop_stacks)
		stack = bpf_get_stackid(ctx, &stacks, 0);
	record = reserve(passing.ring);
	if (!record)
		return 0;
	*record = (struct hop_drop){
		.time_ns = passing.time_ns,
		.point = HOP_POINT_DROP,
		.tid = passing.tid,
		.skb = passing.skb,
		.flow = passing.flow,
		.location = location,
		.reason = reason,
		.stack = stack,
		.ifindex = passing.ifindex,
		.netns = passing.netns,
	};
	submit(record);
	return 0;
}
