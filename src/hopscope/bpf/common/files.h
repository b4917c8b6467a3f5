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

/* The socket that a file descriptor of the running process is, if it sends and receives packets: its address, else 0. */
static __noinline u64 network_socket(u32 number)
{
	struct files_struct *files = field_of(current_task(), struct task_struct, files);
	struct fdtable *table = field_of(files, struct files_struct, fdt);
	struct socket *socket;
	struct file *file;
	struct inode *inode;
	struct sock *sk;

	if (number >= field_of(table, struct fdtable, max_fds))
		return 0;
	file = pointer_at(field_of(table, struct fdtable, fd) + number);
	if (!file)
		return 0;
	inode = field_of(file, struct file, f_inode);
	if ((field_of(inode, struct inode, i_mode) & S_IFMT) != S_IFSOCK)
		return 0;
	socket = field_of(file, struct file, private_data);
	sk = field_of(socket, struct socket, sk);
	return sk && family_moves_packets(field_of(sk, struct sock, __sk_common.skc_family)) ? (u64)sk : 0;
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
