// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* CPU cost: the maps, and what is in them. */
#pragma once

#include "common/events.h"

/* The account. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* CPUs x groups, set before load */
	__type(key, u32);
	__type(value, struct hop_cpu_row);
} rows SEC(".maps");

/* What a thread does. */
struct task_part {
	u32 part;
	u32 group;
	u32 outer;            /* the part that busy polling interrupts */
	u32 softirq;          /* part + 1 of the softirq that runs in it and can be preempted (PREEMPT_RT) */
	u32 calls;            /* socket calls that are open, one in the other */
	bool counts_messages; /* the call returns messages, not bytes */
	u8 pad[3];
	u64 undecided_ns; /* of a call that may turn out to be networking */
	u64 undecided_counted[HOP_PMU_COUNTERS];
};

/* Threads that left their CPU in mid-call, by thread id; one that has been here once keeps its place until it exits. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, HOP_TASKS);
	__type(key, u32);
	__type(value, struct task_part);
} tasks SEC(".maps");

/* Interrupts of network devices, by number; user space fills it. The group is that of the device. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1); /* set before load */
	__type(key, u32);
	__type(value, struct hop_group);
} network_irqs SEC(".maps");

/* Functions of the network's timers, tasklets and work items, by address; user space fills it. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, HOP_CALLBACKS);
	__type(key, u64);
	__type(value, u8);
} callbacks SEC(".maps");

/* ---- hardware counters ---- */

/* User space opens the events, one a CPU and counter. */
struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(max_entries, 1); /* CPUs x counters, set before load */
	__type(key, u32);
	__type(value, u32);
} pmu SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* CPUs x groups, set before load */
	__type(key, u32);
	__type(value, struct hop_pmu_row);
} pmu_rows SEC(".maps");

struct pmu_now {
	u64 last[HOP_PMU_COUNTERS];   /* as read when the interval began */
	u64 polled[HOP_PMU_COUNTERS]; /* of the softirq, as cpu_now.polled_ns */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* CPUs, set before load */
	__type(key, u32);
	__type(value, struct pmu_now);
} pmu_nows SEC(".maps");
