// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Transmit latency of datagrams (UDP, raw, packet sockets): each is one packet, followed by its address. */
#pragma once

#include "tx/state.h"

static __always_inline void send_enters(struct sock *sk, u64 fd)
{
	struct send_call call = {.sk = (u64)sk, .fd = fd};
	u64 thread = bpf_get_current_pid_tgid();

	if (!process_wanted())
		return;
	call.entry_ns = bpf_ktime_get_ns();
	bpf_map_update_elem(&sends, &thread, &call, 0);
}

/* The file that the running process has open under this number. */
static __always_inline struct file *open_file(u64 fd)
{
	struct files_struct *files = BPF_CORE_READ(current_task(), files);
	struct fdtable *table = BPF_CORE_READ(files, fdt);
	struct file *file = NULL;

	if (fd < BPF_CORE_READ(table, max_fds))
		bpf_probe_read_kernel(&file, sizeof(file), BPF_CORE_READ(table, fd) + fd);
	return file;
}

/* When the call that sends this socket's packet was entered; 0: it is another one's, or none. */
static __noinline u64 send_entry(struct sock *sk)
{
	u64 thread = bpf_get_current_pid_tgid();
	struct send_call *call = bpf_map_lookup_elem(&sends, &thread);
	struct socket *socket = BPF_CORE_READ(sk, sk_socket);

	if (!call || !since_known(call->entry_ns))
		return 0;
	if (call->sk)
		return call->sk == (u64)sk ? call->entry_ns : 0;
	return socket && open_file(call->fd) == BPF_CORE_READ(socket, file) ? call->entry_ns : 0;
}

/* All but the first piece of a datagram that IP cut. */
static __always_inline bool later_fragment(u64 head, u16 network)
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

static __always_inline bool has_ports(u16 protocol)
{
	return protocol == IPPROTO_UDP || protocol == IPPROTO_UDPLITE || protocol == IPPROTO_SCTP ||
	       protocol == IPPROTO_DCCP;
}

/* From where to where; what a packet socket sends has neither. */
static __always_inline void datagram_endpoints(struct sk_buff *skb, struct sock *sk, u64 head, struct endpoints *ends)
{
	if (BPF_CORE_READ(sk, __sk_common.skc_family) == AF_PACKET)
		return;
	packet_endpoints(head, skb->network_header, skb->transport_header, ends);
	if (!has_ports(BPF_CORE_READ(sk, sk_protocol)))
		ends->port[0] = ends->port[1] = 0;
}

static __always_inline bool own_datagram(struct sock *sk, const struct endpoints *ends)
{
	struct flow_key key = {.ends = *ends, .protocol = BPF_CORE_READ(sk, sk_protocol)};

	return own_flow(&key);
}

static __noinline bool datagram_wanted(struct sock *sk, const struct endpoints *ends)
{
	if (!process_wanted())
		return false;
	if (cfg_namespaces && !namespace_wanted(socket_netns(sk)))
		return false;
	if (cfg_cgroups && !cgroup_wanted(socket_cgroup(sk)))
		return false;
	if (cfg_own && own_datagram(sk, ends))
		return false;
	return port_wanted(ends) && address_wanted(ends);
}

static __always_inline bool datagram_sampled(u64 flow, u64 now_ns)
{
	u64 *last_ns;

	if (cfg_budget && !sampling_takes())
		return false;
	if (cfg_sample > 1 && bpf_get_prandom_u32() % cfg_sample)
		return false;
	if (!cfg_gap_ns)
		return true;
	last_ns = bpf_map_lookup_elem(&paced, &flow);
	if (last_ns && now_ns - *last_ns < cfg_gap_ns)
		return false;
	bpf_map_update_elem(&paced, &flow, &now_ns, 0);
	return true;
}

/* Behind the UDP header, which tells it of all fragments; of other protocols, behind IP's in this packet. */
static __always_inline u32 payload_bytes(struct sk_buff *skb, struct sock *sk, u64 head)
{
	u32 data = (u32)(address(skb->data) - head), headers = skb->transport_header - data;
	u16 protocol = BPF_CORE_READ(sk, sk_protocol);
	u8 length[2] = {};

	if (BPF_CORE_READ(sk, __sk_common.skc_family) == AF_PACKET)
		return skb->len;
	if (protocol == IPPROTO_UDPLITE)
		return skb->len - headers - 8;
	if (protocol != IPPROTO_UDP)
		return skb->len - headers;
	bpf_probe_read_kernel(length, sizeof(length), (void *)(head + skb->transport_header + 4));
	return (length[0] << 8 | length[1]) - 8;
}

/* A datagram comes to its first device. The kernel's own sockets (ICMP, neighbour discovery) are in no send call. */
static __always_inline void datagram_leaves(struct sk_buff *skb, struct sock *sk, u64 head)
{
	bool fragments = BPF_CORE_READ(sk, __sk_common.skc_family) != AF_PACKET;
	struct hop_tx_counters *counter = count();
	struct endpoints ends = {};
	struct pass *pass;
	u64 now_ns, flow = 0;

	if (!counter || BPF_CORE_READ_BITFIELD_PROBED(sk, sk_kern_sock) ||
	    (fragments && later_fragment(head, skb->network_header)))
		return;
	if (cfg_ports || cfg_addresses || cfg_gap_ns || cfg_events || cfg_own || GROUPS_OF_FLOWS)
		datagram_endpoints(skb, sk, head, &ends);
	if (!datagram_wanted(sk, &ends))
		return;
	atomic_add(&counter->messages, 1);
	now_ns = bpf_ktime_get_ns();
	if (cfg_gap_ns || cfg_events)
		flow = flow_number(sk, &ends);
	if (!datagram_sampled(flow, now_ns))
		return;
	atomic_add(&counter->sampled, 1);
	pass = pass_new(head, skb->dev->ifindex, now_ns);
	pass->skb = (u64)skb;
	pass->group = GROUPS_OF_FLOWS ? flow_group(sk, &ends) : group_of(sk, skb->dev);
	pass->pid = current_pid();
	pass->len_bytes = payload_bytes(skb, sk, head);
	pass->cookie = flow;
	pass->entry_ns = send_entry(sk);
	if (pass->entry_ns)
		record(HOP_TX_UDP, pass->group, pass->entry_ns, now_ns);
	else
		discard(HOP_TX_UDP, HOP_TX_NO_SEND);
	if (cfg_events)
		flow_note(flow, sk, &ends, current_task());
	pass->followed = 1;
}

static __noinline void datagram_event(struct pass *pass, u32 flags)
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
	emit(&event, NULL);
}

/* The driver's function has returned, and took it. */
static __noinline void datagram_driver(struct pass *pass, u64 now_ns)
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

/* The packet is given back: the device is done with it, or it was dropped on the way. Taps have packets of their own. */
static __always_inline void datagram_freed(struct sk_buff *skb, bool dropped)
{
	u64 head = address(skb->head), now_ns = bpf_ktime_get_ns();
	struct pass *pass = pass_find(head);
	u32 reason = dropped ? HOP_TX_DROPPED : HOP_TX_SPLIT;

	if (!pass || !pass->followed || pass->skb != (u64)skb)
		return;
	/* The device may be done before its driver's function has returned. */
	if (!pass->done_ns && pass->left_ns && !dropped)
		datagram_driver(pass, now_ns);
	if (!pass->done_ns) {
		datagram_missed(reason);
		if (cfg_events)
			datagram_event(pass, HOP_TX_ABORTED);
	} else if (!skb->skb_iif) { /* else a receiver on this host has it: that says nothing about the device */
		record(HOP_TX_UDP_FREE, pass->group, pass->done_ns, now_ns);
	}
	pass_forget(head);
}
