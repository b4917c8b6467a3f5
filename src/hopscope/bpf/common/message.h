// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Single messages: a record for each, and whose flow it is.
 *
 * Before it is included, the collector defines EVENT, its struct of records, EVENT_BYTES, which is more where something follows it,
 * and COUNTERS, as groups.h says, with the members `events` and `lost`.
 */
#pragma once

#include "common/ring.h"
#include "common/select.h"
#include "common/series.h"

const volatile bool cfg_events = 0; /* a record for each message */

struct EVENT *exported_event;

/* Flows whose messages were followed, by cookie. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1); /* set before load */
	__type(key, u64);
	__type(value, struct hop_message_flow);
} flows SEC(".maps");

/* Room for a record; NULL, and counted, if there is none. */
static __always_inline struct EVENT *event_reserve(void)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct COUNTERS *counter = count();
	struct EVENT *slot;
	void *ring;

	if (!counter)
		return NULL;
	ring = bpf_map_lookup_elem(&rings, &cpu);
	slot = ring ? bpf_ringbuf_reserve(ring, EVENT_BYTES, 0) : NULL;
	/* Compared with NULL once: before 6.3, the verifier takes a slot that is compared again for one that is kept. */
	if (!slot) {
		atomic_add(&counter->lost, 1);
		return NULL;
	}
	atomic_add(&counter->events, 1);
	return slot;
}

static __always_inline void event_submit(struct EVENT *slot)
{
	bpf_ringbuf_submit(slot, BPF_RB_NO_WAKEUP);
}

/* Of a flow, not of its socket: an unconnected one sends to anybody, and receives from anybody. */
static __noinline u64 flow_number(struct sock *sk, const struct endpoints *ends)
{
	u64 number = (u64)socket_netns(sk) << 32 | BPF_CORE_READ(sk, sk_protocol);

	for (u32 end = 0; end < 2; end++) {
		number = (number ^ ends->port[end]) * 0x9e3779b97f4a7c15ULL;
		for (u32 word = 0; word < 4; word++)
			number = (number ^ number >> 32 ^ ends->address[end][word]) * 0x9e3779b97f4a7c15ULL;
	}
	return number;
}

/* What a flow's group is made of shows in addresses and ports. */
#define GROUPS_OF_FLOWS                                                                                                \
	(cfg_group_by == HOP_GROUP_PORT || cfg_group_by == HOP_GROUP_PEER || cfg_group_by == HOP_GROUP_FLOW)

/* The group of a flow; its own end comes first. */
static __noinline u32 flow_group(struct sock *sk, const struct endpoints *ends)
{
	const u32 *peer = ends->address[1];
	struct hop_group group = {};

	if (cfg_group_by != HOP_GROUP_PEER) {
		group.protocol = BPF_CORE_READ(sk, sk_protocol);
		group.local_port = bpf_ntohs(ends->port[0]);
		group.key.id = (u64)group.protocol << 16 | group.local_port;
	}
	if (cfg_group_by != HOP_GROUP_PORT) {
		__builtin_memcpy(group.peer, peer, sizeof(group.peer));
		group.key.id = ((u64)peer[0] << 32 | peer[1]) * 0x9e3779b97f4a7c15ULL ^ ((u64)peer[2] << 32 | peer[3]);
	}
	if (cfg_group_by == HOP_GROUP_FLOW) {
		__builtin_memcpy(group.local, ends->address[0], sizeof(group.local));
		group.peer_port = ends->port[1];
		group.key.netns = socket_netns(sk);
		group.key.id = flow_number(sk, ends);
	}
	return group_row(&group, NULL);
}

/* Remember whose flow it is: its own end comes first. NULL: it is not known which process has the socket. */
static __noinline void flow_note(u64 cookie, struct sock *sk, const struct endpoints *ends, struct task_struct *task)
{
	struct hop_message_flow flow = {};

	if (bpf_map_lookup_elem(&flows, &cookie))
		return;
	__builtin_memcpy(flow.local, ends->address[0], sizeof(flow.local));
	__builtin_memcpy(flow.peer, ends->address[1], sizeof(flow.peer));
	flow.local_port = bpf_ntohs(ends->port[0]);
	flow.peer_port = ends->port[1];
	flow.netns = socket_netns(sk);
	flow.cgroup = cgroup_id(socket_cgroup(sk));
	flow.family = BPF_CORE_READ(sk, __sk_common.skc_family);
	flow.protocol = BPF_CORE_READ(sk, sk_protocol);
	if (task) {
		flow.pid = BPF_CORE_READ(task, tgid);
		bpf_probe_read_kernel(flow.comm, sizeof(flow.comm), &task->comm);
	}
	bpf_map_update_elem(&flows, &cookie, &flow, 0);
}
