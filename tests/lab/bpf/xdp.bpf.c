// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* For the tests: hand all frames of a queue to a socket. */
#include "common/bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* include/uapi/linux/bpf.h */
#define BPF_MAP_TYPE_XSKMAP 17
#define XDP_PASS 2

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u32);
} sockets SEC(".maps");

SEC("xdp")
int take(void *ctx)
{
	return bpf_redirect_map(&sockets, 0, XDP_PASS); /* without a socket */
}
