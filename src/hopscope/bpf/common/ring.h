// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Records for user space. */
#pragma once

#include "common/bpf.h"

struct ring {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
};

/* A ring a CPU. */
#define RINGS(name)                                                                                                    \
	struct {                                                                                                       \
		__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);                                                              \
		__uint(max_entries, 1); /* CPUs, set before load */                                                    \
		__type(key, u32);                                                                                      \
		__array(values, struct ring);                                                                          \
	} name SEC(".maps")

RINGS(rings);
