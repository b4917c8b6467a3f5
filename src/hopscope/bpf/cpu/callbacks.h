// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* CPU cost: timers, tasklets and work items. They serve the whole kernel: which are the network's, their function says. */
#pragma once

#include "cpu/threads.h"

static __always_inline bool is_network_callback(const void *function)
{
	u64 address = (u64)function;

	return bpf_map_lookup_elem(&callbacks, &address);
}

/* In a softirq that is not networking as a whole. */
static __always_inline int softirq_callback_begins(struct cpu_now *cpu, u32 part)
{
	u32 group = cpu->kind == KIND_KSOFTIRQD ? task_group() : 0;

	charge(cpu);
	count_run(part, group);
	cpu->softirq_group = group;
	cpu->softirq = part + 1;
	resume(cpu);
	return 0;
}

static __always_inline int softirq_callback_ends(struct cpu_now *cpu)
{
	charge(cpu);
	settle_poll(cpu, cpu->softirq_group);
	cpu->softirq_group = 0;
	cpu->softirq = HOP_CPU_NOTHING + 1;
	resume(cpu);
	return 0;
}

/* A timer expires: one of milliseconds in the softirq TIMER, one of high resolution in HRTIMER or in the hard interrupt. What
 * began before we were attached has no softirq or interrupt yet, and is left out.
 */
static __always_inline int timer_begins(const void *function)
{
	struct cpu_now *cpu;

	if (likely(!is_network_callback(function)))
		return 0;
	cpu = cpu_with_thread();
	if (cpu->irq == HOP_CPU_NOTHING + 1) {
		charge(cpu);
		count_run(HOP_CPU_TIMER, 0);
		cpu->irq_group = 0;
		cpu->irq = HOP_CPU_TIMER + 1;
		resume(cpu);
	} else if (!cpu->irq && cpu->softirq == HOP_CPU_NOTHING + 1) {
		softirq_callback_begins(cpu, HOP_CPU_TIMER);
	}
	return 0;
}

static __always_inline int timer_ends(void)
{
	struct cpu_now *cpu = this_cpu();

	if (cpu->irq == HOP_CPU_TIMER + 1) {
		charge(cpu);
		cpu->irq = HOP_CPU_NOTHING + 1;
		resume(cpu);
	} else if (!cpu->irq && cpu->softirq == HOP_CPU_TIMER + 1) {
		softirq_callback_ends(cpu);
	}
	return 0;
}

static __always_inline int network_tasklet_begins(void)
{
	struct cpu_now *cpu = cpu_with_thread();

	if (!cpu->irq && cpu->softirq == HOP_CPU_NOTHING + 1)
		softirq_callback_begins(cpu, HOP_CPU_TASKLET);
	return 0;
}

static __always_inline int tasklet_begins(const void *function)
{
	return is_network_callback(function) ? network_tasklet_begins() : 0;
}

static __always_inline int tasklet_ends(void)
{
	struct cpu_now *cpu = this_cpu();

	if (!cpu->irq && cpu->softirq == HOP_CPU_TASKLET + 1)
		softirq_callback_ends(cpu);
	return 0;
}

/* Work runs in a thread or, since 6.9 (4cb1ef64609f), in the softirq of the tasklets, which it replaces. */
static __always_inline int work_begins(const void *function)
{
	struct cpu_now *cpu;

	if (likely(!is_network_callback(function)))
		return 0;
	cpu = cpu_with_thread();
	if (cpu->irq || cpu->softirq)
		return network_tasklet_begins();
	if (cpu->task.part)
		return 0;
	charge(cpu);
	cpu->task.group = task_group();
	cpu->task.part = HOP_CPU_WORKQUEUE;
	count_run(HOP_CPU_WORKQUEUE, cpu->task.group);
	resume(cpu);
	return 0;
}

static __always_inline int work_ends(void)
{
	struct cpu_now *cpu = cpu_with_thread();

	if (cpu->irq || cpu->softirq)
		return tasklet_ends();
	if (cpu->task.part != HOP_CPU_WORKQUEUE)
		return 0;
	charge(cpu);
	cpu->task.part = HOP_CPU_NOTHING;
	resume(cpu);
	return 0;
}
