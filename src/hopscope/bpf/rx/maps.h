// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Receive latency: the maps, the arrays with a section of their own, and what is in them. */
#pragma once

#include "common/events.h"

/* ---- a packet ----
 *
 * A packet is known by the address of its data (skb->head), which clones share and which GRO, routing and the socket
 * leave as it is. It has the choice of two slots; if both are taken, the older packet goes. A slot that another packet took
 * since is recognized by the address. Every skb is stamped anew when it enters, so that an old stamp of the same address is never
 * taken for its own.
 */
struct stamp {
	u64 head;
	u64 first_ns;                                  /* at the entry */
	u64 last_ns;                                   /* at the last hook */
	u64 spent_ns[HOP_STAGE_L4 - HOP_STAGE_DRIVER]; /* from the entry to each stage from HOP_STAGE_CORE on, where
							* recording is deferred or single messages are wanted */
	u16 group;
	u8 stage;
	u8 spent;         /* bit per element of spent_ns that is to be recorded, and SEEN of each that is set */
	u8 done;          /* the socket has a copy: the slot may be taken */
	u8 unread;        /* whether it is ours shows in the core only */
	u8 life;          /* enum hop_rx_life */
	u8 way;           /* enum hop_rx_place, where the stage does not tell it; else 0 */
	u32 nic_spent_ns; /* as spent_ns, of the hop from the NIC: at most 4.29 s */
	u32 skb;          /* skb_identity() of the one that the stack has, not of a clone; 0: any */
};

#define SPENT_NIC (1 << (HOP_STAGE_L4 - HOP_STAGE_DRIVER))
#define SEEN(stage) (0x10 << ((stage) - HOP_STAGE_CORE))
#define SEEN_ALL 0xf0

/* A section of its own, and just 4 MiB: a map's value could not be larger until 5.16 (63b8ce77b15e). */
struct stamp stamps[HOP_STAMPS] SEC(".bss.stamps");

/* ---- the NIC's clocks ---- */

/* Interfaces whose packets are stamped by a clock that user space knows; it renews the values each interval. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1); /* set before load */
	__type(key, struct hop_interface);
	__type(value, struct hop_nic_clock);
} nic_clocks SEC(".maps");

/* ---- threads that may read, see rx/reader.h ---- */

/* A thread left a CPU, and what it had had of CPUs by then. */
struct run {
	u64 out_ns;
	u64 on_ns;    /* since it was first seen */
	u64 delay_ns; /* that it waited for CPUs in its life */
};

struct thread_key {
	u64 start_ns; /* a number is used again */
	u64 tid;
};

struct thread {
	u64 runs;
	u64 since_ns; /* what came before is not known */
	u64 delay_ns; /* that it had waited for CPUs before the first run */
	u64 epoch;    /* see common/sampling.h */
	struct run run[HOP_RUNS];
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1); /* set before load */
	__type(key, struct thread_key);
	__type(value, struct thread);
} threads SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct thread);
} thread_empty SEC(".maps");

/* ---- segments that wait in a socket, see rx/tcp.h ---- */

enum segment_flags {
	SEGMENT_HOLE = 1,     /* arrived out of order, the hole before it is still open */
	SEGMENT_WAS_LATE = 2, /* arrived out of order */
	SEGMENT_DONE = 4,     /* read, while one before it in this ring is not */
};

struct segment {
	u64 first_ns;  /* at the entry */
	u64 queued_ns; /* from when on the read hop counts */
	u32 end_seq;
	u16 group;
	u8 flags;
	u8 pad;
};

struct tcp_state {
	u32 produced;
	u32 consumed;
	u32 seen_seq;  /* all bytes before it were seen arriving */
	u32 holes;     /* segments with SEGMENT_HOLE */
	u32 reordered; /* one of the segments arrived out of order */
	u32 pad;
	u64 filled_ns; /* the last segment in order arrived */
	struct segment segments[HOP_SEGMENTS];
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct tcp_state);
} tcp_states SEC(".maps");

/* For kernels whose tracing programs have no socket storage (before 5.11, and every kprobe). The hash of the addresses and
 * ports tells a new socket at the address of an old one.
 */
struct socket_key {
	u64 sk;
	u32 hash;
	u16 port;
	__be16 peer_port;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1); /* set before load */
	__type(key, struct socket_key);
	__type(value, struct tcp_state);
} tcp_states_by_address SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct tcp_state);
} tcp_state_empty SEC(".maps");

/* ---- datagrams that wait in a socket, see rx/udp.h ---- */

/* The datagram of a socket that will be read next, for the hook at the return of the call that reads it: by then its memory
 * may carry another packet, so that its times are copied while it is still queued. With several threads that read one
 * socket, two datagrams that are read at the same time may be taken for one another.
 */
struct udp_state {
	u64 head; /* 0: the queue is empty */
	u64 first_ns;
	u64 last_ns;
	u32 group;
	u32 stage;   /* HOP_STAGE_NONE: it has no stamp */
	u64 epoch;   /* see common/sampling.h */
	u64 emptied; /* a reader has found the queue empty: what comes after that is seen */
	u64 fence;   /* a locked instruction on it orders a store before a load */
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct udp_state);
} udp_states SEC(".maps");

/* ---- single messages that wait in a socket, see rx/message.h ---- */

struct waiting_key {
	u64 place;  /* TCP: of the socket's state. Datagrams: of their data */
	u64 number; /* TCP: of the segment in that, from 1 on. Datagrams: 0 */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1); /* set before load */
	__type(key, struct waiting_key);
	__type(value, struct hop_rx_event);
} waiting SEC(".maps");
