// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The kernel's own structs, cut down to the fields that hopscope reads. Offsets are relocated by CO-RE when a program
 * is loaded, so order and size here mean nothing. A name with three underscores is a flavour: the same kernel struct as
 * an older or newer kernel has it (libbpf ignores what follows "___").
 */
#pragma once

#include "bpf.h"

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

struct net_device {
	int ifindex;
	char name[16];
	possible_net_t nd_net;
};

struct napi_struct {
	struct net_device *dev;
};

struct refcount_struct {
	struct {
		int counter;
	} refs;
};

struct sk_buff {
	struct net_device *dev;
	struct sock *sk;
	char cb[48];
	u32 len;
	u16 transport_header;
	u16 network_header;
	int skb_iif;
	unsigned char *head;
	struct refcount_struct users;
};

struct sk_buff_head {
	struct sk_buff *next;
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
	struct cgroup *cgroup;
};

/* Before 5.16 (8520e224f547, "bpf, cgroups: Fix cgroup v2 fallback on v1/v2 mixed mode") the pointer shared a word. */
struct sock_cgroup_data___before_5_16 {
	u64 val;
};

struct sock_common {
	u32 skc_hash;
	be16 skc_dport;
	u16 skc_num;
};

struct sock {
	struct sock_common __sk_common;
	struct sk_buff_head sk_receive_queue;
	u16 sk_protocol;
	struct sock_cgroup_data sk_cgrp_data;
};

struct tcp_sock {
	u32 copied_seq;
	u32 rcv_nxt;
};

struct inet_sock {
	struct sock sk;
};

struct udp_sock {
	struct inet_sock inet;
	struct sk_buff_head reader_queue;
};

struct tcp_skb_cb {
	u32 seq;
	u32 end_seq;
	u8 tcp_flags;
};

struct bpf_nf_ctx {
	struct sk_buff *skb;
};

struct __sk_buff {
	u32 len;
};

#pragma clang attribute pop

#if defined(__TARGET_ARCH_x86)
struct pt_regs {
	u64 di;
	u64 si;
} __attribute__((preserve_access_index));
#define ARG1(context) ((void *)(context)->di)
#define ARG2(context) ((void *)(context)->si)
#elif defined(__TARGET_ARCH_arm64)
struct user_pt_regs {
	u64 regs[31];
} __attribute__((preserve_access_index));
#define pt_regs user_pt_regs
#define ARG1(context) ((void *)(context)->regs[0])
#define ARG2(context) ((void *)(context)->regs[1])
#else
#error "unknown target: add how its registers carry a function's arguments"
#endif

/* Kernel functions for BPF. */

/* Since 6.2 (a35b9af4ec2c, fd264ca02094). */
extern void *bpf_cast_to_kern_ctx(void *ctx) __attribute__((section(".ksyms"), weak));
extern void *bpf_rdonly_cast(const void *pointer, u32 type_id) __attribute__((section(".ksyms"), weak));
