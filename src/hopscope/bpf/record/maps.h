// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Recording: the maps, the arrays with a section of their own, and what is in them. */
#pragma once

#include "common/events.h"
#include "common/headers.h"
#include "common/ring.h"
#include "common/rules.h"

/* A section of its own, so that user space has the array and nothing else. */
struct hop_record_counters record_counters[HOP_CPUS] SEC(".bss.counts");

/* ---- numbers that user space knows the meaning of ---- */

/* PID_MAX_LIMIT of 64-bit kernels (include/linux/threads.h). */
#define THREADS (4 << 20)

struct thread_set {
	u64 words[THREADS / 64];
};

struct thread_set known_threads SEC(".bss.threads");
/* Threads that use sockets, or poll a device: the scheduler's events are recorded of these alone. */
struct thread_set socket_threads SEC(".bss.users");
/* Threads that use packet sockets, where events are sent as frames. */
struct thread_set frame_threads SEC(".bss.frames");
/* Threads whose call was recorded, and has not ended. */
struct thread_set calling_threads SEC(".bss.calling");

/* The last turns of threads on a CPU. */
#define TURNS 64

struct turn {
	u64 begin_ns;
	u64 end_ns; /* 0: it is recorded */
	u32 tid;
	u32 pid;
	char comm[16];
};

struct turns {
	u64 count;
	u64 begin_ns; /* of the one that goes on */
	struct turn turn[TURNS];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct turns);
} turns SEC(".maps");

/* Since when a thread has wanted a CPU; one in a place, a power of two of them. */
#define WISHES 8192

struct wish {
	u64 since_ns;
	u64 tid;
};

struct wish wishes[WISHES] SEC(".bss.wishes");

/* The receive softirq of a CPU while it is pending. */
struct pending {
	u64 since_ns;  /* 0: it is not */
	u64 begin_ns;  /* of the softirq that runs */
	u64 others_ns; /* in other softirqs since then */
	u64 longest_ns;
	u64 longest; /* the number of the one that took longest */
};

struct pending pending[HOP_CPUS] SEC(".bss.pending");

/* What GRO was given; one in a place, a power of two of them. */
#define GRO_ENTRIES 32768

struct gro_entry {
	u64 skb; /* 0: it was let go */
	u64 time_ns;
	u64 cpu;
};

struct gro_entry gro_entries[GRO_ENTRIES] SEC(".bss.gro");

/* A power of two. */
#define FLOWS 65536

struct flow_table {
	u64 flows[FLOWS];
};

struct flow_table known_flows SEC(".bss.flows");

/* ---- flows that are wanted ---- */

/* A flow that is forgotten here is missing in the recording, so each has several places: a line of the cache. */
#define WAYS 8

struct flow_line {
	u64 flows[WAYS];
} __attribute__((aligned(64)));

struct flow_lines {
	struct flow_line lines[FLOWS / WAYS];
};

/* Of sockets of the processes that are asked for, or seen at the devices that are. */
struct flow_lines wanted_flows SEC(".bss.wanted");

/* ---- calls of TLS libraries ---- */

/* A call is known again by who calls and its frame: calls within calls, and several stacks to a thread, are told apart.
 * Go's goroutines have their own stacks, which move, and go from thread to thread: their frames are counted from the stack's
 * upper end.
 */
struct tls_frame {
	u64 stack;
	u64 caller; /* thread, or address of the goroutine */
	u64 pid;    /* of a goroutine; else 0 */
};

struct tls_call {
	u64 begin_ns;
	u64 ssl;
	u64 bytes_at; /* where the number of bytes will be, of functions that return whether they succeeded; else 0 */
	u64 data;     /* where the bytes are */
	u64 from_end; /* of a goroutine's stack, so many before its end; else 0 */
};

/* What never returns, because the program jumps out of it or ends, is forgotten in time. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1); /* set before load */
	__type(key, struct tls_frame);
	__type(value, struct tls_call);
} tls_calls SEC(".maps");

struct goroutine {
	u64 address;
	u64 pid;
};

/* Which call a goroutine is in. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1); /* set before load */
	__type(key, struct goroutine);
	__type(value, struct tls_call);
} tls_goroutines SEC(".maps");

/* ---- requests of io_uring ---- */

/* By the request; and, as a request that goes on completes without it, by ring and user_data. */
struct uring_key {
	u64 owner;
	u64 user_data;
};

struct uring_request {
	u64 sock;
	u32 number;
	u32 opcode;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1); /* set before load */
	__type(key, struct uring_key);
	__type(value, struct uring_request);
} uring_requests SEC(".maps");

/* ---- packets at a driver ---- */

#define MOST_IN_HAND 8

/* What conditions compare of packets that drivers' functions of this CPU have in hand, which may free them. */
struct started_flow {
	u64 flow;
	struct flow_key key;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MOST_IN_HAND);
	__type(key, u32);
	__type(value, struct started_flow);
} started_flows SEC(".maps");

/* ---- drops and captures ---- */

struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, 1); /* set before load */
	__uint(key_size, 4);
	__uint(value_size, 8 * HOP_DROP_FRAMES);
} stacks SEC(".maps");

/* The first bytes of packets. */
RINGS(captures);
/* The first bytes of plaintext. */
RINGS(plaintexts);
