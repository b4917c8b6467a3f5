// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What user space changes while programs run, so that they cost no more than is allowed (hopscope.live.budget). */
#pragma once

#include "common/kernel.h"

const volatile bool cfg_budget = 0;

struct hop_sampling {
	u64 since_ns; /* what began before that is not known: programs were detached */
	u64 epoch;    /* how often they were */
	u32 mask;     /* one packet in mask + 1 is followed, a power of two */
	u32 open;     /* 0: no further packet is followed */
};

struct hop_sampling sampling SEC(".bss.sampling");

/* Is all of it known that came after this time? */
static __always_inline bool since_known(u64 begun_ns)
{
	return !cfg_budget || begun_ns >= sampling.since_ns;
}

/* Is what has this epoch of after programs were detached last? */
static __always_inline bool epoch_is_ours(u64 epoch)
{
	return !cfg_budget || epoch == sampling.epoch;
}

/* Is what happens now to be recorded, where it needs no packet that is followed? */
static __always_inline bool sampling_open(void)
{
	return !cfg_budget || sampling.open;
}

/* Each is followed by chance, independently of all others. */
static __always_inline bool sampling_takes(void)
{
	if (!sampling.open)
		return false;
	return !sampling.mask || !(bpf_get_prandom_u32() & sampling.mask);
}
