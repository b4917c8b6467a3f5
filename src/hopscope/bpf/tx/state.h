// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Transmit latency: settings, and what is remembered of a packet below TCP and UDP. */
#pragma once

#include "common/events.h"

#define SERIES_HOPS HOP_TX_HOPS
#define SERIES_DISCARDS HOP_TX_DISCARDS
#define SERIES_BACKWARDS HOP_TX_BACKWARDS
#define COUNTERS hop_tx_counters
#define EVENT hop_tx_event
#define EVENT_BYTES (cfg_fields ? sizeof(struct hop_tx_event_tcp) : sizeof(struct hop_tx_event))
/* The programs of this collector interrupt each other. */
#define SERIES_SHARED(hop) true

#include "common/kernel.h"

const volatile bool cfg_fields = 0; /* messages come with the state of their sockets */

#include "common/message.h"
#include "common/own.h"
#include "common/sampling.h"
#include "tx/maps.h"

/* ---- settings: constants to the verifier, which drops the code of what is off ---- */

const volatile u32 cfg_sample = 1;        /* follow 1 message in N of a flow */
const volatile u64 cfg_gap_ns = 0;        /* and none sooner after the one before it in the flow */
const volatile u64 cfg_tick_ns = 4000000; /* of jiffies */
const volatile u32 cfg_sockets = 0;       /* TCP sockets that are followed at once */
const volatile bool cfg_qdisc = 0;        /* the hook behind the queueing disciplines is attached */
const volatile bool cfg_send = 0;         /* the hook at the send call's entry is attached */
const volatile bool cfg_stamped = 1;      /* TCP by the kernel's time stamps; else by tracing */
const volatile bool cfg_datagrams = 1;    /* what is not TCP is wanted at the hooks below */

EXPORT_ENUM(hop_tx_discard);
EXPORT_ENUM(hop_tx_cause);
EXPORT_ENUM(hop_tx_flags);
EXPORT_ENUM(hop_tx_limits);
EXPORT_ENUM(hop_tx_hop);
EXPORT_ENUM(hop_tx_stage);

struct hop_tx_event_tcp *exported_event_tcp;

/* ---- records ---- */

/* `tcp` is an array of HOP_TX_STAGES; NULL: nothing is known of them. */
static __always_inline void emit(const struct hop_tx_event *event, const struct hop_tx_tcp *tcp)
{
	struct hop_tx_event *slot = event_reserve();
	struct hop_tx_event_tcp *more = (void *)slot;

	if (!slot)
		return;
	*slot = *event;
	if (cfg_fields && tcp)
		__builtin_memcpy(more->tcp, tcp, sizeof(more->tcp));
	else if (cfg_fields)
		__builtin_memset(more->tcp, 0, sizeof(more->tcp));
	event_submit(slot);
}

/* ---- a packet below TCP and UDP ---- */

static __always_inline struct pass_set *pass_set(u64 head)
{
	u64 index = (head * 0x9e3779b97f4a7c15ULL) >> 48;

	barrier_var(index);
	return &pass_sets[index & (HOP_PASSES / PASS_WAYS - 1)];
}

/* Where a packet is in its set; PASS_WAYS: nowhere. Not static: the verifier then follows what is done with the packet once,
 * and not once for each place.
 */
__noinline u32 pass_where(u64 head)
{
	struct pass_set *set = pass_set(head);

#pragma unroll
	for (u32 i = 0; i < PASS_WAYS; i++)
		if (set->head[i] == head)
			return i;
	return PASS_WAYS;
}

static __always_inline struct pass *pass_find(u64 head)
{
	u32 place = pass_where(head);
	struct pass *pass;

	barrier_var(place);
	if (place >= PASS_WAYS)
		return NULL;
	pass = &pass_set(head)->pass[place];
	return since_known(pass->sched_ns) ? pass : NULL;
}

static __always_inline void pass_forget(u64 head)
{
	struct pass_set *set = pass_set(head);

#pragma unroll
	for (u32 i = 0; i < PASS_WAYS; i++)
		if (set->head[i] == head)
			set->head[i] = 0;
}

/* A datagram that was followed has no times below IP. */
static __always_inline void datagram_missed(u32 reason)
{
	discard(HOP_TX_UDP_QDISC, reason);
	discard(HOP_TX_UDP_DRIVER, reason);
	discard(HOP_TX_UDP_TOTAL, reason);
}

/* What was at a place that another packet takes now. */
static __always_inline void pass_replaced(const struct pass *pass)
{
	if (pass->followed && !pass->done_ns && since_known(pass->sched_ns))
		datagram_missed(HOP_TX_NO_STAMP);
}

/* A place for a packet: one that is free, or that of the oldest packet. Its address is set once it is filled in. */
static __noinline u32 pass_place(struct pass_set *set, u64 head)
{
	u64 oldest_ns = ~0ULL;
	u32 place = 0;

#pragma unroll
	for (u32 i = 0; i < PASS_WAYS; i++) {
		u64 age_ns = set->head[i] ? set->pass[i].sched_ns : 0;

		if (set->head[i] == head)
			return i;
		if (age_ns < oldest_ns) {
			oldest_ns = age_ns;
			place = i;
		}
	}
	return place;
}

/* A packet that comes to its first device. */
static __always_inline struct pass *pass_new(u64 head, u32 ifindex, u64 now_ns)
{
	struct pass_set *set = pass_set(head);
	u32 place = pass_place(set, head) & (PASS_WAYS - 1);
	struct pass *pass = &set->pass[place];

	if (set->head[place])
		pass_replaced(pass);
	set->head[place] = 0;
	barrier();
	pass->sched_ns = pass->last_ns = now_ns;
	pass->entry_ns = pass->qdisc_ns = pass->left_ns = pass->done_ns = 0;
	pass->followed = pass->unseen = 0;
	pass->devices = 1;
	__builtin_memset(pass->device, 0, sizeof(pass->device));
	pass->device[0].ifindex = ifindex;
	barrier();
	set->head[place] = head;
	return pass;
}

/* It comes to a further device, stacked below. */
static __always_inline void pass_next(struct pass *pass, u32 ifindex, u64 now_ns)
{
	u32 number = pass->devices;
	u64 after_ns = now_ns - pass->sched_ns;

	pass->unseen |= pass->left_ns < pass->last_ns;
	pass->last_ns = now_ns;
	barrier_var(number);
	if (number >= HOP_DEVICES)
		return;
	pass->device[number].ifindex = ifindex;
	pass->device[number].after_ns = after_ns > 0xffffffff ? 0xffffffff : after_ns;
	pass->devices = number + 1;
}

/* Was it seen leaving the queueing discipline of each device that it came to? */
static __always_inline bool pass_complete(const struct pass *pass)
{
	return !pass->unseen && pass->left_ns >= pass->last_ns;
}

/* A device on the way gave it new memory. */
static __always_inline struct pass *pass_move(u64 from, u64 to)
{
	struct pass *old = pass_find(from), *pass;

	if (!old)
		return NULL;
	pass = pass_new(to, 0, old->sched_ns);
	*pass = *old;
	pass_forget(from);
	return pass;
}

/* ---- a CPU ----
 *
 * A driver's function may hand its packet to a further device before it returns, and that one to the next. Nothing else
 * is sent on the CPU meanwhile, but what these devices send for themselves (ARP).
 */
#define NESTED 8 /* more than XMIT_RECURSION_LIMIT of the kernel lets happen, a power of two */

struct cpu_state {
	u64 head; /* of the packet that drivers' functions have in hand */
	u64 sched_ns;
	u32 depth; /* so many of them, */
	u32 below; /* the innermost of which has passed it on */
	u64 skb[NESTED];
} __attribute__((aligned(64)));

struct cpu_state cpu_states[HOP_CPUS]; /* user space clears it when programs are attached again */

static __always_inline struct cpu_state *this_cpu(void)
{
	u32 cpu = bpf_get_smp_processor_id();

	barrier_var(cpu);
	return &cpu_states[cpu & (HOP_CPUS - 1)];
}

static __always_inline u64 *nested_skb(struct cpu_state *cpu, u32 depth)
{
	barrier_var(depth);
	return &cpu->skb[depth & (NESTED - 1)];
}

/* ---- who sends ---- */

/* A connected socket, by what never changes of it. */
static __noinline bool socket_wanted(struct sock *sk)
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

/* A message of a connected socket, by what may change: who sends it, and whether it is ours. */
static __noinline bool message_wanted(struct sock *sk)
{
	return process_wanted() && !(cfg_own && own_socket(sk));
}

/* The group of a message of this socket that the running process sends to this device. */
static __noinline u32 group_of(struct sock *sk, struct net_device *dev)
{
	struct endpoints ends = {};

	if (cfg_group_by == HOP_GROUP_PROCESS)
		return group_find(current_pid(), 0, &current_task()->comm);
	if (cfg_group_by == HOP_GROUP_CGROUP)
		return group_find(cgroup_id(socket_cgroup(sk)), 0, NULL);
	if (cfg_group_by == HOP_GROUP_NETNS)
		return group_find(0, socket_netns(sk), NULL);
	if (cfg_group_by == HOP_GROUP_INTERFACE)
		return dev ? group_find(BPF_CORE_READ(dev, ifindex), socket_netns(sk), &dev->name) : 0;
	if (GROUPS_OF_FLOWS) {
		socket_endpoints(sk, &ends);
		return flow_group(sk, &ends);
	}
	return 0;
}

/* The same where the device is not known yet: where the socket's last packet went. */
static __always_inline u32 sender_group(struct sock *sk)
{
	struct dst_entry *dst = cfg_group_by == HOP_GROUP_INTERFACE ? BPF_CORE_READ(sk, sk_dst_cache) : NULL;

	return group_of(sk, dst ? BPF_CORE_READ(dst, dev) : NULL);
}

static __always_inline void flow_remember(u64 cookie, struct sock *sk)
{
	struct endpoints ends = {};

	socket_endpoints(sk, &ends);
	flow_note(cookie, sk, &ends, current_task());
}
