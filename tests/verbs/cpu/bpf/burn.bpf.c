// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Takes a known time for each packet. */
#include "common/bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define XDP_PASS 2
#define TCX_NEXT -1
/* At the clock: more than any burden of the tests needs, and few enough jumps for the verifier. */
#define LOOKS 2000
#define MORE_LOOKS 8

u64 burn_ns;
u64 burned_ns;
u64 packets;

static __always_inline void burn(void)
{
	u64 begun_ns = bpf_ktime_get_ns(), now_ns = begun_ns;

	for (u32 look = 0; look < LOOKS && now_ns - begun_ns < burn_ns; look++) {
		_Pragma("unroll") for (u32 more = 0; more < MORE_LOOKS; more++) now_ns = bpf_ktime_get_ns();
	}
	atomic_add(&burned_ns, now_ns - begun_ns);
	atomic_add(&packets, 1);
}

SEC("xdp")
int burn_xdp(void *ctx)
{
	burn();
	return XDP_PASS;
}

SEC("tc")
int burn_tc(void *ctx)
{
	burn();
	return TCX_NEXT;
}
