// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* How often an event is passed, by whom. There is an object for each event; user space attaches one of the programs. */
#define COUNTERS hop_count_counters

#include "common/groups.h"
#include "common/task.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* CPUs x groups, set before load */
	__type(key, u32);
	__type(value, u64);
} passed SEC(".maps");

_Static_assert(sizeof(struct hop_group_key) == sizeof(((struct hop_group *)0)->name), "a name is a key");

static __noinline u32 comm_find(void)
{
	struct hop_group group = {};

	bpf_get_current_comm(group.name, sizeof(group.name));
	__builtin_memcpy(&group.key, group.name, sizeof(group.key));
	return group_row(&group, NULL);
}

static __always_inline u32 row_of_current(void)
{
	switch (cfg_group_by) {
	case HOP_GROUP_COMM:
		return comm_find();
	case HOP_GROUP_PROCESS:
		return group_find(current_pid(), 0, &BPF_CORE_READ(current_task(), group_leader)->comm);
	case HOP_GROUP_THREAD:
		return group_find((u32)bpf_get_current_pid_tgid(), 0, &current_task()->comm);
	case HOP_GROUP_CGROUP:
		return group_find(bpf_get_current_cgroup_id(), 0, NULL);
	default:
		return 0;
	}
}

/* Nothing else runs on this CPU meanwhile that counts the same: the kernel keeps programs of these types apart. Of an event
 * whose program returns 0, perf would see nothing.
 */
static __always_inline int passes(void)
{
	u32 index = bpf_get_smp_processor_id() * cfg_groups + row_of_current();
	u64 *count = bpf_map_lookup_elem(&passed, &index);

	if (count)
		(*count)++;
	return 1;
}

SEC("tracepoint")
int count_tracepoint(void *ctx)
{
	return passes();
}

SEC("kprobe")
int count_function(void *ctx)
{
	return passes();
}
