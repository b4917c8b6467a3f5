// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Which sockets and processes are wanted: the same for every collector that has filters. */
#pragma once

#include "common/task.h"

/* ---- settings: constants to the verifier, which drops the code of what is off ---- */

const volatile u32 cfg_namespaces = 0;
const volatile u32 cfg_namespace[HOP_FILTERS] = {};
const volatile u32 cfg_cgroups = 0;
const volatile u64 cfg_cgroup[HOP_FILTERS] = {};
const volatile u32 cfg_pids = 0;
const volatile u32 cfg_pid[HOP_FILTERS] = {};
const volatile u32 cfg_comms = 0;
const volatile struct hop_comm cfg_comm[HOP_FILTERS] = {};
const volatile u32 cfg_ports = 0;
const volatile u16 cfg_port[HOP_FILTERS] = {};
const volatile u32 cfg_addresses = 0;
const volatile struct hop_prefix cfg_address[HOP_FILTERS] = {};

/* ---- what the socket knows ---- */

static __always_inline bool namespace_wanted(u32 netns)
{
	for (u32 i = 0; i < HOP_FILTERS && i < cfg_namespaces; i++)
		if (cfg_namespace[i] == netns)
			return true;
	return !cfg_namespaces;
}

static __always_inline struct cgroup *socket_cgroup(struct sock *sk)
{
	struct sock_cgroup_data___before_5_16 *old = (void *)&sk->sk_cgrp_data;

	if (bpf_core_field_exists(sk->sk_cgrp_data.cgroup))
		return BPF_CORE_READ(sk, sk_cgrp_data.cgroup);
	return (struct cgroup *)BPF_CORE_READ(old, val);
}

static __always_inline u64 cgroup_id(struct cgroup *cgroup)
{
	struct kernfs_node *node = BPF_CORE_READ(cgroup, kn);

	return BPF_CORE_READ(node, id);
}

static __always_inline bool cgroup_listed(u64 id)
{
	for (u32 i = 0; i < HOP_FILTERS && i < cfg_cgroups; i++)
		if (cfg_cgroup[i] == id)
			return true;
	return false;
}

/* Is the cgroup, or one above it, listed? */
static __always_inline bool cgroup_wanted(struct cgroup *cgroup)
{
	bool wanted = false;

	for (u32 depth = 0; depth < 16 && cgroup && !wanted; depth++) {
		wanted = cgroup_listed(cgroup_id(cgroup));
		cgroup = (struct cgroup *)BPF_CORE_READ(cgroup, self.parent);
	}
	return wanted;
}

struct endpoints {
	u32 address[2][4]; /* source, destination; as in struct hop_prefix */
	u16 port[2];       /* network order */
};

/* Addresses and ports as a packet carries them: right for unconnected sockets, too. */
static __always_inline void packet_endpoints(u64 head, u16 network, u16 transport, struct endpoints *ends)
{
	u8 version = 0;

	bpf_probe_read_kernel(&version, 1, (void *)(head + network));
	if (version >> 4 == 6) {
		bpf_probe_read_kernel(ends->address, sizeof(ends->address), (void *)(head + network + 8));
	} else {
		ends->address[0][2] = ends->address[1][2] = bpf_htonl(0xffff);
		bpf_probe_read_kernel(&ends->address[0][3], 4, (void *)(head + network + 12));
		bpf_probe_read_kernel(&ends->address[1][3], 4, (void *)(head + network + 16));
	}
	bpf_probe_read_kernel(ends->port, sizeof(ends->port), (void *)(head + transport));
}

/* The same as the socket has it, its own end first; what it is not bound or connected to is 0. */
static __always_inline void socket_endpoints(struct sock *sk, struct endpoints *ends)
{
	if (BPF_CORE_READ(sk, __sk_common.skc_family) == AF_INET6 &&
	    bpf_core_field_exists(sk->__sk_common.skc_v6_daddr)) {
		bpf_probe_read_kernel(ends->address[0], 16, &sk->__sk_common.skc_v6_rcv_saddr);
		bpf_probe_read_kernel(ends->address[1], 16, &sk->__sk_common.skc_v6_daddr);
	} else {
		ends->address[0][2] = ends->address[1][2] = bpf_htonl(0xffff);
		ends->address[0][3] = BPF_CORE_READ(sk, __sk_common.skc_rcv_saddr);
		ends->address[1][3] = BPF_CORE_READ(sk, __sk_common.skc_daddr);
	}
	ends->port[0] = bpf_htons(BPF_CORE_READ(sk, __sk_common.skc_num));
	ends->port[1] = BPF_CORE_READ(sk, __sk_common.skc_dport);
}

static __always_inline bool port_wanted(const struct endpoints *ends)
{
	for (u32 i = 0; i < HOP_FILTERS && i < cfg_ports; i++)
		if (cfg_port[i] == ends->port[0] || cfg_port[i] == ends->port[1])
			return true;
	return !cfg_ports;
}

static __always_inline bool address_wanted(const struct endpoints *ends)
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
	return !cfg_addresses;
}

static __always_inline u32 socket_netns(struct sock *sk)
{
	struct net *net = BPF_CORE_READ(sk, __sk_common.skc_net.net);

	return BPF_CORE_READ(net, ns.inum);
}

/* ---- what the running process knows ---- */

static __always_inline bool comm_wanted(void)
{
	struct hop_comm comm = {};
	u64 *words = (u64 *)&comm;

	bpf_probe_read_kernel(&comm, sizeof(comm), &current_task()->comm);
	for (u32 i = 0; i < HOP_FILTERS && i < cfg_comms; i++) {
		const volatile u64 *wanted = (const volatile u64 *)&cfg_comm[i];

		if (words[0] == wanted[0] && words[1] == wanted[1])
			return true;
	}
	return false;
}

static __always_inline bool process_wanted(void)
{
	bool wanted = !cfg_pids;
	u32 pid;

	if (cfg_pids) {
		pid = current_pid();
		for (u32 i = 0; i < HOP_FILTERS && i < cfg_pids; i++)
			if (cfg_pid[i] == pid)
				wanted = true;
	}
	return wanted && (!cfg_comms || comm_wanted());
}
