// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Flows, and those of hopscope itself, which every collector of packets leaves out. */
#pragma once

#include "common/select.h"

/* The same on every host: the packet has all of it. */
struct flow_key {
	struct endpoints ends;
	u32 protocol;
};

/* ---- what hopscope itself sends and receives ---- */

const volatile bool cfg_own = 0; /* there may be something */

struct hop_own own SEC(".bss.own");

_Static_assert(sizeof(struct flow_key) == HOP_FLOW_WORDS * sizeof(u32), "a flow's words");

static __always_inline u64 own_port(u16 port)
{
	return own.ports[port >> 6] >> (port & 63) & 1;
}

static __noinline bool own_flow(const struct flow_key *key)
{
	const u32 *word = (const u32 *)key;

	if (!key || likely(!(own_port(key->ends.port[0]) | own_port(key->ends.port[1]))))
		return false;
	for (u32 i = 0; i < HOP_OWN_FLOWS && i < own.count; i++) {
		u32 differs = 0;

		for (u32 j = 0; j < HOP_FLOW_WORDS; j++)
			differs |= (word[j] ^ own.flows[i].word[j]) & own.flows[i].mask[j];
		if (!differs)
			return true;
	}
	return false;
}

/* Is a connected socket one of ours? */
static __always_inline bool own_socket(struct sock *sk)
{
	struct flow_key key = {.protocol = BPF_CORE_READ(sk, sk_protocol)};

	socket_endpoints(sk, &key.ends);
	return own_flow(&key);
}
