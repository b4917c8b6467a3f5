// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* For the tests: ask conditions about given events. */
#include "common/rules.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define EVENTS 4096

struct event {
	struct hop_packet record; /* or another of its size */
	struct flow_key flow;
	struct hop_beside beside;
	u32 rule;
	u32 unused;
};

u32 used;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, EVENTS);
	__type(key, u32);
	__type(value, struct event);
} events SEC(".maps");

/* Not static, so that the verifier looks at it once. */
__noinline int judge(u32 index)
{
	struct event *event = bpf_map_lookup_elem(&events, &index);

	if (event)
		event->rule = rules(&event->record, &event->flow, &event->beside);
	return 0;
}

SEC("raw_tp/sys_enter")
int judge_all(void *ctx)
{
	for (u32 i = 0; i < EVENTS && i < used; i++)
		judge(i);
	return 0;
}
