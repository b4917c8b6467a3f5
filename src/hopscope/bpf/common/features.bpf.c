// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* One empty program a kind of attachment: whether this kernel grants the kind is found by trying. They hang on the function
 * that the kernel keeps for its own tests and on events that are rare, and return at once.
 */
#include "common/bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC("fentry/bpf_fentry_test1")
int feature_fentry(void *ctx)
{
	return 0;
}

SEC("fexit/bpf_fentry_test1")
int feature_fexit(void *ctx)
{
	return 0;
}

SEC("kprobe/bpf_fentry_test1")
int feature_kprobe(void *ctx)
{
	return 0;
}

SEC("kretprobe/bpf_fentry_test1")
int feature_kretprobe(void *ctx)
{
	return 0;
}

SEC("tp_btf/softirq_raise")
int feature_tp_btf(void *ctx)
{
	return 0;
}

SEC("cgroup_skb/ingress")
int feature_cgroup_skb(void *ctx)
{
	return 1;
}

SEC("netfilter")
int feature_netfilter(void *ctx)
{
	return 1;
}

SEC("sockops")
int feature_sockops(void *ctx)
{
	return 1;
}

SEC("iter/tcp")
int feature_iter(void *ctx)
{
	return 0;
}

SEC("perf_event")
int feature_perf_event(void *ctx)
{
	return 0;
}

SEC("uprobe")
int feature_uprobe(void *ctx)
{
	return 0;
}
