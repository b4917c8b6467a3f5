// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Programs that keep a CPU busy at the places where programs run. */
#include "common/bpf.h"

#define ROUNDS 64
#define XDP_ABORTED 0
#define XDP_PASS 2
#define TC_ACT_OK 0
#define ACCEPT 1

const volatile u32 target = 0; /* index of the device that packets are handed on to */

struct {
	__uint(type, 15); /* BPF_MAP_TYPE_SOCKMAP */
	__uint(max_entries, 2);
	__type(key, u32);
	__type(value, u32);
} sockets SEC(".maps");

static __always_inline int burn(int answer)
{
	for (u32 i = 0; i < ROUNDS; i++) {
		u64 now = bpf_ktime_get_ns();

		barrier_var(now);
	}
	return answer;
}

SEC("xdp")
int burn_xdp(void *ctx)
{
	return burn(XDP_PASS);
}

SEC("xdp")
int give_up(void *ctx)
{
	return XDP_ABORTED;
}

SEC("xdp")
int hand_on(void *ctx)
{
	return bpf_redirect(target, 0);
}

SEC("tc")
int burn_tc(void *ctx)
{
	return burn(TC_ACT_OK);
}

SEC("cgroup_skb/ingress")
int burn_cgroup(void *ctx)
{
	return burn(ACCEPT);
}

SEC("sk_skb/stream_verdict")
int pass_socket(void *ctx)
{
	return ACCEPT;
}

char _license[] SEC("license") = "GPL";
