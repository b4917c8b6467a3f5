// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* CPU cost: what the CPUs' hardware counters count in each part; nothing of it runs where cfg_pmu is 0. */
#pragma once

#include "groups.h"

EXPORT_ENUM(hop_pmu_counter);

const volatile u32 cfg_pmu = 0; /* bit N: counter N of enum hop_pmu_counter is read */

/* User space opens the events, one a CPU and counter. */
struct {
	MAP_UINT(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	MAP_UINT(max_entries, 1); /* CPUs x counters, set before load */
	MAP_TYPE(key, u32);
	MAP_TYPE(value, u32);
} pmu SEC(".maps");

struct {
	MAP_UINT(type, BPF_MAP_TYPE_ARRAY);
	MAP_UINT(map_flags, BPF_F_MMAPABLE);
	MAP_UINT(max_entries, 1); /* CPUs x groups, set before load */
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct hop_pmu_row);
} pmu_rows SEC(".maps");

struct pmu_now {
	u64 last[HOP_PMU_COUNTERS];   /* as read when the interval began */
	u64 polled[HOP_PMU_COUNTERS]; /* of the softirq, as cpu_now.polled_ns */
};

struct {
	MAP_UINT(type, BPF_MAP_TYPE_ARRAY);
	MAP_UINT(max_entries, 1); /* CPUs, set before load */
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct pmu_now);
} pmu_nows SEC(".maps");

INLINE struct pmu_now *this_pmu(void)
{
	u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&pmu_nows, &cpu);
}

/* What a counter has counted in the interval that ends now. An interrupt may come in between and close it first, as in
 * charge(). A counter that is not there, or not yet, counts nothing.
 */
INLINE u64 counted_since(u32 counter, u64 *last)
{
	u64 index = bpf_get_smp_processor_id() * HOP_PMU_COUNTERS + counter, from, now;

	if (!(cfg_pmu & 1 << counter))
		return 0;
	for (u32 attempt = 0; attempt < 4; attempt++) {
		from = *(volatile u64 *)last;
		now = bpf_perf_event_read(&pmu, index);
		if ((s64)now < 0) /* an error */
			return 0;
		if (*(volatile u64 *)last == from) {
			*(volatile u64 *)last = now;
			return now - from;
		}
	}
	return 0;
}

INLINE void add_counted(u64 *to, const u64 *counted)
{
	for (u32 counter = 0; counter < HOP_PMU_COUNTERS; counter++)
		to[counter] += counted[counter];
}

INLINE void add_counted_to(u32 part, u32 group, const u64 *counted)
{
	u32 index = bpf_get_smp_processor_id() * cfg_groups + group, first = part * HOP_PMU_COUNTERS;
	struct hop_pmu_row *row = bpf_map_lookup_elem(&pmu_rows, &index);

	opaque(first);
	if (row && first <= (HOP_CPU_PARTS - 1) * HOP_PMU_COUNTERS)
		add_counted(&row->counted[first], counted);
}

INLINE void forget_counted(u64 *counted)
{
	for (u32 counter = 0; counter < HOP_PMU_COUNTERS; counter++)
		counted[counter] = 0;
}
