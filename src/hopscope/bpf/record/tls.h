// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Recording: calls of a TLS library that take plaintext from a program, or give it some. What it is, is never read. */
#pragma once

#include "record/calls.h"

#define TLS_EFAULT 14 /* asm-generic/errno-base.h */
#define TLS_MOST 0x7fffffff

static __always_inline struct tls_frame tls_frame(struct pt_regs *regs, bool returned)
{
	u64 stack = PT_REGS_SP(regs);

#if defined(__TARGET_ARCH_x86)
	if (!returned) /* the address to return to is on the stack */
		stack += sizeof(u64);
#endif
	return (struct tls_frame){.stack = stack, .tid = current_tid()};
}

static __always_inline struct cgroup *task_cgroup(void)
{
	struct css_set *set = BPF_CORE_READ(current_task(), cgroups);

	return BPF_CORE_READ(set, dfl_cgrp);
}

static __always_inline int tls_begins(struct pt_regs *regs, u64 bytes_at)
{
	struct tls_frame frame;
	struct tls_call call;

	if (cfg_by_process && !process_wanted())
		return 0;
	if (cfg_cgroups && !cgroup_wanted(task_cgroup()))
		return 0;
	if (!namespace_wanted(task_netns()))
		return 0;
	frame = tls_frame(regs, false);
	call = (struct tls_call){.begin_ns = bpf_ktime_get_ns(), .ssl = PT_REGS_PARM1(regs), .bytes_at = bytes_at};
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

static __always_inline int tls_ends(struct pt_regs *regs, u32 point)
{
	struct tls_frame frame = tls_frame(regs, true);
	struct tls_call *found = bpf_map_lookup_elem(&tls_calls, &frame), call;
	struct hop_socket *record;
	u64 now_ns;
	u32 tid;

	if (!found)
		return 0;
	now_ns = bpf_ktime_get_ns();
	call = *found;
	bpf_map_delete_elem(&tls_calls, &frame);
	tid = this_thread();
	if (cfg_calls_by_flow && !thread_in(&socket_threads, tid))
		return 0;
	record = reserve();
	if (!record)
		return 0;
	*record = (struct hop_socket){
		.time_ns = now_ns,
		.point = point,
		.tid = tid,
		.sock = call.ssl,
		.value = now_ns - call.begin_ns,
		.len_bytes = tls_bytes(PT_REGS_RC(regs), call.bytes_at),
		.netns = task_netns(),
	};
	submit(record);
	return 0;
}
