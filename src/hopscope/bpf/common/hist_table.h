// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Written by `python -m hopscope.model.histogram --c-table`; `make lint` compares the two.
#pragma once

// clang-format off
static const u64 hist_threshold[16] = {
	0x81ffa7a9549ca6e3ULL,
	0x8dc3b8960164a7d9ULL,
	0xffffffffffffffffULL,
	0x9a9867054d512391ULL,
	0xffffffffffffffffULL,
	0xa8965f74bf065071ULL,
	0xb7d88a12d0dd9ea0ULL,
	0xffffffffffffffffULL,
	0xffffffffffffffffULL,
	0xc87c3e7d03cdbec3ULL,
	0xffffffffffffffffULL,
	0xdaa17c2cd19555dbULL,
	0xffffffffffffffffULL,
	0xee6b280000000000ULL,
	0xffffffffffffffffULL,
	0xffffffffffffffffULL,
};
static const s32 hist_base[16] = {-47, -46, -45, -45, -44, -44, -43, -42, -42, -42, -41, -41, -40, -40, -39, -39};
// clang-format on
