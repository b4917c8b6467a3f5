// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Records for user space. */
#pragma once

#include "bpf.h"

struct ring {
	MAP_UINT(type, BPF_MAP_TYPE_RINGBUF);
	MAP_UINT(max_entries, 4096);
};

/* A ring a CPU. */
#define RINGS(name)                                                                                                    \
	struct {                                                                                                       \
		MAP_UINT(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);                                                            \
		MAP_UINT(max_entries, 1); /* CPUs, set before load */                                                  \
		MAP_TYPE(key, u32);                                                                                    \
		typeof(struct ring) *values[];                                                                         \
	} name SEC(".maps")

RINGS(rings);
