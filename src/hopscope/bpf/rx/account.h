// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Receive latency: what becomes of each packet that enters.
 *
 * A stamp is open from the core on, until it is counted once what became of its packet: dropped, read, in the queue of a TCP
 * socket, whose segments are counted on there, ... The end of most other packets (acknowledgements, ICMP, what is sent on)
 * passes no hook, which would cost all packets: they are counted when their memory carries another packet, or by user
 * space, which looks at the stamps that are open, by the place where they were seen last.
 *
 * With a filter that only a socket can decide, a packet enters where it joins its socket.
 */
#pragma once

#include "common/series.h"
#include "rx/maps.h"

const volatile bool cfg_account = 0;      /* count what becomes of each packet */
const volatile bool cfg_socket_facts = 0; /* only at its socket a packet is known to be wanted */

/* A program can be interrupted by another that counts the same. */
__noinline int end_many(u32 end, u32 times)
{
	struct hop_rx_counters *counter = count();

	if (cfg_account && counter && end < HOP_RX_ENDS)
		atomic_add(&counter->ended[end], times);
	return 0;
}

/* User space reads the ends, then which stamps are open, then how many packets entered. So that what moves meanwhile is
 * missing in its sum, and never in it twice, a packet is counted before its stamp is open, and its stamp is no longer open
 * before its end is counted.
 *
 * A segment joins its socket in the reader's context, too, which a softirq that counts another can interrupt.
 */
static __always_inline void account_entered(struct stamp *stamp)
{
	struct hop_rx_counters *counter;

	if (!cfg_account)
		return;
	counter = count();
	if (!counter)
		return;
	if (cfg_socket_facts)
		atomic_add(&counter->entered, 1);
	else
		counter->entered++;
	barrier();
	stamp->life = HOP_LIFE_OPEN;
}

/* Not by the stage: a packet that was on its way when the hooks were attached reaches a stage, but has never entered. */
static __always_inline bool stamp_is_open(const struct stamp *stamp)
{
	return cfg_account && stamp->life == HOP_LIFE_OPEN;
}

static __always_inline void stamp_end(struct stamp *stamp, u32 end)
{
	if (!stamp_is_open(stamp))
		return;
	stamp->life = HOP_LIFE_ENDED;
	barrier();
	end_many(end, 1);
}

static __always_inline u32 stamp_place(const struct stamp *stamp)
{
	if (stamp->stage == HOP_STAGE_QUEUE)
		return HOP_PLACE_QUEUE;
	if (stamp->way)
		return stamp->way;
	return stamp->stage < HOP_STAGE_L4 ? stamp->stage - HOP_STAGE_DRIVER : HOP_PLACE_UDP;
}

/* Its memory carries another packet, or its slot is to be taken by one with another address. */
static __noinline void stamp_count_lost(struct stamp *stamp, bool slot_taken)
{
	struct hop_rx_counters *counter = count();
	u32 place = stamp_place(stamp);

	stamp->life = HOP_LIFE_ENDED;
	barrier();
	if (slot_taken)
		end_many(HOP_END_SLOT_TAKEN, 1);
	else if (counter && place < HOP_PLACES)
		atomic_add(&counter->gone[place], 1);
}

/* A stamp is about to be forgotten, for that of a packet at this address. */
static __always_inline void stamp_forget(struct stamp *stamp, u64 head)
{
	if (stamp->head && stamp_is_open(stamp))
		stamp_count_lost(stamp, stamp->head != head);
}
