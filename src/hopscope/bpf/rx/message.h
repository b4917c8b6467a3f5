// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Receive latency: single messages, each with all its times.
 *
 * What a packet had met until it joined its socket is kept while it waits there. The read adds the rest, and makes the record.
 */
#pragma once

#include "rx/select.h"

static __always_inline u64 stage_ns(const struct stamp *stamp, u32 stage)
{
	return stamp->spent & SEEN(stage) ? stamp->first_ns + stamp->spent_ns[stage - HOP_STAGE_CORE] : 0;
}

static __always_inline void message_passed(struct hop_rx_event *event, const struct stamp *stamp, struct sock *sk,
					   const struct endpoints *ends)
{
	event->cookie = flow_number(sk, ends);
	event->entry_ns = stamp->first_ns;
	event->core_ns = stage_ns(stamp, HOP_STAGE_CORE);
	event->ip_ns = stage_ns(stamp, HOP_STAGE_IP);
	event->l4_ns = stage_ns(stamp, HOP_STAGE_L4);
	flow_note(event->cookie, sk, ends, NULL);
}

/* A datagram is about to be known as queued: a reader may look for it from then on. */
static __noinline void datagram_waits(struct sock *sk, const struct stamp *stamp, u64 head, u32 headers, u64 now_ns)
{
	struct waiting_key key = {.place = head};
	struct hop_rx_event event = {.queued_ns = now_ns, .flags = HOP_RX_DATAGRAM};
	u16 network = headers >> 16, transport = headers, bytes = 0;
	struct endpoints own = {};

	received_endpoints(head, network, transport, &own);
	bpf_probe_read_kernel(&bytes, sizeof(bytes), (void *)(head + transport + offsetof(struct udp_header, bytes)));
	event.len_bytes = bpf_ntohs(bytes) - UDP_HEADER_BYTES;
	message_passed(&event, stamp, sk, &own);
	bpf_map_update_elem(&waiting, &key, &event, 0);
}

/* A segment has joined those that wait, as the youngest. */
static __noinline void segment_waits(const struct tcp_state *state, const struct stamp *stamp, struct sock *sk,
				     u32 len_bytes, u64 end_byte)
{
	struct waiting_key key = {.place = number_of((u64)state), .number = (u64)state->produced};
	struct hop_rx_event event = {.queued_ns = stamp->last_ns, .len_bytes = len_bytes, .end_byte = end_byte};
	struct endpoints ends = {};

	socket_endpoints(sk, &ends);
	message_passed(&event, stamp, sk, &ends);
	bpf_map_update_elem(&waiting, &key, &event, 0);
}

/* The youngest takes the bytes of a further one over. */
static __noinline void segment_grows(const struct tcp_state *state, u32 more_bytes)
{
	struct waiting_key key = {.place = number_of((u64)state), .number = (u64)state->produced};
	struct hop_rx_event *event = bpf_map_lookup_elem(&waiting, &key);

	if (!event)
		return;
	event->len_bytes += more_bytes;
	event->end_byte += more_bytes;
}

/* It is read; how long the reader was off the CPU has just been found. If it is not known any more what the message met, at least
 * its times at both ends are.
 */
static __noinline void message_read(struct waiting_key *key, u64 first_ns, u64 queued_ns, u64 now_ns)
{
	struct hop_rx_event *event = bpf_map_lookup_elem(&waiting, key), *slot;
	struct cpu_state *cpu = this_cpu();

	slot = event_reserve();
	if (slot) {
		if (event) {
			*slot = *event;
		} else {
			__builtin_memset(slot, 0, sizeof(*slot));
			slot->entry_ns = first_ns;
			slot->queued_ns = queued_ns;
			slot->flags = key->number ? 0 : HOP_RX_DATAGRAM;
		}
		if (slot->queued_ns != queued_ns)
			slot->ordered_ns = queued_ns;
		slot->read_ns = now_ns;
		slot->off_ns = cpu->off_ns;
		slot->runnable_ns = cpu->runnable_ns;
		if (cpu->off_ns == UNKNOWN_NS) {
			slot->off_ns = slot->runnable_ns = 0;
			slot->flags |= HOP_RX_OFF_UNKNOWN;
		}
		slot->pid = current_pid();
		bpf_get_current_comm(slot->comm, sizeof(slot->comm));
		event_submit(slot);
	}
	if (event)
		bpf_map_delete_elem(&waiting, key);
}
