// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Recording: what keeps a packet that has come to this host before its core takes it: GRO, and a softirq that does not run. */
#pragma once

#include "record/passes.h"
#include "record/work.h"

/* ---- GRO ---- */

static __always_inline struct gro_entry *gro_entry(u64 skb)
{
	u32 index = (skb >> 6) * 0x9e3779b97f4a7c15ULL >> 40;

	barrier_var(index);
	return &gro_entries[index & (GRO_ENTRIES - 1)];
}

static __always_inline int gro_takes(struct sk_buff *skb)
{
	u64 time_ns = arrived(skb, HOP_POINT_RX_DRIVER, true);
	struct gro_entry *entry = gro_entry(number_of((u64)skb));

	if (!time_ns)
		return 0;
	entry->skb = (u64)skb;
	entry->time_ns = time_ns;
	entry->cpu = bpf_get_smp_processor_id();
	return 0;
}

/* A packet of the same address that GRO had may have been merged into another one. */
static __always_inline int passes_gro(struct sk_buff *skb)
{
	struct gro_entry *entry = gro_entry(number_of((u64)skb));

	if (entry->skb == (u64)skb)
		entry->skb = 0;
	arrived(skb, HOP_POINT_RX_DRIVER, true);
	return 0;
}

/* What another CPU has got was in its backlog, too. */
static __always_inline int core_takes(struct sk_buff *skb)
{
	u64 time_ns = arrived(skb, HOP_POINT_RX_CORE, false);
	struct hop_work event = {.point = HOP_POINT_GRO_HOLD, .subject = (u64)skb};
	struct gro_entry *entry = gro_entry(number_of((u64)skb));
	u32 ring;

	if (!time_ns || entry->skb != (u64)skb)
		return 0;
	entry->skb = 0;
	event.value = time_ns - entry->time_ns;
	if (event.value < HOP_WAIT_NS || entry->cpu != bpf_get_smp_processor_id())
		return 0;
	if (skb->dev)
		work_at_device(&event, skb->dev);
	event.tid = current_tid();
	event.time_ns = time_ns;
	ring = write_work(&event, skb->dev);
	if (ring)
		thread_is_kept(event.tid, event.time_ns, ring);
	return 0;
}

/* ---- the receive softirq ---- */

#define NET_RX_SOFTIRQ 3

static __always_inline struct pending *pending_here(void)
{
	u32 index = bpf_get_smp_processor_id();

	barrier_var(index);
	return &pending[index & (HOP_CPUS - 1)];
}

static __always_inline void pending_since(struct pending *here, u64 now_ns)
{
	here->since_ns = now_ns;
	here->others_ns = 0;
	here->longest_ns = 0;
}

static __always_inline int receive_raised(u32 vector)
{
	struct pending *here = pending_here();

	if (vector == NET_RX_SOFTIRQ && !here->since_ns)
		pending_since(here, bpf_ktime_get_ns());
	return 0;
}

static __always_inline int receive_waited(const struct pending *here, u64 since_ns, u64 wait_ns)
{
	struct turns *all = bpf_map_lookup_elem(&turns, &(u32){0});

	/* The thread that has the CPU has not left it: so far is one turn, the rest another one. Without the
	 * scheduler's events, who had the CPU before is not known.
	 */
	if (all && all->begin_ns) {
		struct turn *turn = end_turn(all, current_tid(), current_pid());

		bpf_probe_read_kernel(turn->comm, sizeof(turn->comm), &current_task()->comm);
		tell_turns(all, since_ns, 0);
	}
	struct hop_work event = {
		.point = HOP_POINT_SOFTIRQ_WAIT,
		.subject = NET_RX_SOFTIRQ,
		.value = wait_ns,
		.extra = here->others_ns > wait_ns / 2 ? here->longest + 1 : 0,
	};
	return record_work(&event);
}

static __always_inline int softirq_begins(u32 vector)
{
	struct pending *here = pending_here();
	u64 since_ns = here->since_ns, now_ns;

	if (vector == NET_RX_SOFTIRQ && !since_ns)
		return 0;
	now_ns = bpf_ktime_get_ns();
	if (vector != NET_RX_SOFTIRQ) {
		here->begin_ns = now_ns;
		return 0;
	}
	here->since_ns = 0;
	if (now_ns - since_ns < HOP_WAIT_NS)
		return 0;
	return receive_waited(here, since_ns, now_ns - since_ns);
}

/* While the receive softirq runs, it does what it is raised for; what is left then is pending from its end on. */
static __always_inline int softirq_ends(u32 vector)
{
	struct pending *here = pending_here();
	u64 now_ns, took_ns, begin_ns;

	if (!here->since_ns)
		return 0;
	now_ns = bpf_ktime_get_ns();
	if (vector == NET_RX_SOFTIRQ) {
		pending_since(here, now_ns);
		return 0;
	}
	begin_ns = here->begin_ns > here->since_ns ? here->begin_ns : here->since_ns;
	took_ns = now_ns - begin_ns;
	here->others_ns += took_ns;
	if (took_ns >= here->longest_ns) {
		here->longest_ns = took_ns;
		here->longest = vector;
	}
	return 0;
}
