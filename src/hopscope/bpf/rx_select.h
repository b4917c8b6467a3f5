// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Receive latency: which packets are wanted, and which group they belong to. */
#pragma once

#include "rx_state.h"

/* ---- groups ---- */

struct {
	MAP_UINT(type, BPF_MAP_TYPE_HASH);
	MAP_UINT(max_entries, 1); /* set before load */
	MAP_TYPE(key, struct hop_group_key);
	MAP_TYPE(value, u32);
} group_rows SEC(".maps");

/* The same the other way round, for user space. A row is taken by whoever inserts it first. */
struct {
	MAP_UINT(type, BPF_MAP_TYPE_HASH);
	MAP_UINT(max_entries, 1); /* set before load */
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct hop_group);
} groups SEC(".maps");

u32 groups_taken;

/* Take a row for a key that has none. Without atomics that return a value (5.12), which 5.10 lacks. */
INLINE u32 group_create(struct hop_group *group)
{
	u32 *known;

	for (u32 attempt = 0; attempt < 8; attempt++) {
		u32 row = groups_taken + 1 + attempt;

		if (row >= cfg_groups)
			return 0;
		if (bpf_map_update_elem(&groups, &row, group, BPF_NOEXIST))
			continue;
		groups_taken = row;
		bpf_map_update_elem(&group_rows, &group->key, &row, BPF_NOEXIST);
		/* Another CPU may have been first: then its row counts, and ours stays empty. */
		known = bpf_map_lookup_elem(&group_rows, &group->key);
		return known ? *known : 0;
	}
	return 0;
}

static __attribute__((noinline)) u32 group_find(u64 id, u32 netns, const void *name, bool name_is_comm)
{
	struct hop_group group = {.key = {.id = id, .netns = netns}};
	struct hop_rx_counters *counter;
	u32 *known = bpf_map_lookup_elem(&group_rows, &group.key);
	u32 row = 0;

	if (known)
		return *known;
	if (name_is_comm)
		bpf_get_current_comm(group.name, sizeof(group.name));
	else if (name)
		bpf_probe_read_kernel(group.name, sizeof(group.name), name);
	row = group_create(&group);
	if (!row) {
		counter = count();
		if (counter)
			atomic_add(&counter->group_overflow, 1);
	}
	return row;
}

/* With the CPU's last answer at hand: packets come in runs. */
INLINE u32 group_of(struct cpu_state *cpu, u64 id, u32 netns, const void *name, bool name_is_comm)
{
	u32 row;

	if (likely(cpu->group && cpu->group_id == id && cpu->group_netns == netns))
		return cpu->group;
	row = group_find(id, netns, name, name_is_comm);
	cpu->group = 0;
	barrier();
	cpu->group_id = id;
	cpu->group_netns = netns;
	barrier();
	cpu->group = row;
	return row;
}

/* ---- what the device knows ---- */

INLINE bool namespace_listed(u32 netns)
{
	for (u32 i = 0; i < HOP_FILTERS && i < cfg_namespaces; i++)
		if (cfg_namespace[i] == netns)
			return true;
	return false;
}

INLINE bool device_wanted(u32 ifindex, u32 netns)
{
	bool wanted = true;

	if (cfg_interfaces) {
		wanted = false;
		for (u32 i = 0; i < HOP_FILTERS && i < cfg_interfaces; i++)
			if (cfg_interface[i].ifindex == ifindex && cfg_interface[i].netns == netns)
				wanted = true;
	}
	return wanted && (!cfg_namespaces || namespace_listed(netns));
}

/* ---- what the socket knows ---- */

INLINE struct cgroup *socket_cgroup(struct sock *sk)
{
	struct sock_cgroup_data___before_5_16 *old = (void *)&sk->sk_cgrp_data;

	if (core_exists(sk->sk_cgrp_data.cgroup))
		return probe_field(sk, sk_cgrp_data.cgroup);
	return (struct cgroup *)probe_field(old, val);
}

INLINE u64 cgroup_id(struct cgroup *cgroup)
{
	struct kernfs_node *node = probe_field(cgroup, kn);

	return probe_field(node, id);
}

INLINE bool cgroup_listed(u64 id)
{
	for (u32 i = 0; i < HOP_FILTERS && i < cfg_cgroups; i++)
		if (cfg_cgroup[i] == id)
			return true;
	return false;
}

/* Is the socket's cgroup, or one above it, listed? */
INLINE bool cgroup_wanted(struct sock *sk)
{
	struct cgroup *cgroup = socket_cgroup(sk);
	struct cpu_state *cpu = this_cpu();
	u64 asked = (u64)cgroup;
	bool wanted = false;

	if (cpu->cgroup == asked)
		return cpu->cgroup_wanted;
	for (u32 depth = 0; depth < 16 && cgroup && !wanted; depth++) {
		wanted = cgroup_listed(cgroup_id(cgroup));
		cgroup = (struct cgroup *)probe_field(cgroup, self.parent);
	}
	cpu->cgroup = 0;
	barrier();
	cpu->cgroup_wanted = wanted;
	barrier();
	cpu->cgroup = asked;
	return wanted;
}

struct endpoints {
	u32 address[2][4]; /* source, destination; as in struct hop_prefix */
	u16 port[2];
};

/* Addresses and ports as the packet carries them: right for unconnected sockets, too. */
INLINE void packet_endpoints(u64 head, u16 network, u16 transport, struct endpoints *ends)
{
	u8 version = 0;

	bpf_probe_read_kernel(&version, 1, (void *)(head + network));
	if (version >> 4 == 6) {
		bpf_probe_read_kernel(ends->address, sizeof(ends->address), (void *)(head + network + 8));
	} else {
		ends->address[0][2] = ends->address[1][2] = __builtin_bswap32(0xffff);
		bpf_probe_read_kernel(&ends->address[0][3], 4, (void *)(head + network + 12));
		bpf_probe_read_kernel(&ends->address[1][3], 4, (void *)(head + network + 16));
	}
	bpf_probe_read_kernel(ends->port, sizeof(ends->port), (void *)(head + transport));
}

INLINE bool port_wanted(const struct endpoints *ends)
{
	for (u32 i = 0; i < HOP_FILTERS && i < cfg_ports; i++)
		if (cfg_port[i] == ends->port[0] || cfg_port[i] == ends->port[1])
			return true;
	return false;
}

INLINE bool address_wanted(const struct endpoints *ends)
{
	for (u32 i = 0; i < HOP_FILTERS && i < cfg_addresses; i++)
		for (u32 end = 0; end < 2; end++) {
			u32 differs = 0;

			for (u32 word = 0; word < 4; word++)
				differs |= (ends->address[end][word] ^ cfg_address[i].word[word]) &
					   cfg_address[i].mask[word];
			if (!differs)
				return true;
		}
	return false;
}

/* Everything that is known once a packet stands before its socket. Cheapest first. `joins` is added to the length of the
 * queue where the hook does not run at the moment which that is about.
 */
static __attribute__((noinline)) bool socket_wanted(struct sock *sk, u64 head, u16 network, u16 transport, s32 joins)
{
	struct endpoints ends = {};

	if (cfg_min_queue && (s32)probe_field(sk, sk_receive_queue.qlen) + joins < (s32)cfg_min_queue)
		return false;
	if (cfg_cgroups && !cgroup_wanted(sk))
		return false;
	if (cfg_ports || cfg_addresses) {
		packet_endpoints(head, network, transport, &ends);
		if (cfg_ports && !port_wanted(&ends))
			return false;
		if (cfg_addresses && !address_wanted(&ends))
			return false;
	}
	return true;
}

#define AF_INET6 10

/* The same as the socket has it; what it is not bound or connected to is 0. */
INLINE void socket_endpoints(struct sock *sk, struct endpoints *ends)
{
	struct sock_common *common = &sk->__sk_common;

	if (probe_field(common, skc_family) == AF_INET6 && core_exists(common->skc_v6_daddr)) {
		bpf_probe_read_kernel(ends->address[0], sizeof(ends->address[0]), &common->skc_v6_daddr);
		bpf_probe_read_kernel(ends->address[1], sizeof(ends->address[1]), &common->skc_v6_rcv_saddr);
	} else {
		ends->address[0][2] = ends->address[1][2] = __builtin_bswap32(0xffff);
		ends->address[0][3] = probe_field(common, skc_daddr);
		ends->address[1][3] = probe_field(common, skc_rcv_saddr);
	}
	ends->port[0] = probe_field(common, skc_dport);
	ends->port[1] = __builtin_bswap16(probe_field(common, skc_num));
}

/* Was a packet wanted of which only the socket is known that it reached? No, where the socket cannot say so. */
static __attribute__((noinline)) bool unseen_wanted(struct sock *sk)
{
	struct endpoints ends = {};
	struct net *net;

	if (cfg_sample > 1 || cfg_interfaces || cfg_min_queue)
		return false;
	if (cfg_namespaces) {
		net = probe_field(sk, __sk_common.skc_net.net);
		if (!namespace_listed(probe_field(net, ns.inum)))
			return false;
	}
	if (cfg_cgroups && !cgroup_wanted(sk))
		return false;
	if (cfg_ports || cfg_addresses)
		socket_endpoints(sk, &ends);
	return (!cfg_ports || port_wanted(&ends)) && (!cfg_addresses || address_wanted(&ends));
}

/* ---- what the reader knows ---- */

INLINE bool comm_wanted(void)
{
	struct hop_comm comm = {};
	u64 *name = (u64 *)&comm;

	bpf_get_current_comm(&comm, sizeof(comm));
	for (u32 i = 0; i < HOP_FILTERS && i < cfg_comms; i++) {
		const volatile u64 *wanted = (const volatile u64 *)&cfg_comm[i];

		if (name[0] == wanted[0] && name[1] == wanted[1])
			return true;
	}
	return false;
}

INLINE bool reader_wanted(void)
{
	u32 pid;

	if (cfg_pids) {
		bool wanted = false;

		pid = bpf_get_current_pid_tgid() >> 32;
		for (u32 i = 0; i < HOP_FILTERS && i < cfg_pids; i++)
			if (cfg_pid[i] == pid)
				wanted = true;
		if (!wanted)
			return false;
	}
	return !cfg_comms || comm_wanted();
}

INLINE u32 reader_group(u32 group)
{
	if (cfg_group_by == HOP_GROUP_PROCESS)
		return group_of(this_cpu(), bpf_get_current_pid_tgid() >> 32, 0, NULL, true);
	return group;
}
