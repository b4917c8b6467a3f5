// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The groups that results are told apart by, and the counters of a CPU.
 *
 * Before it is included, the collector defines COUNTERS, its struct of counters, with the member `group_overflow`.
 */
#pragma once

#include "common/events.h"

const volatile enum hop_group_by cfg_group_by = 0;
const volatile u32 cfg_groups = 1; /* rows, "other" included */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* CPUs, set before load */
	__type(key, u32);
	__type(value, struct COUNTERS);
} counters SEC(".maps");

static __always_inline struct COUNTERS *count(void)
{
	u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&counters, &cpu);
}

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1); /* set before load */
	__type(key, struct hop_group_key);
	__type(value, u32);
} group_rows SEC(".maps");

/* The same the other way round, for user space. A row is taken by whoever inserts it first. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1); /* set before load */
	__type(key, u32);
	__type(value, struct hop_group);
} groups SEC(".maps");

u32 groups_taken;

/* Take a row for a key that has none. Without atomics that return a value (5.12), which 5.10 lacks. */
static __always_inline u32 group_create(struct hop_group *group)
{
	u32 *known;

	for (u32 attempt = 0; attempt < 8; attempt++) {
		u32 row = groups_taken + 1 + attempt;

		if (row >= cfg_groups)
			return 0;
		if (bpf_map_update_elem(&groups, &row, group, BPF_NOEXIST))
			continue;
		groups_taken = row;
		bpf_map_update_elem(&group_rows, &group->key, &row, BPF_NOEXIST);
		/* Another CPU may have been first: then its row counts, and ours stays empty. */
		known = bpf_map_lookup_elem(&group_rows, &group->key);
		return known ? *known : 0;
	}
	return 0;
}

/* `name`: where it is to be read, if the group has none yet. */
static __always_inline u32 group_row(struct hop_group *group, const void *name)
{
	struct COUNTERS *counter;
	u32 *known = bpf_map_lookup_elem(&group_rows, &group->key);
	u32 row = 0;

	if (known)
		return *known;
	if (name)
		bpf_probe_read_kernel(group->name, sizeof(group->name), name);
	row = group_create(group);
	if (!row) {
		counter = count();
		if (counter)
			atomic_add(&counter->group_overflow, 1);
	}
	return row;
}

static __noinline u32 group_find(u64 id, u32 netns, const void *name)
{
	struct hop_group group = {.key = {.id = id, .netns = netns}};

	return group_row(&group, name);
}
