// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* CPU cost: what each CPU does for networking at the moment, and the account of it.
 *
 * A CPU is in a hard interrupt, else in a softirq, else in its task; the innermost says which part the time belongs to, so
 * that nested work is charged once. Each hook closes the interval that ends there and opens the next. A thread takes its
 * part along when it leaves its CPU.
 */
#pragma once

#define COUNTERS hop_cpu_counters

#include "cpu/pmu.h"
#include "common/groups.h"
#include "common/ring.h"
#include "common/task.h"

EXPORT_ENUM(hop_cpu_part);
EXPORT_ENUM(hop_cpu_limits);
struct hop_cpu_sample *exported_cpu_sample;

bool uring_watched; /* by user space: socket calls of io_uring are seen, as all others are */

static __always_inline void uring_runs(void)
{
	struct hop_cpu_counters *counter = uring_watched ? NULL : count();

	if (counter)
		counter->uring++;
}

enum task_kind { KIND_OTHER, KIND_KSOFTIRQD, KIND_NAPI_THREAD, KIND_IO_WORKER };

struct cpu_now {
	u64 since_ns; /* the interval began */
	u32 part;     /* that it belongs to */
	u32 group;
	u32 irq;     /* part + 1 of the hard interrupt; 0: none */
	u32 softirq; /* part + 1 of the softirq; 0: none */
	u32 kind;    /* of the running thread */
	u32 irq_group;
	u32 softirq_group;
	u32 pid;       /* the running thread */
	u64 polled_ns; /* of the softirq, whose device is known when the poll ends */
	struct task_part task;
} __attribute__((aligned(128)));

struct cpu_now cpus_now[HOP_CPUS];

static __always_inline struct cpu_now *this_cpu(void)
{
	u32 cpu = bpf_get_smp_processor_id();

	barrier_var(cpu);
	return &cpus_now[cpu & (HOP_CPUS - 1)];
}

static __always_inline struct hop_cpu_row *row_of(u32 group)
{
	u32 index = bpf_get_smp_processor_id() * cfg_groups + group;

	return bpf_map_lookup_elem(&rows, &index);
}

/* An index that the verifier can bound. */
static __always_inline u32 bounded(u32 part)
{
	barrier_var(part);
	return part < HOP_CPU_PARTS ? part : 0;
}

static __always_inline void add_ns(u32 part, u32 group, u64 ns)
{
	struct hop_cpu_row *row = row_of(group);

	if (row)
		row->ns[bounded(part)] += ns;
}

static __always_inline void count_run(u32 part, u32 group)
{
	struct hop_cpu_row *row = row_of(group);

	if (row)
		row->runs[bounded(part)]++;
}

static __always_inline bool waits_for_poll(struct cpu_now *cpu)
{
	return cfg_group_by == HOP_GROUP_INTERFACE && cpu->softirq && !cpu->irq;
}

static __always_inline void charge_counted(struct cpu_now *cpu)
{
	struct pmu_now *now = this_pmu();
	u64 counted[HOP_PMU_COUNTERS];

	if (!now)
		return;
	for (u32 counter = 0; counter < HOP_PMU_COUNTERS; counter++)
		counted[counter] = counted_since(counter, &now->last[counter]);
	if (cpu->part == HOP_CPU_NOTHING)
		return;
	if (cpu->part == HOP_CPU_UNDECIDED)
		add_counted(cpu->task.undecided_counted, counted);
	else if (waits_for_poll(cpu))
		add_counted(now->polled, counted);
	else
		add_counted_to(cpu->part, cpu->group, counted);
}

/* Close the interval that ends now. An interrupt may come in between, run hooks of its own, and close it first: then it has
 * moved `since_ns`.
 */
static __noinline void charge(struct cpu_now *cpu)
{
	u64 from_ns, now_ns, ns = 0;

	for (u32 attempt = 0; attempt < 4; attempt++) {
		from_ns = *(volatile u64 *)&cpu->since_ns;
		now_ns = bpf_ktime_get_ns();
		if (*(volatile u64 *)&cpu->since_ns == from_ns) {
			*(volatile u64 *)&cpu->since_ns = now_ns;
			ns = now_ns - from_ns;
			break;
		}
	}
	if (cfg_pmu)
		charge_counted(cpu);
	if (cpu->part == HOP_CPU_NOTHING)
		return;
	if (cpu->part == HOP_CPU_UNDECIDED)
		cpu->task.undecided_ns += ns;
	else if (waits_for_poll(cpu))
		cpu->polled_ns += ns;
	else
		add_ns(cpu->part, cpu->group, ns);
}

/* In one store: of two, an interrupt in between would charge the one's time to the group of the other. */
static __always_inline void set_now(struct cpu_now *cpu, u32 part, u32 group)
{
	*(volatile u64 *)&cpu->part = part | (u64)group << 32;
}

/* Open the next interval, with what is innermost now. */
static __always_inline void resume(struct cpu_now *cpu)
{
	if (cpu->irq)
		set_now(cpu, cpu->irq - 1, cpu->irq_group);
	else if (cpu->softirq)
		set_now(cpu, cpu->softirq - 1, cpu->softirq_group);
	else
		set_now(cpu, cpu->task.part, cpu->task.group);
}

/* The softirq's time since the last poll. */
static __always_inline void settle_poll(struct cpu_now *cpu, u32 group)
{
	struct pmu_now *now;

	if (cfg_group_by != HOP_GROUP_INTERFACE || !cpu->softirq)
		return;
	add_ns(cpu->softirq - 1, group, cpu->polled_ns);
	cpu->polled_ns = 0;
	now = cfg_pmu ? this_pmu() : NULL;
	if (now) {
		add_counted_to(cpu->softirq - 1, group, now->polled);
		forget_counted(now->polled);
	}
}

/* The time that is not decided on has been charged, or is nothing. */
static __always_inline void forget_undecided(struct cpu_now *cpu)
{
	cpu->task.undecided_ns = 0;
	if (cfg_pmu)
		forget_counted(cpu->task.undecided_counted);
}

/* The group that the running process belongs to. */
static __always_inline u32 task_group(void)
{
	if (cfg_group_by == HOP_GROUP_PROCESS)
		return group_find(current_pid(), 0, &current_task()->comm);
	if (cfg_group_by == HOP_GROUP_CGROUP)
		return group_find(bpf_get_current_cgroup_id(), 0, NULL);
	return 0;
}
