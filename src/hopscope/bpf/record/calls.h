// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Recording: system calls on sockets, and those that wait for them. */
#pragma once

#include "common/files.h"
#include "record/socket.h"

const volatile bool cfg_all_calls = 0;     /* not only those that send and receive */
const volatile bool cfg_calls_by_flow = 0; /* of threads alone that use sockets of wanted flows */

enum call_kind {
	CALL_OTHER,
	CALL_ON_SOCKET, /* sends or receives */
	CALL_ON_FILE,   /* that, or of any other file */
	CALL_CONTROL,   /* neither sends nor receives */
	CALL_SOCKET,    /* that, and has no socket yet */
	CALL_BETWEEN,   /* has two files */
	CALL_WAIT,      /* for any of several files */
	CALLS = 512,
};

static const u8 call_kinds[CALLS] = {
	[NR_sendto] = CALL_ON_SOCKET,    [NR_sendmsg] = CALL_ON_SOCKET,   [NR_sendmmsg] = CALL_ON_SOCKET,
	[NR_recvfrom] = CALL_ON_SOCKET,  [NR_recvmsg] = CALL_ON_SOCKET,   [NR_recvmmsg] = CALL_ON_SOCKET,
	[NR_write] = CALL_ON_FILE,       [NR_writev] = CALL_ON_FILE,      [NR_pwritev2] = CALL_ON_FILE,
	[NR_read] = CALL_ON_FILE,        [NR_readv] = CALL_ON_FILE,       [NR_preadv2] = CALL_ON_FILE,
	[NR_bind] = CALL_CONTROL,        [NR_connect] = CALL_CONTROL,     [NR_listen] = CALL_CONTROL,
	[NR_accept] = CALL_CONTROL,      [NR_accept4] = CALL_CONTROL,     [NR_getsockname] = CALL_CONTROL,
	[NR_getpeername] = CALL_CONTROL, [NR_shutdown] = CALL_CONTROL,    [NR_setsockopt] = CALL_CONTROL,
	[NR_getsockopt] = CALL_CONTROL,  [NR_close] = CALL_CONTROL,       [NR_ioctl] = CALL_CONTROL,
	[NR_socket] = CALL_SOCKET,       [NR_sendfile] = CALL_BETWEEN,    [NR_splice] = CALL_BETWEEN,
#if defined(__TARGET_ARCH_x86)
	[NR_poll] = CALL_WAIT,           [NR_select] = CALL_WAIT,         [NR_epoll_wait] = CALL_WAIT,
#endif
	[NR_ppoll] = CALL_WAIT,          [NR_pselect6] = CALL_WAIT,       [NR_epoll_pwait] = CALL_WAIT,
	[NR_epoll_pwait2] = CALL_WAIT,   [NR_io_uring_enter] = CALL_WAIT, [NR_epoll_ctl] = CALL_BETWEEN,
};

/* Calls that any file may be the object of are recorded of threads that use sockets: nothing else is known of them. */
static __always_inline bool sends_or_receives(u32 kind, u32 tid)
{
	return kind == CALL_ON_SOCKET || (kind == CALL_ON_FILE && thread_in(&socket_threads, tid));
}

/* Is it on a socket, or may it wait for one? `sk`: which. */
static __always_inline bool uses_socket(u32 kind, struct pt_regs *regs, u32 tid, u64 *sk)
{
	u32 first = (u32)PT_REGS_PARM1(regs);

	switch (kind) {
	case CALL_WAIT:
		return thread_in(&socket_threads, tid);
	case CALL_SOCKET:
		return family_moves_packets(first);
	case CALL_BETWEEN:
		*sk = network_socket(first);
		if (!*sk) /* the other one is the second argument of sendfile, else the third */
			*sk = network_socket(
				(u32)(SYSTEM_CALL(regs) == NR_sendfile ? PT_REGS_PARM2(regs) : PT_REGS_PARM3(regs)));
		break;
	default:
		*sk = network_socket(first);
	}
	return *sk;
}

static __always_inline int call_event(u32 point, u32 number, u64 sk, u32 fd, s32 len_bytes)
{
	u32 tid = this_thread();
	struct hop_socket *record = reserve();

	if (!record)
		return 0;
	*record = (struct hop_socket){
		.time_ns = bpf_ktime_get_ns(),
		.point = point,
		.tid = tid,
		.sock = sk,
		.value = number,
		.seq = fd,
		.len_bytes = len_bytes,
	};
	submit(record);
	return 0;
}

static __always_inline int call_begins(struct pt_regs *regs, u64 number)
{
	u32 kind = number < CALLS ? call_kinds[number] : CALL_OTHER, tid;
	u64 sk = 0;

	if (!kind)
		return 0;
	tid = current_tid();
	if (cfg_by_process && !process_wanted())
		return 0;
	if ((cfg_all_calls ? cfg_calls_by_flow : cfg_by_headers) && !thread_in(&socket_threads, tid))
		return 0;
	if (!cfg_all_calls)
		return sends_or_receives(kind, tid) ? call_event(HOP_POINT_CALL_ENTER, number, 0, 0, 0) : 0;
	if (!namespace_wanted(task_netns()) || foreign_numbers() || !uses_socket(kind, regs, tid, &sk))
		return 0;
	thread_add(&socket_threads, tid);
	thread_add(&calling_threads, tid);
	return call_event(HOP_POINT_CALL_ENTER, number, sk, (u32)PT_REGS_PARM1(regs), (s32)PT_REGS_PARM3(regs));
}

static __always_inline int call_ends(struct pt_regs *regs, s64 result)
{
	u32 tid = current_tid();

	if (!thread_in(&calling_threads, tid))
		return 0;
	thread_remove(&calling_threads, tid);
	return call_event(HOP_POINT_CALL_EXIT, SYSTEM_CALL(regs), 0, 0, result);
}
