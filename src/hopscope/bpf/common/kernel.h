// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The kernel's own structs, cut down to the fields that hopscope reads. Offsets are relocated by CO-RE when a program
 * is loaded, so order and size here mean nothing. A name with three underscores is a flavour: the same kernel struct as
 * an older or newer kernel has it (libbpf ignores what follows "___").
 *
 * A pointer to a struct that only some objects look into is a `void *`: where a struct is not looked into, the compiler
 * describes it by its name alone, several such in an order that differs from one compilation to the next.
 */
#pragma once

#include "common/bpf.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct ns_common {
	u32 inum;
};

struct net {
	struct ns_common ns;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct rb_node {
	void *rb_right; /* struct rb_node, as all of these */
	void *rb_left;
};

struct rb_root {
	void *rb_node;
};

struct hlist_head {
	void *first;
};

struct rtnl_link_ops {
	const char *kind;
};

struct netdev_queue {
	struct net_device *dev;
};

struct net_device {
	void *_tx; /* struct netdev_queue */
	int ifindex;
	u32 flags;
	u16 type;
	char name[16];
	possible_net_t nd_net;
	const void *rtnl_link_ops; /* struct rtnl_link_ops */
};

struct napi_struct {
	struct net_device *dev;
	unsigned long state;
	struct task_struct *thread; /* since 5.12 (29863d41bb6e) */
};

struct irqaction {
	void *handler;
};

struct refcount_struct {
	struct {
		int counter;
	} refs;
};

struct sk_buff {
	struct sk_buff *next;
	struct rb_node rbnode;
	struct net_device *dev;
	struct sock *sk;
	char cb[48];
	u32 len;
	u32 truesize;
	u16 transport_header;
	u16 network_header;
	u16 mac_header;
	u8 encapsulation : 1;
	__be16 protocol;
	int skb_iif;
	u32 tail; /* of the bytes that are not in pages, from head */
	u32 end;  /* of the data, from head: there its shared part begins */
	unsigned char *head;
	unsigned char *data;
	struct refcount_struct users;
};

struct skb_shared_hwtstamps {
	u64 hwtstamp;
};

struct skb_shared_info {
	u8 tx_flags;
	struct skb_shared_hwtstamps hwtstamps;
	u32 tskey;
	struct {
		int counter;
	} dataref;
};

struct sk_buff_head {
	void *next; /* struct sk_buff, as the next */
	void *prev;
	u32 qlen;
};

struct kernfs_node {
	u64 id;
};

struct cgroup_subsys_state {
	struct cgroup_subsys_state *parent;
};

struct cgroup {
	struct cgroup_subsys_state self;
	struct kernfs_node *kn;
};

struct sock_cgroup_data {
	void *cgroup;
};

/* Before 5.16 (8520e224f547, "bpf, cgroups: Fix cgroup v2 fallback on v1/v2 mixed mode") the pointer shared a word. */
struct sock_cgroup_data___before_5_16 {
	u64 val;
};

struct in6_addr {
	union {
		u32 u6_addr32[4];
	} in6_u;
};

struct sock_common {
	u32 skc_daddr;
	u32 skc_rcv_saddr;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
	u32 skc_hash;
	__be16 skc_dport;
	u16 skc_num;
	u16 skc_family;
	u8 skc_state;
	possible_net_t skc_net;
	struct {
		s64 counter;
	} skc_cookie; /* 0 until somebody asks for it */
};

struct inode {
	u16 i_mode;
	u64 i_ino;
};

struct file {
	struct inode *f_inode;
	void *private_data;
};

struct io_cqe {
	u64 user_data;
	s32 fd; /* until it is complete */
};

struct io_kiocb {
	struct file *file;
	u8 opcode;
	u32 flags;
	struct io_cqe cqe;
	void *ctx; /* struct io_ring_ctx */
};

struct io_uring_cqe {
	u64 user_data;
	s32 res;
};

struct fdtable {
	u32 max_fds;
	void **fd; /* of struct file */
};

struct files_struct {
	struct fdtable *fdt;
};

struct socket {
	u32 state;
	unsigned long flags;
	void *file; /* struct file */
	struct sock *sk;
};

struct socket_alloc {
	struct socket socket;
	struct inode vfs_inode;
};

struct dst_entry {
	struct net_device *dev;
};

struct socket_lock {
	int owned;
};

struct sock {
	struct sock_common __sk_common;
	struct sk_buff_head sk_receive_queue;
	struct rb_root tcp_rtx_queue;
	struct refcount_struct sk_wmem_alloc;
	u16 sk_protocol;
	u32 sk_bpf_cb_flags;
	u8 sk_kern_sock : 1;
	u32 sk_pacing_status;
	unsigned long sk_pacing_rate;
	unsigned long sk_max_pacing_rate;
	u64 sk_tsq_flags;
	struct socket_lock sk_lock;
	void *sk_socket;    /* struct socket */
	void *sk_dst_cache; /* struct dst_entry */
	u8 sk_shutdown;
	struct sock_cgroup_data sk_cgrp_data;
};

struct hrtimer {
	s64 _softexpires; /* CLOCK_MONOTONIC ns; stays when the timer has expired */
	void *function;
};

struct timer_list {
	void *function;
};

struct work_struct {
	void *func;
};

struct tcp_sock {
	u32 copied_seq;
	u32 rcv_nxt;
	u32 snd_una;
	u32 snd_nxt;
	u32 snd_sml;
	u32 snd_wnd;
	u32 snd_cwnd;
	u32 snd_ssthresh;
	u32 rcv_wnd;
	u32 srtt_us;
	u32 write_seq;
	u32 pushed_seq;
	u32 mss_cache;
	u32 packets_out;
	u32 retrans_out;
	u32 sacked_out;
	u32 lost_out;
	u32 total_retrans;
	u8 nonagle : 4;
	struct hrtimer pacing_timer;
	u64 tcp_clock_cache;
	u32 cwnd_usage_seq;
	u64 tcp_wstamp_ns;
	u32 chrono_start;
	u32 chrono_stat[3];
	u8 chrono_type : 2;
	u8 is_cwnd_limited : 1;
	u64 bytes_received;
	u32 data_segs_out;
	u8 syn_data_acked : 1;
	u8 is_mptcp;        /* a bit in some kernels */
	void *fastopen_req; /* struct tcp_fastopen_request: not every program needs it */
};

struct inet_sock {
	struct sock sk;
	__be16 inet_sport;
};

struct inet_connection_sock {
	struct inet_sock icsk_inet;
	u8 icsk_ca_state : 5;
};

struct udp_sock {
	struct inet_sock inet;
	struct sk_buff_head reader_queue;
};

struct tcp_skb_cb {
	u32 seq;
	u32 end_seq;
	u8 tcp_flags;
	u32 ack_seq;
};

struct iov_iter {
	u64 count;
};

struct msghdr {
	u32 msg_flags;
	struct iov_iter msg_iter;
};

struct tcp_fastopen_request {
	struct msghdr *data;
	u64 size;
};

struct Qdisc_ops {
	char id[16];
};

struct Qdisc {
	u32 flags;
	struct Qdisc_ops *ops;
	u32 handle;
};

struct neighbour {
	struct sk_buff_head arp_queue;
};

struct nf_hook_state {
	u8 hook;
	u8 pf;
	struct net_device *in;
	struct net_device *out;
};

struct bpf_prog_aux {
	u32 id;
};

struct bpf_prog {
	struct bpf_prog_aux *aux;
};

struct thread_info {
	u32 status; /* x86 */
};

struct sched_info {
	unsigned long long run_delay;
};

struct cfs_rq {
	int throttle_count;
};

struct sched_entity {
	void *cfs_rq; /* struct cfs_rq */
};

struct nsproxy {
	struct net *net_ns;
};

struct css_set {
	void *dfl_cgrp; /* struct cgroup, of version 2 */
};

struct task_struct {
	struct thread_info thread_info;
	struct sched_entity se;
	bool throttled; /* since 6.18 (e1fad12dcb66) */
	u32 flags;
	u32 __state;
	int pid;
	int tgid;
	struct task_struct *group_leader;
	char comm[16];
	u64 nvcsw;
	u64 start_time;
	struct sched_info sched_info;
	void *files;    /* struct files_struct */
	void *io_uring; /* struct io_uring_task */
	void *nsproxy;  /* struct nsproxy */
	void *cgroups;  /* struct css_set */
};

/* Before 5.14 (2f064a59a11f, "sched: Change task_struct::state"). */
struct task_struct___before_5_14 {
	long state;
};

/* The values are looked up in the kernel's BTF. */
enum socket_flags {
	SK_BPF_CB_TX_TIMESTAMPING = 1,
};

enum bpf_func_id {
	BPF_FUNC_task_pt_regs = 175,
	BPF_FUNC_loop = 181,
};

struct bpf_sock_ops_kern {
	struct sock *sk;
	struct sk_buff *skb;
};

struct bpf_iter_meta {
	void *seq;
};

struct bpf_iter__tcp {
	struct bpf_iter_meta *meta;
	struct sock_common *sk_common;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

struct bpf_nf_ctx {
	const struct nf_hook_state *state;
	struct sk_buff *skb;
};

struct __sk_buff {
	u32 len;
};

#pragma clang attribute pop

/* Its size is the kernel's ABI, and what is in it the kernel's own. */
struct bpf_dynptr {
	u64 opaque[2];
} __attribute__((aligned(8)));

/* The context of sockops programs, as far as it is used. Its layout is the kernel's ABI (include/uapi/linux/bpf.h). */
struct bpf_sock_ops {
	u32 op;
	u32 args[4];
	u32 unused[16];
	u32 cb_flags;
	u32 unused_2[24];
	void *sk __attribute__((aligned(8))); /* struct bpf_sock */
};

#if defined(__TARGET_ARCH_x86)
struct pt_regs {
	u64 di;
	u64 si;
	u64 dx;
	u64 cx;
	u64 r8;
	u64 r9;
	u64 ax;
	u64 bx;
	u64 sp;
	u64 r14;
	u64 orig_ax;
} __attribute__((preserve_access_index));
#define SYSTEM_CALL(regs) ((s32)BPF_CORE_READ(regs, orig_ax))
#define SIXTH_ARGUMENT(context) ((context)->r9)
/* arch/x86/entry/syscalls/syscall_64.tbl */
enum {
	NR_read = 0,
	NR_write = 1,
	NR_close = 3,
	NR_poll = 7,
	NR_ioctl = 16,
	NR_readv = 19,
	NR_writev = 20,
	NR_select = 23,
	NR_sendfile = 40,
	NR_socket = 41,
	NR_connect = 42,
	NR_accept = 43,
	NR_sendto = 44,
	NR_recvfrom = 45,
	NR_sendmsg = 46,
	NR_recvmsg = 47,
	NR_shutdown = 48,
	NR_bind = 49,
	NR_listen = 50,
	NR_getsockname = 51,
	NR_getpeername = 52,
	NR_setsockopt = 54,
	NR_getsockopt = 55,
	NR_epoll_wait = 232,
	NR_epoll_ctl = 233,
	NR_pselect6 = 270,
	NR_ppoll = 271,
	NR_splice = 275,
	NR_epoll_pwait = 281,
	NR_accept4 = 288,
	NR_recvmmsg = 299,
	NR_sendmmsg = 307,
	NR_preadv2 = 327,
	NR_pwritev2 = 328,
	NR_io_uring_enter = 426,
	NR_epoll_pwait2 = 441,
};
#elif defined(__TARGET_ARCH_arm64)
struct user_pt_regs {
	u64 regs[31];
	u64 sp;
} __attribute__((preserve_access_index));
/* libbpf's macros look into the part above. */
struct pt_regs {
	struct user_pt_regs user_regs;
	s32 syscallno;
} __attribute__((preserve_access_index));
#define SYSTEM_CALL(regs) BPF_CORE_READ(regs, syscallno)
#define SIXTH_ARGUMENT(context) ((context)->user_regs.regs[5])
/* include/uapi/asm-generic/unistd.h */
enum {
	NR_epoll_ctl = 21,
	NR_epoll_pwait = 22,
	NR_ioctl = 29,
	NR_close = 57,
	NR_read = 63,
	NR_write = 64,
	NR_readv = 65,
	NR_writev = 66,
	NR_sendfile = 71,
	NR_pselect6 = 72,
	NR_ppoll = 73,
	NR_splice = 76,
	NR_socket = 198,
	NR_bind = 200,
	NR_listen = 201,
	NR_accept = 202,
	NR_connect = 203,
	NR_getsockname = 204,
	NR_getpeername = 205,
	NR_sendto = 206,
	NR_recvfrom = 207,
	NR_setsockopt = 208,
	NR_getsockopt = 209,
	NR_shutdown = 210,
	NR_sendmsg = 211,
	NR_recvmsg = 212,
	NR_accept4 = 242,
	NR_recvmmsg = 243,
	NR_sendmmsg = 269,
	NR_preadv2 = 286,
	NR_pwritev2 = 287,
	NR_io_uring_enter = 426,
	NR_epoll_pwait2 = 441,
};
#else
#error "unknown target: add how its registers carry a function's arguments"
#endif

/* Numbers of the kernel's ABI (include/uapi/linux, include/linux/socket.h). */
enum {
	AF_UNIX = 1,
	AF_INET = 2,
	AF_INET6 = 10,
	AF_NETLINK = 16,
	AF_PACKET = 17,
	IPPROTO_TCP = 6,
	IPPROTO_UDP = 17,
	IPPROTO_DCCP = 33,
	IPPROTO_SCTP = 132,
	IPPROTO_UDPLITE = 136,
	MSG_PEEK = 2,
	MSG_DONTWAIT = 0x40,
	MSG_ERRQUEUE = 0x2000,
	IFF_LOOPBACK = 8,
};

/* Kernel functions for BPF. */

/* Since 6.2 (a35b9af4ec2c, fd264ca02094). */
extern void *bpf_cast_to_kern_ctx(void *ctx) __ksym __weak;
extern void *bpf_rdonly_cast(const void *pointer, u32 type_id) __ksym __weak;
/* Since 6.4 (b5964b968ac6); in programs of tracepoints later. */
extern int bpf_dynptr_from_skb(struct sk_buff *skb, u64 flags, struct bpf_dynptr *bytes) __ksym __weak;
/* Since 6.15 (59422464266f). */
extern int bpf_sock_ops_enable_tx_tstamp(struct bpf_sock_ops_kern *skops, u64 flags) __ksym __weak;
