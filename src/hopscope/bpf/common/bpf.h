// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What every BPF program of hopscope includes: libbpf's headers, and what they lack. Types and constants that a
 * vmlinux.h would have, which we do without: only what the programs, the tests and the benchmarks use is here.
 */
#pragma once

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s32 s32;
typedef __s64 s64;
typedef _Bool bool;
#define true 1
#define false 0

/* Registers in struct pt_regs by the names that they have in the kernel, as kernel.h has them. */
#define __VMLINUX_H__
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/* A compiler describes in BTF only what a variable or a function's argument has for its type: make it describe an enum
 * of which the programs only use the values, and a struct that is only written through pointers.
 */
#define EXPORT_ENUM(name) const enum name *exported_##name
#define EXPORT_STRUCT(name) const struct name *exported_##name

/* Without the old value, which BPF returns only since 5.12: compilers keep to the old instruction for relaxed order. */
#define atomic_add(where, value) ((void)__atomic_fetch_add(where, value, __ATOMIC_RELAXED))

/* A kernel pointer as a number. From 6.17 on the verifier knows even a "char *" for a pointer, with which no arithmetic is
 * allowed; its halves, moved by 32-bit instructions, are numbers. In assembler, for the compiler would join them again.
 */
static __always_inline u64 address(const void *pointer)
{
	u64 upper = (u64)pointer;
	u32 high, low;

	__asm__("%0 >>= 32" : "+r"(upper));
	__asm__("%0 = %1" : "=w"(high) : "w"((u32)upper));
	__asm__("%0 = %1" : "=w"(low) : "w"((u32)(u64)pointer));
	return (u64)high << 32 | low;
}

/* A pointer to one of the kernel's objects as a number with which arithmetic is allowed: what was read is one to the verifier. */
static __always_inline u64 number_of(u64 pointer)
{
	u64 number = 0;

	bpf_probe_read_kernel(&number, sizeof(number), &pointer);
	return number;
}

/* ---- loops ----
 *
 * The verifier follows a plain loop step by step, with all ways through each step. A loop by the kernel's iterator over
 * numbers (6.4, 6018e1f407cc) it follows until a step begins as one before it did.
 */
struct bpf_iter_num {
	u64 state;
};

extern int bpf_iter_num_new(struct bpf_iter_num *numbers, int first, int end) __ksym __weak;
extern int *bpf_iter_num_next(struct bpf_iter_num *numbers) __ksym __weak;
extern void bpf_iter_num_destroy(struct bpf_iter_num *numbers) __ksym __weak;

/* Where may_goto is sure to be known: no step has a number. */
#define UNCOUNTED 0

/* False if a loop does not end: the verifier follows both, and the kernel counts, at next to no cost. Kernels before 6.9
 * (011832b97b31) refuse a program that has the instruction, even where it is never reached.
 */
#define may_goto()                                                                                                     \
	({                                                                                                             \
		__label__ ends;                                                                                        \
		bool goes_on = false;                                                                                  \
		__asm__ volatile goto("1: .byte 0xe5, 0; .long (%l[ends] - 1b - 8) / 8 & 0xffff; .short 0"             \
				      :                                                                                \
				      :                                                                                \
				      :                                                                                \
				      : ends);                                                                         \
		goes_on = true;                                                                                        \
	ends:                                                                                                          \
		goes_on;                                                                                               \
	})

struct steps {
	struct bpf_iter_num numbers;
	u64 taken; /* none, one, or more: then there is an iterator */
};

static __always_inline void steps_end(struct steps *steps)
{
	if (steps->taken > 1)
		bpf_iter_num_destroy(&steps->numbers);
}

/* Is there a further step? `i` is its number then. A turn of the iterator costs some 10 ns: the first step, which is the only
 * one of most loops, goes without.
 */
static __always_inline bool steps_next(struct steps *steps, u32 *i, u32 count)
{
	int *number;

	if (count == UNCOUNTED)
		return may_goto();
	if (!bpf_iter_num_next)
		return *i < count;
	if (!steps->taken) {
		steps->taken = 1;
		return true;
	}
	if (steps->taken == 1) {
		steps->taken = 2;
		bpf_iter_num_new(&steps->numbers, 1, count);
	}
	number = bpf_iter_num_next(&steps->numbers);
	if (number)
		*i = *number;
	return number;
}

/* For each i below the constant `count`, as long as `goes_on`. The outer loop takes one turn. */
#define each_step(i, count, goes_on)                                                                                   \
	for (struct steps steps __attribute__((cleanup(steps_end))) = {}, *left = &steps; left; left = NULL)           \
		for (u32 i = 0; (goes_on) && steps_next(&steps, &i, count); i++)

/* Room for the instructions of a function of three arguments, which are put here when the object is opened
 * (hopscope.libbpf.assembler); as it stands, they are skipped, the result is 0, and the kernel drops what is never reached.
 */
#define room_for_instructions(result, first, second, third)                                                            \
	asm volatile("r0 = 0\n"                                                                                        \
		     "if r0 == 0 goto +2044\n"                                                                         \
		     ".rept 2044\n"                                                                                    \
		     "r0 = r0\n"                                                                                       \
		     ".endr\n"                                                                                         \
		     "%0 = 0"                                                                                          \
		     : "=r"(result)                                                                                    \
		     : "r"(first), "r"(second), "r"(third)                                                             \
		     : "r0", "memory")

/* include/uapi/linux/bpf.h */
enum bpf_map_kind {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERF_EVENT_ARRAY = 4,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_STACK_TRACE = 7,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
	BPF_MAP_TYPE_SK_STORAGE = 24,
	BPF_MAP_TYPE_RINGBUF = 27,
};

enum bpf_flags {
	BPF_NOEXIST = 1,
	BPF_F_NO_PREALLOC = 1 << 0,
	BPF_F_MMAPABLE = 1 << 10,
	BPF_LOCAL_STORAGE_GET_F_CREATE = 1,
	BPF_RB_NO_WAKEUP = 1,
	BPF_F_CURRENT_CPU = 0xffffffff,
};
