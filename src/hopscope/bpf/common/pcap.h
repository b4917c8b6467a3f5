// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Is a packet wanted by a filter of pcap (libpcap's language)? */
#pragma once

#include "common/bpf.h"

const volatile bool cfg_pcap = 0;

/* Its instructions are put here, translated, when the object is opened (hopscope.kernel.pcap). They are not more than
 * there is room for; as it stands here, the room is skipped, and the kernel drops what is never reached.
 */
static __noinline u32 pcap_filter(u64 network, u32 readable_bytes, u32 len_bytes)
{
	u32 wanted;

	asm volatile("r0 = 0\n"
		     "if r0 == 0 goto +2044\n"
		     ".rept 2044\n"
		     "r0 = r0\n"
		     ".endr\n"
		     "%0 = 0"
		     : "=r"(wanted)
		     : "r"(network), "r"(readable_bytes), "r"(len_bytes)
		     : "r0");
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
