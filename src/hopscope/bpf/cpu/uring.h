// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* CPU cost: socket calls of io_uring, where those of others are found by their system calls.
 *
 * Its hooks run for every packet that is sent and received: user space attaches them when io_uring is in use.
 */
#pragma once

#include "cpu/calls.h"

/* Run by user space before it looks at anything: does any thread use io_uring? It writes a byte for each that does. */
static __always_inline int uring_used(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	u8 found = 1;

	if (task && task->io_uring)
		bpf_seq_write(ctx->meta->seq, &found, sizeof(found));
	return 0;
}

/* io_uring runs socket calls in its own system call, in its workers, and on the way back to user space. The end of each is
 * seen; what the thread did since it came, or since the request before, was this call.
 */
static __always_inline void uring_call_ends(struct cpu_now *cpu, u32 part, s32 len_bytes)
{
	struct hop_cpu_row *row;

	if (cpu->kind == KIND_IO_WORKER) {
		part = HOP_CPU_IO_URING;
		cpu->task.group = task_group();
	}
	charge(cpu);
	decide(cpu, part, cpu->task.group);
	row = row_of(cpu->task.group);
	if (row) {
		row->runs[bounded(part)]++;
		if (len_bytes > 0)
			row->bytes[bounded(part)] += len_bytes;
	}
}

static __always_inline int socket_call_ends(struct sock *sk, s32 result, u32 part)
{
	struct cpu_now *cpu = cpu_with_thread();
	struct hop_cpu_counters *counter;

	if (likely(cpu->task.part != HOP_CPU_UNDECIDED && cpu->task.part))
		return 0;
	if (cpu->softirq || cpu->irq || !family_moves_packets(sk->__sk_common.skc_family))
		return 0;
	if (cpu->task.part == HOP_CPU_UNDECIDED) {
		uring_call_ends(cpu, part, result);
	} else if (BPF_CORE_READ(current_task(), io_uring)) {
		/* Without io_uring it began before we were attached, or is the kernel's own. */
		counter = count();
		if (counter)
			counter->unseen++;
	}
	return 0;
}

/* The next request begins. */
static __always_inline int uring_turns(void)
{
	struct cpu_now *cpu = cpu_with_thread();

	if (cpu->task.part != HOP_CPU_UNDECIDED || cpu->softirq || cpu->irq)
		return 0;
	charge(cpu);
	forget_undecided(cpu);
	return 0;
}
