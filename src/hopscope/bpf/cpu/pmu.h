// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* CPU cost: what the CPUs' hardware counters count in each part; nothing of it runs where cfg_pmu is 0. */
#pragma once

#include "common/groups.h"
#include "cpu/maps.h"

EXPORT_ENUM(hop_pmu_counter);

const volatile u32 cfg_pmu = 0; /* bit N: counter N of enum hop_pmu_counter is read */

static __always_inline struct pmu_now *this_pmu(void)
{
	u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&pmu_nows, &cpu);
}

/* What a counter has counted in the interval that ends now. An interrupt may come in between and close it first, as in
 * charge(). A counter that is not there, or not yet, counts nothing.
 */
static __always_inline u64 counted_since(u32 counter, u64 *last)
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

static __always_inline void add_counted(u64 *to, const u64 *counted)
{
	for (u32 counter = 0; counter < HOP_PMU_COUNTERS; counter++)
		to[counter] += counted[counter];
}

static __always_inline void add_counted_to(u32 part, u32 group, const u64 *counted)
{
	u32 index = bpf_get_smp_processor_id() * cfg_groups + group, first = part * HOP_PMU_COUNTERS;
	struct hop_pmu_row *row = bpf_map_lookup_elem(&pmu_rows, &index);

	barrier_var(first);
	if (row && first <= (HOP_CPU_PARTS - 1) * HOP_PMU_COUNTERS)
		add_counted(&row->counted[first], counted);
}

static __always_inline void forget_counted(u64 *counted)
{
	for (u32 counter = 0; counter < HOP_PMU_COUNTERS; counter++)
		counted[counter] = 0;
}
