// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* THE definition of every struct and enum that the kernel side and the Python side share. Python reads them from the
 * BTF of the built objects; nothing is written a second time.
 *
 * Times are CLOCK_MONOTONIC nanoseconds. Padding is explicit.
 */
#pragma once

#include "common/bpf.h"

/* ---- histograms ---- */

enum hop_hist {
	HOP_HIST_SLOTS = 258, /* 0: at most 2^-24 s; 1..256: scale 3, index slot - 192; 257: above 256 s */
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
	HOP_RX_TCP_WAKE = 7,  /* in the socket's queue -> read: the time in which the reader was off the CPU */
	HOP_RX_TCP_READ = 8,  /* the rest of it: the reader was on a CPU */
	HOP_RX_TCP_TOTAL = 9, /* driver hands over -> read */
	HOP_RX_UDP = 10,
	HOP_RX_UDP_QUEUE = 11,
	HOP_RX_UDP_WAKE = 12,
	HOP_RX_UDP_READ = 13,
	HOP_RX_UDP_TOTAL = 14,
	HOP_RX_NIC = 15,          /* the NIC's own stamp -> driver hands over */
	HOP_RX_TCP_ASLEEP = 16,   /* the part of the wake hop in which the reader slept ... */
	HOP_RX_TCP_RUNNABLE = 17, /* ... and in which it waited for a CPU */
	HOP_RX_UDP_ASLEEP = 18,
	HOP_RX_UDP_RUNNABLE = 19,
	HOP_RX_HOPS = 20,
};

/* Why a hook ran for a wanted packet and yet gave no sample. */
enum hop_rx_discard {
	HOP_RX_NO_STAMP = 0,  /* not seen at the entry: in flight at the start, or its slot taken by another packet */
	HOP_RX_NO_ENTRY = 1,  /* reached the core without passing a hook at the driver */
	HOP_RX_AGAIN = 2,     /* the same data a second time at this hook: a copy to a further socket, or a bridge */
	HOP_RX_BACKWARDS = 3, /* the clock of another CPU, or of the NIC, is off: the interval would be negative */
	HOP_RX_MERGED = 4,    /* the segment shares its sample with the one before: too many wait in the socket */
	HOP_RX_DUPLICATE = 5, /* bytes that had arrived before */
	HOP_RX_UNSEEN = 6,    /* bytes were read that no hook saw arriving */
	HOP_RX_NO_MEMORY = 7, /* no memory for the state of a socket */
	HOP_RX_OUTSIDE = 8,   /* a poll outside the softirq: threaded NAPI, busy polling, netpoll */
	HOP_RX_OUT_OF_ORDER = 9,   /* arrived out of order, left out by option */
	HOP_RX_SKIPPED_STAGE = 10, /* the hook before this one did not run for the packet; the time is in this hop */
	HOP_RX_NO_NIC_STAMP = 11,  /* the NIC did not stamp the packet, or its driver keeps the stamp to itself */
	HOP_RX_CLOCK_SET = 12,     /* the NIC's clock was set, or went away; user space counts it */
	HOP_RX_NO_HISTORY = 13,    /* when the reader was off the CPU is not known for all of the time */
	HOP_RX_MPTCP = 14,         /* a segment of an MPTCP connection, whose reads are not seen */
	HOP_RX_DISCARDS = 15,
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

/* Where a packet was seen last. Where it goes no further from there, and was not dropped, this tells what became of it. */
enum hop_rx_place {
	HOP_PLACE_DRIVER = 0,
	HOP_PLACE_CORE = 1,    /* not for IP: bridged, ARP, ... */
	HOP_PLACE_IP = 2,      /* for IP itself, or for what is neither TCP nor UDP */
	HOP_PLACE_FORWARD = 3, /* sent on */
	HOP_PLACE_TCP = 4,     /* without data */
	HOP_PLACE_UDP = 5,     /* for the kernel itself: a tunnel */
	HOP_PLACE_QUEUE = 6,   /* a datagram in its socket's queue: read */
	HOP_PLACES = 7,
};

/* What a packet that entered ended as, other than dropped. */
enum hop_rx_end {
	HOP_END_READ_UDP = 0,
	HOP_END_READ_TCP = 1,
	HOP_END_JOINED = 2,     /* in the queue of a TCP socket; one of those below follows, or READ_TCP */
	HOP_END_MERGED = 3,     /* as HOP_RX_MERGED */
	HOP_END_REPEATED = 4,   /* as HOP_RX_DUPLICATE, found in the socket's queue */
	HOP_END_MPTCP = 5,      /* as HOP_RX_MPTCP */
	HOP_END_NO_MEMORY = 6,  /* as HOP_RX_NO_MEMORY */
	HOP_END_UNREAD = 7,     /* in the queue of a TCP socket that was closed */
	HOP_END_DUPLICATE = 8,  /* as HOP_RX_DUPLICATE, before it joined the socket's queue */
	HOP_END_SLOT_TAKEN = 9, /* its slot was taken by another packet: what became of it is not known */
	HOP_RX_ENDS = 10,
};

/* Whether a packet is in the account: nothing else decides it. */
enum hop_rx_life {
	HOP_LIFE_NONE = 0, /* has not entered */
	HOP_LIFE_OPEN = 1, /* has entered, what becomes of it is not counted yet */
	HOP_LIFE_ENDED = 2,
};

enum hop_group_by {
	HOP_GROUP_NONE = 0,
	HOP_GROUP_INTERFACE = 1,
	HOP_GROUP_NETNS = 2,
	HOP_GROUP_CGROUP = 3,
	HOP_GROUP_PROCESS = 4,
	HOP_GROUP_PROTOCOL = 5, /* rows are fixed */
	HOP_GROUP_COMM = 6,
	HOP_GROUP_THREAD = 7,
	HOP_GROUP_PORT = 8, /* the socket's own, with its protocol */
	HOP_GROUP_PEER = 9,
	HOP_GROUP_FLOW = 10,
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
	HOP_STAMPS = 65536,  /* slots of the stamp table, a power of two */
	HOP_CPUS = 1024,     /* CPUs, a power of two */
	HOP_SEGMENTS = 128,  /* segments that wait in one TCP socket, a power of two */
	HOP_THREADS = 2048,  /* threads whose time on CPUs is remembered ... */
	HOP_RUNS = 128,      /* ... and how many times each came on one, a power of two */
	HOP_FILTERS = 16,    /* values that one filter takes */
	HOP_WAITING = 32768, /* single messages that wait in sockets */
	HOP_REASONS = 256,   /* reasons of drops; the last one is what is above, such as those of subsystems */
};

/* Group 0 is "other": packets whose group found no row, or is not known at that hop. */
/* By the name of a thread, all of it is that name. */
struct hop_group_key {
	u64 id; /* ifindex, cgroup id, pid, tid, or a hash of what a flow's group has; 0 where only the namespace counts */
	u32 netns; /* inode, 0 where it does not count */
	u32 pad;
};

struct hop_group {
	struct hop_group_key key;
	char name[16]; /* of the interface or the process, at its first packet */
	/* Of a flow, as far as it makes the group. Addresses as in struct hop_prefix. */
	u32 local[4];
	u32 peer[4];
	u16 local_port;
	__be16 peer_port;
	u16 protocol;
	u16 pad;
};

struct hop_interface {
	u32 ifindex;
	u32 netns;
};

/* How a NIC's clock relates to CLOCK_MONOTONIC: both at one instant, and what is gained from there on. */
struct hop_nic_clock {
	u64 nic_ns;
	u64 monotonic_ns;
	s64 drift;    /* of CLOCK_MONOTONIC on the NIC's clock, in 2^-32 */
	u64 bound_ns; /* an interval that is less than so much below 0 may be 0 */
};

/* Counters of one CPU. */
struct hop_rx_counters {
	u64 discarded[HOP_RX_HOPS * HOP_RX_DISCARDS];
	u64 group_overflow; /* packets that went to group 0 because the table is full */
	u64 packets;        /* at the entry, before sampling and after the filters */
	u64 sampled;        /* of these, followed */
	u64 entered;        /* at the core, wanted; and what was dropped before, and copies of what was cut */
	u64 ended[HOP_RX_ENDS];
	u64 gone[HOP_PLACES]; /* seen there last, and then its memory carried another packet */
	u64 dropped[HOP_PLACES * HOP_REASONS];
	u64 events; /* records made */
	u64 lost;   /* records for which the ring had no room */
	u64 pad[1];
};

/* Whose socket a cookie is. Addresses as in struct hop_prefix. */
struct hop_message_flow {
	u32 local[4];
	u32 peer[4];
	u16 local_port;
	__be16 peer_port;
	u32 netns;
	u64 cgroup;
	u16 family;
	u16 protocol;
	u32 pid; /* 0: not known */
	char comm[16];
};

enum hop_rx_flags {
	HOP_RX_DATAGRAM = 1,
	HOP_RX_OFF_UNKNOWN = 2, /* how long the reader was off the CPU */
};

/* What a reader got as one packet of the stack, with its times: 0 where one was not seen. */
struct hop_rx_event {
	u64 cookie;   /* of the flow; in hop_message_flow */
	u64 end_byte; /* TCP: where it ends in the stream. Datagrams: 0 */
	u64 entry_ns; /* the driver handed it over */
	u64 core_ns;
	u64 ip_ns;
	u64 l4_ns;
	u64 queued_ns;
	u64 ordered_ns; /* what came before it was there; 0: it did not wait for that, or that is not told apart */
	u64 read_ns;
	u64 off_ns;      /* duration, of that from the queue to the read */
	u64 runnable_ns; /* duration, of off_ns */
	u32 len_bytes;
	u32 pid;   /* of the reader */
	u32 flags; /* enum hop_rx_flags */
	u32 pad;
	char comm[16];
};

struct hop_comm {
	char name[16];
};

/* An address and the bits of it that count; IPv4 as ::ffff:a.b.c.d. Words in network order. */
struct hop_prefix {
	u32 word[4];
	u32 mask[4];
};

/* ---- transmit latency ---- */

/* A hop is named by the probe point that ends it; parts of a hop bear its name and what the time went to. */
enum hop_tx_hop {
	HOP_TX_TCP = 0,          /* send call entered -> handed to TCP */
	HOP_TX_TCP_SNDBUF = 1,   /* of these: the caller slept for room in the send buffer */
	HOP_TX_SCHED = 2,        /* -> its last byte leaves TCP (__dev_queue_xmit) */
	HOP_TX_SCHED_CWND = 3,   /* the part of it in which the congestion window held the socket */
	HOP_TX_SCHED_RWND = 4,   /* the receiver's window */
	HOP_TX_SCHED_NAGLE = 5,  /* Nagle's algorithm */
	HOP_TX_SCHED_CORK = 6,   /* TCP_CORK, or MSG_MORE */
	HOP_TX_SCHED_PACING = 7, /* TCP's own pacing */
	HOP_TX_SCHED_TSQ = 8,    /* TCP small queues: enough of the socket's data waits below TCP */
	HOP_TX_SCHED_OTHER = 9,  /* nobody knows */
	HOP_TX_QDISC = 10,       /* -> out of the queueing disciplines on the way */
	HOP_TX_DRIVER = 11,      /* -> the driver has it (SND_SW) */
	HOP_TX_NIC = 12,         /* -> the NIC has sent it, as the driver reports (SND_HW) */
	HOP_TX_HOST = 13,        /* send call entered -> the driver has it */
	HOP_TX_ACK = 14,         /* the driver has it -> acknowledged */
	HOP_TX_TOTAL = 15,       /* send call entered -> acknowledged */
	HOP_TX_UDP = 16,         /* send call entered -> leaves IP (net_dev_queue) */
	HOP_TX_UDP_QDISC = 17,
	HOP_TX_UDP_DRIVER = 18, /* -> the driver's function has returned */
	HOP_TX_UDP_FREE = 19,   /* -> freed, which is when the device is done with it */
	HOP_TX_UDP_TOTAL = 20,  /* send call entered -> the driver has it */
	HOP_TX_HOPS = 21,
};

/* Why a wanted message gave no sample at a hop. */
enum hop_tx_discard {
	HOP_TX_COALESCED = 0,  /* its last byte left in a packet that the kernel did not stamp */
	HOP_TX_NO_STAMP = 1,   /* not seen at the hop before, or its slot was taken by another packet */
	HOP_TX_BACKWARDS = 2,  /* the clock of another CPU is behind: the interval would be negative */
	HOP_TX_MERGED = 3,     /* shares its sample with the message before: too many are on the way */
	HOP_TX_CLOSED = 4,     /* the socket was closed before */
	HOP_TX_NO_MEMORY = 5,  /* no memory for the state of a socket, or too many have one */
	HOP_TX_DROPPED = 6,    /* before the driver had it */
	HOP_TX_NO_SEND = 7,    /* the entry of its send call was not seen */
	HOP_TX_UNSTAMPED = 8,  /* the send call ended where the kernel does not stamp */
	HOP_TX_SPLIT = 9,      /* cut in pieces below IP, which are packets of their own */
	HOP_TX_FAST_OPEN = 10, /* its bytes left in the SYN, which the kernel does not stamp */
	HOP_TX_MPTCP = 11,     /* a packet with data of an MPTCP connection, which is not followed */
	HOP_TX_DISCARDS = 12,
};

/* What holds a message before it leaves TCP. */
enum hop_tx_cause {
	HOP_CAUSE_NONE = 0,
	HOP_CAUSE_CWND = 1,
	HOP_CAUSE_RWND = 2,
	HOP_CAUSE_NAGLE = 3,
	HOP_CAUSE_CORK = 4,
	HOP_CAUSE_PACING = 5,
	HOP_CAUSE_TSQ = 6,
	HOP_CAUSE_OTHER = 7,
	HOP_CAUSES = 8,
};

enum hop_tx_flags {
	HOP_TX_SLEPT = 1,    /* for room in the send buffer */
	HOP_TX_DATAGRAM = 2, /* not TCP */
	HOP_TX_ABORTED = 4,  /* closed before it was acknowledged, or dropped */
};

enum hop_tx_limits {
	HOP_MESSAGES = 64,  /* that are on the way in one TCP socket, a power of two */
	HOP_PASSES = 32768, /* packets below TCP and UDP that are remembered, a power of two */
	HOP_DEVICES = 4,    /* stacked devices that are told apart */
};

/* A device that a packet came to, and when, from the first on. */
struct hop_tx_device {
	u32 ifindex;
	u32 after_ns;
};

/* One message with all its times, 0 where one was not seen. */
struct hop_tx_event {
	u64 cookie;   /* of the flow; in hop_message_flow */
	u64 end_byte; /* TCP: where it ends in what was seen of the stream. Datagrams: 0 */
	u64 entry_ns;
	u64 handed_ns;
	u64 sched_ns;
	u64 driver_ns;
	u64 nic_ns;
	u64 done_ns;  /* acknowledged; datagrams: freed, or in the driver's hands */
	u64 qdisc_ns; /* duration */
	u32 len_bytes;
	u32 pid;
	struct hop_tx_device device[HOP_DEVICES];
	u16 retransmits;
	u8 cause;
	u8 flags;
	u16 group;
	u16 pad;
};

/* Where a message of TCP is when the state of its socket is read. */
enum hop_tx_stage {
	HOP_TX_HANDED = 0, /* TCP has its bytes */
	HOP_TX_LEAVES = 1, /* its last byte leaves TCP, which has not counted it as sent yet */
	HOP_TX_DRIVEN = 2, /* the driver has it */
	HOP_TX_ACKED = 3,  /* its ACK has come, which TCP has not worked on yet */
	HOP_TX_STAGES = 4,
};

/* The state of its socket then. */
struct hop_tx_tcp {
	u32 seen; /* 0: the stage was not, and all else is 0 */
	u32 snd_cwnd;
	u32 ssthresh;
	u32 in_flight; /* packets */
	u32 unacked_bytes;
	u32 snd_wnd;
	u32 rcv_wnd;
	u32 srtt_us;
	u32 retransmits; /* of the connection, until then */
	u32 ca_state;
};

/* A message where these are wanted. */
struct hop_tx_event_tcp {
	struct hop_tx_event event;
	struct hop_tx_tcp tcp[HOP_TX_STAGES];
};

/* Counters of one CPU. */
struct hop_tx_counters {
	u64 discarded[HOP_TX_HOPS * HOP_TX_DISCARDS];
	u64 group_overflow; /* messages that went to group 0 because the table is full */
	u64 messages;       /* seen, before sampling and after the filters */
	u64 sampled;        /* of these, followed */
	u64 acked;          /* of these, done */
	u64 retransmits;    /* packets that carry followed messages, sent again */
	u64 events;         /* records made */
	u64 lost;           /* records for which the ring had no room */
};

/* ---- CPU cost ---- */

/* What a CPU does for networking: one part at a time, or none. */
enum hop_cpu_part {
	HOP_CPU_NOTHING = 0,
	HOP_CPU_IRQ = 1,         /* hard interrupts of network devices */
	HOP_CPU_NET_RX = 2,      /* softirq */
	HOP_CPU_NET_TX = 3,      /* softirq */
	HOP_CPU_TIMER = 4,       /* the network's timers, in a softirq or a hard interrupt */
	HOP_CPU_TASKLET = 5,     /* the network's tasklets and work items in a softirq */
	HOP_CPU_KSOFTIRQD = 6,   /* NET_RX and NET_TX, run by ksoftirqd */
	HOP_CPU_NAPI_THREAD = 7, /* threaded NAPI, the backlog's threads included */
	HOP_CPU_WORKQUEUE = 8,   /* the network's work items in threads */
	HOP_CPU_BUSY_POLL = 9,   /* a system call polls a device */
	HOP_CPU_SEND = 10,       /* socket calls */
	HOP_CPU_RECEIVE = 11,
	HOP_CPU_CONTROL = 12,   /* those that neither send nor receive */
	HOP_CPU_IO_URING = 13,  /* socket calls of io_uring's workers */
	HOP_CPU_UNDECIDED = 14, /* in a call that may turn out to be networking; nothing is charged to it */
	HOP_CPU_PARTS = 15,
};

/* One group on one CPU; an element a part. */
struct hop_cpu_row {
	u64 ns[HOP_CPU_PARTS];
	u64 runs[HOP_CPU_PARTS];    /* interrupts, softirqs, polls of a thread, calls */
	u64 packets[HOP_CPU_PARTS]; /* that were polled */
	u64 bytes[HOP_CPU_PARTS];   /* that calls took or gave */
};

/* Counters of the CPU's performance monitoring unit. */
enum hop_pmu_counter {
	HOP_PMU_CYCLES = 0,
	HOP_PMU_INSTRUCTIONS = 1,
	HOP_PMU_CACHE_MISSES = 2,
	HOP_PMU_COUNTERS = 3,
};

/* One group on one CPU; for each part its counters. */
struct hop_pmu_row {
	u64 counted[HOP_CPU_PARTS * HOP_PMU_COUNTERS];
};

enum hop_cpu_limits {
	HOP_FRAMES = 124,     /* of a stack: with them a record of the ring has 1 KiB */
	HOP_TASKS = 65536,    /* threads that are off their CPU in mid-call */
	HOP_CALLBACKS = 4096, /* functions of the network's timers, tasklets and work items */
};

/* One stack, the innermost frame first. */
struct hop_cpu_sample {
	u64 time_ns;
	u32 pid;
	u16 part; /* enum hop_cpu_part */
	u16 group;
	s32 len_bytes; /* of the frames; below 0: the error */
	u32 pad;
	u64 frames[HOP_FRAMES];
};

/* Counters of one CPU. */
struct hop_cpu_counters {
	u64 group_overflow;
	u64 samples;   /* stacks taken */
	u64 lost;      /* for which the ring had no room */
	u64 no_memory; /* threads that left their CPU in mid-call and could not be remembered */
	u64 unseen;    /* socket calls that nobody saw begin: before the start, or repeated by io_uring */
	u64 unread;    /* messages whose length could not be read */
	u64 uring;     /* system calls and turns of threads of io_uring, while nobody watched it */
	u64 ticks;     /* of the clock, if it looks at all that a CPU does */
};

/* ---- recording ---- */

/* Where a record was made. User space shows rx.driver for RX_DRIVER. 32 to a struct. */
enum hop_point {
	/* struct hop_packet */
	HOP_POINT_RX_DRIVER = 1,    /* the driver hands the packet over */
	HOP_POINT_RX_CORE = 2,      /* netif_receive_skb */
	HOP_POINT_RX_IP = 3,        /* IP begins */
	HOP_POINT_RX_L4 = 4,        /* TCP or UDP begins; or, where only cgroup_skb is granted, its socket is found */
	HOP_POINT_RX_TCP_QUEUE = 5, /* the socket processes the segment, out of the backlog */
	HOP_POINT_RX_COPY = 6,      /* its bytes are copied to the reader */
	HOP_POINT_SKB_FREE = 7,     /* done with it */
	HOP_POINT_SKB_DROP = 8,     /* dropped; struct hop_drop follows */
	HOP_POINT_TX_QUEUE = 9,     /* comes to a device */
	HOP_POINT_TX_ENQUEUE = 10,  /* into a queueing discipline */
	HOP_POINT_TX_DEQUEUE = 11,  /* out of it */
	HOP_POINT_TX_START = 12,    /* the driver's function is called */
	HOP_POINT_TX_DRIVER = 13,   /* it has returned */
	HOP_POINT_TCP_RETRANSMIT = 14,
	HOP_POINT_TX_NEIGHBOUR = 15, /* waits for its neighbour's link-layer address */
	/* struct hop_socket */
	HOP_POINT_CALL_ENTER = 32,  /* a system call that may be a socket's is entered */
	HOP_POINT_TX_SEND = 33,     /* a send call has the TCP socket to itself */
	HOP_POINT_TX_SENT = 34,     /* a send call is done */
	HOP_POINT_RX_READY = 35,    /* the reader is told */
	HOP_POINT_RX_READ = 36,     /* TCP: bytes were read */
	HOP_POINT_RX_RECEIVED = 37, /* a receive call is done */
	HOP_POINT_TCP_STATE = 38,
	HOP_POINT_RX_FULL = 39,   /* the receive buffer is full */
	HOP_POINT_TX_LIMIT = 40,  /* what keeps TCP from sending the rest has changed: enum hop_limit, and a detail */
	HOP_POINT_CALL_EXIT = 41, /* it returns */
	HOP_POINT_TLS_WRITE = 42, /* a TLS library has taken plaintext: `value` is how long that took */
	HOP_POINT_TLS_READ = 43,  /* it has given plaintext */
	/* A goroutine has used a socket in a call of its library: `sock` and `seq` are those of the call, `value` is the point. */
	HOP_POINT_TLS_SOCKET = 44,
	/* A request of io_uring that may be about a socket: `value` is its user_data, `seq` its number, `protocol` its opcode. */
	HOP_POINT_URING_SUBMIT = 45,   /* `len_bytes`: its file descriptor */
	HOP_POINT_URING_WORK = 46,     /* it is given to a worker */
	HOP_POINT_URING_COMPLETE = 47, /* `len_bytes`: its result */
	/* struct hop_work */
	HOP_POINT_IRQ_ENTER = 64,
	HOP_POINT_IRQ_EXIT = 65,
	HOP_POINT_SOFTIRQ_RAISE = 66,
	HOP_POINT_SOFTIRQ_ENTER = 67,
	HOP_POINT_SOFTIRQ_EXIT = 68,
	HOP_POINT_NAPI_POLL = 69, /* at its end */
	HOP_POINT_SCHED_SWITCH = 70,
	HOP_POINT_SCHED_WAKE = 71,
	HOP_POINT_XDP_EXCEPTION = 72,
	HOP_POINT_XDP_REDIRECT = 73,
	HOP_POINT_NF_VERDICT = 74,
	HOP_POINT_NF_RULES = 75, /* at their end, if they took HOP_RULES_NS or more: how long they took */
	/* A thread's turn on a CPU, and how long it was: for each that another thread which uses sockets, the subject, or the
	 * receive softirq (0) had to wait for, if that wait took HOP_WAIT_NS or more.
	 */
	HOP_POINT_SCHED_TURN = 76,
	/* The receive softirq begins after it was pending for HOP_WAIT_NS or more: for how long, and in `extra` the number of the
	 * softirq that ran meanwhile for most of that time, and 1. HOP_POINT_SCHED_TURN has the threads.
	 */
	HOP_POINT_SOFTIRQ_WAIT = 77,
	HOP_POINT_GRO_HOLD = 78, /* GRO lets a packet go that it kept for HOP_WAIT_NS or more: for how long */
	/* a struct of its own each: what the numbers in the others mean */
	HOP_POINT_DROP = 96,
	HOP_POINT_FLOW = 97,
	HOP_POINT_THREAD = 98,
	HOP_POINT_DEVICE = 99,
	HOP_POINT_QDISC = 100,
	/* struct hop_tcp */
	/* A segment comes to a connection, which has not looked at it yet; or it is closing, and sends or changes its state. */
	HOP_POINT_TCP_PROBE = 128,
};

/* Why TCP stopped sending with bytes left, in the order in which tcp_write_xmit asks. */
enum hop_limit {
	HOP_LIMIT_NONE = 0, /* nothing is left, or nothing keeps it */
	HOP_LIMIT_HANDSHAKE = 1,
	HOP_LIMIT_PACING = 2,            /* detail: bytes a second; see HOP_LIMIT_RATE_SET */
	HOP_LIMIT_CONGESTION_WINDOW = 3, /* detail: packets, and the state of congestion control */
	HOP_LIMIT_RECEIVER_WINDOW = 4,   /* detail: bytes */
	HOP_LIMIT_NAGLE = 5,             /* detail: packets in flight */
	HOP_LIMIT_CORK = 6,
	HOP_LIMIT_SMALL_QUEUE = 7, /* detail: bytes below TCP */
	HOP_LIMIT_OTHER = 8,
	HOP_LIMIT_SEND_BUFFER = 9, /* all is sent, and the application wants room for more */
};

/* The value of HOP_POINT_TX_LIMIT: the limit, a flag or the state of congestion control, and the detail. */
enum hop_limit_value {
	HOP_LIMIT_STATE_SHIFT = 8,
	HOP_LIMIT_DETAIL_SHIFT = 16,
	HOP_LIMIT_RATE_SET = 1, /* the application has set SO_MAX_PACING_RATE */
};

/* What a thread did when it left its CPU: `extra` of HOP_POINT_SCHED_SWITCH. */
enum hop_switch_extra {
	HOP_SWITCH_CALL = 0xffff,       /* the number of the system call that it sleeps in, and 1; 0: not known */
	HOP_SWITCH_THROTTLED = 1 << 16, /* it may not run: its cgroup's quota is used up */
};

/* All records begin alike and have one size. Columns of the same names are in hopscope/store/schema.py. */
struct hop_packet {
	u64 time_ns;
	u8 point;
	u8 tcp_flags;
	u16 header_bytes;
	u32 tid;
	u64 skb;
	u64 head;
	u64 flow;
	u32 len_bytes;
	u32 seq;
	u32 ifindex;
	u32 netns;
};

struct hop_socket {
	u64 time_ns;
	u8 point;
	u8 pad;
	u16 protocol; /* MPTCP's number is 262 */
	u32 tid;
	u64 sock;
	u64 flow;
	s64 value;
	u32 seq;
	s32 len_bytes;
	u32 netns;
	u32 pad_2;
};

struct hop_work {
	u64 time_ns;
	u8 point;
	u8 pad[3];
	u32 tid;
	u64 subject;
	s64 value;
	s32 extra;
	u32 ifindex;
	u32 netns;
	u32 pad_2[3];
};

/* Sequence numbers and windows as struct tcp_sock has them. */
struct hop_tcp {
	u64 time_ns;
	u8 point;
	u8 state;      /* of congestion control */
	u16 in_flight; /* packets; 65535: as many or more */
	u32 tid;
	u64 flow;
	u32 snd_una;
	u32 snd_nxt;
	u32 snd_wnd;
	u32 rcv_wnd;
	u32 snd_cwnd;
	u32 ssthresh;
	u32 srtt_us;
	u32 netns;
};

struct hop_drop {
	u64 time_ns;
	u8 point;
	u8 pad[3];
	u32 tid;
	u64 skb;
	u64 flow;
	u64 location;
	u32 reason;
	s32 stack;
	u32 ifindex;
	u32 netns;
};

/* Addresses as in struct hop_prefix, ports in network order. */
struct hop_flow {
	u64 time_ns;
	u8 point;
	u8 pad;
	u16 protocol;
	u16 port[2]; /* source, destination */
	u64 flow;
	u32 source[4];
	u32 destination[4];
};

struct hop_thread {
	u64 time_ns;
	u8 point;
	u8 pad[3];
	u32 tid;
	u32 pid;
	u32 pad_2;
	u64 cgroup;
	char comm[16];
	u64 pad_3;
};

struct hop_device {
	u64 time_ns;
	u8 point;
	u8 pad;
	u16 type; /* ARPHRD_* (include/uapi/linux/if_arp.h) */
	u32 ifindex;
	u32 netns;
	char name[16];
	u32 handle; /* of a queueing discipline, whose kind is the name */
	u32 pad_2[4];
};

/* The first bytes that a call of a TLS library took or gave, which follow it in the ring; not all of a slot is used. */
struct hop_plaintext {
	u64 time_ns; /* and thread: those of the call's record */
	u32 tid;
	u32 captured_bytes; /* in the slot */
};

/* The first bytes of a packet, which follow it in the ring; not all of a slot is used. */
struct hop_capture {
	u64 time_ns;
	u64 skb;
	u64 flow; /* this and the number are those of a payload */
	u32 seq;
	u32 ifindex;
	u32 netns;
	u32 len_bytes;      /* of the frame, or of its payload */
	u16 captured_bytes; /* of these, in the slot */
	u8 point;
	u8 is_payload;
	u32 pad;
};

/* What a condition may compare besides a record and its flow. Names end with zeros; empty: there is none. */
struct hop_beside {
	char comm[16]; /* of the running thread */
	char interface[16];
	u32 pid;
	u32 reason; /* of a drop */
};

/* What conditions say of an event: which of them leaves it out, or which class it is of. */
enum hop_rule {
	HOP_RULE_KEEP = 1, /* it does not hold */
	HOP_RULE_DROP = 2, /* it holds */
	HOP_RULES = 2,
	HOP_RULE_CLASS = 3,    /* that of the first class holds; the others follow */
	HOP_RULE_POINTS = 160, /* more than there are */
	HOP_CLASSES = 5,
};

enum hop_record_limits {
	HOP_DROP_FRAMES = 32,
	HOP_FLOW_WORDS = 10,
	HOP_OWN_FLOWS = 256,
	HOP_RULES_NS = 1000, /* netfilter's rules are recorded if they take so long */
	HOP_WAIT_NS =
		100000, /* who had a CPU meanwhile is recorded of waits that take so long, and what GRO keeps so long */
};

/* Source and destination address as in struct hop_prefix, their ports in network order, the protocol; and what of it counts. */
struct hop_own_flow {
	u32 word[HOP_FLOW_WORDS];
	u32 mask[HOP_FLOW_WORDS];
};

/* The flows of hopscope itself, one a direction. User space changes them. */
struct hop_own {
	u64 ports[1024]; /* a bit a port, as packets have it: those of others need no further look */
	u32 count;
	u32 pad;
	struct hop_own_flow flows[HOP_OWN_FLOWS];
};

/* Counters of one CPU. */
struct hop_record_counters {
	u64 lost; /* for which the ring had no room, of no class */
	u64 captures_lost;
	u64 plaintexts_lost;
	u64 class_lost[HOP_CLASSES];
};

/* Counters of one CPU. */
struct hop_count_counters {
	u64 group_overflow;
	u64 pad[7];
};
