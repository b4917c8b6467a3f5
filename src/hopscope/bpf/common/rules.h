// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Conditions on events, of which those that are left out get no record. */
#pragma once

#include "common/events.h"
#include "common/own.h"

EXPORT_ENUM(hop_rule);
EXPORT_STRUCT(hop_beside);

/* A constant to the verifier: without conditions, nothing of this is in the programs. */
const volatile bool cfg_rules = 0;
/* Events that got no record, by enum hop_rule and point. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1); /* set before load */
	__type(key, u32);
	__type(value, u64);
} unrecorded SEC(".maps");

/* Which condition leaves the event out; 0: none. The conditions' instructions are put here (hopscope.live.recorder.rules).
 * `key`: of the flow, which is known if the record has one.
 */
static __noinline u32 rules(const void *record, const struct flow_key *key, const struct hop_beside *beside)
{
	u32 rule;

	room_for_instructions(rule, record, key, beside);
	return rule;
}

static __always_inline bool pass_rules(const void *record, const struct flow_key *key, const struct hop_beside *beside)
{
	u32 rule = rules(record, key, beside), index;
	u64 *count;

	if (!rule)
		return true;
	index = (rule - HOP_RULE_KEEP) * HOP_RULE_POINTS + ((const struct hop_packet *)record)->point;
	count = bpf_map_lookup_elem(&unrecorded, &index);
	if (count)
		atomic_add(count, 1);
	return false;
}
