// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What a collector hands to user space: a histogram a hop, group and CPU, and counters a CPU.
 *
 * Before it is included, the collector defines SERIES_HOPS, SERIES_DISCARDS and SERIES_BACKWARDS as its enums have them,
 * COUNTERS as groups.h says, with the member `discarded`, and SERIES_SHARED(hop): whether a row of the hop can be written
 * by two programs at once on a CPU.
 */
#pragma once

#include "common/groups.h"
#include "common/hist.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* CPUs x hops x groups, set before load */
	__type(key, u32);
	__type(value, struct hop_hist_row);
} histograms SEC(".maps");

EXPORT_ENUM(hop_hist);

/* Not inlined: discards are rare, and the code of the hooks stays short. */
__noinline int discard_many(u32 hop, u32 reason, u32 times)
{
	struct COUNTERS *counter = count();
	u32 index = hop * SERIES_DISCARDS + reason;

	if (counter && index < SERIES_HOPS * SERIES_DISCARDS)
		atomic_add(&counter->discarded[index], times);
	return 0;
}

static __always_inline int discard(u32 hop, u32 reason)
{
	return discard_many(hop, reason, 1);
}

/* Add the interval to the histogram of the hop and group. A function of its own, so that the verifier looks at it once. */
__noinline int record(u32 hop, u32 group, u64 from_ns, u64 to_ns)
{
	struct hop_hist_row *row;
	u32 index;

	if (unlikely(to_ns < from_ns))
		return discard(hop, SERIES_BACKWARDS);
	index = (bpf_get_smp_processor_id() * SERIES_HOPS + hop) * cfg_groups + group;
	row = bpf_map_lookup_elem(&histograms, &index);
	if (row)
		hist_add(row, to_ns - from_ns, SERIES_SHARED(hop));
	return 0;
}
