// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Recording: requests of io_uring that are, or may be, about sockets. */
#pragma once

#include "record/calls.h"

const volatile u32 cfg_uring_arguments = 3; /* that this kernel's tracepoint of completions has: 7 before 6.15 */

#define URING_FIXED_FILE                                                                                               \
	1 /* include/linux/io_uring_types.h: REQ_F_FIXED_FILE; the descriptor is that of the ring's own table */

/* include/uapi/linux/io_uring.h: sendmsg, recvmsg, accept, connect, send, recv, shutdown, socket, send_zc, sendmsg_zc, bind,
 * listen, recv_zc
 */
#define URING_OF_SOCKETS                                                                                               \
	(1ULL << 9 | 1ULL << 10 | 1ULL << 13 | 1ULL << 16 | 1ULL << 26 | 1ULL << 27 | 1ULL << 34 | 1ULL << 45 |        \
	 1ULL << 47 | 1ULL << 48 | 1ULL << 56 | 1ULL << 57 | 1ULL << 58)
/* Of any file: readv, writev, poll_add, read, write, read_multishot. */
#define URING_OF_FILES (1ULL << 1 | 1ULL << 2 | 1ULL << 6 | 1ULL << 22 | 1ULL << 23 | 1ULL << 49)

static __always_inline int uring_event(u32 point, const struct uring_request *request, u64 user_data, s32 len_bytes)
{
	u32 tid = thread_here();
	u64 now_ns = bpf_ktime_get_ns();
	u32 ring = PUT(hop_socket, &no_key,
		       {
			       .time_ns = now_ns,
			       .point = point,
			       .protocol = request->opcode,
			       .tid = tid,
			       .sock = request->sock,
			       .value = user_data,
			       .seq = request->number,
			       .len_bytes = len_bytes,
			       .netns = task_netns(),
		       });

	if (ring)
		thread_is_kept(tid, now_ns, ring);
	return 0;
}

static __always_inline int uring_submits(struct io_kiocb *kiocb)
{
	struct uring_request request = {.opcode = BPF_CORE_READ(kiocb, opcode)};
	struct uring_key key = {.owner = (u64)kiocb};
	u64 user_data, of = 1ULL << (request.opcode & 63);
	s32 fd;

	if (!(of & (URING_OF_SOCKETS | URING_OF_FILES)))
		return 0;
	if (cfg_by_process && !process_wanted())
		return 0;
	if (!namespace_wanted(task_netns()) || (cfg_calls_by_flow && !thread_in(&socket_threads, current_tid())))
		return 0;
	fd = BPF_CORE_READ(kiocb, cqe.fd);
	if (!(BPF_CORE_READ(kiocb, flags) & URING_FIXED_FILE))
		request.sock = network_socket(fd);
	if (of & URING_OF_FILES && !request.sock)
		return 0;
	if (cfg_own_ethertype && is_packet_socket(request.sock))
		return 0;
	user_data = BPF_CORE_READ(kiocb, cqe.user_data);
	request.number = bpf_ktime_get_ns();
	bpf_map_update_elem(&uring_requests, &key, &request, 0);
	key = (struct uring_key){.owner = (u64)BPF_CORE_READ(kiocb, ctx), .user_data = user_data};
	bpf_map_update_elem(&uring_requests, &key, &request, 0);
	thread_add(&socket_threads, current_tid());
	return uring_event(HOP_POINT_URING_SUBMIT, &request, user_data, fd);
}

static __always_inline int uring_works(struct io_kiocb *kiocb)
{
	struct uring_key key = {.owner = (u64)kiocb};
	struct uring_request *request = bpf_map_lookup_elem(&uring_requests, &key);

	return request ? uring_event(HOP_POINT_URING_WORK, request, BPF_CORE_READ(kiocb, cqe.user_data), 0) : 0;
}

static __always_inline int uring_completes(void *ring, struct io_kiocb *kiocb, u64 user_data, s32 result)
{
	struct uring_key key = {.owner = (u64)kiocb};
	struct uring_request *found, request;

	if (!kiocb)
		key = (struct uring_key){.owner = (u64)ring, .user_data = user_data};
	found = bpf_map_lookup_elem(&uring_requests, &key);
	if (!found)
		return 0;
	request = *found;
	if (kiocb) {
		if (!request.sock)
			request.sock = socket_of_file(BPF_CORE_READ(kiocb, file));
		bpf_map_delete_elem(&uring_requests, &key);
	}
	return uring_event(HOP_POINT_URING_COMPLETE, &request, user_data, result);
}
