// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Fills a ring: each system call of one process makes a batch of records, as long as some are wanted. */
#include "common/bpf.h"

#define BATCH 256

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct bench_record {
	u64 number;
	u64 payload[6];
};

const volatile u32 cfg_tgid = 0;

u64 left;
u64 made;
/* The compiler describes only what a global refers to. */
struct bench_record *exported_record;

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096); /* set before load */
} ring SEC(".maps");

SEC("tp_btf/sys_enter")
int fill_ring(u64 *ctx)
{
	if (!left || bpf_get_current_pid_tgid() >> 32 != cfg_tgid)
		return 0;
	for (u32 i = 0; i < BATCH && left; i++) {
		struct bench_record *record = bpf_ringbuf_reserve(&ring, sizeof(*record), 0);

		if (!record)
			return 0;
		record->number = made++;
		for (u32 word = 0; word < 6; word++)
			record->payload[word] = made;
		bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
		left--;
	}
	return 0;
}
