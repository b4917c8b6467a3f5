// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* For the tests: count the packets that come in by a device and that a filter wants. */
#include "common/kernel.h"
#include "common/pcap.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

const volatile int ifindex = 0;
const volatile u32 netns = 0; /* its inode: numbers of devices are a namespace's own */

u64 seen;
u64 wanted;

SEC("tp_btf/netif_receive_skb")
int count(u64 *ctx)
{
	struct sk_buff *skb = (void *)ctx[0];
	u64 head = (u64)BPF_CORE_READ(skb, head), network = head + BPF_CORE_READ(skb, network_header);
	u64 linear_end = head + BPF_CORE_READ(skb, tail), end = (u64)BPF_CORE_READ(skb, data) + BPF_CORE_READ(skb, len);
	struct net_device *dev = BPF_CORE_READ(skb, dev);

	if (BPF_CORE_READ(dev, ifindex) != ifindex || BPF_CORE_READ(dev, nd_net.net, ns.inum) != netns)
		return 0;
	atomic_add(&seen, 1);
	if (pcap_wanted(network, linear_end - network, end - network))
		atomic_add(&wanted, 1);
	return 0;
}
