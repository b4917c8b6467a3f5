// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* CPU cost: stacks, at the clock. */
#pragma once

#include "cpu/state.h"

/* The clock's interrupt is a hard interrupt itself: what it interrupted counts. */
static __always_inline int sample_stack(void *ctx)
{
	struct cpu_now *cpu = this_cpu();
	u32 part = cpu->softirq ? cpu->softirq - 1 : cpu->task.part;
	u32 index = bpf_get_smp_processor_id();
	struct hop_cpu_counters *counter;
	struct hop_cpu_sample *sample;
	void *ring;

	if (!part)
		return 0;
	counter = count();
	ring = bpf_map_lookup_elem(&rings, &index);
	if (!counter || !ring)
		return 0;
	sample = bpf_ringbuf_reserve(ring, sizeof(*sample), 0);
	if (!sample) {
		counter->lost++;
		return 0;
	}
	counter->samples++;
	sample->time_ns = bpf_ktime_get_ns();
	sample->pid = bpf_get_current_pid_tgid() >> 32;
	sample->part = part;
	sample->group = cpu->softirq ? cpu->softirq_group : cpu->task.group;
	sample->pad = 0;
	sample->len_bytes = bpf_get_stack(ctx, sample->frames, sizeof(sample->frames), 0);
	bpf_ringbuf_submit(sample, BPF_RB_NO_WAKEUP);
	return 0;
}
