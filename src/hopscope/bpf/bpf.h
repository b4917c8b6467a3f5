// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What a BPF program of hopscope needs of the BPF machine itself: types, sections, maps, helpers, CO-RE.
 * Helper numbers are the kernel's ABI (include/uapi/linux/bpf.h). Only what the programs, the tests and
 * the benchmarks use stands here.
 */
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int s32;
typedef _Bool bool;
#define true 1
#define false 0
typedef long long s64;
typedef u16 __attribute__((aligned(2))) be16;

#define NULL ((void *)0)
#define SEC(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))
#define UNUSED __attribute__((unused))
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#define barrier() __asm__ volatile("" ::: "memory")
/* Hide a value's origin from the compiler, so that a bound which it proved stays in the code for the verifier. */
#define opaque(x) __asm__ volatile("" : "+r"(x))

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
INLINE u64 address(const void *pointer)
{
	u64 upper = (u64)pointer;
	u32 high, low;

	__asm__("%0 >>= 32" : "+r"(upper));
	__asm__("%0 = %1" : "=w"(high) : "w"((u32)upper));
	__asm__("%0 = %1" : "=w"(low) : "w"((u32)(u64)pointer));
	return (u64)high << 32 | low;
}

/* Maps, in libbpf's BTF form. */
#define MAP_UINT(name, value) int (*name)[value]
#define MAP_TYPE(name, value) typeof(value) *name

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
};

struct bpf_sock_ops;

static void *(*const bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*const bpf_map_update_elem)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static long (*const bpf_map_delete_elem)(void *map, const void *key) UNUSED = (void *)3;
static u64 (*const bpf_ktime_get_ns)(void) = (void *)5;
static u32 (*const bpf_get_prandom_u32)(void) = (void *)7;
static u32 (*const bpf_get_smp_processor_id)(void) = (void *)8;
static u64 (*const bpf_get_current_pid_tgid)(void) = (void *)14;
static u64 (*const bpf_perf_event_read)(void *map, u64 index) UNUSED = (void *)22;
static u64 (*const bpf_get_socket_cookie)(void *ctx) UNUSED = (void *)46;
static long (*const bpf_setsockopt)(void *ctx, int level, int name, void *value, int size) UNUSED = (void *)49;
static long (*const bpf_getsockopt)(void *ctx, int level, int name, void *value, int size) UNUSED = (void *)57;
static long (*const bpf_sock_ops_cb_flags_set)(struct bpf_sock_ops *ctx, int flags) UNUSED = (void *)59;
static long (*const bpf_get_stackid)(void *ctx, void *map, u64 flags) UNUSED = (void *)27;
static long (*const bpf_get_stack)(void *ctx, void *buffer, u32 size, u64 flags) UNUSED = (void *)67;
static u64 (*const bpf_get_current_cgroup_id)(void) UNUSED = (void *)80;
static void *(*const bpf_sk_storage_get)(void *map, void *sk, void *value, u64 flags) = (void *)107;
static u64 (*const bpf_get_current_task)(void) UNUSED = (void *)35;
static long (*const bpf_probe_read_user)(void *dst, u32 size, const void *src) = (void *)112;
static long (*const bpf_probe_read_kernel)(void *dst, u32 size, const void *src) = (void *)113;
static long (*const bpf_seq_write)(void *seq, const void *data, u32 len) = (void *)127;
static u64 (*const bpf_jiffies64)(void) UNUSED = (void *)118;
static void *(*const bpf_ringbuf_reserve)(void *ring, u64 size, u64 flags)UNUSED = (void *)131;
static long (*const bpf_loop)(u64 turns, void *function, void *ctx, u64 flags) UNUSED = (void *)181;
static void (*const bpf_ringbuf_submit)(void *record, u64 flags) UNUSED = (void *)132;
static struct tcp_sock *(*const bpf_skc_to_tcp_sock)(void *sk)UNUSED = (void *)137;

/* CO-RE. */
#define CORE_FIELD_BYTE_OFFSET 0
#define CORE_FIELD_BYTE_SIZE 1
#define CORE_FIELD_EXISTS 2
#define CORE_FIELD_LSHIFT_U64 4
#define CORE_FIELD_RSHIFT_U64 5
#define core_exists(field) __builtin_preserve_field_info(field, CORE_FIELD_EXISTS)
#define CORE_ENUM_VALUE_EXISTS 0
#define core_enum_exists(type, value) __builtin_preserve_enum_value(*(type *)value, CORE_ENUM_VALUE_EXISTS)
#define core_type_id(type) __builtin_btf_type_id(*(type *)0, 1)
/* Read a field through a pointer that the verifier does not know. */
#define probe_field(pointer, field)                                                                                    \
	({                                                                                                             \
		typeof((pointer)->field) field_value = 0;                                                              \
		bpf_probe_read_kernel(&field_value, sizeof(field_value),                                               \
				      __builtin_preserve_access_index(&(pointer)->field));                             \
		field_value;                                                                                           \
	})
/* The same for a bit field without sign. */
#define probe_bits(pointer, field)                                                                                     \
	({                                                                                                             \
		u64 bits = 0;                                                                                          \
		bpf_probe_read_kernel(                                                                                 \
			&bits, __builtin_preserve_field_info((pointer)->field, CORE_FIELD_BYTE_SIZE),                  \
			(void *)(pointer) + __builtin_preserve_field_info((pointer)->field, CORE_FIELD_BYTE_OFFSET));  \
		bits <<= __builtin_preserve_field_info((pointer)->field, CORE_FIELD_LSHIFT_U64);                       \
		bits >>= __builtin_preserve_field_info((pointer)->field, CORE_FIELD_RSHIFT_U64);                       \
		(u32) bits;                                                                                            \
	})
/* The same through a pointer that the verifier knows. */
#define direct_bits(pointer, field)                                                                                    \
	({                                                                                                             \
		const void *place = (const void *)(pointer) +                                                          \
				    __builtin_preserve_field_info((pointer)->field, CORE_FIELD_BYTE_OFFSET);           \
		u64 bits = 0;                                                                                          \
		opaque(place);                                                                                         \
		switch (__builtin_preserve_field_info((pointer)->field, CORE_FIELD_BYTE_SIZE)) {                       \
		case 1:                                                                                                \
			bits = *(const u8 *)place;                                                                     \
			break;                                                                                         \
		case 2:                                                                                                \
			bits = *(const u16 *)place;                                                                    \
			break;                                                                                         \
		case 4:                                                                                                \
			bits = *(const u32 *)place;                                                                    \
			break;                                                                                         \
		}                                                                                                      \
		bits <<= __builtin_preserve_field_info((pointer)->field, CORE_FIELD_LSHIFT_U64);                       \
		bits >>= __builtin_preserve_field_info((pointer)->field, CORE_FIELD_RSHIFT_U64);                       \
		(u32) bits;                                                                                            \
	})
