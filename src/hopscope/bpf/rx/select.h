// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Receive latency: which packets are wanted, and which group they belong to. */
#pragma once

#include "rx/state.h"

/* ---- groups ---- */

/* With the CPU's last answer at hand: packets come in runs. */
static __always_inline u32 group_of(struct cpu_state *cpu, u64 id, u32 netns, const void *name)
{
	u32 row;

	if (likely(cpu->group && cpu->group_id == id && cpu->group_netns == netns))
		return cpu->group;
	row = group_find(id, netns, name);
	cpu->group = 0;
	barrier();
	cpu->group_id = id;
	cpu->group_netns = netns;
	barrier();
	cpu->group = row;
	return row;
}

/* ---- what the device knows ---- */

static __always_inline bool device_wanted(u32 ifindex, u32 netns)
{
	bool wanted = !cfg_interfaces;

	for (u32 i = 0; i < HOP_FILTERS && i < cfg_interfaces; i++)
		if (cfg_interface[i].ifindex == ifindex && cfg_interface[i].netns == netns)
			wanted = true;
	return wanted && namespace_wanted(netns);
}

/* ---- what the socket knows ---- */

/* With the CPU's last answer at hand. */
static __always_inline bool socket_cgroup_wanted(struct sock *sk)
{
	struct cgroup *cgroup = socket_cgroup(sk);
	struct cpu_state *cpu = this_cpu();
	u64 asked = (u64)cgroup;
	bool wanted;

	if (cpu->cgroup == asked)
		return cpu->cgroup_wanted;
	wanted = cgroup_wanted(cgroup);
	cpu->cgroup = 0;
	barrier();
	cpu->cgroup_wanted = wanted;
	barrier();
	cpu->cgroup = asked;
	return wanted;
}

/* Everything that is known once a packet stands before its socket. Cheapest first. `joins` is added to the length of the
 * queue where the hook does not run at the moment which that is about.
 */
static __noinline bool socket_wanted(struct sock *sk, u64 head, u16 network, u16 transport, s32 joins)
{
	struct endpoints ends = {};

	if (cfg_min_queue && (s32)BPF_CORE_READ(sk, sk_receive_queue.qlen) + joins < (s32)cfg_min_queue)
		return false;
	if (cfg_cgroups && !socket_cgroup_wanted(sk))
		return false;
	if (cfg_ports || cfg_addresses) {
		packet_endpoints(head, network, transport, &ends);
		return port_wanted(&ends) && address_wanted(&ends);
	}
	return true;
}

/* Was a packet wanted of which only the socket is known that it reached? No, where the socket cannot say so. */
static __noinline bool unseen_wanted(struct sock *sk)
{
	struct endpoints ends = {};

	if (SAMPLES || cfg_interfaces || cfg_min_queue)
		return false;
	if (cfg_namespaces && !namespace_wanted(socket_netns(sk)))
		return false;
	if (cfg_cgroups && !socket_cgroup_wanted(sk))
		return false;
	if (cfg_own && own_socket(sk))
		return false;
	if (cfg_ports || cfg_addresses)
		socket_endpoints(sk, &ends);
	return port_wanted(&ends) && address_wanted(&ends);
}

/* As a packet carries them, its receiver's end first. */
static __always_inline void received_endpoints(u64 head, u16 network, u16 transport, struct endpoints *own)
{
	struct endpoints ends = {};

	packet_endpoints(head, network, transport, &ends);
	__builtin_memcpy(own->address[0], ends.address[1], sizeof(own->address[0]));
	__builtin_memcpy(own->address[1], ends.address[0], sizeof(own->address[1]));
	own->port[0] = ends.port[1];
	own->port[1] = ends.port[0];
}

static __noinline u32 packet_group(struct sock *sk, u64 head, u16 network, u16 transport)
{
	struct endpoints own = {};

	received_endpoints(head, network, transport, &own);
	return flow_group(sk, &own);
}

/* ---- what the reader knows ---- */

static __always_inline u32 reader_group(u32 group)
{
	if (cfg_group_by == HOP_GROUP_PROCESS)
		return group_of(this_cpu(), current_pid(), 0, &current_task()->comm);
	return group;
}
