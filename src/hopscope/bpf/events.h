// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* THE definition of every struct and enum that the kernel side and the Python side share. Python reads them from the
 * BTF of the built objects; nothing is written a second time.
 *
 * Times are CLOCK_MONOTONIC nanoseconds. Padding is explicit.
 */
#pragma once

#include "bpf.h"

/* ---- histograms ---- */

enum hop_hist {
	HOP_HIST_SLOTS = 226, /* 0: at most 2^-24 s; 1..224: scale 3, index slot - 192; 225: above 16 s */
};

/* One series on one CPU. */
struct hop_hist_row {
	u64 sum_ns;
	u64 max_ns;
	u64 slots[HOP_HIST_SLOTS];
};

/* ---- receive latency ---- */

/* A hop is named by the probe point that ends it. */
enum hop_rx_hop {
	HOP_RX_SOFTIRQ = 0,   /* NET_RX softirq raised -> entered */
	HOP_RX_NAPI = 1,      /* one NAPI poll, start -> end */
	HOP_RX_CORE = 2,      /* driver hands over -> core */
	HOP_RX_IP = 3,        /* -> IP */
	HOP_RX_TCP = 4,       /* -> TCP */
	HOP_RX_TCP_QUEUE = 5, /* -> in the socket's hands */
	HOP_RX_TCP_ORDER = 6, /* arrived out of order -> the hole before it is filled */
	HOP_RX_TCP_WAKE = 7,  /* in the socket's queue -> its reader is on a CPU */
	HOP_RX_TCP_READ = 8,  /* -> read */
	HOP_RX_TCP_TOTAL = 9, /* driver hands over -> read */
	HOP_RX_UDP = 10,
	HOP_RX_UDP_QUEUE = 11,
	HOP_RX_UDP_WAKE = 12,
	HOP_RX_UDP_READ = 13,
	HOP_RX_UDP_TOTAL = 14,
	HOP_RX_HOPS = 15,
};

/* Why a hook ran for a wanted packet and yet gave no sample. */
enum hop_rx_discard {
	HOP_RX_NO_STAMP = 0,  /* not seen at the entry: in flight at the start, or its slot taken by another packet */
	HOP_RX_NO_ENTRY = 1,  /* reached the core without passing a hook at the driver */
	HOP_RX_AGAIN = 2,     /* the same data a second time at this hook: a copy to a further socket, or a bridge */
	HOP_RX_BACKWARDS = 3, /* the clock of another CPU is behind: the interval would be negative */
	HOP_RX_MERGED = 4,    /* the segment shares its sample with the one before: too many wait in the socket */
	HOP_RX_DUPLICATE = 5, /* bytes that had arrived before */
	HOP_RX_UNSEEN = 6,    /* bytes were read that no hook saw arriving */
	HOP_RX_NO_MEMORY = 7, /* no memory for the state of a socket */
	HOP_RX_OUTSIDE = 8,   /* a poll outside the softirq: threaded NAPI or busy polling */
	HOP_RX_OUT_OF_ORDER = 9,   /* arrived out of order, left out by option */
	HOP_RX_SKIPPED_STAGE = 10, /* the hook before this one did not run for the packet; the time is in this hop */
	HOP_RX_DISCARDS = 11,
};

enum hop_rx_stage {
	HOP_STAGE_NONE = 0,
	HOP_STAGE_UNWANTED = 1, /* filtered out, or not in the sample */
	HOP_STAGE_DRIVER = 2,
	HOP_STAGE_CORE = 3,
	HOP_STAGE_IP = 4,
	HOP_STAGE_L4 = 5,
	HOP_STAGE_QUEUE = 6,
};

enum hop_rx_group_by {
	HOP_GROUP_NONE = 0,
	HOP_GROUP_INTERFACE = 1,
	HOP_GROUP_NETNS = 2,
	HOP_GROUP_CGROUP = 3,
	HOP_GROUP_PROCESS = 4,
	HOP_GROUP_PROTOCOL = 5, /* rows are fixed */
};

enum hop_protocol_group {
	HOP_GROUP_TCP = 1,
	HOP_GROUP_UDP = 2,
};

enum hop_rx_order {
	HOP_ORDER_APART = 0,
	HOP_ORDER_INCLUDE = 1,
	HOP_ORDER_EXCLUDE = 2,
};

enum hop_limits {
	HOP_STAMPS = 65536, /* slots of the stamp table, a power of two */
	HOP_CPUS = 1024,    /* CPUs, a power of two */
	HOP_SEGMENTS = 128, /* segments that wait in one TCP socket, a power of two */
	HOP_FILTERS = 16,   /* values that one filter takes */
};

/* Group 0 is "other": packets whose group found no row, or is not known at that hop. */
struct hop_group_key {
	u64 id;    /* ifindex, cgroup id, or pid; 0 where only the namespace counts */
	u32 netns; /* inode, 0 where it does not count */
	u32 pad;
};

struct hop_group {
	struct hop_group_key key;
	char name[16]; /* of the interface or the process, at its first packet */
};

struct hop_interface {
	u32 ifindex;
	u32 netns;
};

/* Counters of one CPU. */
struct hop_rx_counters {
	u64 discarded[HOP_RX_HOPS * HOP_RX_DISCARDS];
	u64 group_overflow; /* packets that went to group 0 because the table is full */
	u64 packets;        /* at the entry, before sampling and after the filters */
	u64 sampled;        /* of these, followed */
	u64 pad[5];
};

struct hop_comm {
	char name[16];
};

/* An address and the bits of it that count; IPv4 as ::ffff:a.b.c.d. Words in network order. */
struct hop_prefix {
	u32 word[4];
	u32 mask[4];
};
