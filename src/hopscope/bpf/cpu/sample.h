// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* CPU cost: stacks, at the clock. */
#pragma once

#include "cpu/state.h"

static __always_inline struct hop_cpu_sample *sample_reserve(struct hop_cpu_counters *counter)
{
	u32 index = bpf_get_smp_processor_id();
	void *ring = bpf_map_lookup_elem(&rings, &index);
	struct hop_cpu_sample *sample;

	if (!ring)
		return NULL;
	sample = bpf_ringbuf_reserve(ring, sizeof(*sample), 0);
	if (!sample)
		counter->lost++;
	return sample;
}

static __always_inline void sample_submit(struct hop_cpu_sample *sample, u32 part, u32 group)
{
	sample->time_ns = bpf_ktime_get_ns();
	sample->pid = bpf_get_current_pid_tgid() >> 32;
	sample->part = part;
	sample->group = group;
	sample->pad = 0;
	bpf_ringbuf_submit(sample, BPF_RB_NO_WAKEUP);
}

/* The clock's interrupt is a hard interrupt itself: what it interrupted counts. */
static __always_inline int sample_stack(void *ctx)
{
	struct cpu_now *cpu = this_cpu();
	u32 part = cpu->softirq ? cpu->softirq - 1 : cpu->task.part;
	struct hop_cpu_counters *counter;
	struct hop_cpu_sample *sample;

	if (!part)
		return 0;
	counter = count();
	sample = counter ? sample_reserve(counter) : NULL;
	if (!sample)
		return 0;
	counter->samples++;
	sample->len_bytes = bpf_get_stack(ctx, sample->frames, sizeof(sample->frames), 0);
	sample_submit(sample, part, cpu->softirq ? cpu->softirq_group : cpu->task.group);
	return 0;
}

/* Where nothing else is attached: whatever the CPU does in the kernel. User space tells the part by the stack. */
static __always_inline int sample_alone(void *ctx)
{
	struct hop_cpu_counters *counter = count();
	struct hop_cpu_sample *sample;

	if (!counter)
		return 0;
	counter->ticks++;
	sample = sample_reserve(counter);
	if (!sample)
		return 0;
	sample->len_bytes = bpf_get_stack(ctx, sample->frames, sizeof(sample->frames), 0);
	if (sample->len_bytes <= 0) { /* in user space */
		bpf_ringbuf_discard(sample, BPF_RB_NO_WAKEUP);
		return 0;
	}
	counter->samples++;
	sample_submit(sample, HOP_CPU_UNDECIDED, cfg_group_by ? task_group() : bpf_get_smp_processor_id());
	return 0;
}
