// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Recording: which events get a record, where conditions select them (record --keep, --drop). */
#pragma once

#include "common/rules.h"
#include "record/state.h"

const volatile bool cfg_rules_headers =
	0; /* conditions compare what is in packets' headers, which are looked at for them */
const volatile bool cfg_rules_names = 0; /* they compare names, or processes */

static const struct flow_key no_key;

/* Which ring has what the running thread does, at a device or at none. */
static __noinline u32 ring_of(const void *record, const struct flow_key *key, const struct net_device *dev, u32 reason)
{
	struct hop_beside beside = {.reason = reason};

	if (cfg_rules_names) {
		struct task_struct *task = current_task();

		beside.pid = BPF_CORE_READ(task, tgid);
		bpf_probe_read_kernel_str(beside.comm, sizeof(beside.comm), &task->comm);
		if (dev)
			bpf_probe_read_kernel_str(beside.interface, sizeof(beside.interface), &dev->name);
	}
	return ring_for(record, key, &beside);
}

/* Makes a record, if it is kept; returns the ring, also where that had no room. */
#define PUT(kind, key, ...)                                                                                            \
	({                                                                                                             \
		struct kind *record_ = NULL;                                                                           \
		u32 ring_ = MAIN_RING;                                                                                 \
                                                                                                                       \
		if (cfg_rules) {                                                                                       \
			struct kind draft_ = __VA_ARGS__;                                                              \
                                                                                                                       \
			ring_ = ring_of(&draft_, key, NULL, 0);                                                        \
			if (ring_)                                                                                     \
				record_ = reserve(ring_);                                                              \
			if (record_) {                                                                                 \
				*record_ = draft_;                                                                     \
				submit(record_);                                                                       \
			}                                                                                              \
		} else {                                                                                               \
			record_ = reserve(MAIN_RING);                                                                  \
			if (record_) {                                                                                 \
				*record_ = (struct kind)__VA_ARGS__;                                                   \
				submit(record_);                                                                       \
			}                                                                                              \
		}                                                                                                      \
		ring_;                                                                                                 \
	})

/* The running thread, which user space knows; with conditions, thread_is_kept() makes it known for events that are kept. */
static __always_inline u32 thread_here(void)
{
	return cfg_rules ? current_tid() : this_thread();
}

static __always_inline void thread_is_kept(u32 tid, u64 time_ns, u32 ring)
{
	if (cfg_rules)
		know_thread(tid, time_ns, ring);
}
