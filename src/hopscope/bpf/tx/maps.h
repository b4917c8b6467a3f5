// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Transmit latency: the maps, the arrays with a section of their own, and what is in them. */
#pragma once

#include "common/events.h"

/* ---- a packet below TCP and UDP ----
 *
 * Known by the address of its data (skb->head), which clones share; one that bears a stamp by its socket and key, which stay
 * when it is cut or copied on the way. In a set of places that this leads to, the packet that came first gives way.
 */
#define PASS_WAYS 4

struct pass {
	u64 skb;      /* datagram: what the last device got */
	u64 entry_ns; /* the send call was entered; 0: not seen */
	u64 sched_ns; /* it came to the first device */
	u64 last_ns;  /* to the last one */
	u64 qdisc_ns; /* spent in queueing disciplines on the way */
	u64 left_ns;  /* it left the last one of them */
	u64 done_ns;  /* datagram: the driver has it */
	u64 cookie;
	u32 pid;
	u32 len_bytes;
	u16 group;
	u8 devices;
	u8 followed;   /* a datagram */
	u32 first_seq; /* TCP: where it begins, */
	u32 key;       /* and its last byte */
	u8 unseen;     /* it left a queueing discipline unseen */
	u8 pad[3];
	struct hop_tx_device device[HOP_DEVICES];
};

struct pass_set {
	u64 head[PASS_WAYS];
	struct pass pass[PASS_WAYS];
};

struct pass_set pass_sets[HOP_PASSES / PASS_WAYS] SEC(".bss.passes");

/* ---- what holds a socket, see tx/cause.h ---- */

#define CLOCKS (HOP_CAUSES - 1) /* all causes but "none" */

struct clocks {
	u64 held_ns[CLOCKS]; /* for how long each has held the socket, by number less 1 */
	u64 looked_ns;       /* the last look, and what it found: */
	u64 longest_ns;      /* of the message that leaves now: its longest part so far */
	u64 try_ns;          /* when the try began in which a packet left last, by TCP's clock */
	u32 snd_una;
	u32 snd_nxt;    /* with the packet that leaves */
	u32 rwnd_ticks; /* the kernel's account of the receiver's window */
	u8 nonagle;
	u8 full;      /* the congestion window has no room */
	u8 throttled; /* the small queue is full; also set by the driver's callback */
	u8 cause;     /* of the time until the last look */
	u8 in_call;   /* nothing but packets of the last hand-over's call since then */
	u8 found;     /* by the look that is being taken */
	u8 pad[6];
};

/* ---- messages of TCP, see tx/tcp.h ---- */

struct message {
	u64 entry_ns; /* 0: not seen */
	u64 handed_ns;
	u64 sched_ns; /* 0: has not left */
	u64 end_byte;
	u32 end_seq;
	u32 carrier; /* the key of the packet that its last byte left in */
	u32 len_bytes;
	u32 pid;
	u16 group;
	u16 retransmits;
	u8 cause; /* until it leaves: what is sure to hold it, as of hand-over */
	u8 flags;
	u8 devices;
	u8 unseen;  /* its last byte left unseen, enum unseen */
	u8 dropped; /* between TCP and the driver, the first time */
	u8 late;    /* its ACK may have come long before that of its packet */
	u8 pad[6];
	union {
		/* Until it leaves: the socket's clocks at hand-over. */
		u64 held_ns[CLOCKS];
		struct {
			u64 driver_ns;
			u64 nic_ns;
			u64 qdisc_ns;
			struct hop_tx_device device[HOP_DEVICES];
		};
	};
};

/* A send call that is in the kernel now, of one thread. */
struct call {
	u64 thread;
	u64 entry_ns;  /* 0: it has ended */
	u64 message;   /* its struct msghdr, */
	u64 left;      /* the bytes of it that TCP had not taken at the last look, */
	u64 sleeps;    /* and the voluntary context switches of the caller at its entry */
	u32 write_seq; /* at the last look */
	u32 pad;
};

#define CALLS 4 /* of several threads on one socket; a power of two */

struct tx_state {
	u32 produced;
	u32 consumed;    /* acknowledged */
	u32 next_sched;  /* the first that has not left TCP */
	u32 next_driver; /* the first that may not have left the driver */
	u32 write_seq;   /* what was handed over */
	u32 skip;        /* messages to leave out before the next one is followed */
	u64 end_byte;
	u64 cookie;
	u64 followed_ns; /* the last one that was followed */
	u64 epoch;       /* see common/sampling.h */
	struct call calls[CALLS];
	struct clocks clocks;
	u8 known;
	u8 wanted;
	u8 may_sleep; /* traced: the last call */
	u8 counted;   /* stamped: among the sockets that are followed */
	u8 opening;   /* stamped: it connects with Fast Open, enum opening */
	u8 pad[3];
	struct message messages[HOP_MESSAGES];
};

/* Linux 7.2 makes socket storage by kmalloc_nolock, which gives no more than two pages (6.18 still does it otherwise). A larger
 * map can be had there, too, but no socket gets any of it.
 */
#define STORAGE_HEAD 128 /* no less than struct bpf_local_storage_elem without the value */
_Static_assert(sizeof(struct tx_state) + STORAGE_HEAD <= 8192, "socket storage is too large");

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct tx_state);
} tx_states SEC(".maps");

/* Packets lead to their socket by its address alone, and not every program type may use socket storage. The hash of
 * addresses and ports tells a new socket at the address of an old one. The port itself is gone when the socket is closed.
 */
struct socket_key {
	u64 sk;
	u32 hash;
	u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1); /* set before load */
	__type(key, struct socket_key);
	__type(value, struct tx_state);
} traced_states SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct tx_state);
} traced_empty SEC(".maps");

/* ---- the state of sockets at the stages of their messages, see tx/fields.h ---- */

struct fields_key {
	u64 cookie;
	u32 number; /* of the message */
	u32 pad;
};

struct fields {
	struct hop_tx_tcp tcp[HOP_TX_STAGES];
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1); /* set before load */
	__type(key, struct fields_key);
	__type(value, struct fields);
} fields SEC(".maps");

/* ---- which sockets the kernel stamps, see tx/sockets.h ---- */

/* A socket that was switched on. */
struct begin {
	u32 write_seq;
	u32 cb_flags;      /* that it had not before */
	u32 mptcp_packets; /* with data, that are counted */
	u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct begin);
} tx_begins SEC(".maps");

/* Sockets that exist before the start, of processes that are wanted, by inode; filled by user space. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1); /* set before load */
	__type(key, u64);
	__type(value, u8);
} inodes SEC(".maps");

/* ---- send calls of datagrams ---- */

/* The send call that a thread is in, or was in last. */
struct send_call {
	u64 entry_ns;
	u64 sk; /* 0 at the system call, which knows the file alone */
	u64 fd;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1); /* set before load */
	__type(key, u64);
	__type(value, struct send_call);
} sends SEC(".maps");

/* When a flow's last message was followed, where there is a limit to it. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1); /* set before load */
	__type(key, u64);
	__type(value, u64);
} paced SEC(".maps");
