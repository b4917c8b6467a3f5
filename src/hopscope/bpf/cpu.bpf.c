// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* CPU cost: the hooks. */
#include "cpu_uring.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define NET_TX_SOFTIRQ 2
#define NET_RX_SOFTIRQ 3

const volatile bool cfg_busy_functions = 0; /* busy polling is seen by its functions */

/* ---- hard interrupts ---- */

/* Interrupts of network devices, by number; user space fills it. The group is that of the device. */
struct {
	MAP_UINT(type, BPF_MAP_TYPE_HASH);
	MAP_UINT(max_entries, 1); /* set before load */
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct hop_group);
} network_irqs SEC(".maps");

INLINE int irq_begins(struct cpu_now *cpu, u32 part, u32 group)
{
	charge(cpu);
	cpu->irq_group = group;
	cpu->irq = part + 1;
	resume(cpu);
	return 0;
}

INLINE int irq_ends(void)
{
	struct cpu_now *cpu = this_cpu();

	if (!cpu->irq)
		return 0;
	charge(cpu);
	cpu->irq = 0;
	resume(cpu);
	return 0;
}

SEC("tp_btf/irq_handler_entry")
int cpu_irq_entry(u64 *ctx)
{
	u32 number = (u32)ctx[0], group = 0;
	struct hop_group *device = bpf_map_lookup_elem(&network_irqs, &number);

	if (!device)
		return irq_begins(this_cpu(), HOP_CPU_NOTHING, 0);
	if (cfg_group_by == HOP_GROUP_INTERFACE)
		group = group_find(device->key.id, device->key.netns, device->name);
	count_run(HOP_CPU_IRQ, group);
	return irq_begins(this_cpu(), HOP_CPU_IRQ, group);
}

SEC("tp_btf/irq_handler_exit")
int cpu_irq_exit(u64 *ctx)
{
	return irq_ends();
}

/* Interrupts that have no device: timers, and those of one CPU to another. */
#define OTHER_INTERRUPT(name)                                                                                          \
	SEC("tp_btf/" #name "_entry")                                                                                  \
	int cpu_##name##_entry(u64 *ctx)                                                                               \
	{                                                                                                              \
		return irq_begins(this_cpu(), HOP_CPU_NOTHING, 0);                                                     \
	}                                                                                                              \
	SEC("tp_btf/" #name "_exit")                                                                                   \
	int cpu_##name##_exit(u64 *ctx)                                                                                \
	{                                                                                                              \
		return irq_ends();                                                                                     \
	}

OTHER_INTERRUPT(local_timer)
OTHER_INTERRUPT(reschedule)
OTHER_INTERRUPT(call_function)
OTHER_INTERRUPT(call_function_single)
OTHER_INTERRUPT(irq_work)
OTHER_INTERRUPT(ipi)

/* ---- softirqs and polls ---- */

SEC("tp_btf/softirq_entry")
int cpu_softirq_entry(u64 *ctx)
{
	struct cpu_now *cpu = cpu_with_thread();
	u32 vector = (u32)ctx[0], part = HOP_CPU_NOTHING, group = 0;

	if (vector == NET_RX_SOFTIRQ || vector == NET_TX_SOFTIRQ) {
		part = vector == NET_RX_SOFTIRQ ? HOP_CPU_NET_RX : HOP_CPU_NET_TX;
		if (cpu->kind == KIND_KSOFTIRQD) {
			part = HOP_CPU_KSOFTIRQD;
			group = task_group();
		}
	}
	charge(cpu);
	if (part)
		count_run(part, group);
	cpu->softirq_group = group;
	cpu->softirq = part + 1;
	resume(cpu);
	return 0;
}

SEC("tp_btf/softirq_exit")
int cpu_softirq_exit(u64 *ctx)
{
	struct cpu_now *cpu = this_cpu();

	if (!cpu->softirq)
		return 0;
	charge(cpu);
	settle_poll(cpu, cpu->softirq_group);
	cpu->softirq = 0;
	resume(cpu);
	return 0;
}

INLINE u32 device_group(struct napi_struct *napi)
{
	struct net_device *dev = napi->dev;
	static const char backlog[16] = "backlog";

	if (!dev)
		return group_find(0, 0, backlog);
	return group_find(dev->ifindex, dev->nd_net.net->ns.inum, dev->name);
}

/* A poll has ended: of the softirq, of a thread, or of a call that polls busily. */
SEC("tp_btf/napi_poll")
int cpu_napi_poll(u64 *ctx)
{
	struct napi_struct *napi = (void *)ctx[0];
	struct cpu_now *cpu = cpu_with_thread();
	u32 part, group = cpu->group;
	struct hop_cpu_row *row;

	if (cpu->irq)
		return 0;
	part = cpu->softirq ? cpu->softirq - 1 : cpu->task.part;
	if (cfg_group_by == HOP_GROUP_INTERFACE)
		group = device_group(napi);
	else if (part == HOP_CPU_NAPI_THREAD)
		group = task_group();
	if (part == HOP_CPU_NAPI_THREAD)
		cpu->task.group = cpu->group = group; /* already of the poll that ends */
	if (!cfg_busy_functions && part == HOP_CPU_RECEIVE) {
		part = cpu->part = HOP_CPU_BUSY_POLL;
		cpu->group = group;
		count_run(part, group);
	}
	/* The next poll of a softirq goes on with the same interval, unless intervals are of devices. */
	if (cfg_group_by == HOP_GROUP_INTERFACE || !cpu->softirq)
		charge(cpu);
	if (cpu->softirq) {
		settle_poll(cpu, group);
		cpu->softirq_group = group;
	} else if (part == HOP_CPU_NAPI_THREAD) {
		count_run(part, group);
	} else if (!cfg_busy_functions && part == HOP_CPU_UNDECIDED) {
		part = HOP_CPU_BUSY_POLL;
		decide(cpu, part, group);
		count_run(part, group);
	} else if (part == HOP_CPU_NOTHING) {
		return 0; /* netpoll */
	}
	row = row_of(group);
	if (row)
		row->packets[bounded(part)] += (u32)ctx[1];
	resume(cpu);
	return 0;
}

/* ---- threads ---- */

SEC("tp_btf/sched_switch")
int cpu_switch(u64 *ctx)
{
	struct task_struct *prev = (void *)ctx[1], *next = (void *)ctx[2];
	struct cpu_now *cpu = this_cpu();

	charge(cpu);
	depart(cpu, prev->pid);
	arrive(cpu, next->pid, kind_of(next->flags, *(u64 *)next->comm));
	cpu->softirq = cpu->task.softirq;
	resume(cpu);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int cpu_exit(u64 *ctx)
{
	struct task_struct *task = (void *)ctx[0];
	struct cpu_now *cpu = cpu_with_thread();
	u32 pid = task->pid;

	charge(cpu);
	cpu->task.part = cpu->task.calls = 0;
	bpf_map_delete_elem(&tasks, &pid);
	resume(cpu);
	return 0;
}

/* ---- socket calls, by the system call ---- */

SEC("tp_btf/sys_enter")
int cpu_call_enter(u64 *ctx)
{
	struct pt_regs *regs = (void *)ctx[0];
	u64 number = ctx[1];
	u32 kind, part;

	if (number >= CALLS)
		return 0;
	opaque(number);
	kind = call_kinds[number & (CALLS - 1)];
	if (likely(!kind) || foreign_numbers())
		return 0;
	part = call_part(kind, regs);
	if (part)
		call_begins(cpu_with_thread(), part, kind == CALL_SEND_MESSAGES || kind == CALL_RECEIVE_MESSAGES);
	return 0;
}

SEC("tp_btf/sys_exit")
int cpu_call_exit(u64 *ctx)
{
	struct cpu_now *cpu = cpu_with_thread();

	if (cpu->task.part)
		call_ends(cpu, (s64)ctx[1], ARG2((struct pt_regs *)ctx[0]));
	return 0;
}

/* ---- socket calls, by the functions of the sockets ---- */

/* `result`: where fexit finds what the function returned, which is after its arguments. */
#define SOCKET_FUNCTION(function, part, result)                                                                        \
	SEC("fentry/" #function)                                                                                       \
	int cpu_##function##_fentry(u64 *ctx)                                                                          \
	{                                                                                                              \
		return function_begins(part);                                                                          \
	}                                                                                                              \
	SEC("fexit/" #function)                                                                                        \
	int cpu_##function##_fexit(u64 *ctx)                                                                           \
	{                                                                                                              \
		return function_ends((s32)ctx[result]);                                                                \
	}                                                                                                              \
	SEC("kprobe/" #function)                                                                                       \
	int cpu_##function##_kprobe(struct pt_regs *ctx)                                                               \
	{                                                                                                              \
		return function_begins(part);                                                                          \
	}                                                                                                              \
	SEC("kretprobe/" #function)                                                                                    \
	int cpu_##function##_kretprobe(struct pt_regs *ctx)                                                            \
	{                                                                                                              \
		return function_ends((s32)RETURNED(ctx));                                                              \
	}

SOCKET_FUNCTION(inet_sendmsg, HOP_CPU_SEND, 3)
SOCKET_FUNCTION(inet6_sendmsg, HOP_CPU_SEND, 3)
SOCKET_FUNCTION(inet_recvmsg, HOP_CPU_RECEIVE, 4)
SOCKET_FUNCTION(inet6_recvmsg, HOP_CPU_RECEIVE, 4)
SOCKET_FUNCTION(tcp_splice_read, HOP_CPU_RECEIVE, 5)
SOCKET_FUNCTION(inet_sendpage, HOP_CPU_SEND, 5) /* until 6.5 (dc97391e6610) */
SOCKET_FUNCTION(packet_sendmsg, HOP_CPU_SEND, 3)
SOCKET_FUNCTION(packet_recvmsg, HOP_CPU_RECEIVE, 4)

SEC("fentry/napi_busy_loop")
int cpu_busy_fentry(u64 *ctx)
{
	return polling(true);
}

SEC("fexit/napi_busy_loop")
int cpu_busy_fexit(u64 *ctx)
{
	return polling(false);
}

SEC("kprobe/napi_busy_loop")
int cpu_busy_kprobe(struct pt_regs *ctx)
{
	return polling(true);
}

SEC("kretprobe/napi_busy_loop")
int cpu_busy_kretprobe(struct pt_regs *ctx)
{
	return polling(false);
}

/* ---- stacks ---- */

/* The clock's interrupt is a hard interrupt itself: what it interrupted counts. */
SEC("perf_event")
int cpu_sample(void *ctx)
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
