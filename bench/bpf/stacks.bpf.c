// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Stack samples on their way to user space: by a ring, and by a mapped array with two halves. Each program is driven by
 * the clock of each CPU.
 */
#include "common/ring.h"

#define FRAMES 124
#define CPUS 1024 /* a power of two */

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct bench_sample {
	u64 time_ns;
	u64 words[2];
	s64 len_bytes;
	u64 frames[FRAMES];
};

struct bench_cpu {
	u32 used[2]; /* slots of each half */
	u64 taken;
	u64 lost;
} __attribute__((aligned(64)));

const volatile u32 cfg_slots = 1; /* of a half */

u32 half; /* that is written to; user space flips it */
struct bench_cpu cpus[CPUS];
/* The compiler describes only what a global refers to. */
struct bench_sample *exported_sample;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* CPUs x halves x slots, set before load */
	__type(key, u32);
	__type(value, struct bench_sample);
} slots SEC(".maps");

static __always_inline struct bench_cpu *this_cpu(u32 index)
{
	barrier_var(index);
	return &cpus[index & (CPUS - 1)];
}

static __always_inline void fill(struct bench_sample *sample, void *ctx)
{
	sample->time_ns = bpf_ktime_get_ns();
	sample->words[0] = sample->words[1] = 0;
	sample->len_bytes = bpf_get_stack(ctx, sample->frames, sizeof(sample->frames), 0);
}

SEC("perf_event")
int stack_empty(void *ctx)
{
	return 0;
}

SEC("perf_event")
int stack_ring(void *ctx)
{
	u32 index = bpf_get_smp_processor_id();
	void *ring = bpf_map_lookup_elem(&rings, &index);
	struct bench_cpu *cpu = this_cpu(index);
	struct bench_sample *sample;

	if (!ring)
		return 0;
	sample = bpf_ringbuf_reserve(ring, sizeof(*sample), 0);
	if (!sample) {
		cpu->lost++;
		return 0;
	}
	fill(sample, ctx);
	cpu->taken++;
	bpf_ringbuf_submit(sample, BPF_RB_NO_WAKEUP);
	return 0;
}

SEC("perf_event")
int stack_halves(void *ctx)
{
	u32 index = bpf_get_smp_processor_id(), which = *(volatile u32 *)&half & 1, slot;
	struct bench_cpu *cpu = this_cpu(index);
	struct bench_sample *sample;
	u32 used;

	barrier_var(which);
	used = *(volatile u32 *)&cpu->used[which & 1];
	slot = (index * 2 + which) * cfg_slots + used;
	sample = used < cfg_slots ? bpf_map_lookup_elem(&slots, &slot) : NULL;
	if (!sample) {
		cpu->lost++;
		return 0;
	}
	fill(sample, ctx);
	cpu->taken++;
	*(volatile u32 *)&cpu->used[which & 1] = used + 1;
	return 0;
}
