// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* CPU cost: hard interrupts, softirqs and polls. */
#pragma once

#include "cpu/calls.h"

#define NET_TX_SOFTIRQ 2
#define NET_RX_SOFTIRQ 3

const volatile bool cfg_busy_functions = 0; /* busy polling is seen by its functions */

/* ---- hard interrupts ---- */

static __always_inline int irq_begins(struct cpu_now *cpu, u32 part, u32 group)
{
	charge(cpu);
	cpu->irq_group = group;
	cpu->irq = part + 1;
	resume(cpu);
	return 0;
}

static __always_inline int irq_ends(void)
{
	struct cpu_now *cpu = this_cpu();

	if (!cpu->irq)
		return 0;
	charge(cpu);
	cpu->irq = 0;
	resume(cpu);
	return 0;
}

/* Of any device. */
static __always_inline int device_irq_begins(u32 number)
{
	u32 group = 0;
	struct hop_group *device = bpf_map_lookup_elem(&network_irqs, &number);

	if (!device)
		return irq_begins(this_cpu(), HOP_CPU_NOTHING, 0);
	if (cfg_group_by == HOP_GROUP_INTERFACE)
		group = group_find(device->key.id, device->key.netns, device->name);
	count_run(HOP_CPU_IRQ, group);
	return irq_begins(this_cpu(), HOP_CPU_IRQ, group);
}

/* ---- softirqs and polls ---- */

static __always_inline int softirq_begins(u32 vector)
{
	struct cpu_now *cpu = cpu_with_thread();
	u32 part = HOP_CPU_NOTHING, group = 0;

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

static __always_inline int softirq_ends(void)
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

static __always_inline u32 device_group(struct napi_struct *napi)
{
	struct net_device *dev = napi->dev;
	static const char backlog[16] = "backlog";

	if (!dev)
		return group_find(0, 0, backlog);
	return group_find(dev->ifindex, dev->nd_net.net->ns.inum, dev->name);
}

/* A poll has ended: of the softirq, of a thread, or of a call that polls busily. */
static __always_inline int poll_ends(struct napi_struct *napi, u32 packets)
{
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
		row->packets[bounded(part)] += packets;
	resume(cpu);
	return 0;
}
