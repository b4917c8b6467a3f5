// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Transmit latency: the state of a TCP socket at each stage of a message, where it is asked for (cfg_fields). It is kept apart
 * from the message, as a socket has no room for it; what was kept longest gives way, and the message has none then.
 */
#pragma once

#include "common/tcp.h"
#include "tx/state.h"

static __noinline void fields_read(struct hop_tx_tcp *tcp, struct sock *sk)
{
	tcp->snd_cwnd = tcp_field(sk, snd_cwnd);
	tcp->ssthresh = tcp_field(sk, snd_ssthresh);
	tcp->in_flight = packets_in_flight(sk);
	tcp->unacked_bytes = tcp_field(sk, snd_nxt) - tcp_field(sk, snd_una);
	tcp->snd_wnd = tcp_field(sk, snd_wnd);
	tcp->rcv_wnd = tcp_field(sk, rcv_wnd);
	tcp->srtt_us = tcp_field(sk, srtt_us) >> 3;
	tcp->retransmits = tcp_field(sk, total_retrans);
	tcp->ca_state = BPF_CORE_READ_BITFIELD_PROBED((struct inet_connection_sock *)sk, icsk_ca_state);
	tcp->seen = 1;
}

/* A message is handed over. */
static __noinline void fields_begin(u64 cookie, u32 number, struct sock *sk)
{
	struct fields_key key = {.cookie = cookie, .number = number};
	struct fields value = {};

	fields_read(&value.tcp[HOP_TX_HANDED], sk);
	bpf_map_update_elem(&fields, &key, &value, 0);
}

/* It comes to a further stage; the first time counts. */
static __noinline void fields_note(u64 cookie, u32 number, struct sock *sk, u32 stage)
{
	struct fields_key key = {.cookie = cookie, .number = number};
	struct fields *found = bpf_map_lookup_elem(&fields, &key);

	if (found && stage < HOP_TX_STAGES && !found->tcp[stage].seen)
		fields_read(&found->tcp[stage], sk);
}

/* It is done. */
static __always_inline void fields_emit(const struct hop_tx_event *event, u32 number)
{
	struct fields_key key = {.cookie = event->cookie, .number = number};
	struct fields *found = bpf_map_lookup_elem(&fields, &key);

	emit(event, found ? found->tcp : NULL);
	bpf_map_delete_elem(&fields, &key);
}
