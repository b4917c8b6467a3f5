// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Receive latency: the CPU's way to the packet, and the packet's to the core. */
#pragma once

#include "rx/nic.h"
#include "rx/select.h"

#define NET_RX_SOFTIRQ 3

/* ---- the CPU's way to the packet ---- */

static __always_inline u32 entry_group(struct cpu_state *cpu, struct net_device *dev)
{
	if (cfg_group_by == HOP_GROUP_INTERFACE)
		return group_of(cpu, dev->ifindex, dev->nd_net.net->ns.inum, dev->name);
	if (cfg_group_by == HOP_GROUP_NETNS)
		return group_of(cpu, 0, dev->nd_net.net->ns.inum, NULL);
	return 0;
}

static __always_inline int softirq_raised(u32 vector)
{
	struct cpu_state *cpu;

	if (vector != NET_RX_SOFTIRQ)
		return 0;
	cpu = this_cpu();
	if (!cpu->raised_ns)
		cpu->raised_ns = bpf_ktime_get_ns();
	return 0;
}

static __always_inline int softirq_enters(u32 vector)
{
	struct cpu_state *cpu;
	u64 now_ns, raised_ns;

	if (vector != NET_RX_SOFTIRQ)
		return 0;
	cpu = this_cpu();
	now_ns = bpf_ktime_get_ns();
	raised_ns = cpu->raised_ns;
	cpu->raised_ns = 0;
	cpu->poll_ns = now_ns;
	if (raised_ns && sampling_open())
		record(HOP_RX_SOFTIRQ, 0, raised_ns, now_ns);
	return 0;
}

/* The enum has no name by which CO-RE could find it; so since 4.12 (39e6c8208d7b). */
#define NAPI_STATE_IN_BUSY_POLL 6

/* Is this poll not of the softirq, but of the instance's own thread, of a reader that polls busily, or of netpoll? */
static __always_inline bool poll_outside(struct cpu_state *cpu, struct napi_struct *napi, s32 budget)
{
	bool was_busy = cpu->busy == (u64)napi;

	if (napi->state & 1 << NAPI_STATE_IN_BUSY_POLL) {
		cpu->busy = (u64)napi;
		return true;
	}
	/* The reader gives the instance back with a last poll on this CPU, for which it takes the mark away (busy_poll_stop). */
	if (was_busy) {
		cpu->busy = 0;
		return true;
	}
	if (bpf_core_field_exists(napi->thread) && (u64)napi->thread == bpf_get_current_task())
		return true;
	/* Netpoll can come in any context. It has no budget. */
	return !budget;
}

static __always_inline int poll_ends(struct napi_struct *napi, s32 budget)
{
	struct cpu_state *cpu = this_cpu();
	u64 now_ns, start_ns = cpu->poll_ns;
	struct net_device *dev = napi->dev;

	if (poll_outside(cpu, napi, budget)) {
		discard(HOP_RX_NAPI, HOP_RX_OUTSIDE);
		return 0;
	}
	now_ns = bpf_ktime_get_ns();
	cpu->poll_ns = now_ns;
	if (!sampling_open())
		return 0;
	if (!start_ns) {
		discard(HOP_RX_NAPI, HOP_RX_NO_STAMP);
		return 0;
	}
	/* The backlog queue, which lo and veth use, is a NAPI instance with no device. */
	record(HOP_RX_NAPI, dev ? entry_group(cpu, dev) : 0, start_ns, now_ns);
	return 0;
}

/* ---- the packet enters ---- */

static __always_inline bool entry_sampled(struct cpu_state *cpu)
{
	if (cfg_budget)
		return sampling_takes();
	if (cpu->skip) {
		cpu->skip--;
		return false;
	}
	/* A random gap of N - 1 on average: no pattern in the traffic can hide from it. */
	cpu->skip = bpf_get_prandom_u32() % (2 * cfg_sample - 1);
	return true;
}

/* From the driver on, IP's header is where the data begins; but where GRO is to put the packet together (napi_gro_frags), it
 * is in a page until then.
 */
static __always_inline bool headers_at_hand(const struct sk_buff *skb)
{
	return address(skb->data) + sizeof(struct ip4_header) + sizeof(u32) <= address(skb->head) + skb->tail;
}

static __always_inline void enter(struct sk_buff *skb, struct stamp *stamp, u64 head, u32 stage)
{
	struct hop_rx_counters *counter;
	struct cpu_state *cpu = this_cpu();
	struct net_device *dev = skb->dev;
	bool wanted = true, unread = cfg_own && !headers_at_hand(skb);

	if (cfg_interfaces || cfg_namespaces)
		wanted = device_wanted(dev->ifindex, dev->nd_net.net->ns.inum);
	if (cfg_own && wanted && !unread)
		wanted = !own_packet(address(skb->data));
	if (wanted && SAMPLES) {
		wanted = entry_sampled(cpu);
		counter = count();
		if (counter && sampling_open()) {
			counter->packets++;
			counter->sampled += wanted;
		}
	}
	stamp_forget(stamp, head);
	stamp->head = 0;
	barrier();
	stamp->stage = wanted ? stage : HOP_STAGE_UNWANTED;
	stamp->spent = 0;
	stamp->done = 0;
	stamp->unread = unread;
	stamp->life = HOP_LIFE_NONE;
	stamp->way = 0;
	stamp->skb = skb_identity(skb);
	stamp->first_ns = 0;
	stamp->last_ns = cpu->poll_ns;
	if (wanted) {
		stamp->group = entry_group(cpu, dev);
		stamp->first_ns = stamp->last_ns = bpf_ktime_get_ns();
	}
	barrier();
	stamp->head = head;
}

/* Only a packet that comes fresh from a device has no skb_iif yet: one that a bridge passes up is still the same. */
static __always_inline int driver_hands_over(struct sk_buff *skb)
{
	u64 head = address(skb->head);
	struct stamp *stamp;

	if (skb->skb_iif)
		return 0;
	if (cfg_account)
		this_cpu()->handed_over = (u64)skb;
	stamp = stamp_take(head);
	enter(skb, stamp, head, HOP_STAGE_DRIVER);
	if (cfg_nic_stamps && stamp->stage != HOP_STAGE_UNWANTED)
		nic_pass(skb, stamp, head);
	return 0;
}

static __always_inline int core_takes(struct sk_buff *skb)
{
	struct cpu_state *cpu;
	struct stamp *stamp;
	u64 head;

	if (skb->skb_iif)
		return 0;
	head = address(skb->head);
	cpu = this_cpu();
	cpu->packet = (u64)skb;
	cpu->head = head;
	cpu->segment = 0;
	stamp = stamp_slot(head);
	if (unlikely(stamp->head != head || stamp->stage > HOP_STAGE_DRIVER ||
		     (stamp->stage == HOP_STAGE_DRIVER && !since_known(stamp->first_ns)))) {
		if (sampling_open())
			discard(HOP_RX_CORE, HOP_RX_NO_ENTRY);
		stamp = stamp_take(head);
		enter(skb, stamp, head, HOP_STAGE_CORE);
	} else if (cfg_own && stamp->unread && own_packet(address(skb->data))) {
		stamp->stage = HOP_STAGE_UNWANTED;
	} else if (stamp->stage == HOP_STAGE_DRIVER) {
		stamp_pass(stamp, HOP_RX_CORE, HOP_STAGE_CORE, bpf_ktime_get_ns());
		stamp->skb = skb_identity(skb);
	}
	cpu->first_ns = stamp->first_ns;
	if (!cfg_socket_facts && stamp->stage == HOP_STAGE_CORE)
		account_entered(stamp);
	return 0;
}
