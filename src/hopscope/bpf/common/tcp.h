// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Fields of TCP's sockets, and sequence numbers. */
#pragma once

#include "common/kernel.h"

#define TCP_ESTABLISHED 1
#define TCP_SYN_SENT 2
#define TCP_NAGLE_CORK 2

static __always_inline bool before(u32 a, u32 b)
{
	return (s32)(a - b) < 0;
}

/* The socket's fields: read in place where the kernel allows the cast (6.2), else copied. */
#define as_type(sk, type) ((type *)bpf_rdonly_cast(sk, bpf_core_type_id_kernel(type)))
#define tcp_field(sk, field)                                                                                           \
	(bpf_rdonly_cast ? as_type(sk, struct tcp_sock)->field : BPF_CORE_READ((struct tcp_sock *)(sk), field))
#define sock_field(sk, field)                                                                                          \
	(bpf_rdonly_cast ? as_type(sk, struct sock)->field : BPF_CORE_READ((struct sock *)(sk), field))
#define tcp_bits(sk, field)                                                                                            \
	(bpf_rdonly_cast ? BPF_CORE_READ_BITFIELD(as_type(sk, struct tcp_sock), field)                                 \
			 : BPF_CORE_READ_BITFIELD_PROBED((struct tcp_sock *)(sk), field))

/* Does it carry a part of an MPTCP connection? Then its bytes are handed over and read elsewhere. */
static __always_inline bool is_mptcp(struct sock *sk)
{
	return bpf_core_field_exists(struct tcp_sock, is_mptcp) && tcp_bits(sk, is_mptcp);
}

static __always_inline u32 packets_in_flight(struct sock *sk)
{
	return tcp_field(sk, packets_out) - tcp_field(sk, sacked_out) - tcp_field(sk, lost_out) +
	       tcp_field(sk, retrans_out);
}
