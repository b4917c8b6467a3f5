// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Recording: the state of a TCP connection. */
#pragma once

#include "common/tcp.h"
#include "record/socket.h"

#define MOST_IN_FLIGHT 0xffff

static __noinline int tcp_probed(struct sock *sk)
{
	struct inet_connection_sock *icsk = (void *)sk;
	u32 netns = socket_netns(sk), in_flight = packets_in_flight(sk), tid, ring;
	struct flow_key key = {};
	u64 flow = wanted_flow(sk, &key), now_ns;

	if (!flow)
		return 0;
	tid = thread_here();
	now_ns = bpf_ktime_get_ns();
	ring = PUT(hop_tcp, &key,
		   {
			   .time_ns = now_ns,
			   .point = HOP_POINT_TCP_PROBE,
			   .state = BPF_CORE_READ_BITFIELD_PROBED(icsk, icsk_ca_state),
			   .in_flight = in_flight < MOST_IN_FLIGHT ? in_flight : MOST_IN_FLIGHT,
			   .tid = tid,
			   .flow = flow,
			   .snd_una = tcp_field(sk, snd_una),
			   .snd_nxt = tcp_field(sk, snd_nxt),
			   .snd_wnd = tcp_field(sk, snd_wnd),
			   .rcv_wnd = tcp_field(sk, rcv_wnd),
			   .snd_cwnd = tcp_field(sk, snd_cwnd),
			   .ssthresh = tcp_field(sk, snd_ssthresh),
			   .srtt_us = tcp_field(sk, srtt_us) >> 3,
			   .netns = netns,
		   });
	if (cfg_rules && ring) {
		know_flow(flow, &key, ring);
		know_thread(tid, now_ns, ring);
	}
	return 0;
}

/* include/net/tcp_states.h: the states in which one end, or both, have closed. */
#define TCP_FIN_WAIT1 4
#define TCP_FIN_WAIT2 5
#define TCP_CLOSE_WAIT 8
#define TCP_LAST_ACK 9
#define TCP_CLOSING 11
#define CLOSING_STATES                                                                                                 \
	(1 << TCP_FIN_WAIT1 | 1 << TCP_FIN_WAIT2 | 1 << TCP_CLOSE_WAIT | 1 << TCP_LAST_ACK | 1 << TCP_CLOSING)

static __always_inline bool is_closing(u32 state)
{
	return state <= TCP_CLOSING && CLOSING_STATES & 1 << state;
}

/* One end has closed: segments that come do not pass the tracepoint any more, but they lead to others that leave ... */
static __always_inline int tcp_probed_leaving(struct sk_buff *skb)
{
	struct sock *sk = skb->sk;

	if (!sk || !is_tcp(sk) || !is_closing(sk->__sk_common.skc_state))
		return 0;
	return tcp_probed(sk);
}

/* ... or to another state. */
static __always_inline int tcp_probed_closing(struct sock *sk, u32 from)
{
	return is_tcp(sk) && is_closing(from) ? tcp_probed(sk) : 0;
}
