// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Recording: system calls on sockets, and those that wait for them. */
#pragma once

#include "common/files.h"
#include "record/socket.h"

const volatile bool cfg_all_calls = 0;     /* not only those that send and receive */
const volatile bool cfg_calls_by_flow = 0; /* of threads alone that use sockets of wanted flows */

/* Calls that any file may be the object of are recorded of threads that use sockets: nothing else is known of them. */
static __always_inline bool sends_or_receives(u32 kind, u32 tid)
{
	return kind >= CALL_SEND &&
	       (kind <= CALL_RECEIVE_MESSAGES || (kind <= CALL_READ && thread_in(&socket_threads, tid)));
}

/* Is it on a socket, or may it wait for one? `sk`: which. */
static __always_inline bool uses_socket(u32 kind, struct pt_regs *regs, u32 tid, u64 *sk)
{
	u32 first = (u32)PT_REGS_PARM1(regs);

	switch (kind) {
	case CALL_WAIT:
	case CALL_URING:
		return thread_in(&socket_threads, tid);
	case CALL_SOCKET:
		return family_moves_packets(first);
	case CALL_SENDFILE:
	case CALL_SPLICE:
	case CALL_EPOLL:
		*sk = network_socket(first);
		if (!*sk) /* the other one is the second argument, or the third */
			*sk = network_socket((u32)(kind == CALL_SENDFILE ? PT_REGS_PARM2(regs) : PT_REGS_PARM3(regs)));
		break;
	default:
		*sk = network_socket(first);
	}
	return *sk;
}

static __always_inline bool is_packet_socket(u64 sk)
{
	return sk && field_of((void *)sk, struct sock, __sk_common.skc_family) == AF_PACKET;
}

/* It handles frames from here on if it has a packet socket. */
static __always_inline bool call_handles_frames(u32 kind, struct pt_regs *regs, u32 tid)
{
	u32 first = (u32)PT_REGS_PARM1(regs);

	if (!cfg_own_ethertype || handles_frames(tid))
		return cfg_own_ethertype;
	if (kind == CALL_SOCKET ? first != AF_PACKET : kind >= CALL_SOCKET || !is_packet_socket(network_socket(first)))
		return false;
	thread_add(&frame_threads, tid);
	return true;
}

static __always_inline int call_event(u32 point, u32 number, u64 sk, u32 fd, s32 len_bytes)
{
	u32 tid = thread_here();
	u64 now_ns = bpf_ktime_get_ns();
	u32 ring = PUT(hop_socket, &no_key,
		       {
			       .time_ns = now_ns,
			       .point = point,
			       .tid = tid,
			       .sock = sk,
			       .value = number,
			       .seq = fd,
			       .len_bytes = len_bytes,
		       });

	if (ring)
		thread_is_kept(tid, now_ns, ring);
	return 0;
}

static __always_inline int call_begins(struct pt_regs *regs, u64 number)
{
	u32 kind = number < CALLS ? call_kinds[number] : CALL_OTHER, tid;
	u64 sk = 0;

	if (!kind)
		return 0;
	tid = current_tid();
	if (call_handles_frames(kind, regs, tid))
		return 0;
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
