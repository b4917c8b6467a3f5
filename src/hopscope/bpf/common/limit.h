// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Why TCP stopped sending, as its socket shows when tcp_write_xmit has returned: it is asked what that function asks, in the same
 * order. Until the next attempt the answer holds.
 */
#pragma once

#include "common/events.h"
#include "common/tcp.h"

#define SK_PACING_NEEDED 1
#define TSQ_THROTTLED 1
/* include/net/tcp_states.h */
#define TCP_SYN_RECV 3

struct limit {
	u32 unsent_bytes;
	u16 kind;  /* enum hop_limit */
	u16 state; /* of congestion control; or HOP_LIMIT_RATE_SET */
	u64 detail;
};

static __always_inline void limited_by(struct limit *limit, u32 kind, u64 detail)
{
	limit->kind = kind;
	limit->detail = detail;
}

static __always_inline void limited_by_pacing(struct limit *limit, struct sock *sk)
{
	limited_by(limit, HOP_LIMIT_PACING, sock_field(sk, sk_pacing_rate));
	if (sock_field(sk, sk_max_pacing_rate) != ~0UL)
		limit->state = HOP_LIMIT_RATE_SET;
}

static __always_inline void limited_by_congestion(struct limit *limit, struct sock *sk)
{
	struct inet_connection_sock *icsk = (void *)sk;

	limited_by(limit, HOP_LIMIT_CONGESTION_WINDOW, tcp_field(sk, snd_cwnd));
	limit->state = BPF_CORE_READ_BITFIELD_PROBED(icsk, icsk_ca_state);
}

/* The rest waits although windows and timers would let it go: for more bytes, or for those below TCP. */
static __always_inline void limited_otherwise(struct limit *limit, struct sock *sk, u32 nagle, u32 mss)
{
	u32 snd_una = tcp_field(sk, snd_una), snd_nxt = tcp_field(sk, snd_nxt), snd_sml = tcp_field(sk, snd_sml);
	u32 in_flight = packets_in_flight(sk), room = snd_una + tcp_field(sk, snd_wnd) - snd_nxt;
	bool small_waits = before(snd_una, snd_sml) && !before(snd_nxt, snd_sml);

	if (limit->unsent_bytes < mss) {
		if (nagle & TCP_NAGLE_CORK)
			return limited_by(limit, HOP_LIMIT_CORK, 0);
		if (!nagle && in_flight && small_waits)
			return limited_by(limit, HOP_LIMIT_NAGLE, in_flight);
	}
	if (sock_field(sk, sk_tsq_flags) & 1UL << TSQ_THROTTLED)
		return limited_by(limit, HOP_LIMIT_SMALL_QUEUE, (u32)sock_field(sk, sk_wmem_alloc.refs.counter));
	/* A segment that a window cuts waits until it can be longer (tcp_tso_should_defer). */
	if (limit->unsent_bytes <= mss || !in_flight)
		return limited_by(limit, HOP_LIMIT_OTHER, 0);
	if ((u64)(tcp_field(sk, snd_cwnd) - in_flight) * mss < room)
		return limited_by_congestion(limit, sk);
	limited_by(limit, HOP_LIMIT_RECEIVER_WINDOW, tcp_field(sk, snd_wnd));
}

/* include/linux/net.h */
#define SOCK_NOSPACE 2

static __always_inline bool wants_room(struct sock *sk)
{
	struct socket *socket = (void *)sock_field(sk, sk_socket);

	return socket && BPF_CORE_READ(socket, flags) & 1UL << SOCK_NOSPACE;
}

/* `mss` and `nagle` as tcp_write_xmit was given them. */
static __noinline int tcp_limit(struct limit *limit, struct sock *sk, u32 mss, u32 nagle)
{
	u32 snd_nxt = tcp_field(sk, snd_nxt), first, state;

	if (!limit)
		return 0;
	limit->kind = HOP_LIMIT_NONE;
	limit->state = 0;
	limit->detail = 0;
	limit->unsent_bytes = tcp_field(sk, write_seq) - snd_nxt;
	if (!limit->unsent_bytes) {
		if (wants_room(sk))
			limit->kind = HOP_LIMIT_SEND_BUFFER;
		return 0;
	}
	state = sock_field(sk, __sk_common.skc_state);
	first = limit->unsent_bytes < mss ? limit->unsent_bytes : mss;
	if (state == TCP_SYN_SENT || state == TCP_SYN_RECV)
		limited_by(limit, HOP_LIMIT_HANDSHAKE, 0);
	else if (sock_field(sk, sk_pacing_status) == SK_PACING_NEEDED &&
		 tcp_field(sk, tcp_wstamp_ns) > bpf_ktime_get_ns())
		limited_by_pacing(limit, sk);
	else if (packets_in_flight(sk) >= tcp_field(sk, snd_cwnd))
		limited_by_congestion(limit, sk);
	else if (before(tcp_field(sk, snd_una) + tcp_field(sk, snd_wnd), snd_nxt + first))
		limited_by(limit, HOP_LIMIT_RECEIVER_WINDOW, tcp_field(sk, snd_wnd));
	else
		limited_otherwise(limit, sk, nagle, mss);
	return 0;
}
