// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Receive latency: how long the thread that reads was off the CPU while a packet waited for it, and how much of that it
 * wanted to run.
 *
 * Whenever a thread leaves a CPU, it is noted how long it had been on CPUs until then, and how long it had waited for them:
 * the kernel's own sum (sched_info.run_delay, which /proc/PID/schedstat shows). Both at two times make the difference
 * between them. Who will read is known only once it reads, so that this is kept for every thread.
 */
#pragma once

#include "rx/state.h"

u64 threads_seen;

static __always_inline struct run *run_at(struct thread *thread, u32 index)
{
	barrier_var(index);
	return &thread->run[index & (HOP_RUNS - 1)];
}

/* Has no thread been forgotten yet? The map forgets a little before it is full. */
static __always_inline bool threads_all(void)
{
	return threads_seen < HOP_THREADS / 2;
}

/* Of a thread that is seen for the first time it is known that it has not left a CPU since the start, unless it was forgotten
 * in between or ran at the start.
 */
static __always_inline struct thread *thread_new(const struct thread_key *key, const struct cpu_state *cpu,
						 u64 begun_ns)
{
	struct thread *thread;
	u32 zero = 0;
	void *empty = bpf_map_lookup_elem(&thread_empty, &zero);

	if (empty)
		bpf_map_update_elem(&threads, key, empty, cfg_budget ? 0 : BPF_NOEXIST);
	thread = bpf_map_lookup_elem(&threads, key);
	if (!thread)
		return NULL;
	thread->epoch = sampling.epoch;
	thread->since_ns = threads_all() && cpu->switched_in_ns ? 0 : begun_ns;
	thread->delay_ns = cpu->delay_ns;
	atomic_add(&threads_seen, 1);
	return thread;
}

static __always_inline void thread_leaves(struct task_struct *task, const struct cpu_state *cpu, u64 now_ns)
{
	u64 begun_ns = cpu->switched_in_ns ? cpu->switched_in_ns : now_ns, on_ns;
	struct thread_key key = {.start_ns = task->start_time, .tid = task->pid};
	struct thread *thread = bpf_map_lookup_elem(&threads, &key);
	struct run *run;

	if (!thread || !epoch_is_ours(thread->epoch))
		thread = thread_new(&key, cpu, begun_ns);
	if (!thread)
		return;
	on_ns = thread->runs ? run_at(thread, thread->runs - 1)->on_ns : 0;
	run = run_at(thread, thread->runs++);
	run->out_ns = now_ns;
	run->on_ns = on_ns + now_ns - begun_ns;
	run->delay_ns = task->sched_info.run_delay;
}

/* The kernel has yet to add what the next thread has just waited to its delay. */
static __always_inline int reader_switch(struct task_struct *prev, struct task_struct *next)
{
	struct cpu_state *cpu = this_cpu();
	u64 now_ns = bpf_ktime_get_ns();

	if (prev->pid)
		thread_leaves(prev, cpu, now_ns);
	cpu->switched_in_ns = now_ns;
	cpu->start_ns = next->start_time;
	cpu->delay_ns = next->sched_info.run_delay;
	return 0;
}

/* The first run, from `oldest` on, that ended after this time; that which has not ended if there is none. */
static __always_inline u32 run_after(struct thread *thread, u32 oldest, u64 since_ns)
{
	u32 low = oldest, high = thread->runs;

	/* Mostly it came while the reader was off the CPU for the last time. */
	if (low != high && run_at(thread, high - 1)->out_ns <= since_ns)
		return high;
	for (u32 step = 0; step < 8 && low != high; step++) { /* of 128 */
		u32 middle = low + (high - low) / 2;

		if (run_at(thread, middle)->out_ns > since_ns)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

/* What the running thread has had of CPUs by then. */
struct share {
	u64 on_ns;
	u64 delay_ns;
};

static __always_inline bool thread_share(struct thread *thread, u64 since_ns, struct share *share, u64 begun_ns)
{
	u32 oldest = thread->runs > HOP_RUNS ? thread->runs - HOP_RUNS : 0, index;
	u64 on_ns = 0, delay_ns = thread->delay_ns, waited_ns, run_delay_ns = share->delay_ns;

	index = run_after(thread, oldest, since_ns);
	if (since_ns < thread->since_ns || (oldest && index == oldest))
		return false;
	if (index) {
		on_ns = run_at(thread, index - 1)->on_ns;
		delay_ns = run_at(thread, index - 1)->delay_ns;
	}
	if (index != thread->runs) {
		begun_ns = run_at(thread, index)->out_ns - (run_at(thread, index)->on_ns - on_ns);
		run_delay_ns = run_at(thread, index)->delay_ns;
	}
	if (since_ns >= begun_ns) {
		share->on_ns = on_ns + since_ns - begun_ns;
		share->delay_ns = run_delay_ns;
		return true;
	}
	/* It slept first and waited then: what it waited is behind. */
	waited_ns = run_delay_ns - delay_ns;
	if (waited_ns > begun_ns - since_ns)
		waited_ns = begun_ns - since_ns;
	share->on_ns = on_ns;
	share->delay_ns = run_delay_ns - waited_ns;
	return true;
}

static __always_inline u64 thread_off(struct thread *thread, const struct cpu_state *cpu, u64 since_ns, u64 now_ns,
				      struct share *share)
{
	u64 on_ns = now_ns - cpu->switched_in_ns;

	if (!thread_share(thread, since_ns, share, cpu->switched_in_ns))
		return UNKNOWN_NS;
	if (thread->runs)
		on_ns += run_at(thread, thread->runs - 1)->on_ns;
	return now_ns - since_ns - (on_ns - share->on_ns);
}

/* For how long the running thread was off the CPU since then, and, in the CPU's `runnable_ns`, how much of that it waited
 * for one. UNKNOWN_NS: it came on a CPU more often than is remembered, or was forgotten.
 */
__noinline u64 reader_off(u64 since_ns, u64 now_ns)
{
	struct cpu_state *cpu = this_cpu();
	struct thread_key key = {.start_ns = cpu->start_ns, .tid = (u32)bpf_get_current_pid_tgid()};
	struct thread *thread;
	struct share share;
	u64 delay_ns, off_ns;

	cpu->runnable_ns = 0;
	if (since_ns >= cpu->switched_in_ns || !key.tid)
		return 0;
	delay_ns = share.delay_ns = BPF_CORE_READ(current_task(), sched_info.run_delay);
	thread = bpf_map_lookup_elem(&threads, &key);
	if (thread && epoch_is_ours(thread->epoch)) {
		off_ns = thread_off(thread, cpu, since_ns, now_ns, &share);
		if (off_ns == UNKNOWN_NS)
			return off_ns;
	} else if (threads_all()) {
		off_ns = cpu->switched_in_ns - since_ns;
		share.delay_ns = cpu->delay_ns;
	} else {
		return UNKNOWN_NS;
	}
	delay_ns -= share.delay_ns;
	cpu->runnable_ns = delay_ns < off_ns ? delay_ns : off_ns;
	return off_ns;
}

/* What waited in a socket is read: the reader was off the CPU, asleep or runnable, and on one. */
static __always_inline void reader_took(bool tcp, u64 first_ns, u64 queued_ns, u32 group, u64 now_ns)
{
	u32 read_hop = tcp ? HOP_RX_TCP_READ : HOP_RX_UDP_READ;
	u64 from_ns = cfg_since_entry ? first_ns : queued_ns, off_ns = reader_off(queued_ns, now_ns), runnable_ns;

	if (cfg_events)
		this_cpu()->off_ns = off_ns;
	if (off_ns == UNKNOWN_NS) {
		discard(read_hop, HOP_RX_NO_HISTORY);
		return;
	}
	if (off_ns) {
		runnable_ns = this_cpu()->runnable_ns;
		record(tcp ? HOP_RX_TCP_WAKE : HOP_RX_UDP_WAKE, group, from_ns, queued_ns + off_ns);
		if (runnable_ns)
			record(tcp ? HOP_RX_TCP_RUNNABLE : HOP_RX_UDP_RUNNABLE, group, 0, runnable_ns);
		if (off_ns > runnable_ns)
			record(tcp ? HOP_RX_TCP_ASLEEP : HOP_RX_UDP_ASLEEP, group, runnable_ns, off_ns);
		if (!cfg_since_entry)
			from_ns += off_ns;
	}
	record(read_hop, group, from_ns, now_ns);
}
