// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Transmit latency of datagrams (UDP, raw, packet sockets): each is one packet, followed by its address. */
#pragma once

#include "tx_state.h"

/* When a thread entered its last send call. */
struct {
	MAP_UINT(type, BPF_MAP_TYPE_LRU_HASH);
	MAP_UINT(max_entries, 1); /* set before load */
	MAP_TYPE(key, u64);
	MAP_TYPE(value, u64);
} sends SEC(".maps");

u32 datagrams_skip[HOP_CPUS]; /* to leave out before the next one is followed */

INLINE void send_enters(void)
{
	u64 thread = bpf_get_current_pid_tgid(), now_ns;

	if (!process_wanted())
		return;
	now_ns = bpf_ktime_get_ns();
	bpf_map_update_elem(&sends, &thread, &now_ns, 0);
}

/* All but the first piece of a datagram that IP cut. */
INLINE bool later_fragment(u64 head, u16 network)
{
	u8 bytes[8] = {}, next[4] = {};

	bpf_probe_read_kernel(bytes, sizeof(bytes), (void *)(head + network));
	if (bytes[0] >> 4 == 4)
		return (bytes[6] & 0x1f) || bytes[7];
	if (bytes[0] >> 4 != 6 || bytes[6] != 44)
		return false;
	bpf_probe_read_kernel(next, sizeof(next), (void *)(head + network + 40));
	return next[2] || next[3] & 0xf8;
}

static __attribute__((noinline)) bool datagram_wanted(struct sk_buff *skb, struct sock *sk, u64 head)
{
	struct endpoints ends = {};

	if (!process_wanted())
		return false;
	if (cfg_namespaces && !namespace_wanted(socket_netns(sk)))
		return false;
	if (cfg_cgroups && !cgroup_wanted(socket_cgroup(sk)))
		return false;
	if (cfg_ports || cfg_addresses) {
		packet_endpoints(head, skb->network_header, skb->transport_header, &ends);
		return port_wanted(&ends) && address_wanted(&ends);
	}
	return true;
}

INLINE bool datagram_sampled(void)
{
	u32 cpu = bpf_get_smp_processor_id();
	u32 *skip;

	if (cfg_sample == 1)
		return true;
	opaque(cpu);
	skip = &datagrams_skip[cpu & (HOP_CPUS - 1)];
	if (*skip) {
		(*skip)--;
		return false;
	}
	*skip = bpf_get_prandom_u32() % (2 * cfg_sample - 1);
	return true;
}

/* Behind the UDP header; of other protocols, behind IP's. */
INLINE u32 payload_bytes(struct sk_buff *skb, struct sock *sk, u64 head)
{
	u32 data = (u32)(address(skb->data) - head);
	u32 headers = skb->transport_header - data;

	return skb->len - headers - (probe_field(sk, sk_protocol) == IPPROTO_UDP ? 8 : 0);
}

/* A datagram comes to its first device. */
INLINE void datagram_leaves(struct sk_buff *skb, struct sock *sk, u64 head)
{
	struct hop_tx_counters *counter = count();
	u64 thread = bpf_get_current_pid_tgid(), now_ns, *entered;
	struct pass *pass;

	if (!counter || later_fragment(head, skb->network_header) || !datagram_wanted(skb, sk, head))
		return;
	atomic_add(&counter->messages, 1);
	if (!datagram_sampled())
		return;
	atomic_add(&counter->sampled, 1);
	now_ns = bpf_ktime_get_ns();
	pass = pass_new(head, skb->dev->ifindex, now_ns);
	pass->group = sender_group(sk);
	pass->pid = current_pid();
	pass->len_bytes = payload_bytes(skb, sk, head);
	pass->cookie = (u64)sk;
	entered = bpf_map_lookup_elem(&sends, &thread);
	if (entered) {
		pass->entry_ns = *entered;
		record(HOP_TX_UDP, pass->group, pass->entry_ns, now_ns);
	} else {
		discard(HOP_TX_UDP, HOP_TX_NO_SEND);
	}
	if (cfg_events)
		flow_remember(pass->cookie, sk);
	pass->followed = 1;
}

static __attribute__((noinline)) void datagram_event(struct pass *pass, u32 flags)
{
	struct hop_tx_event event = {
		.cookie = pass->cookie,
		.entry_ns = pass->entry_ns,
		.handed_ns = pass->entry_ns,
		.sched_ns = pass->sched_ns,
		.driver_ns = pass->left_ns,
		.done_ns = pass->done_ns,
		.qdisc_ns = pass->qdisc_ns,
		.len_bytes = pass->len_bytes,
		.pid = pass->pid,
		.group = pass->group,
		.flags = HOP_TX_DATAGRAM | flags,
	};

	__builtin_memcpy(event.device, pass->device, sizeof(event.device));
	emit(&event);
}

/* The driver's function has returned, and took it. */
static __attribute__((noinline)) void datagram_driver(struct pass *pass, u64 left_ns, u64 now_ns)
{
	struct hop_tx_counters *counter = count();

	record(HOP_TX_UDP_QDISC, pass->group, pass->sched_ns, pass->sched_ns + pass->qdisc_ns);
	record(HOP_TX_UDP_DRIVER, pass->group, pass->sched_ns + pass->qdisc_ns, now_ns);
	if (pass->entry_ns)
		record(HOP_TX_UDP_TOTAL, pass->group, pass->entry_ns, now_ns);
	else
		discard(HOP_TX_UDP_TOTAL, HOP_TX_NO_SEND);
	pass->done_ns = now_ns;
	if (counter)
		atomic_add(&counter->acked, 1);
	if (cfg_events)
		datagram_event(pass, 0);
}

INLINE bool last_holder(struct sk_buff *skb)
{
	struct skb_shared_info *info = (void *)(address(skb->head) + skb->end);

	return (probe_field(info, dataref.counter) & 0xffff) == 1;
}

/* The memory of a packet is given back: the device is done with it, or it was dropped on the way. */
INLINE void datagram_freed(struct sk_buff *skb, bool dropped)
{
	struct pass *pass = pass_find(address(skb->head));

	if (!pass || !pass->followed || !last_holder(skb))
		return;
	if (pass->done_ns) {
		record(HOP_TX_UDP_FREE, pass->group, pass->done_ns, bpf_ktime_get_ns());
	} else if (dropped) {
		discard(HOP_TX_UDP_DRIVER, HOP_TX_DROPPED);
		discard(HOP_TX_UDP_TOTAL, HOP_TX_DROPPED);
		if (cfg_events)
			datagram_event(pass, HOP_TX_ABORTED);
	}
	pass->head = 0;
}
