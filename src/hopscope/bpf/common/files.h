// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* System calls, and the sockets that are their file descriptors. */
#pragma once

#include "common/task.h"

#define S_IFMT 0170000
#define S_IFSOCK 0140000
#define TS_COMPAT 2

static __always_inline bool family_moves_packets(u16 family)
{
	return family != AF_UNIX && family != AF_NETLINK;
}

enum call_kind {
	CALL_OTHER,
	CALL_SEND, /* on a socket, as to CALL_RECEIVE_MESSAGES */
	CALL_SEND_MESSAGES,
	CALL_RECEIVE,
	CALL_RECEIVE_MESSAGES,
	CALL_WRITE, /* on any file, as CALL_READ */
	CALL_READ,
	CALL_SENDFILE, /* between two files, as to CALL_EPOLL */
	CALL_SPLICE,
	CALL_EPOLL,
	CALL_CONTROL, /* on a socket, and neither sends nor receives */
	CALL_SOCKET,  /* that, and has no socket yet */
	CALL_WAIT,    /* for any of several files; may poll a device busily */
	CALL_URING,   /* that, or runs socket calls for io_uring */
	CALLS = 512,
};

static const u8 call_kinds[CALLS] = {
	[NR_sendto] = CALL_SEND,       [NR_sendmsg] = CALL_SEND,         [NR_sendmmsg] = CALL_SEND_MESSAGES,
	[NR_recvfrom] = CALL_RECEIVE,  [NR_recvmsg] = CALL_RECEIVE,      [NR_recvmmsg] = CALL_RECEIVE_MESSAGES,
	[NR_write] = CALL_WRITE,       [NR_writev] = CALL_WRITE,         [NR_pwritev2] = CALL_WRITE,
	[NR_read] = CALL_READ,         [NR_readv] = CALL_READ,           [NR_preadv2] = CALL_READ,
	[NR_sendfile] = CALL_SENDFILE, [NR_splice] = CALL_SPLICE,        [NR_epoll_ctl] = CALL_EPOLL,
	[NR_bind] = CALL_CONTROL,      [NR_connect] = CALL_CONTROL,      [NR_listen] = CALL_CONTROL,
	[NR_accept] = CALL_CONTROL,    [NR_accept4] = CALL_CONTROL,      [NR_getsockname] = CALL_CONTROL,
	[NR_shutdown] = CALL_CONTROL,  [NR_getpeername] = CALL_CONTROL,  [NR_setsockopt] = CALL_CONTROL,
	[NR_close] = CALL_CONTROL,     [NR_ioctl] = CALL_CONTROL,        [NR_getsockopt] = CALL_CONTROL,
	[NR_socket] = CALL_SOCKET,
#if defined(__TARGET_ARCH_x86)
	[NR_poll] = CALL_WAIT,         [NR_select] = CALL_WAIT,          [NR_epoll_wait] = CALL_WAIT,
#endif
	[NR_ppoll] = CALL_WAIT,        [NR_pselect6] = CALL_WAIT,        [NR_epoll_pwait] = CALL_WAIT,
	[NR_epoll_pwait2] = CALL_WAIT, [NR_io_uring_enter] = CALL_URING,
};

/* A field of a kernel's struct: read in place where the kernel allows the cast (6.2), else copied, ten times slower. */
#define field_of(pointer, type, field)                                                                                 \
	(bpf_rdonly_cast ? ((type *)bpf_rdonly_cast(pointer, bpf_core_type_id_kernel(type)))->field                    \
			 : BPF_CORE_READ((type *)(pointer), field))

/* A pointer in an array. In place by a kernel's struct that is one, for the cast is to a struct. */
static __always_inline void *pointer_at(void *place)
{
	void *pointer = NULL;

	if (bpf_rdonly_cast)
		return ((struct hlist_head *)bpf_rdonly_cast(place, bpf_core_type_id_kernel(struct hlist_head)))->first;
	bpf_probe_read_kernel(&pointer, sizeof(pointer), place);
	return pointer;
}

/* The socket that a file is, if it sends and receives packets: its address, else 0. */
static __noinline u64 socket_of_file(struct file *file)
{
	struct socket *socket;
	struct inode *inode;
	struct sock *sk;

	if (!file)
		return 0;
	inode = field_of(file, struct file, f_inode);
	if ((field_of(inode, struct inode, i_mode) & S_IFMT) != S_IFSOCK)
		return 0;
	socket = field_of(file, struct file, private_data);
	sk = field_of(socket, struct socket, sk);
	return sk && family_moves_packets(field_of(sk, struct sock, __sk_common.skc_family)) ? (u64)sk : 0;
}

/* The same of a file descriptor of the running process. */
static __noinline u64 network_socket(u32 number)
{
	struct files_struct *files = field_of(current_task(), struct task_struct, files);
	struct fdtable *table = field_of(files, struct files_struct, fdt);

	if (number >= field_of(table, struct fdtable, max_fds))
		return 0;
	return socket_of_file(pointer_at(field_of(table, struct fdtable, fd) + number));
}

static __always_inline u32 task_netns(void)
{
	struct nsproxy *nsproxy = BPF_CORE_READ(current_task(), nsproxy);

	return BPF_CORE_READ(nsproxy, net_ns, ns.inum);
}

/* A process of 32 bits numbers its system calls otherwise. */
static __always_inline bool foreign_numbers(void)
{
#if defined(__TARGET_ARCH_x86)
	return field_of(current_task(), struct task_struct, thread_info.status) & TS_COMPAT;
#else
	return false;
#endif
}
