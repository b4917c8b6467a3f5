// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Transmit latency: why bytes wait in TCP.
 *
 * Whenever TCP has tried to send and bytes are left, one of the tests of tcp_write_xmit has stopped it, and what stopped it holds
 * the socket until the next try. Each socket has a clock a cause. A look at the socket finds what stopped the last try, and adds
 * the time since the look before to its clock. What the clocks gained between a message's hand-over and its departure are the
 * parts of its wait: they add up to it.
 *
 * The end of a try cannot be seen. What stopped it shows until the next one: some in the socket's state, which only an ACK
 * changes, some in what the kernel notes of it (its account of the receiver's window, the timer of pacing, the small queue's
 * flag).
 */
#pragma once

#include "common/tcp.h"
#include "tx/state.h"

#define CHRONO_RWND 2

/* ---- the tests of tcp_write_xmit ---- */

/* Is the small queue full, or has a packet just made room, and no try followed yet (TSQ_THROTTLED, TSQ_QUEUED)? */
static __always_inline bool throttled(struct sock *sk)
{
	return sock_field(sk, sk_tsq_flags) & 3;
}

/* Did the receiver's window stop the last try? The kernel's account changes at the end of a try alone. */
static __always_inline bool ends_by_rwnd(struct sock *sk)
{
	return tcp_bits(sk, chrono_type) == CHRONO_RWND;
}

/* For how many ticks has it stopped this socket, as in TCP_INFO? */
static __always_inline u32 rwnd_ticks(struct sock *sk)
{
	u32 ticks = tcp_field(sk, chrono_stat[CHRONO_RWND - 1]);

	if (ends_by_rwnd(sk))
		ticks += (u32)bpf_jiffies64() - tcp_field(sk, chrono_start);
	return ticks;
}

/* Has the receiver's window no room at all? Where it has some, that the next packet needs more shows in the account alone. */
static __always_inline bool rwnd_full(struct sock *sk, u32 snd_nxt)
{
	return !before(snd_nxt, tcp_field(sk, snd_una) + tcp_field(sk, snd_wnd));
}

/* What keeps back less than a packet, as the socket was at the last look: a cork, Nagle's algorithm, or nothing. The end of
 * what a call with MSG_MORE hands over is not pushed.
 */
static __always_inline u32 small_waits(const struct clocks *clocks, struct sock *sk, u32 snd_nxt, u32 end_seq,
				       bool pushed)
{
	u32 unsent = end_seq - snd_nxt, snd_sml = tcp_field(sk, snd_sml);

	if (!unsent || unsent >= tcp_field(sk, mss_cache))
		return HOP_CAUSE_NONE;
	if (clocks->nonagle & TCP_NAGLE_CORK || !pushed)
		return HOP_CAUSE_CORK;
	/* With a small packet on its way. */
	if (!clocks->nonagle && before(clocks->snd_una, snd_sml) && !before(snd_nxt, snd_sml))
		return HOP_CAUSE_NAGLE;
	return HOP_CAUSE_NONE;
}

/* Does the call that ends now leave its bytes to be joined by others, as enough of the socket's data waits below TCP? As in
 * tcp_should_autocork: then the small queue's flag is set.
 */
static __always_inline bool tcp_autocorks(struct sock *sk, struct sk_buff *tail)
{
	return tcp_field(sk, packets_out) && (u32)sock_field(sk, sk_wmem_alloc.refs.counter) > tail->truesize;
}

/* Until when TCP's pacing held the socket, or will. The timer is set by a try that comes too early, and by nothing else. */
static __always_inline u64 paced_until(struct sock *sk)
{
	if (!bpf_core_field_exists(struct tcp_sock, pacing_timer._softexpires))
		return 0;
	return tcp_field(sk, pacing_timer._softexpires);
}

/* What stopped the last try to send, other than pacing, if the bytes up to `end_seq` have not all left. In the order of the
 * tests, but for what is certain at once.
 */
static __noinline u32 tcp_cause(const struct clocks *clocks, struct sock *sk, u32 end_seq)
{
	u32 snd_nxt = tcp_field(sk, snd_nxt), cause;

	if (ends_by_rwnd(sk))
		return HOP_CAUSE_RWND;
	if (clocks->full || packets_in_flight(sk) >= tcp_field(sk, snd_cwnd))
		return HOP_CAUSE_CWND;
	if (rwnd_full(sk, snd_nxt))
		return HOP_CAUSE_RWND;
	cause = small_waits(clocks, sk, snd_nxt, end_seq, !before(tcp_field(sk, pushed_seq), end_seq));
	if (cause)
		return cause;
	if (clocks->throttled || throttled(sk))
		return HOP_CAUSE_TSQ;
	/* It had no room at the end of a try, later than the last look. */
	if (tcp_bits(sk, is_cwnd_limited) && !before(tcp_field(sk, cwnd_usage_seq), clocks->snd_nxt))
		return HOP_CAUSE_CWND;
	return HOP_CAUSE_OTHER;
}

/* What is sure to stop the try that follows now, by which a send call hands over the bytes up to `end_seq`. */
static __noinline u32 tcp_foretold(const struct clocks *clocks, struct sock *sk, u32 end_seq)
{
	u32 snd_nxt = tcp_field(sk, snd_nxt);

	if (clocks->full)
		return HOP_CAUSE_CWND;
	if (rwnd_full(sk, snd_nxt))
		return HOP_CAUSE_RWND;
	return small_waits(clocks, sk, snd_nxt, end_seq, true);
}

/* ---- the clocks ---- */

static __always_inline void clock_add(struct clocks *clocks, u32 cause, u64 ns)
{
	u32 index = cause - 1;

	barrier_var(index);
	if (index < CLOCKS)
		clocks->held_ns[index] += ns;
}

/* The part of an interval that the kernel's account of the receiver's window does not settle. Tries that no look was between
 * show there, in ticks: one may belong to the interval before or after.
 */
static __always_inline u64 clocks_rwnd(struct clocks *clocks, struct sock *sk, u64 interval_ns)
{
	u32 ticks = rwnd_ticks(sk), gained = ticks - clocks->rwnd_ticks;
	bool now = ends_by_rwnd(sk);
	u64 part_ns = (u64)(now ? gained + 1 : gained) * cfg_tick_ns;

	clocks->rwnd_ticks = ticks;
	if (part_ns > interval_ns)
		part_ns = interval_ns;
	if (!now && gained < 2)
		return interval_ns;
	clock_add(clocks, HOP_CAUSE_RWND, part_ns);
	return interval_ns - part_ns;
}

/* The time since the last look goes to what held the bytes up to `end_seq` meanwhile. */
static __noinline void clocks_advance(struct clocks *clocks, struct sock *sk, u64 now_ns, u32 end_seq)
{
	u64 from_ns = clocks->looked_ns, paced_ns = paced_until(sk), left_ns;
	u32 cause;

	if (now_ns <= from_ns)
		return;
	/* Read back from memory: the verifier then knows one cause instead of each. */
	clocks->found = tcp_cause(clocks, sk, end_seq);
	barrier();
	cause = clocks->found;
	clocks->looked_ns = now_ns;
	/* The call that hands over more has tried nothing before: what held those before it did until now. */
	if (cause != HOP_CAUSE_OTHER || !clocks->cause || !clocks->in_call || !sock_field(sk, sk_lock.owned))
		clocks->cause = cause;
	if (paced_ns > from_ns) {
		if (paced_ns > now_ns)
			paced_ns = now_ns;
		clock_add(clocks, HOP_CAUSE_PACING, paced_ns - from_ns);
		from_ns = paced_ns;
		/* The timer was late. */
		if (clocks->cause == HOP_CAUSE_OTHER)
			clocks->cause = HOP_CAUSE_PACING;
	}
	left_ns = clocks_rwnd(clocks, sk, now_ns - from_ns);
	/* More than the kernel says: another cause was before it, which no look saw. */
	clock_add(clocks, clocks->cause == HOP_CAUSE_RWND && ends_by_rwnd(sk) ? HOP_CAUSE_OTHER : clocks->cause,
		  left_ns);
}

/* Note what the next look needs to know of the socket as it is now. */
static __noinline void clocks_note(struct clocks *clocks, struct sock *sk)
{
	clocks->snd_una = tcp_field(sk, snd_una);
	clocks->snd_nxt = tcp_field(sk, snd_nxt);
	clocks->nonagle = tcp_bits(sk, nonagle);
	clocks->full = packets_in_flight(sk) >= tcp_field(sk, snd_cwnd);
	clocks->throttled = throttled(sk);
	clocks->rwnd_ticks = rwnd_ticks(sk);
}

/* New bytes leave in a packet, up to `end_seq`; the kernel counts it as sent a little later. */
static __always_inline void clocks_leave(struct clocks *clocks, struct sock *sk, u32 end_seq)
{
	u32 mss = tcp_field(sk, mss_cache), len_bytes = end_seq - tcp_field(sk, snd_nxt);
	u32 packets = mss ? (len_bytes + mss - 1) / mss : 1;

	clocks_note(clocks, sk);
	clocks->snd_nxt = end_seq;
	clocks->full = packets_in_flight(sk) + packets >= tcp_field(sk, snd_cwnd);
}
