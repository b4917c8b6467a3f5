// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Conditions on events, of which those that are left out get no record. */
#pragma once

#include "common/events.h"
#include "common/own.h"

EXPORT_ENUM(hop_rule);
EXPORT_STRUCT(hop_beside);

/* A constant to the verifier: without conditions, nothing of this is in the programs. */
const volatile bool cfg_rules = 0;
const volatile u32 cfg_classes = 0; /* classes, of whose events each has rings of its own */
/* Events that got no record, by enum hop_rule and point. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1); /* set before load */
	__type(key, u32);
	__type(value, u64);
} unrecorded SEC(".maps");

/* Which condition leaves the event out, or which class it is of (enum hop_rule); 0: neither. The conditions' instructions are
 * put here (hopscope.live.recorder.rules). `key`: of the flow, which is known if the record has one.
 */
static __noinline u32 rules(const void *record, const struct flow_key *key, const struct hop_beside *beside)
{
	u32 rule;

	room_for_instructions(rule, record, key, beside);
	return rule;
}

/* Which of a CPU's rings a record goes to: that of all that is of no class, or of a class, which follow it. */
#define NO_RING 0 /* it is left out */
#define MAIN_RING 1

static __always_inline u32 ring_for(const void *record, const struct flow_key *key, const struct hop_beside *beside)
{
	u32 rule = rules(record, key, beside), index;
	u64 *count;

	if (!rule)
		return MAIN_RING;
	if (cfg_classes && rule >= HOP_RULE_CLASS)
		return rule - HOP_RULE_CLASS + MAIN_RING + 1;
	index = (rule - HOP_RULE_KEEP) * HOP_RULE_POINTS + ((const struct hop_packet *)record)->point;
	count = bpf_map_lookup_elem(&unrecorded, &index);
	if (count)
		atomic_add(count, 1);
	return NO_RING;
}
