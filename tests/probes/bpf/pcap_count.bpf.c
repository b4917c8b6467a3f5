// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* For the tests: count the packets that come in by a device and that a filter wants. */
#include "../../../src/hopscope/bpf/kernel.h"
#include "../../../src/hopscope/bpf/pcap.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

const volatile int ifindex = 0;

u64 seen;
u64 wanted;

SEC("tp_btf/netif_receive_skb")
int count(u64 *ctx)
{
	struct sk_buff *skb = (void *)ctx[0];
	u64 head = (u64)probe_field(skb, head), network = head + probe_field(skb, network_header);
	u64 linear_end = head + probe_field(skb, tail), end = (u64)probe_field(skb, data) + probe_field(skb, len);
	struct net_device *dev = probe_field(skb, dev);

	if (probe_field(dev, ifindex) != ifindex)
		return 0;
	atomic_add(&seen, 1);
	if (pcap_wanted(network, linear_end - network, end - network))
		atomic_add(&wanted, 1);
	return 0;
}
