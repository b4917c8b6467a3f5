// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Base-2 exponential histogram, scale 3, bounds in seconds, by integers alone. The table is made, and the
 * arithmetic proved, by hopscope.model.histogram.
 */
#pragma once

#include "common/events.h"
#include "common/hist_table.h"

/* Index of the highest bit that is set; value is not 0. BPF has no instruction for it. */
static __always_inline u32 highest_bit(u64 value)
{
	u32 bit = 0;

	if (value >> 32) {
		bit = 32;
		value >>= 32;
	}
	if (value >> 16) {
		bit += 16;
		value >>= 16;
	}
	if (value >> 8) {
		bit += 8;
		value >>= 8;
	}
	if (value >> 4) {
		bit += 4;
		value >>= 4;
	}
	/* Four bits are left: a packed table of their logarithms. */
	return bit + ((0xffffaa50u >> (value << 1)) & 3);
}

static __always_inline u32 hist_slot(u64 value_ns)
{
	u32 bit, cell;
	u64 mantissa;
	s32 slot;

	if (!value_ns)
		return 0;
	bit = highest_bit(value_ns);
	mantissa = value_ns << (63 - bit);
	cell = (mantissa >> 59) & 15;
	slot = 8 * (s32)bit + hist_base[cell] + (mantissa > hist_threshold[cell]);
	if (slot < 0)
		slot = 0;
	if (slot > HOP_HIST_SLOTS - 1)
		slot = HOP_HIST_SLOTS - 1;
	return slot;
}

/* A row belongs to one CPU and one program, and the kernel does not let a program interrupt itself on a CPU (05b24ff9b2cf, 6.1):
 * plain additions are exact. Before that, and where two programs share a row, `shared` makes them atomic.
 */
static __always_inline void hist_add(struct hop_hist_row *row, u64 value_ns, bool shared)
{
	u32 slot = hist_slot(value_ns);

	barrier_var(slot);
	if (slot >= HOP_HIST_SLOTS)
		return;
	if (shared) {
		atomic_add(&row->slots[slot], 1);
		atomic_add(&row->sum_ns, value_ns);
	} else {
		row->slots[slot]++;
		row->sum_ns += value_ns;
	}
	if (value_ns > row->max_ns)
		row->max_ns = value_ns;
}
