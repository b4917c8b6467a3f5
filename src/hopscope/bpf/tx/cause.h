// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Transmit latency: why a message waits in TCP, as the socket's state tells it. */
#pragma once

#include "common/tcp.h"
#include "tx/state.h"

#define TCP_NAGLE_CORK 2
#define SK_PACING_NEEDED 1
#define TSQ_THROTTLED 1
#define CHRONO_RWND 2

/* Would TCP hold back the end of what it has to send, and `more` bytes, now? In the order of tcp_write_xmit. */
static __noinline u32 tcp_cause(struct sock *sk, u32 more_bytes, u64 now_ns)
{
	u32 snd_una = tcp_field(sk, snd_una), snd_nxt = tcp_field(sk, snd_nxt), snd_sml = tcp_field(sk, snd_sml);
	u32 unsent = tcp_field(sk, write_seq) + more_bytes - snd_nxt, packets_out = tcp_field(sk, packets_out);
	u32 in_flight = packets_out - tcp_field(sk, sacked_out) - tcp_field(sk, lost_out) + tcp_field(sk, retrans_out);
	u32 mss = tcp_field(sk, mss_cache), nagle = tcp_bits(sk, nonagle);
	u32 first = unsent < mss ? unsent : mss;
	bool small_waits = before(snd_una, snd_sml) && !before(snd_nxt, snd_sml);

	if (sock_field(sk, sk_pacing_status) == SK_PACING_NEEDED && tcp_field(sk, tcp_wstamp_ns) > now_ns)
		return HOP_CAUSE_PACING;
	if (in_flight >= tcp_field(sk, snd_cwnd))
		return HOP_CAUSE_CWND;
	if (before(snd_una + tcp_field(sk, snd_wnd), snd_nxt + first))
		return HOP_CAUSE_RWND;
	if (mss && unsent % mss && (nagle & TCP_NAGLE_CORK || (!nagle && packets_out && small_waits)))
		return HOP_CAUSE_NAGLE;
	if (sock_field(sk, sk_tsq_flags) & TSQ_THROTTLED)
		return HOP_CAUSE_TSQ;
	return HOP_CAUSE_NONE;
}

/* Does the call that ends now leave its bytes to be joined by others, as enough of the socket's data waits below TCP? As in
 * tcp_should_autocork.
 */
static __always_inline bool tcp_autocorks(struct sock *sk, struct sk_buff *tail)
{
	return tcp_field(sk, packets_out) && (u32)sock_field(sk, sk_wmem_alloc.refs.counter) > tail->truesize;
}

/* Ticks in which the receiver's window held this socket, as TCP_INFO has them. */
static __always_inline u32 rwnd_ticks(struct sock *sk)
{
	u32 ticks = tcp_field(sk, chrono_stat[CHRONO_RWND - 1]);

	if (tcp_bits(sk, chrono_type) == CHRONO_RWND)
		ticks += (u32)bpf_jiffies64() - tcp_field(sk, chrono_start);
	return ticks;
}
