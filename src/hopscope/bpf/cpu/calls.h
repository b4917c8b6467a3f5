// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* CPU cost: socket calls, found by the system call and the file being a socket, or by the functions of the sockets. */
#pragma once

#include "common/files.h"
#include "cpu/threads.h"

/* struct mmsghdr of 64 bits */
struct user_message {
	u8 header[56];
	u32 len_bytes;
	u32 pad;
};

#define MESSAGE_WORDS (sizeof(struct user_message) / sizeof(u32))
#define LENGTHS 7
/* Turns for the messages of a call. By a plain loop, which the verifier follows step by step, as many as sendmmsg takes
 * (UIO_MAXIOV), and on kernels of before 5.17 (e6f2dd0f8067), whose verifier takes long for that, few; of the rest it is
 * counted that they were not read.
 */
#define SENDMMSG_TURNS (1024 / LENGTHS + 1)
#define FEW_TURNS 16
#define MOST_TURNS                                                                                                     \
	(bpf_iter_num_new                                              ? 1 << 20                                       \
	 : bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_loop) ? SENDMMSG_TURNS                                \
								       : FEW_TURNS)

/* The part that a system call belongs to, by its first three arguments. */
static __always_inline u32 call_part(u32 kind, struct pt_regs *regs)
{
	u32 first = (u32)PT_REGS_PARM1(regs);

	switch (kind) {
	case CALL_SEND:
	case CALL_SEND_MESSAGES:
	case CALL_WRITE:
		return network_socket(first) ? HOP_CPU_SEND : HOP_CPU_NOTHING;
	case CALL_RECEIVE:
	case CALL_RECEIVE_MESSAGES:
	case CALL_READ:
		return network_socket(first) ? HOP_CPU_RECEIVE : HOP_CPU_NOTHING;
	case CALL_SENDFILE:
		if (network_socket(first))
			return HOP_CPU_SEND;
		return network_socket((u32)PT_REGS_PARM2(regs)) ? HOP_CPU_RECEIVE : HOP_CPU_NOTHING;
	case CALL_SPLICE:
		if (network_socket(first))
			return HOP_CPU_RECEIVE;
		return network_socket((u32)PT_REGS_PARM3(regs)) ? HOP_CPU_SEND : HOP_CPU_NOTHING;
	case CALL_CONTROL:
		return network_socket(first) ? HOP_CPU_CONTROL : HOP_CPU_NOTHING;
	case CALL_SOCKET:
		return family_moves_packets(first) ? HOP_CPU_CONTROL : HOP_CPU_NOTHING;
	case CALL_URING:
		uring_runs();
		return HOP_CPU_UNDECIDED;
	case CALL_WAIT:
		return HOP_CPU_UNDECIDED;
	}
	return HOP_CPU_NOTHING;
}

static __always_inline void call_begins(struct cpu_now *cpu, u32 part, bool counts_messages)
{
	u32 group = task_group();

	charge(cpu);
	forget_undecided(cpu);
	cpu->task.group = group;
	cpu->task.counts_messages = counts_messages;
	cpu->task.part = part;
	resume(cpu);
}

/* Bytes of the next messages, seven at most. To read costs some 70 ns, whether it is one length or seven and what is between
 * them. -1 if they cannot be read.
 */
static __noinline s64 some_bytes(const struct user_message *first, u64 some)
{
	u32 words[(LENGTHS - 1) * MESSAGE_WORDS + 1] = {};
	u64 size = (some - 1) * sizeof(*first) + sizeof(u32);
	s64 sum_bytes = 0;

	barrier_var(size);
	if (size > sizeof(words) || bpf_probe_read_user(words, size, &first->len_bytes))
		return -1;
	for (u32 place = 0; place < LENGTHS; place++)
		sum_bytes += words[place * MESSAGE_WORDS];
	return sum_bytes;
}

/* Bytes of a call for several messages. It says how many there were, and leaves the length of each with its caller, where
 * the kernel has just written it.
 */
static __noinline u64 messages_bytes(const struct user_message *first, u64 number)
{
	struct hop_cpu_counters *counter;
	u64 read = 0, sum_bytes = 0;

	each_step(i, MOST_TURNS, read < number) {
		u64 from = i * LENGTHS, some = number - from;
		s64 bytes;

		if (some > LENGTHS)
			some = LENGTHS;
		bytes = some_bytes(first + from, some);
		if (bytes < 0)
			break;
		sum_bytes += bytes;
		read = from + some;
	}
	counter = read < number ? count() : NULL;
	if (counter)
		counter->unread += number - read;
	return sum_bytes;
}

/* A call has returned, with what it returned; a call for several messages had them where `messages` says. */
static __always_inline void call_ends(struct cpu_now *cpu, s64 result, const struct user_message *messages)
{
	u32 part = cpu->task.part;
	struct hop_cpu_row *row;

	charge(cpu);
	if (part != HOP_CPU_UNDECIDED) {
		row = row_of(cpu->task.group);
		if (row) {
			row->runs[bounded(part)]++;
			if (part == HOP_CPU_CONTROL)
				result = 0; /* a file descriptor, not bytes */
			/* Not in what is attached to functions: the verifier takes long for it, once for each of them. */
			if (messages && result > 0 && cpu->task.counts_messages)
				result = messages_bytes(messages, result);
			if (result > 0)
				row->bytes[bounded(part)] += result;
		}
	}
	forget_undecided(cpu);
	cpu->task.part = HOP_CPU_NOTHING;
	resume(cpu);
}

/* The undecided time was of this part. */
static __always_inline void decide(struct cpu_now *cpu, u32 part, u32 group)
{
	add_ns(part, group, cpu->task.undecided_ns);
	if (cfg_pmu)
		add_counted_to(part, group, cpu->task.undecided_counted);
	forget_undecided(cpu);
}

static __always_inline int system_call_begins(struct pt_regs *regs, u64 number)
{
	u32 kind, part;

	if (number >= CALLS)
		return 0;
	barrier_var(number);
	kind = call_kinds[number & (CALLS - 1)];
	if (likely(!kind) || foreign_numbers())
		return 0;
	part = call_part(kind, regs);
	if (part)
		call_begins(cpu_with_thread(), part, kind == CALL_SEND_MESSAGES || kind == CALL_RECEIVE_MESSAGES);
	return 0;
}

static __always_inline int system_call_ends(struct pt_regs *regs, s64 result)
{
	struct cpu_now *cpu = cpu_with_thread();

	if (cpu->task.part)
		call_ends(cpu, result, (void *)PT_REGS_PARM2(regs));
	return 0;
}

/* A function of the sockets begins; of calls that nest the outermost counts. Those of a work item are its own. */
static __always_inline int function_begins(u32 part)
{
	struct cpu_now *cpu = cpu_with_thread();

	if (cpu->irq || cpu->softirq || cpu->task.part == HOP_CPU_WORKQUEUE || cpu->task.calls++)
		return 0;
	call_begins(cpu, cpu->kind == KIND_IO_WORKER ? HOP_CPU_IO_URING : part, false);
	return 0;
}

static __always_inline int function_ends(s64 result)
{
	struct cpu_now *cpu = cpu_with_thread();

	/* A call that began before we were attached is not known. */
	if (cpu->irq || cpu->softirq || !cpu->task.calls || --cpu->task.calls)
		return 0;
	call_ends(cpu, result, NULL);
	return 0;
}

/* A function that neither sends nor receives ends. A thread that exits closes its sockets behind the hook of its end. */
static __always_inline int control_function_ends(void)
{
	u32 pid = bpf_get_current_pid_tgid();

	function_ends(0);
	if (unlikely(BPF_CORE_READ(current_task(), flags) & PF_EXITING))
		bpf_map_delete_elem(&tasks, &pid);
	return 0;
}

/* A system call begins or ends to poll a device busily. */
static __always_inline int polling(bool begins)
{
	struct cpu_now *cpu = cpu_with_thread();

	if (cpu->irq || cpu->softirq || (cpu->task.part == HOP_CPU_BUSY_POLL) == begins)
		return 0;
	charge(cpu);
	if (begins) {
		cpu->task.outer = cpu->task.part;
		if (!cpu->task.part)
			cpu->task.group = task_group();
		cpu->task.part = HOP_CPU_BUSY_POLL;
		count_run(HOP_CPU_BUSY_POLL, cpu->task.group);
	} else {
		cpu->task.part = cpu->task.outer;
	}
	resume(cpu);
	return 0;
}
