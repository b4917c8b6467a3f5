// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* For the tests: sort given durations into a histogram as every program does, and say which slot each one got. */
#include "common/hist.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define VALUES 4096

u32 used;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, VALUES);
	__type(key, u32);
	__type(value, u64);
} durations SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, VALUES);
	__type(key, u32);
	__type(value, u64);
} found SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct hop_hist_row);
} rows SEC(".maps");

/* Not static, so that the verifier looks at it once. */
__noinline int sort_one(u32 index)
{
	u64 *duration = bpf_map_lookup_elem(&durations, &index);
	u64 *slot = bpf_map_lookup_elem(&found, &index);
	u32 zero = 0;
	struct hop_hist_row *row = bpf_map_lookup_elem(&rows, &zero);

	if (!duration || !slot || !row)
		return 0;
	*slot = hist_slot(*duration);
	hist_add(row, *duration, index & 1);
	return 0;
}

SEC("syscall")
int sort_all(void *ctx)
{
	for (u32 i = 0; i < VALUES && i < used; i++)
		sort_one(i);
	return 0;
}
