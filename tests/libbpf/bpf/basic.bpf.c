// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* One of everything that the binding can do to an object. */
#include "common/bpf.h"

#define GETPPID_X86 110
#define GETPPID_ARM64 173
#define NF_ACCEPT 1
/* Relaxed, or clang makes it an atomic_fetch_add, which kernels before 5.12 do not know. */
#define count(number) __atomic_fetch_add(number, 1, __ATOMIC_RELAXED)

enum hop_mode {
	HOP_MODE_OFF,
	HOP_MODE_ON,
};

struct hop_pair {
	u32 left;
	s32 right;
};

struct hop_value {
	u64 count;
	u32 last;
	u8 pad[4];
};

const volatile u32 tgid = 0;
const volatile short negative = -1;
const volatile bool enabled = false;
const volatile enum hop_mode mode = HOP_MODE_OFF;
const volatile struct hop_pair pair = {};
const volatile u64 table[4] = {};

u64 hits;
short seen_negative;
struct hop_pair seen_pair;
u64 seen_table[4];
u32 initialised = 23;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 8);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, u32);
	__type(value, struct hop_value);
} mapped SEC(".maps");

/* A value of 4 bytes takes 8 in the map. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 5);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, u32);
	__type(value, u32);
} narrow SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 3);
	__type(key, u32);
	__type(value, u64);
} plain SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 10000);
	__type(key, struct hop_pair);
	__type(value, struct hop_value);
} hash SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 3);
	__type(key, u32);
	__type(value, u32);
} percpu SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__uint(key_size, 4);
	__uint(value_size, 4);
} untyped SEC(".maps");

SEC("tp_btf/sys_enter")
int on_getppid(u64 *ctx)
{
	struct hop_value *value;
	u32 key = 3;

	if (bpf_get_current_pid_tgid() >> 32 != tgid || (ctx[1] != GETPPID_X86 && ctx[1] != GETPPID_ARM64))
		return 0;
	if (!enabled || mode != HOP_MODE_ON)
		return 0;
	count(&hits);
	seen_negative = negative;
	seen_pair.left = pair.left;
	seen_pair.right = pair.right;
	for (int i = 0; i < 4; i++)
		seen_table[i] = table[i];
	value = bpf_map_lookup_elem(&mapped, &key);
	if (value)
		count(&value->count);
	value = bpf_map_lookup_elem(&narrow, &key);
	if (value)
		count((u32 *)value);
	value = bpf_map_lookup_elem(&plain, &(u32){2});
	if (value)
		count(&value->count);
	value = bpf_map_lookup_elem(&percpu, &(u32){1});
	if (value)
		count((u32 *)value);
	return 0;
}

u64 sent;

SEC("cgroup_skb/egress")
int on_egress(void *skb)
{
	count(&sent);
	return 1;
}

u64 arrived;

/* libbpf 1.1 does not know this section: its type has to be set. */
SEC("?netfilter")
int on_local_in(void *ctx)
{
	count(&arrived);
	return NF_ACCEPT;
}

SEC("?tp_btf/sys_enter")
int reads_too_far(u64 *ctx)
{
	return ctx[100];
}

SEC("?tp_btf/hop_no_such_tracepoint")
int no_such_tracepoint(u64 *ctx)
{
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
