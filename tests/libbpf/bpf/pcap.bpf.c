// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* For the tests: ask a filter about given packets. */
#include "common/pcap.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define PACKETS 256
#define PACKET_BYTES 240

struct packet {
	u32 readable_bytes;
	u32 len_bytes;
	u32 wanted;
	u32 unused;
	u64 address;
	u8 bytes[PACKET_BYTES];
};

u32 used;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, PACKETS);
	__type(key, u32);
	__type(value, struct packet);
} packets SEC(".maps");

/* Not static, so that the verifier looks at it once. */
__noinline int judge(u32 index)
{
	struct packet *packet = bpf_map_lookup_elem(&packets, &index);

	if (!packet)
		return 0;
	/* As a number: the verifier must not know what it is, as it does not know where a packet's data are. */
	packet->address = (u64)packet->bytes;
	barrier();
	packet->wanted = pcap_wanted(packet->address, packet->readable_bytes, packet->len_bytes);
	return 0;
}

SEC("raw_tp/sys_enter")
int judge_all(void *ctx)
{
	for (u32 i = 0; i < PACKETS && i < used; i++)
		judge(i);
	return 0;
}
