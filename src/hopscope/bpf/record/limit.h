// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Recording: what keeps TCP from sending, whenever that changes.
 *
 * It is known for sure when tcp_write_xmit returns. Where that function cannot be traced, the socket is asked at the events that
 * have a tracepoint: its state changes in attempts to send, and by ACKs. What the end of a send call finds holds from there on;
 * what an ACK finds, before TCP has taken it, has held since the event before.
 */
#pragma once

#include "common/limit.h"
#include "record/work.h"

/* Sockets that share a place here give more records than needed. */
#define LIMITED 4096

struct limited {
	u64 sock;
	u64 event_ns; /* the last one */
	u32 kind;
	bool told; /* a record was made: it is wanted */
};

struct limited limits[LIMITED];

static __always_inline struct limited *limited_of(u64 sock)
{
	u32 index = sock >> 7;

	barrier_var(index);
	return &limits[index & (LIMITED - 1)];
}

/* `since_ns`: how long it has held. */
static __always_inline void limit_event(struct socket_event *event, const struct limit *limit, u64 since_ns)
{
	event->point = HOP_POINT_TX_LIMIT;
	event->len_bytes = limit->unsent_bytes;
	event->value =
		limit->detail << HOP_LIMIT_DETAIL_SHIFT | (u64)(u8)limit->state << HOP_LIMIT_STATE_SHIFT | limit->kind;
	event->since_ns = since_ns;
}

static __noinline bool tell_limit(struct sock *sk, const struct limit *limit, u64 since_ns)
{
	struct socket_event event = {};

	if (!limit)
		return false;
	limit_event(&event, limit, since_ns);
	return record_socket(sk, &event);
}

/* From now on, or (`back`) since the socket's last event. */
static __always_inline int limit_is(struct sock *sk, const struct limit *limit, bool back)
{
	u64 sock = number_of((u64)sk), now_ns = bpf_ktime_get_ns(), since_ns = 0;
	struct limited *known = limited_of(sock);
	bool same = known->sock == sock, changes = limit->kind != (same ? known->kind : HOP_LIMIT_NONE);

	if (back && same)
		since_ns = now_ns - known->event_ns - 1;
	known->sock = sock;
	known->event_ns = now_ns;
	known->kind = limit->kind;
	if (changes)
		known->told = tell_limit(sk, limit, since_ns);
	else if (!same)
		known->told = false;
	return 0;
}

/* TCP has tried to send. */
static __always_inline int limit_tried(struct sock *sk, u32 mss, u32 nagle)
{
	struct limit limit = {};

	tcp_limit(&limit, sk, mss, nagle);
	return limit_is(sk, &limit, false);
}

/* That more would follow (MSG_MORE) shows in what was not pushed. */
static __always_inline void ask(struct limit *limit, struct sock *sk)
{
	u32 nagle = tcp_bits(sk, nonagle);

	if (before(tcp_field(sk, pushed_seq), tcp_field(sk, write_seq)))
		nagle |= TCP_NAGLE_CORK;
	tcp_limit(limit, sk, tcp_field(sk, mss_cache), nagle);
}

/* A send call has ended. */
static __always_inline int limit_sent(struct sock *sk)
{
	struct limit limit = {};

	if (!is_tcp(sk))
		return 0;
	ask(&limit, sk);
	return limit_is(sk, &limit, false);
}

/* A segment has come, which TCP has not looked at yet. */
static __always_inline int limit_acked(struct sock *sk)
{
	struct limit limit = {};

	ask(&limit, sk);
	return limit_is(sk, &limit, true);
}

bool filter_runs;

/* The same at a cgroup's filter, for connections that one end has closed: their segments do not pass the tracepoint. This kind
 * of program has no helper for the running thread, and cannot ask whose socket it is: that is known from before.
 */
static __noinline int limit_filtered(struct sk_buff *skb)
{
	u64 number = (u64)BPF_CORE_READ(skb, sk), now_ns, flow;
	struct sock *sk = skb->sk;
	struct socket_event event = {};
	struct flow_key key = {};
	struct limit limit = {};
	struct limited *known;

	filter_runs = true;
	if (!sk)
		return 0;
	known = limited_of(number);
	if (known->sock != number || !known->kind || sock_field(sk, __sk_common.skc_state) == TCP_ESTABLISHED)
		return 0;
	ask(&limit, sk);
	now_ns = bpf_ktime_get_ns();
	if (known->told && limit.kind != known->kind) {
		limit_event(&event, &limit, now_ns - known->event_ns - 1);
		flow = socket_flow(sk, false, &key);
		write_socket(sk, &event, &key, flow, BPF_CORE_READ(current_task(), pid));
	}
	known->kind = limit.kind;
	known->event_ns = now_ns;
	return 0;
}

/* Shorter pauses between packets are none. */
#define PAUSE_NS 50000

/* Does pacing keep what follows this packet? It is what tcp_write_xmit asks first. */
static __always_inline bool paces(struct sock *sk, u32 len_bytes)
{
	u64 rate = sock_field(sk, sk_pacing_rate);

	return sock_field(sk, sk_pacing_status) == SK_PACING_NEEDED && rate &&
	       len_bytes * 1000000000ULL / rate > PAUSE_NS;
}

/* A packet leaves: in an attempt to send, which has not accounted for it yet. */
static __always_inline int limit_leaves(struct sk_buff *skb)
{
	struct sock *sk = skb->sk;
	struct limit limit = {};
	struct limited *known;
	u32 len_bytes = skb->len;
	u64 sock;

	if (!sk)
		return 0;
	sock = number_of((u64)sk);
	known = limited_of(sock);
	if (known->sock != sock || !known->kind)
		return 0;
	limit.unsent_bytes = tcp_field(sk, write_seq) - tcp_field(sk, snd_nxt);
	if (limit.unsent_bytes <=
	    len_bytes) /* the packet has headers, too: less than what a segment would have of them */
		limit.unsent_bytes = 0;
	else if (!filter_runs && sock_field(sk, __sk_common.skc_state) != TCP_ESTABLISHED) /* its ACKs are not seen */
		limit.kind = HOP_LIMIT_OTHER;
	else if (paces(sk, len_bytes))
		limited_by_pacing(&limit, sk);
	else
		limit.kind = known->kind;
	return limit_is(sk, &limit, false);
}
