// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Is a packet wanted by a filter of pcap (libpcap's language)? */
#pragma once

#include "common/bpf.h"

const volatile bool cfg_pcap = 0;

/* Its instructions, translated, are put here (hopscope.kernel.pcap). */
static __noinline u32 pcap_filter(u64 network, u32 readable_bytes, u32 len_bytes)
{
	u32 wanted;

	room_for_instructions(wanted, network, readable_bytes, len_bytes);
	return wanted;
}

/* Always where no filter is set.
 * network: address of its IP header, for the verifier a number. readable_bytes: from there to the end of the packet's
 * linear part (skb->head + skb->tail - network); what is not there is not looked at, and a packet whose filter would have
 * to is not wanted. len_bytes: from there to the end of the packet.
 */
static __always_inline bool pcap_wanted(u64 network, u32 readable_bytes, u32 len_bytes)
{
	return !cfg_pcap || pcap_filter(network, readable_bytes, len_bytes);
}
