// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Takes a known time for each packet, or each call to connect. */
#include "common/bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define XDP_PASS 2
#define TCX_NEXT -1
#define ALLOW 1
#define VECTORS 15
/* At the clock: more than any burden of the tests needs, and few enough jumps for the verifier. */
#define LOOKS 2000
#define MORE_LOOKS 8

u64 burn_ns;
u64 burned_ns;
u64 packets;
u64 softirq_ns[VECTORS + 1];        /* by vector */
u64 burned_softirq_ns[VECTORS + 1]; /* the same of what was burned; the last: outside of softirqs */
u64 least_bytes;                    /* of a packet that is burned */

struct {
	__uint(type, 15); /* BPF_MAP_TYPE_SOCKMAP */
	__uint(max_entries, 2);
	__type(key, u32);
	__type(value, u32);
} sockets SEC(".maps");

struct softirq {
	u64 begun_ns;
	u64 vector; /* plus 1; 0: none */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct softirq);
} softirqs SEC(".maps");

static __always_inline struct softirq *this_softirq(void)
{
	return bpf_map_lookup_elem(&softirqs, &(u32){0});
}

static __always_inline void burn(void)
{
	u64 begun_ns = bpf_ktime_get_ns(), now_ns = begun_ns;
	struct softirq *softirq;

	for (u32 look = 0; look < LOOKS && now_ns - begun_ns < burn_ns; look++) {
		_Pragma("unroll") for (u32 more = 0; more < MORE_LOOKS; more++) now_ns = bpf_ktime_get_ns();
	}
	atomic_add(&burned_ns, now_ns - begun_ns);
	softirq = this_softirq();
	if (softirq)
		atomic_add(&burned_softirq_ns[(softirq->vector - 1) & VECTORS], now_ns - begun_ns);
	atomic_add(&packets, 1);
}

SEC("xdp")
int burn_xdp(void *ctx)
{
	burn();
	return XDP_PASS;
}

SEC("tc")
int burn_tc(u32 *len_bytes) /* the first member of struct __sk_buff */
{
	if (*len_bytes >= least_bytes)
		burn();
	return TCX_NEXT;
}

SEC("cgroup/connect4")
int burn_connect(void *ctx)
{
	burn();
	return ALLOW;
}

/* What a socket receives goes on through another one, by a work item. */
SEC("sk_skb/stream_verdict")
int hand_on(void *ctx)
{
	return bpf_sk_redirect_map(ctx, &sockets, 0, 0);
}

SEC("tp_btf/softirq_entry")
int softirq_begins(u64 *vector)
{
	struct softirq *softirq = this_softirq();

	if (softirq) {
		softirq->begun_ns = bpf_ktime_get_ns();
		softirq->vector = *vector + 1;
	}
	return 0;
}

SEC("tp_btf/softirq_exit")
int softirq_ends(u64 *vector)
{
	struct softirq *softirq = this_softirq();

	if (softirq && softirq->vector) {
		atomic_add(&softirq_ns[*vector & VECTORS], bpf_ktime_get_ns() - softirq->begun_ns);
		softirq->vector = 0;
	}
	return 0;
}
