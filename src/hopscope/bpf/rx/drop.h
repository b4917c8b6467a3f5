// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Receive latency: packets that are dropped, or sent on. */
#pragma once

#include "rx/state.h"

const volatile u32 cfg_drop_arguments = 2; /* that this kernel's kfree_skb has: a third is a reason (since 5.17) */

/* A driver's packet is dropped before the core only where it has just been handed over. Where a packet of the stack came from
 * no device, the stamp is an older one of the same address.
 */
static __always_inline bool drop_is_of(const struct stamp *stamp, struct sk_buff *skb)
{
	if (stamp->life == HOP_LIFE_ENDED || (stamp->skb && stamp->skb != skb_identity(skb)))
		return false;
	if (stamp->stage == HOP_STAGE_DRIVER)
		return !cfg_socket_facts && this_cpu()->handed_over == (u64)skb;
	return skb->skb_iif && stamp_is_open(stamp);
}

static __always_inline int packet_dropped(struct sk_buff *skb, u32 reason)
{
	u64 head = address(skb->head);
	struct stamp *stamp = stamp_slot(head);
	struct hop_rx_counters *counter = count();
	u32 index;

	if (stamp->head != head || !counter || !drop_is_of(stamp, skb))
		return 0;
	if (stamp->stage == HOP_STAGE_DRIVER)
		account_entered(stamp);
	stamp->life = HOP_LIFE_ENDED;
	barrier();
	index = stamp_place(stamp) * HOP_REASONS + (reason < HOP_REASONS ? reason : HOP_REASONS - 1);
	barrier_var(index);
	if (index < HOP_PLACES * HOP_REASONS)
		atomic_add(&counter->dropped[index], 1);
	return 0;
}

/* From here on it may still be dropped. */
static __always_inline int packet_sent_on(u64 head)
{
	struct stamp *stamp = stamp_slot(head);

	if (stamp->head == head && stamp_is_open(stamp))
		stamp->way = HOP_PLACE_FORWARD;
	return 0;
}
