// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Recording: the hooks of sockets, of interrupts, softirqs, polls and the scheduler, and of XDP. */
#pragma once

#include "common/tcp.h"
#include "record/socket.h"

/* ---- sockets ---- */

static __always_inline int socket_event(struct sock *sk, u32 point, bool receives, bool in_call, s32 len_bytes,
					s64 value)
{
	struct socket_event event = {
		.point = point,
		.receives = receives,
		.in_call = in_call,
		.len_bytes = len_bytes,
		.value = value,
	};

	record_socket(sk, &event);
	return 0; /* a program at a function may return nothing else */
}

static __always_inline int send_call(struct sock *sk, struct msghdr *msg)
{
	u64 left = 0;

	if (!first_look(sk, msg, &left))
		return 0;
	return socket_event(sk, HOP_POINT_TX_SEND, false, true, left, 0);
}

/* Into these states calls bring it, connect(2) and listen(2); into others packets and timers, too. */
#define TCP_LISTEN 10

static __always_inline int state_changes(struct sock *sk, u32 from, u32 to)
{
	return socket_event(sk, HOP_POINT_TCP_STATE, false, to == TCP_SYN_SENT || to == TCP_LISTEN, 0, from << 8 | to);
}

const volatile u32 cfg_retransmit_arguments =
	2; /* that this kernel's tracepoint has: a third is an error (since 6.16) */

/* The packet waits in the socket and has no headers yet: its flow is the socket's. */
static __always_inline int retransmitted(struct sock *sk, struct sk_buff *skb, s32 error)
{
	struct tcp_skb_cb *cb = (void *)skb->cb;
	struct flow_key key = {};
	u32 netns = socket_netns(sk), tid, ring;
	u64 flow = error ? 0 : wanted_flow(sk, &key), now_ns;

	if (!flow)
		return 0;
	tid = thread_here();
	now_ns = bpf_ktime_get_ns();
	ring = PUT(hop_packet, &key,
		   {
			   .time_ns = now_ns,
			   .point = HOP_POINT_TCP_RETRANSMIT,
			   .tid = tid,
			   .skb = (u64)skb,
			   .head = address(skb->head),
			   .flow = flow,
			   .len_bytes = skb->len,
			   .seq = BPF_CORE_READ(cb, seq),
			   .netns = netns,
		   });
	if (cfg_rules && ring) {
		know_flow(flow, &key, ring);
		know_thread(tid, now_ns, ring);
	}
	return 0;
}

/* ---- what CPUs do ---- */

/* Returns the ring, also where that had no room. */
static __always_inline u32 write_work(const struct hop_work *event, const struct net_device *dev)
{
	u32 ring = MAIN_RING;
	struct hop_work *record;

	if (cfg_rules) {
		struct hop_work draft = *event;

		ring = ring_of(&draft, &no_key, dev, 0);
		if (!ring)
			return NO_RING;
	}
	record = reserve(ring);
	if (record) {
		*record = *event;
		submit(record);
	}
	return ring;
}

static __always_inline int record_work_at(struct hop_work *event, const struct net_device *dev)
{
	u32 ring;

	event->tid = thread_here();
	event->time_ns = bpf_ktime_get_ns();
	ring = write_work(event, dev);
	if (ring)
		thread_is_kept(event->tid, event->time_ns, ring);
	return 0;
}

static __always_inline int record_work(struct hop_work *event)
{
	return record_work_at(event, NULL);
}

static __always_inline int work(u32 point, u64 subject, s64 value)
{
	struct hop_work event = {.point = point, .subject = subject, .value = value};

	return record_work(&event);
}

static __always_inline void work_at_device(struct hop_work *event, struct net_device *dev)
{
	event->ifindex = dev->ifindex;
	event->netns = dev->nd_net.net->ns.inum;
	know_device(dev, event->ifindex, event->netns);
}

/* The backlog queue, which lo and veth use, is an instance with no device. */
static __always_inline int polled(struct napi_struct *napi, s32 packets, s32 budget)
{
	struct hop_work event = {
		.point = HOP_POINT_NAPI_POLL,
		.subject = (u64)napi,
		.value = packets,
		.extra = budget,
	};

	if (napi->dev) {
		work_at_device(&event, napi->dev);
		if (!interface_wanted(event.ifindex, event.netns) || !namespace_wanted(event.netns))
			return 0;
	}
	return record_work_at(&event, napi->dev);
}

#define PF_KTHREAD 0x00200000

/* The system call that a thread sleeps in, and 1. */
static __always_inline u32 call_of(struct task_struct *task)
{
	struct pt_regs *regs;
	s32 number;

	if (!bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_task_pt_regs) || task->flags & PF_KTHREAD)
		return 0;
	regs = (void *)bpf_task_pt_regs(bpf_get_current_task_btf());
	number = SYSTEM_CALL(regs);
	return (u32)(number + 1) & HOP_SWITCH_CALL;
}

/* It would like to go on, but its cgroup has no time left. */
static __always_inline bool is_throttled(struct task_struct *task)
{
	struct cfs_rq *queue;

	if (bpf_core_field_exists(task->throttled))
		return BPF_CORE_READ(task, throttled);
	if (!bpf_core_field_exists(task->se.cfs_rq) || !bpf_core_field_exists(struct cfs_rq, throttle_count))
		return false;
	queue = (void *)BPF_CORE_READ(task, se.cfs_rq);
	return queue && BPF_CORE_READ(queue, throttle_count);
}

static __always_inline struct wish *wish_of(u32 tid)
{
	u32 index = tid;

	barrier_var(index);
	return &wishes[index & (WISHES - 1)];
}

static __always_inline void wishes_cpu(u32 tid)
{
	struct wish *wish = wish_of(tid);

	wish->since_ns = bpf_ktime_get_ns();
	wish->tid = tid;
}

/* A turn ends, and the next one begins. The caller adds the thread's name. */
static __always_inline struct turn *end_turn(struct turns *all, u32 tid, u32 pid)
{
	struct turn *turn = &all->turn[all->count++ & (TURNS - 1)];
	u64 now_ns = bpf_ktime_get_ns();

	turn->begin_ns = all->begin_ns;
	turn->end_ns = now_ns;
	turn->tid = tid;
	turn->pid = pid;
	all->begin_ns = now_ns;
	return turn;
}

static __always_inline struct turns *note_turn(struct task_struct *from)
{
	struct turns *all = bpf_map_lookup_elem(&turns, &(u32){0});
	struct turn *turn;

	if (!all)
		return NULL;
	turn = end_turn(all, from->pid, from->tgid);
	/* At each switch of the host: a helper takes 40 ns for it, single bytes, which is what the verifier allows, 2. */
	for (u32 i = 0; i < sizeof(turn->comm); i++)
		turn->comm[i] = from->comm[i];
	return all;
}

static __always_inline void turn_event(struct hop_work *record, const struct turn *turn, u32 waited_tid)
{
	*record = (struct hop_work){
		.time_ns = turn->end_ns,
		.point = HOP_POINT_SCHED_TURN,
		.tid = turn->tid,
		.subject = waited_tid,
		.value = turn->end_ns - turn->begin_ns,
	};
}

/* No static function: so the verifier looks at it once, rather than at each turn of the loop. */
__noinline int turn_ring(u32 place, u32 waited_tid)
{
	struct turns *all = bpf_map_lookup_elem(&turns, &(u32){0});
	struct hop_beside beside = {};
	const struct turn *turn;
	struct hop_work draft;

	if (!cfg_rules || !all)
		return MAIN_RING;
	turn = &all->turn[place & (TURNS - 1)];
	beside.pid = turn->pid;
	bpf_probe_read_kernel_str(beside.comm, sizeof(beside.comm), turn->comm);
	turn_event(&draft, turn, waited_tid);
	return ring_for(&draft, &no_key, &beside);
}

/* Tell of the turn at a place of the ring, if it was in the wait; 0: there is no room for more. Not static: so the verifier
 * follows it once, rather than at each turn of the loop below.
 */
__noinline int turn_told(u32 place, u64 since_ns, u32 waited_tid)
{
	struct turns *all = bpf_map_lookup_elem(&turns, &(u32){0});
	u32 ring = MAIN_RING;
	struct hop_work *record;
	struct turn *turn;

	if (!all)
		return 0;
	turn = &all->turn[place & (TURNS - 1)];
	if (turn->end_ns <= since_ns || !turn->begin_ns || handles_frames(turn->tid))
		return 1;
	if (cfg_rules)
		ring = turn_ring(place, waited_tid);
	if (!ring) {
		turn->end_ns = 0;
		return 1;
	}
	if (turn->tid && !thread_in(&known_threads, turn->tid))
		tell_turn(turn, ring);
	record = reserve(ring);
	if (!record)
		return 0;
	turn_event(record, turn, waited_tid);
	submit(record);
	turn->end_ns = 0;
	return 1;
}

/* From the oldest on. */
static __always_inline void tell_turns(const struct turns *all, u64 since_ns, u32 waited_tid)
{
	u32 oldest = all->count;

	for (u32 i = 0; i < TURNS; i++)
		if (!turn_told(oldest + i, since_ns, waited_tid))
			return;
}

/* It has got its CPU: who had it meanwhile? */
static __always_inline void wish_granted(struct turns *all, u32 tid)
{
	struct wish *wish = wish_of(tid);

	if (wish->tid != tid)
		return;
	wish->tid = 0;
	if (all && all->begin_ns - wish->since_ns >= HOP_WAIT_NS)
		tell_turns(all, wish->since_ns, tid);
}

/* The state of the thread that leaves: 0 where it would like to go on. */
static __always_inline int thread_switches(bool preempted, struct task_struct *from, struct task_struct *to)
{
	struct hop_work event = {.point = HOP_POINT_SCHED_SWITCH};
	struct turns *all = note_turn(from);
	u32 from_tid = from->pid, to_tid = to->pid;

	if (!thread_in(&socket_threads, from_tid) && !thread_in(&socket_threads, to_tid))
		return 0;
	if (handles_frames(from_tid) || handles_frames(to_tid))
		return 0;
	event.subject = to_tid;
	event.value = preempted ? 0 : task_state(from);
	if (event.value)
		event.extra = call_of(from);
	else if (is_throttled(from))
		event.extra = HOP_SWITCH_THROTTLED;
	if (thread_in(&socket_threads, to_tid))
		wish_granted(all, to_tid);
	if (!event.value)
		wishes_cpu(from_tid);
	return record_work(&event);
}

/* With threaded NAPI: packets wait for it. */
static __always_inline bool polls_device(const struct task_struct *task)
{
	return task->comm[0] == 'n' && task->comm[1] == 'a' && task->comm[2] == 'p' && task->comm[3] == 'i' &&
	       task->comm[4] == '/';
}

static __always_inline int thread_wakes(struct task_struct *task)
{
	u32 tid = task->pid;

	if (!thread_in(&socket_threads, tid)) {
		if (!polls_device(task))
			return 0;
		thread_add(&socket_threads, tid);
	}
	if (handles_frames(tid))
		return 0;
	wishes_cpu(tid);
	return work(HOP_POINT_SCHED_WAKE, tid, 0);
}

/* A number is another's from here on. The end of the first one is no good: after its tracepoint the thread closes its
 * sockets, and is made known once more.
 */
static __always_inline int thread_begins(struct task_struct *task)
{
	u32 tid = task->pid;

	thread_remove(&known_threads, tid);
	thread_remove(&socket_threads, tid);
	thread_remove(&frame_threads, tid);
	return 0;
}

static __always_inline int thread_renamed(struct task_struct *task)
{
	thread_remove(&known_threads, task->pid);
	return 0;
}

/* ---- XDP ---- */

static __always_inline int xdp(struct net_device *dev, u32 point, u64 program, u32 action, s32 error)
{
	struct hop_work event = {.point = point, .subject = program, .value = action, .extra = error};

	work_at_device(&event, dev);
	if (!interface_wanted(event.ifindex, event.netns) || !namespace_wanted(event.netns))
		return 0;
	return record_work_at(&event, dev);
}

#define XDP_REDIRECT 4

static __always_inline int xdp_failed(struct net_device *dev, const struct bpf_prog *program, u32 action)
{
	return xdp(dev, HOP_POINT_XDP_EXCEPTION, program->aux->id, action, 0);
}

static __always_inline int xdp_redirected(struct net_device *dev, const struct bpf_prog *program, s32 error)
{
	return xdp(dev, HOP_POINT_XDP_REDIRECT, program->aux->id, XDP_REDIRECT, error);
}
