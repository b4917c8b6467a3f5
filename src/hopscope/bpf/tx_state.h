// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Transmit latency: settings, maps, and what is remembered of a packet below TCP and UDP. */
#pragma once

#include "events.h"

#define SERIES_HOPS HOP_TX_HOPS
#define SERIES_DISCARDS HOP_TX_DISCARDS
#define SERIES_BACKWARDS HOP_TX_BACKWARDS
#define SERIES_COUNTERS hop_tx_counters
/* The programs of this collector interrupt each other. */
#define SERIES_SHARED(hop) true

#include "series.h"
#include "select.h"

/* ---- settings: constants to the verifier, which drops the code of what is off ---- */

const volatile u32 cfg_sample = 1;        /* follow 1 message in N of a flow */
const volatile u64 cfg_gap_ns = 0;        /* and none sooner after the one before it in the flow */
const volatile u64 cfg_tick_ns = 4000000; /* of jiffies */
const volatile bool cfg_events = 0;       /* a record for each message */
const volatile bool cfg_qdisc = 0;        /* the hook behind the queueing disciplines is attached */
const volatile bool cfg_stamped = 1;      /* TCP by the kernel's time stamps; else by tracing */
const volatile bool cfg_datagrams = 1;    /* what is not TCP is wanted at the hooks below */

EXPORT_ENUM(hop_tx_discard);
EXPORT_ENUM(hop_tx_cause);
EXPORT_ENUM(hop_tx_flags);
EXPORT_ENUM(hop_tx_limits);
EXPORT_ENUM(hop_tx_hop);
struct hop_tx_event *exported_tx_event;

/* ---- records ---- */

struct ring {
	MAP_UINT(type, BPF_MAP_TYPE_RINGBUF);
	MAP_UINT(max_entries, 4096);
};

struct {
	MAP_UINT(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	MAP_UINT(max_entries, 1); /* CPUs, set before load */
	MAP_TYPE(key, u32);
	typeof(struct ring) *values[];
} rings SEC(".maps");

/* Sockets whose messages were followed, by cookie. */
struct {
	MAP_UINT(type, BPF_MAP_TYPE_LRU_HASH);
	MAP_UINT(max_entries, 1); /* set before load */
	MAP_TYPE(key, u64);
	MAP_TYPE(value, struct hop_tx_flow);
} flows SEC(".maps");

INLINE void emit(const struct hop_tx_event *event)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct hop_tx_counters *counter = count();
	struct hop_tx_event *slot;
	void *ring;

	if (!counter)
		return;
	ring = bpf_map_lookup_elem(&rings, &cpu);
	slot = ring ? bpf_ringbuf_reserve(ring, sizeof(*slot), 0) : NULL;
	if (!slot) {
		atomic_add(&counter->lost, 1);
		return;
	}
	*slot = *event;
	bpf_ringbuf_submit(slot, BPF_RB_NO_WAKEUP);
	atomic_add(&counter->events, 1);
}

/* ---- a packet below TCP and UDP ----
 *
 * Known by the address of its data (skb->head), which clones share. Two packets that meet in a slot: the later one has
 * it, and the earlier one is told by the address.
 */
struct pass {
	u64 head;
	u64 entry_ns; /* the send call was entered; 0: not seen */
	u64 sched_ns; /* it came to the first device */
	u64 last_ns;  /* to the last one */
	u64 qdisc_ns; /* spent in queueing disciplines on the way */
	u64 left_ns;  /* it left the last one of them */
	u64 done_ns;  /* datagram: the driver has it */
	u64 cookie;
	u32 pid;
	u32 len_bytes;
	u16 group;
	u8 devices;
	u8 followed;   /* a datagram */
	u32 first_seq; /* TCP: where it begins, */
	u32 key;       /* and its last byte */
	u32 pad;
	struct hop_tx_device device[HOP_DEVICES];
};

struct pass passes[HOP_PASSES] SEC(".bss.passes");

INLINE struct pass *pass_slot(u64 head)
{
	u64 index = (head * 0x9e3779b97f4a7c15ULL) >> 48;

	opaque(index);
	return &passes[index & (HOP_PASSES - 1)];
}

INLINE struct pass *pass_find(u64 head)
{
	struct pass *pass = pass_slot(head);

	return pass->head == head ? pass : NULL;
}

/* A packet that comes to its first device. */
INLINE struct pass *pass_new(u64 head, u32 ifindex, u64 now_ns)
{
	struct pass *pass = pass_slot(head);

	pass->head = 0;
	barrier();
	pass->sched_ns = pass->last_ns = now_ns;
	pass->entry_ns = pass->qdisc_ns = pass->left_ns = pass->done_ns = 0;
	pass->followed = 0;
	pass->devices = 1;
	pass->device[0].ifindex = ifindex;
	pass->device[0].after_ns = 0;
	barrier();
	pass->head = head;
	return pass;
}

/* It comes to a further device, stacked below. */
INLINE void pass_next(struct pass *pass, u32 ifindex, u64 now_ns)
{
	u32 number = pass->devices;
	u64 after_ns = now_ns - pass->sched_ns;

	pass->last_ns = now_ns;
	opaque(number);
	if (number >= HOP_DEVICES)
		return;
	pass->device[number].ifindex = ifindex;
	pass->device[number].after_ns = after_ns > 0xffffffff ? 0xffffffff : after_ns;
	pass->devices = number + 1;
}

/* ---- a CPU ---- */

struct cpu_state {
	u64 head; /* of the packet that a driver's function has in hand */
	u64 left_ns;
	u64 sched_ns;
} __attribute__((aligned(64)));

struct cpu_state cpu_states[HOP_CPUS];

INLINE struct cpu_state *this_cpu(void)
{
	u32 cpu = bpf_get_smp_processor_id();

	opaque(cpu);
	return &cpu_states[cpu & (HOP_CPUS - 1)];
}

/* ---- who sends ---- */

/* A connected socket, by what never changes of it. */
static __attribute__((noinline)) bool socket_wanted(struct sock *sk)
{
	struct endpoints ends = {};

	if (cfg_namespaces && !namespace_wanted(socket_netns(sk)))
		return false;
	if (cfg_cgroups && !cgroup_wanted(socket_cgroup(sk)))
		return false;
	if (cfg_ports || cfg_addresses) {
		socket_endpoints(sk, &ends);
		return port_wanted(&ends) && address_wanted(&ends);
	}
	return true;
}

/* The group of a message of this socket that the running process sends. */
static __attribute__((noinline)) u32 sender_group(struct sock *sk)
{
	struct dst_entry *dst;
	struct net_device *dev;

	if (cfg_group_by == HOP_GROUP_PROCESS)
		return group_find(current_pid(), 0, &current_task()->comm);
	if (cfg_group_by == HOP_GROUP_CGROUP)
		return group_find(cgroup_id(socket_cgroup(sk)), 0, NULL);
	if (cfg_group_by == HOP_GROUP_NETNS)
		return group_find(0, socket_netns(sk), NULL);
	if (cfg_group_by == HOP_GROUP_INTERFACE) {
		dst = probe_field(sk, sk_dst_cache);
		dev = dst ? probe_field(dst, dev) : NULL;
		return dev ? group_find(probe_field(dev, ifindex), socket_netns(sk), &dev->name) : 0;
	}
	return 0;
}

/* Remember whose socket it is, for those who show single messages. */
static __attribute__((noinline)) void flow_remember(u64 cookie, struct sock *sk)
{
	struct task_struct *task = current_task();
	struct endpoints ends = {};
	struct hop_tx_flow flow = {};

	socket_endpoints(sk, &ends);
	__builtin_memcpy(flow.local, ends.address[0], sizeof(flow.local));
	__builtin_memcpy(flow.peer, ends.address[1], sizeof(flow.peer));
	flow.local_port = probe_field(sk, __sk_common.skc_num);
	flow.peer_port = ends.port[1];
	flow.netns = socket_netns(sk);
	flow.cgroup = cgroup_id(socket_cgroup(sk));
	flow.family = probe_field(sk, __sk_common.skc_family);
	flow.protocol = probe_field(sk, sk_protocol);
	flow.pid = probe_field(task, tgid);
	bpf_probe_read_kernel(flow.comm, sizeof(flow.comm), &task->comm);
	bpf_map_update_elem(&flows, &cookie, &flow, 0);
}
