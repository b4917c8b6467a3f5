// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Receive latency: settings, and what is remembered of a CPU and of a packet. */
#pragma once

#include "common/events.h"

#define SERIES_HOPS HOP_RX_HOPS
#define SERIES_DISCARDS HOP_RX_DISCARDS
#define SERIES_BACKWARDS HOP_RX_BACKWARDS
#define COUNTERS hop_rx_counters
#define EVENT hop_rx_event
#define EVENT_BYTES sizeof(struct hop_rx_event)
/* The wait for order ends in a softirq or in the reader. */
#define SERIES_SHARED(hop) (cfg_programs_nest || (hop) == HOP_RX_TCP_ORDER)

/* ---- settings: constants to the verifier, which drops the code of what is off ---- */

const volatile enum hop_rx_order cfg_order = 0;
const volatile u32 cfg_sample = 1;         /* follow 1 packet in N */
const volatile u32 cfg_min_queue = 0;      /* packets in the socket's queue */
const volatile u32 cfg_stages = 0;         /* bit per enum hop_rx_stage that is attached */
const volatile bool cfg_since_entry = 0;   /* hops count from the entry instead of from the hop before */
const volatile bool cfg_defer = 0;         /* a fact that only the socket knows is asked for: record once it is known */
const volatile bool cfg_programs_nest = 1; /* the kernel lets a program interrupt itself */
const volatile bool cfg_nic_stamps = 0;    /* some NIC stamps what it receives */
/* What a program records that may be attached for another's sake alone. */
const volatile bool cfg_cgroup_records_tcp = 1;
const volatile bool cfg_cgroup_records_udp = 1;
const volatile bool cfg_ready_records_tcp = 1;
const volatile bool cfg_ready_records_udp = 1;
const volatile bool cfg_socket_storage = 1; /* 0: the kernel has no socket storage for tracing; hash by address */

const volatile u32 cfg_interfaces = 0;
const volatile struct hop_interface cfg_interface[HOP_FILTERS] = {};

#include "common/message.h"
#include "common/sampling.h"
#include "common/headers.h"
#include "rx/account.h"
#include "rx/maps.h"

EXPORT_ENUM(hop_rx_hop);
EXPORT_ENUM(hop_rx_discard);
EXPORT_ENUM(hop_rx_stage);
EXPORT_ENUM(hop_limits);
EXPORT_ENUM(hop_protocol_group);
EXPORT_ENUM(hop_rx_place);
EXPORT_ENUM(hop_rx_end);
EXPORT_ENUM(hop_rx_life);
EXPORT_ENUM(hop_rx_flags);

#define UNKNOWN_NS (~0ULL)

/* Are packets left out, by chance? */
#define SAMPLES (cfg_sample > 1 || cfg_budget)

/* ---- a CPU ---- */

struct cpu_state {
	u64 switched_in_ns; /* the running task came on the CPU ... */
	u64 start_ns;       /* ... was started then ... */
	u64 delay_ns;       /* ... and had waited so long for CPUs in its life before this last wait */
	u64 runnable_ns;    /* the second result of reader_off() */
	u64 off_ns;         /* and the first, of the last message that was read */
	u64 raised_ns;      /* NET_RX raised and not yet entered */
	u64 poll_ns;        /* start of the softirq's poll: its entry, or the end of the poll before */
	u64 socket;         /* the UDP socket that the datagram ... */
	u64 datagram;       /* ... with this head, and these headers in it, is on its way to */
	u16 network;
	u16 transport;
	u32 pad;
	u64 group_id; /* the last group that was looked up */
	u64 group_netns;
	u32 group;
	u32 skip;          /* packets to leave out before the next one is followed */
	u64 cgroup;        /* the last cgroup that the filter was asked about ... */
	u64 cgroup_wanted; /* ... and the answer */
	u64 busy;          /* the NAPI instance that a reader polls busily */
	u64 packet;        /* the skb that the core took last ... */
	u64 head;          /* ... its data ... */
	u64 segment;       /* ... and that of the last datagram that UDP cut it into */
	u64 first_ns;      /* ... when it entered ... */
	u64 handed_over;   /* the skb that a driver handed over last */
	struct stamp cut;  /* of a packet that UDP cuts: its memory may be another's before it is done with all of it */
} __attribute__((aligned(128)));

struct cpu_state cpu_states[HOP_CPUS]; /* user space clears it when programs are attached again */

static __always_inline struct cpu_state *this_cpu(void)
{
	u32 cpu = bpf_get_smp_processor_id();

	barrier_var(cpu);
	return &cpu_states[cpu & (HOP_CPUS - 1)];
}

/* ---- a packet ---- */

/* The lower half of its address, which the verifier lets be a number: what has the same is 4 GiB away. */
static __always_inline u32 skb_identity(const void *skb)
{
	u32 low;

	__asm__("%0 = %1" : "=w"(low) : "w"((u32)(u64)skb));
	return low;
}

/* The first choice keeps neighbours in memory, as allocators hand them out, on one page of the table: a mixing hash would
 * cost each packet a TLB miss, 25 to 40 ns. But where two slabs meet, many packets meet: the second choice mixes.
 */
static __always_inline struct stamp *stamp_choice(u64 head, bool second)
{
	u64 index = second ? (head * 0x9e3779b97f4a7c15ULL) >> 48 : (head >> 9) ^ (head >> 25);

	barrier_var(index);
	return &stamps[index & (HOP_STAMPS - 1)];
}

/* The stamp with this address, or one with another. */
static __always_inline struct stamp *stamp_slot(u64 head)
{
	struct stamp *stamp = stamp_choice(head, false);

	return likely(stamp->head == head) ? stamp : stamp_choice(head, true);
}

static __always_inline bool stamp_is_free(const struct stamp *stamp)
{
	/* A datagram is done once its reader has a copy, and in the account until it is read. */
	return (stamp->done && !stamp_is_open(stamp)) || stamp->stage <= HOP_STAGE_UNWANTED;
}

/* The slot for a packet that enters. */
static __always_inline struct stamp *stamp_take(u64 head)
{
	struct stamp *first = stamp_choice(head, false), *second, *other;

	if (likely(first->head == head || stamp_is_free(first)))
		return first;
	second = stamp_choice(head, true);
	if (second->head == head || stamp_is_free(second) || second->first_ns < first->first_ns)
		return second;
	/* Who is turned out must not be taken for one that had the same address before. */
	other = stamp_choice(first->head, true);
	if (other != first && other->head == first->head) {
		stamp_forget(other, first->head);
		other->head = 0;
	}
	return first;
}

/* What an older packet has left at an address is of none any more. */
static __always_inline void stamp_drop(u64 head)
{
	struct stamp *stamp = stamp_slot(head);

	if (stamp->head == head) {
		stamp_forget(stamp, head);
		stamp->head = 0;
	}
}

static __always_inline void stamp_fill(struct stamp *stamp, const struct stamp *from)
{
	for (u32 i = 1; i < sizeof(*stamp) / sizeof(u64); i++)
		((volatile u64 *)stamp)[i] = ((u64 *)from)[i];
	stamp->life = HOP_LIFE_NONE;
}

/* What is known of a packet is known at this address, too, but that it is in the account. */
static __always_inline struct stamp *stamp_put(u64 head, const struct stamp *from)
{
	struct stamp *stamp = stamp_take(head);

	stamp_forget(stamp, head);
	stamp->head = 0;
	barrier();
	stamp_fill(stamp, from);
	barrier();
	stamp->head = head;
	return stamp;
}

/* A packet's data has another address. */
static __noinline int stamp_move(u64 from_head, u64 head)
{
	u8 life;
	struct stamp *from = stamp_slot(from_head), *stamp;

	stamp_drop(head);
	if (from->head != from_head)
		return 0;
	stamp = stamp_put(head, from);
	life = from->life;
	from->life = HOP_LIFE_NONE;
	from->head = 0;
	barrier();
	stamp->life = life;
	return 0;
}

/* Where a packet still has the pages of its sender (MSG_ZEROCOPY to a socket of the same host), the kernel copies it before
 * TCP and UDP have it (skb_orphan_frags_rx): the skb stays, its data moves. Up to there a packet stays on its CPU.
 */
static __always_inline void stamp_follow(const void *skb, u64 head, bool last)
{
	struct cpu_state *cpu = this_cpu();

	if (unlikely(cpu->packet == (u64)skb && cpu->head != head)) {
		stamp_move(cpu->head, head);
		cpu->head = head;
	}
	if (last)
		cpu->packet = 0;
}

/* The core takes all packets of a list before the first of them goes on: is it one of these, of which `last` came last, rather
 * than one that had the same address before?
 */
static __always_inline bool stamp_is_on_its_way(const struct stamp *stamp, const struct stamp *last,
						const struct cpu_state *cpu, u32 identity)
{
	if (stamp->stage == HOP_STAGE_UNWANTED)
		return stamp->skb == identity && stamp->last_ns == cpu->poll_ns;
	return stamp->stage > HOP_STAGE_DRIVER && stamp->stage < HOP_STAGE_QUEUE && stamp->last_ns >= last->first_ns;
}

/* Several datagrams that came as one packet (UDP_SEGMENT of a sender on this host, or GRO) are cut for a socket that did not
 * ask for them as one (udp_unexpected_gso). Each has data of its own, and what the packet's stamp says of its way is true of
 * it. That of the packet itself is never queued. The packet is freed before the first of them comes, and its memory may have
 * another packet, of another CPU, before the last one does.
 */
static __noinline int stamp_follow_cut(u64 head, u32 identity)
{
	struct cpu_state *cpu = this_cpu();
	struct stamp *packet = stamp_slot(cpu->head), *stamp = stamp_slot(head);

	if (!cpu->segment) {
		if (packet->head != cpu->head || packet->stage >= HOP_STAGE_QUEUE || packet->first_ns != cpu->first_ns)
			return 0;
		if (stamp->head == head && stamp_is_on_its_way(stamp, packet, cpu, identity))
			return 0;
		stamp_fill(&cpu->cut, packet);
		packet->spent &= SEEN_ALL; /* the first one records what was put off */
		packet->way = HOP_PLACE_UDP;
	}
	cpu->segment = head;
	stamp_drop(head);
	stamp = stamp_put(head, &cpu->cut);
	cpu->cut.spent &= SEEN_ALL;
	stamp->skb = 0;
	if (!cfg_socket_facts && stamp->stage >= HOP_STAGE_CORE)
		account_entered(stamp);
	return 0;
}

/* `identity`: skb_identity() of the datagram; 0: it was here before. */
static __always_inline void stamp_follow_segment(u64 head, u32 identity)
{
	const struct cpu_state *cpu = this_cpu();

	if (unlikely(head != cpu->head && head != cpu->segment))
		stamp_follow_cut(head, identity);
}

/* The stamp of a packet that is wanted, or NULL (and counted, if it should have been there; where only the socket knows
 * whether it is wanted, by who knows the socket).
 */
static __always_inline struct stamp *stamp_find(u64 head, u32 hop)
{
	struct stamp *stamp = stamp_slot(head);

	if (unlikely(stamp->head != head)) {
		if (!cfg_defer)
			discard(hop, HOP_RX_NO_STAMP);
		return NULL;
	}
	if (stamp->stage == HOP_STAGE_UNWANTED)
		return NULL;
	if (unlikely(!since_known(stamp->first_ns))) {
		discard(hop, HOP_RX_NO_STAMP);
		return NULL;
	}
	return stamp;
}

/* The packet reaches a stage: record the hop that ends there. */
static __always_inline void stamp_pass(struct stamp *stamp, u32 hop, u32 stage, u64 now_ns)
{
	u64 from_ns = cfg_since_entry ? stamp->first_ns : stamp->last_ns;
	u32 expected = stage - 1;

	if (unlikely(stamp->stage >= stage)) {
		discard(hop, HOP_RX_AGAIN);
		return;
	}
	if (unlikely(stamp->stage != expected && cfg_stages & (1 << expected)))
		discard(hop, HOP_RX_SKIPPED_STAGE);
	/* In this order: a reader on another CPU that sees the stage sees its time (udp_set_next). */
	stamp->last_ns = now_ns;
	barrier();
	stamp->stage = stage;
	if ((cfg_defer || cfg_events) && stage <= HOP_STAGE_L4 && now_ns >= from_ns && now_ns >= stamp->first_ns) {
		stamp->spent_ns[stage - HOP_STAGE_CORE] = now_ns - stamp->first_ns;
		stamp->spent |= SEEN(stage) | (cfg_defer ? 1 << (stage - HOP_STAGE_CORE) : 0);
		if (cfg_defer)
			return;
	}
	record(hop, stamp->group, from_ns, now_ns);
}

/* Record a hop that was put off; return where the next one begins, since the entry. */
static __always_inline u64 settle_hop(const struct stamp *stamp, u32 stage, u32 hop, u64 from_ns)
{
	if (!(stamp->spent & 1 << (stage - HOP_STAGE_CORE)))
		return from_ns;
	record(hop, stamp->group, from_ns, stamp->spent_ns[stage - HOP_STAGE_CORE]);
	return cfg_since_entry ? 0 : stamp->spent_ns[stage - HOP_STAGE_CORE];
}

/* The socket is known now: record what was put off. */
static __always_inline void stamp_settle(struct stamp *stamp, u32 l4_hop)
{
	u64 from_ns = 0;

	if (cfg_nic_stamps && stamp->spent & SPENT_NIC)
		record(HOP_RX_NIC, stamp->group, 0, stamp->nic_spent_ns);
	from_ns = settle_hop(stamp, HOP_STAGE_CORE, HOP_RX_CORE, from_ns);
	from_ns = settle_hop(stamp, HOP_STAGE_IP, HOP_RX_IP, from_ns);
	settle_hop(stamp, HOP_STAGE_L4, l4_hop, from_ns);
	stamp->spent &= SEEN_ALL;
}
