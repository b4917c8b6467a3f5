// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Recording: the rings, what is lost, and what user space has been told of numbers in the records. */
#pragma once

#include "common/events.h"
#include "common/headers.h"
#include "common/ring.h"
#include "record/maps.h"

EXPORT_ENUM(hop_point);
EXPORT_ENUM(hop_limit);
EXPORT_ENUM(hop_limit_value);
EXPORT_ENUM(hop_switch_extra);
EXPORT_ENUM(hop_record_limits);
EXPORT_STRUCT(hop_packet);
EXPORT_STRUCT(hop_plaintext);
EXPORT_STRUCT(hop_socket);
EXPORT_STRUCT(hop_work);
EXPORT_STRUCT(hop_drop);
EXPORT_STRUCT(hop_flow);
EXPORT_STRUCT(hop_tcp);
EXPORT_STRUCT(hop_thread);
EXPORT_STRUCT(hop_device);
EXPORT_STRUCT(hop_capture);

static __always_inline u32 current_tid(void)
{
	return bpf_get_current_pid_tgid();
}

/* All records have one size: whichever struct it is. */
#define RECORD_BYTES sizeof(struct hop_packet)
_Static_assert(sizeof(struct hop_socket) == RECORD_BYTES, "one size");
_Static_assert(sizeof(struct hop_work) == RECORD_BYTES, "one size");
_Static_assert(sizeof(struct hop_drop) == RECORD_BYTES, "one size");
_Static_assert(sizeof(struct hop_flow) == RECORD_BYTES, "one size");
_Static_assert(sizeof(struct hop_tcp) == RECORD_BYTES, "one size");
_Static_assert(sizeof(struct hop_thread) == RECORD_BYTES, "one size");
_Static_assert(sizeof(struct hop_device) == RECORD_BYTES, "one size");

static __always_inline void count_lost(u32 number)
{
	u32 cpu = bpf_get_smp_processor_id(), class = number - MAIN_RING - 1;
	struct hop_record_counters *counters;

	barrier_var(cpu);
	counters = &record_counters[cpu & (HOP_CPUS - 1)];
	barrier_var(class);
	if (cfg_classes && class < HOP_CLASSES)
		atomic_add(&counters->class_lost[class], 1);
	else
		atomic_add(&counters->lost, 1);
}

/* Room for what says what a number in records means, or NULL: the next event that has the number says it. */
static __always_inline void *reserve_name(u32 number)
{
	u32 cpu = bpf_get_smp_processor_id(), index = cpu;
	void *ring;

	if (cfg_classes)
		index = cpu * (MAIN_RING + cfg_classes) + number - MAIN_RING;
	ring = bpf_map_lookup_elem(&rings, &index);
	return ring ? bpf_ringbuf_reserve(ring, RECORD_BYTES, 0) : NULL;
}

/* Room for an event, or NULL, counted. */
static __always_inline void *reserve(u32 number)
{
	void *record = reserve_name(number);

	if (unlikely(!record))
		count_lost(number);
	return record;
}

/* What devices and queueing disciplines are is said in the first class's ring, where there is one: there are few of them, and
 * what is of no class may leave no room for them.
 */
#define NAMES_RING (cfg_classes ? MAIN_RING + 1 : MAIN_RING)

static __always_inline void submit(void *record)
{
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
}

/* ---- numbers that user space knows the meaning of ---- */

static __always_inline u64 *thread_word(struct thread_set *set, u32 tid)
{
	u32 index = tid / 64;

	barrier_var(index);
	return &set->words[index & (THREADS / 64 - 1)];
}

static __always_inline bool thread_in(struct thread_set *set, u32 tid)
{
	return *thread_word(set, tid) >> (tid & 63) & 1;
}

/* Another CPU's bit may go down in the word: then its thread is made known a second time. */
static __always_inline void thread_add(struct thread_set *set, u32 tid)
{
	*thread_word(set, tid) |= 1ULL << (tid & 63);
}

static __always_inline void thread_remove(struct thread_set *set, u32 tid)
{
	*thread_word(set, tid) &= ~(1ULL << (tid & 63));
}

/* Frames of hopscope's own, which are no packets of IP: events that it sends; 0: there are none. In network order. */
const volatile u16 cfg_own_ethertype = 0;

/* Does it send them, or may it take them? What that makes the host do would be events, and frames, without end. */
static __always_inline bool handles_frames(u32 tid)
{
	return cfg_own_ethertype && thread_in(&frame_threads, tid);
}

static __noinline int tell_thread(u32 tid, u64 time_ns, u32 ring)
{
	struct task_struct *task = current_task();
	struct hop_thread *record = reserve_name(ring);

	if (!record)
		return 0;
	*record = (struct hop_thread){
		.time_ns = time_ns,
		.point = HOP_POINT_THREAD,
		.tid = tid,
		.pid = current_pid(),
		.cgroup = bpf_get_current_cgroup_id(),
	};
	bpf_probe_read_kernel(record->comm, sizeof(record->comm), &task->comm);
	submit(record);
	thread_add(&known_threads, tid);
	return 0;
}

/* The same of a thread that has left its CPU. */
static __noinline int tell_turn(const struct turn *turn, u32 ring)
{
	struct hop_thread *record = turn ? reserve_name(ring) : NULL;

	if (!record)
		return 0;
	*record = (struct hop_thread){
		.time_ns = turn->end_ns,
		.point = HOP_POINT_THREAD,
		.tid = turn->tid,
		.pid = turn->pid,
	};
	__builtin_memcpy(record->comm, turn->comm, sizeof(record->comm));
	submit(record);
	thread_add(&known_threads, turn->tid);
	return 0;
}

/* User space knows the running thread now, from that time on. */
static __always_inline void know_thread(u32 tid, u64 time_ns, u32 ring)
{
	if (unlikely(tid && !thread_in(&known_threads, tid)))
		tell_thread(tid, time_ns, ring);
}

static __always_inline u32 this_thread(void)
{
	u32 tid = current_tid();

	if (unlikely(tid && !thread_in(&known_threads, tid)))
		tell_thread(tid, bpf_ktime_get_ns(), MAIN_RING);
	return tid;
}

#define DEVICES 1024

u64 known_devices[DEVICES];

static __noinline int tell_device(struct net_device *dev, u32 ifindex, u32 netns)
{
	u32 index = (ifindex ^ netns * 31) & (DEVICES - 1);
	struct hop_device *record = reserve_name(NAMES_RING);

	if (!record)
		return 0;
	*record = (struct hop_device){
		.time_ns = bpf_ktime_get_ns(),
		.point = HOP_POINT_DEVICE,
		.type = BPF_CORE_READ(dev, type),
		.ifindex = ifindex,
		.netns = netns,
	};
	bpf_probe_read_kernel(record->name, sizeof(record->name), &dev->name);
	submit(record);
	known_devices[index] = (u64)netns << 32 | ifindex;
	return 0;
}

static __always_inline bool device_is_known(u32 ifindex, u32 netns)
{
	return known_devices[(ifindex ^ netns * 31) & (DEVICES - 1)] == ((u64)netns << 32 | ifindex);
}

static __always_inline void know_device(struct net_device *dev, u32 ifindex, u32 netns)
{
	if (unlikely(!device_is_known(ifindex, netns)))
		tell_device(dev, ifindex, netns);
}

/* ---- flows ---- */

static __always_inline u64 *flow_place(u64 flow)
{
	u32 index = flow;

	barrier_var(index);
	return &known_flows.flows[index & (FLOWS - 1)];
}

static __always_inline struct flow_line *wanted_line(u64 flow)
{
	u32 index = flow;

	barrier_var(index);
	return &wanted_flows.lines[index & (FLOWS / WAYS - 1)];
}

/* 1 for everything but 0, without a branch: each doubles the ways that the verifier follows. */
static __always_inline u64 is_other(u64 difference)
{
	u64 top = difference | -difference;

	barrier_var(top);
	return top >> 63;
}

static __noinline bool flow_wanted(u64 flow)
{
	const struct flow_line *line = wanted_line(flow);
	u64 others = 1;

	for (u32 i = 0; i < WAYS; i++)
		others &= is_other(line->flows[i] ^ flow);
	return flow && !others;
}

/* In the last free place, or, where there is none, any. */
static __noinline int want_flow(u64 flow)
{
	struct flow_line *line = wanted_line(flow);
	u64 place = flow >> 32;

	if (!flow || flow_wanted(flow))
		return 0;
	for (u32 i = 0; i < WAYS; i++)
		place += (i - place) * (1 - is_other(line->flows[i]));
	barrier_var(place);
	line->flows[place & (WAYS - 1)] = flow;
	return 0;
}

/* Of one end of UDP, whoever is at the other: a socket that is not connected has no more of its flows. */
static __always_inline u64 end_of(const u32 *address, u16 port, u32 netns)
{
	u64 hash = (u64)netns << 32 | IPPROTO_UDP << 16 | port;

	hash = flow_mix(hash, (u64)address[0] << 32 | address[1]);
	hash = flow_mix(hash, (u64)address[2] << 32 | address[3]);
	return hash ^ hash >> 32;
}

/* The same, whatever its address. */
static __always_inline u64 end_anywhere(u16 port, u32 netns)
{
	u64 hash = flow_mix((u64)netns << 32 | IPPROTO_UDP << 16, port);

	return hash ^ hash >> 32;
}

const volatile u32 cfg_sample = 1; /* follow 1 flow in N */

/* The same for both directions, at every hook and on every host. */
static __always_inline bool flow_sampled(const struct flow_key *key)
{
	u64 sum = key->protocol;

	for (u32 end = 0; end < 2; end++) {
		u64 high = (u64)key->ends.address[end][0] << 32 | key->ends.address[end][1];
		u64 low = (u64)key->ends.address[end][2] << 32 | key->ends.address[end][3];

		sum += flow_mix(flow_mix(flow_mix(high, 0), low), key->ends.port[end]);
	}
	return !(flow_mix(sum, 0) % cfg_sample);
}

static __noinline int tell_flow(u64 flow, const struct flow_key *key, u32 ring)
{
	struct hop_flow *record;

	if (!key)
		return 0;
	record = reserve_name(ring);
	if (!record)
		return 0;
	record->time_ns = bpf_ktime_get_ns();
	record->point = HOP_POINT_FLOW;
	record->protocol = key->protocol;
	record->pad = 0;
	record->port[0] = key->ends.port[0];
	record->port[1] = key->ends.port[1];
	record->flow = flow;
	__builtin_memcpy(record->source, key->ends.address[0], sizeof(record->source));
	__builtin_memcpy(record->destination, key->ends.address[1], sizeof(record->destination));
	submit(record);
	*flow_place(flow) = flow;
	return 0;
}

static __always_inline void know_flow(u64 flow, const struct flow_key *key, u32 ring)
{
	if (unlikely(*flow_place(flow) != flow))
		tell_flow(flow, key, ring);
}
