// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Receive latency: from the NIC's own stamp to the driver. */
#pragma once

#include "rx/state.h"

/* In tx_flags of a received packet: in the stamp's place stands a pointer, which only the driver understands (igc). */
#define SKBTX_HW_TSTAMP_NETDEV (1 << 5)

/* The product stays within 64 bits for a day and 1000 ppm; what is cut off is less than a nanosecond. */
static __always_inline u64 nic_monotonic_ns(const struct hop_nic_clock *clock, u64 nic_ns)
{
	s64 since_ns = nic_ns - clock->nic_ns;

	return clock->monotonic_ns + since_ns + ((since_ns >> 10) * clock->drift >> 22);
}

/* The time that the packet took from the NIC; -1, and counted, where it cannot be told. */
static __always_inline s64 nic_spent_ns(const struct hop_nic_clock *clock, u64 head, u32 end, u64 now_ns)
{
	struct skb_shared_info *shared = (void *)(head + end);
	u64 nic_ns = BPF_CORE_READ(shared, hwtstamps.hwtstamp);
	s64 spent_ns;

	if (!nic_ns || BPF_CORE_READ(shared, tx_flags) & SKBTX_HW_TSTAMP_NETDEV) {
		discard(HOP_RX_NIC, HOP_RX_NO_NIC_STAMP);
		return -1;
	}
	spent_ns = now_ns - nic_monotonic_ns(clock, nic_ns);
	if (spent_ns >= 0)
		return spent_ns;
	if (spent_ns + (s64)clock->bound_ns >= 0)
		return 0;
	discard(HOP_RX_NIC, HOP_RX_BACKWARDS);
	return -1;
}

/* The driver hands over a packet that is wanted and stamped. */
static __noinline void nic_pass(struct sk_buff *skb, struct stamp *stamp, u64 head)
{
	struct net_device *dev = skb->dev;
	struct hop_interface interface = {.ifindex = dev->ifindex, .netns = dev->nd_net.net->ns.inum};
	struct hop_nic_clock *clock = bpf_map_lookup_elem(&nic_clocks, &interface);
	s64 spent_ns;

	if (!clock)
		return;
	spent_ns = nic_spent_ns(clock, head, skb->end, stamp->first_ns);
	if (spent_ns < 0)
		return;
	if (cfg_defer) {
		stamp->nic_spent_ns = spent_ns < ~0U ? spent_ns : ~0U;
		stamp->spent = SPENT_NIC;
	} else {
		record(HOP_RX_NIC, stamp->group, 0, spent_ns);
	}
}
