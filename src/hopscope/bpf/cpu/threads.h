// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* CPU cost: threads come to a CPU and leave it. */
#pragma once

#include "cpu/state.h"

#define PF_EXITING 0x4
#define PF_IO_WORKER 0x10
#define PF_KTHREAD 0x200000

static __always_inline bool named(u64 comm, u64 mask, u64 name)
{
	return (comm & mask) == name;
}

#define MASK_5 0xffffffffffULL
#define MASK_8 (~0ULL)
/* The first letters, as a number of a machine with the lowest byte first. */
#define NAME_NAPI 0x2f6970616eULL           /* "napi/" */
#define NAME_BACKLOG 0x5f676f6c6b636162ULL  /* "backlog_" */
#define NAME_KSOFTIRQ 0x71726974666f736bULL /* "ksoftirq" */

/* A worker of io_uring does not have its name yet when it first comes to a CPU. A thread that exits is nothing any more, or
 * its place would be taken again after it was given back.
 */
static __always_inline u32 kind_of(u32 flags, u64 comm)
{
	if (likely(!(flags & (PF_IO_WORKER | PF_KTHREAD))) || flags & PF_EXITING)
		return KIND_OTHER;
	if (flags & PF_IO_WORKER)
		return KIND_IO_WORKER;
	if (named(comm, MASK_5, NAME_NAPI) || named(comm, MASK_8, NAME_BACKLOG))
		return KIND_NAPI_THREAD;
	return named(comm, MASK_8, NAME_KSOFTIRQ) ? KIND_KSOFTIRQD : KIND_OTHER;
}

/* The running thread leaves its CPU. */
static __always_inline void depart(struct cpu_now *cpu, u32 pid)
{
	struct hop_cpu_counters *counter;
	struct task_part *left;

	cpu->task.softirq = cpu->softirq;
	if (likely(!cpu->task.part && !cpu->task.softirq && !cpu->task.calls))
		return;
	left = bpf_map_lookup_elem(&tasks, &pid);
	if (left) {
		*left = cpu->task;
	} else if (bpf_map_update_elem(&tasks, &pid, &cpu->task, 0)) {
		counter = count();
		if (counter)
			counter->no_memory++;
	}
}

static __always_inline void arrive(struct cpu_now *cpu, u32 pid, u32 kind)
{
	struct task_part *left = pid ? bpf_map_lookup_elem(&tasks, &pid) : NULL;

	cpu->pid = pid;
	cpu->kind = kind;
	if (left) {
		cpu->task = *left;
		left->part = left->softirq = left->calls = 0;
	} else {
		__builtin_memset(&cpu->task, 0, sizeof(cpu->task));
	}
	if (kind == KIND_NAPI_THREAD)
		cpu->task.part = HOP_CPU_NAPI_THREAD;
	if (kind != KIND_IO_WORKER)
		return;
	uring_runs();
	if (!cpu->task.part)
		cpu->task.part = HOP_CPU_UNDECIDED;
}

static __noinline void arrive_late(struct cpu_now *cpu, u32 pid)
{
	struct task_struct *task = current_task();
	u64 comm = 0;

	bpf_probe_read_kernel(&comm, sizeof(comm), &task->comm);
	charge(cpu);
	arrive(cpu, pid, kind_of(BPF_CORE_READ(task, flags), comm));
	resume(cpu);
}

/* This CPU, with the thread that runs on it: at the start it was there before us, and a kernel may run no program at the
 * switch from a thread that it does not want to be watched.
 */
static __always_inline struct cpu_now *cpu_with_thread(void)
{
	struct cpu_now *cpu = this_cpu();
	u32 pid = bpf_get_current_pid_tgid();

	if (unlikely(cpu->pid != pid))
		arrive_late(cpu, pid);
	return cpu;
}

static __always_inline int thread_switches(struct task_struct *prev, struct task_struct *next)
{
	struct cpu_now *cpu = this_cpu();

	charge(cpu);
	depart(cpu, prev->pid);
	arrive(cpu, next->pid, kind_of(next->flags, *(u64 *)next->comm));
	cpu->softirq = cpu->task.softirq;
	resume(cpu);
	return 0;
}

static __always_inline int thread_exits(struct task_struct *task)
{
	struct cpu_now *cpu = cpu_with_thread();
	u32 pid = task->pid;

	charge(cpu);
	cpu->task.part = cpu->task.calls = 0;
	bpf_map_delete_elem(&tasks, &pid);
	resume(cpu);
	return 0;
}
