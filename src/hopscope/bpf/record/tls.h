// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Recording: calls of a TLS library that take plaintext from a program, or give it some. What it is, is read if it is asked
 * for alone.
 */
#pragma once

#include "record/calls.h"
#include "record/work.h"

const volatile bool cfg_libraries = 0; /* calls of libraries are recorded */
const volatile u32 cfg_tls_bytes = 0;  /* bytes of each call's plaintext; 0: none */

#define TLS_EFAULT 14 /* asm-generic/errno-base.h */
#define TLS_MOST 0x7fffffff
/* `seq` of a goroutine's call, and of what it does on sockets, which may be on several threads. Of others it is 0. */
static __always_inline u32 tls_number(u64 begin_ns)
{
	u32 number = begin_ns;

	return number ? number : 1;
}

static __always_inline struct tls_frame tls_frame(struct pt_regs *regs, bool returned)
{
	u64 stack = PT_REGS_SP(regs);

#if defined(__TARGET_ARCH_x86)
	if (!returned) /* the address to return to is on the stack */
		stack += sizeof(u64);
#endif
	return (struct tls_frame){.stack = stack, .caller = current_tid()};
}

static __always_inline struct cgroup *task_cgroup(void)
{
	struct css_set *set = BPF_CORE_READ(current_task(), cgroups);

	return BPF_CORE_READ(set, dfl_cgrp);
}

static __always_inline bool tls_wanted(void)
{
	if (cfg_by_process && !process_wanted())
		return false;
	if (cfg_cgroups && !cgroup_wanted(task_cgroup()))
		return false;
	return !cfg_namespaces || namespace_wanted(task_netns());
}

static __always_inline int tls_begins(struct pt_regs *regs, u64 bytes_at)
{
	struct tls_frame frame;
	struct tls_call call;

	if (!tls_wanted())
		return 0;
	frame = tls_frame(regs, false);
	call = (struct tls_call){
		.begin_ns = bpf_ktime_get_ns(),
		.ssl = PT_REGS_PARM1(regs),
		.bytes_at = bytes_at,
		.data = PT_REGS_PARM2(regs),
	};
	bpf_map_update_elem(&tls_calls, &frame, &call, 0);
	return 0;
}

/* The result, or what stands for it: the number of bytes if the function succeeded. */
static __always_inline s32 tls_bytes(s32 result, u64 bytes_at)
{
	u64 len_bytes = 0;

	if (!bytes_at || result <= 0)
		return result;
	if (bpf_probe_read_user(&len_bytes, sizeof(len_bytes), (void *)bytes_at))
		return -TLS_EFAULT;
	return len_bytes < TLS_MOST ? len_bytes : TLS_MOST;
}

static __always_inline void take_plaintext(u64 data, u32 len_bytes, u64 time_ns, u32 tid)
{
	u32 cpu = bpf_get_smp_processor_id();
	void *ring = bpf_map_lookup_elem(&plaintexts, &cpu);
	struct hop_plaintext *record;

	record = ring ? bpf_ringbuf_reserve(ring, sizeof(*record) + cfg_tls_bytes, 0) : NULL;
	if (!record) {
		barrier_var(cpu);
		atomic_add(&record_counters[cpu & (HOP_CPUS - 1)].plaintexts_lost, 1);
		return;
	}
	if (len_bytes > cfg_tls_bytes)
		len_bytes = cfg_tls_bytes;
	record->time_ns = time_ns;
	record->tid = tid;
	record->captured_bytes = bpf_probe_read_user(record + 1, len_bytes, (void *)data) ? 0 : len_bytes;
	submit(record);
}

static __always_inline int tls_event(u32 point, const struct tls_frame *frame, s32 result, u64 end)
{
	struct tls_call *found = bpf_map_lookup_elem(&tls_calls, frame), call;
	s32 len_bytes;
	u32 tid, ring;
	u64 now_ns;

	if (!found)
		return 0;
	now_ns = bpf_ktime_get_ns();
	call = *found;
	len_bytes = tls_bytes(result, call.bytes_at);
	bpf_map_delete_elem(&tls_calls, frame);
	tid = thread_here();
	if (cfg_calls_by_flow && !thread_in(&socket_threads, tid))
		return 0;
	ring = PUT(hop_socket, &no_key,
		   {
			   .time_ns = now_ns,
			   .point = point,
			   .tid = tid,
			   .sock = call.ssl,
			   .value = now_ns - call.begin_ns,
			   .seq = frame->pid ? tls_number(call.begin_ns) : 0,
			   .len_bytes = len_bytes,
			   .netns = task_netns(),
		   });
	if (!ring)
		return 0;
	thread_is_kept(tid, now_ns, ring);
	if (cfg_tls_bytes && len_bytes > 0)
		take_plaintext(call.from_end ? end - call.from_end : call.data, len_bytes, now_ns, tid);
	return 0;
}

static __always_inline int tls_ends(struct pt_regs *regs, u32 point)
{
	struct tls_frame frame = tls_frame(regs, true);

	return tls_event(point, &frame, PT_REGS_RC(regs), 0);
}

/* ---- Go ----
 *
 * Since 1.17, registers have the running goroutine, the arguments and the results (cmd/compile/abi-internal.md). A return
 * address on a stack that moves must not be changed, as the kernel does to see a return: programs are at each instruction
 * that returns instead.
 */
#if defined(__TARGET_ARCH_x86)
#define GO_GOROUTINE(regs) ((regs)->r14)
#define GO_FIRST(regs) ((regs)->ax)
#define GO_SECOND(regs) ((regs)->bx)
#else /* user space finds no function of Go's there */
#define GO_GOROUTINE(regs) 0
#define GO_FIRST(regs) 0
#define GO_SECOND(regs) 0
#endif
/* struct g begins with it. */
struct go_stack {
	u64 begin;
	u64 end;
};

static __always_inline bool go_frame(struct pt_regs *regs, struct tls_frame *frame, struct go_stack *stack)
{
	u64 goroutine = GO_GOROUTINE(regs);

	if (bpf_probe_read_user(stack, sizeof(*stack), (void *)goroutine))
		return false;
	*frame = (struct tls_frame){.stack = stack->end - PT_REGS_SP(regs), .caller = goroutine, .pid = current_pid()};
	return true;
}

static __always_inline int go_begins(struct pt_regs *regs)
{
	struct tls_call call = {.ssl = GO_FIRST(regs), .data = GO_SECOND(regs)};
	struct go_stack stack = {};
	struct goroutine goroutine;
	struct tls_frame frame;

	if (!tls_wanted() || !go_frame(regs, &frame, &stack))
		return 0;
	if (call.data >= stack.begin && call.data < stack.end)
		call.from_end = stack.end - call.data;
	goroutine = (struct goroutine){.address = frame.caller, .pid = frame.pid};
	call.begin_ns = bpf_ktime_get_ns();
	bpf_map_update_elem(&tls_calls, &frame, &call, 0);
	bpf_map_update_elem(&tls_goroutines, &goroutine, &call, 0);
	return 0;
}

static __always_inline int go_ends(struct pt_regs *regs, u32 point)
{
	struct go_stack stack = {};
	struct goroutine goroutine;
	struct tls_frame frame;

	if (!go_frame(regs, &frame, &stack))
		return 0;
	goroutine = (struct goroutine){.address = frame.caller, .pid = frame.pid};
	bpf_map_delete_elem(&tls_goroutines, &goroutine);
	return tls_event(point, &frame, GO_FIRST(regs), stack.end);
}

/* ---- sockets ---- */

static __always_inline u64 user_goroutine(void)
{
#if defined(__TARGET_ARCH_x86)
	struct pt_regs *regs;

	if (!bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_task_pt_regs))
		return 0;
	regs = (void *)bpf_task_pt_regs(bpf_get_current_task_btf());
	return BPF_CORE_READ(regs, r14);
#else
	return 0;
#endif
}

/* Is it a goroutine that uses the socket, in a call that was seen to begin? */
static __noinline int goroutine_uses(struct sock *sk, const struct socket_event *event)
{
	struct goroutine goroutine = {.address = user_goroutine(), .pid = current_pid()};
	struct tls_call *call = bpf_map_lookup_elem(&tls_goroutines, &goroutine);
	struct flow_key key = {};
	u32 ring;
	u64 flow;

	if (!call)
		return 0;
	flow = socket_flow(sk, event->receives, &key);
	ring = PUT(hop_socket, &key,
		   {
			   .time_ns = bpf_ktime_get_ns(),
			   .point = HOP_POINT_TLS_SOCKET,
			   .protocol = key.protocol,
			   .tid = current_tid(),
			   .sock = call->ssl,
			   .flow = flow,
			   .value = event->point,
			   .seq = tls_number(call->begin_ns),
			   .len_bytes = event->len_bytes,
			   .netns = sk->__sk_common.skc_net.net->ns.inum,
		   });
	if (cfg_rules && ring)
		know_flow(flow, &key, ring);
	return 0;
}

/* A call that sends or receives is done. */
static __always_inline int socket_used(struct sock *sk, u32 point, bool receives, s32 result, u32 flags)
{
	struct socket_event event = {
		.point = point,
		.receives = receives,
		.in_call = true,
		.len_bytes = result,
		.value = flags,
	};

	if (record_socket(sk, &event) && cfg_libraries)
		goroutine_uses(sk, &event);
	return 0;
}
