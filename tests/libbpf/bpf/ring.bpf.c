// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Numbered records into one ring a CPU, and an account of what became of each of them. */
#include "common/bpf.h"

#define MAX_CPUS 64

struct hop_numbered {
	u64 number;
	u32 cpu;
	u32 tgid;
	u64 check[5]; /* number + index + 1, so that a record that was copied half written shows */
};

struct hop_account {
	u64 produced;
	u64 lost;
	u64 discarded;
	u8 pad[40];
};

const volatile u32 discard_each = 0;

/* One process of one thread for each CPU, which stays there: nobody else touches that CPU's account. */
u32 tgids[MAX_CPUS];
struct hop_account accounts[MAX_CPUS];
/* The compiler describes only what a global or a function refers to. */
struct hop_numbered *numbered;

struct ring {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, MAX_CPUS);
	__type(key, u32);
	__array(values, struct ring);
} rings SEC(".maps");

SEC("tp_btf/sys_enter")
int on_call(u64 *ctx)
{
	u32 cpu = bpf_get_smp_processor_id();
	u32 tgid = bpf_get_current_pid_tgid() >> 32;
	struct hop_account *account;
	struct hop_numbered *record;
	void *ring;
	u64 number;

	if (cpu >= MAX_CPUS || tgids[cpu] != tgid)
		return 0;
	account = &accounts[cpu];
	number = account->produced++;
	ring = bpf_map_lookup_elem(&rings, &cpu);
	record = ring ? bpf_ringbuf_reserve(ring, sizeof(*record), 0) : NULL;
	if (!record) {
		account->lost++;
		return 0;
	}
	record->number = number;
	record->cpu = cpu;
	record->tgid = tgid;
	for (int i = 0; i < 5; i++)
		record->check[i] = number + i + 1;
	if (discard_each && number % discard_each == 0) {
		account->discarded++;
		bpf_ringbuf_discard(record, BPF_RB_NO_WAKEUP);
	} else {
		bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	}
	return 0;
}

/* A record of another size, for the reader to stumble over. */
u32 foreign_tgid;

SEC("tp_btf/sys_exit")
int on_return(u64 *ctx)
{
	u32 tgid = bpf_get_current_pid_tgid() >> 32;
	u32 cpu = bpf_get_smp_processor_id();
	u64 *record;
	void *ring;

	if (!foreign_tgid || tgid != foreign_tgid)
		return 0;
	foreign_tgid = 0;
	ring = bpf_map_lookup_elem(&rings, &cpu);
	record = ring ? bpf_ringbuf_reserve(ring, sizeof(*record), 0) : NULL;
	if (!record)
		return 0;
	*record = 0;
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
