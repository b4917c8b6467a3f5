// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What a kernel function is called with, or returns: values that user space has found in BTF, if a filter lets them pass.
 * There is an object for each function. A record goes to the perf event that user space has put into `outputs` for the
 * CPU; where it is disabled, there is none.
 */
#include "common/events.h"
#include "common/kernel.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

enum hop_fetch_limits {
	HOP_FETCHES = 16,
	HOP_FETCH_HOPS = 8,
	HOP_FETCH_TESTS = 16,
	HOP_FETCH_BYTES = 64, /* of what is no number */
	HOP_FETCH_WORDS = 128,
};
EXPORT_ENUM(hop_fetch_limits);

/* Where a path begins, besides at the arguments 0 to 5. */
enum hop_fetch_from {
	HOP_FETCH_RESULT = 6,
};
EXPORT_ENUM(hop_fetch_from);

enum hop_fetch_kind {
	HOP_FETCH_NUMBER,
	HOP_FETCH_RAW,
	HOP_FETCH_TEXT,
};
EXPORT_ENUM(hop_fetch_kind);

enum hop_fetch_is {
	HOP_FETCH_IS_EQUAL,
	HOP_FETCH_IS_OTHER,
	HOP_FETCH_IS_LESS,
	HOP_FETCH_IS_AT_MOST,
	HOP_FETCH_IS_MORE,
	HOP_FETCH_IS_AT_LEAST,
	HOP_FETCH_HAS_BITS,
};
EXPORT_ENUM(hop_fetch_is);

/* After a test, that of this number comes, or it is decided. */
enum hop_fetch_next {
	HOP_FETCH_PASSES = 0xfe,
	HOP_FETCH_FAILS = 0xff,
};
EXPORT_ENUM(hop_fetch_next);

/* A value: from a register, by pointers at these offsets, the last of which is that of the value. A number is moved to the
 * left and to the right, so that its sign or zeros fill the word.
 */
struct hop_fetch {
	u32 offset[HOP_FETCH_HOPS];
	u8 from;
	u8 hops;
	u8 kind;
	u8 size;
	u8 left;
	u8 right;
	u8 is_signed;
	u8 swapped; /* bytes of a number in network order, else 0 */
	u8 word;    /* of the record, where it goes */
	u8 pad[3];
};

struct hop_fetch_test {
	u64 number;
	u8 fetch;
	u8 is;
	u8 is_signed;
	u8 if_true;
	u8 if_false;
	u8 pad[3];
};

struct hop_fetched {
	u64 caller;
	s32 stack;
	u32 unread; /* a bit for each value that could not be read */
	u64 word[HOP_FETCH_WORDS];
};
EXPORT_STRUCT(hop_fetched);

#define REGISTERS 8 /* those above, and one more for a power of two */

const volatile struct hop_fetch cfg_fetch[HOP_FETCHES];
const volatile u32 cfg_fetches = 0;
const volatile struct hop_fetch_test cfg_test[HOP_FETCH_TESTS];
const volatile u32 cfg_tests = 0;
const volatile u32 cfg_caller_bytes = 0; /* of the stack, the last of whose addresses is in the caller */
const volatile bool cfg_stack = 0;
const volatile u32 cfg_record_bytes = sizeof(struct hop_fetched);

struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(max_entries, 1); /* CPUs, set before load */
	__uint(key_size, 4);
	__uint(value_size, 4);
} outputs SEC(".maps");

/* Too large for the stack. The kernel runs no other program of this type on the CPU meanwhile. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct hop_fetched);
} records SEC(".maps");

/* In its place user space puts the recorder's. */
struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, 1);
	__uint(key_size, 4);
	__uint(value_size, 8 * HOP_DROP_FRAMES);
} stacks SEC(".maps");

static __always_inline u64 shaped(const volatile struct hop_fetch *fetch, u64 number)
{
	number <<= fetch->left;
	number = fetch->is_signed ? (u64)((s64)number >> fetch->right) : number >> fetch->right;
	switch (fetch->swapped) {
	case 2:
		return bpf_ntohs(number);
	case 4:
		return bpf_ntohl(number);
	case 8:
		return bpf_be64_to_cpu(number);
	default:
		return number;
	}
}

/* Whether the value could be read. */
static __always_inline bool fetched(const u64 *registers, const volatile struct hop_fetch *fetch, u64 *to)
{
	u64 value = registers[fetch->from & (REGISTERS - 1)], next;
	u32 size = fetch->size & (2 * HOP_FETCH_BYTES - 1), hops = fetch->hops, i;

	*to = 0;
	for (i = 0; i + 1 < hops && i + 1 < HOP_FETCH_HOPS; i++) {
		if (bpf_probe_read_kernel(&next, sizeof(next), (void *)(value + fetch->offset[i])))
			return false;
		value = next;
	}
	if (hops)
		value += fetch->offset[i];
	if (fetch->kind != HOP_FETCH_NUMBER)
		__builtin_memset(to, 0, HOP_FETCH_BYTES);
	if (fetch->kind == HOP_FETCH_TEXT)
		return bpf_probe_read_kernel_str(to, size, (void *)value) >= 0;
	if (fetch->kind == HOP_FETCH_RAW)
		return !bpf_probe_read_kernel(to, size, (void *)value);
	if (hops) {
		next = 0;
		if (bpf_probe_read_kernel(&next, fetch->size & 15, (void *)value))
			return false;
		value = next;
	}
	*to = shaped(fetch, value);
	return true;
}

static __always_inline bool holds(const volatile struct hop_fetch_test *test, u64 value)
{
	u64 number = test->number;

	switch (test->is) {
	case HOP_FETCH_IS_EQUAL:
		return value == number;
	case HOP_FETCH_IS_OTHER:
		return value != number;
	case HOP_FETCH_IS_LESS:
		return test->is_signed ? (s64)value < (s64)number : value < number;
	case HOP_FETCH_IS_AT_MOST:
		return test->is_signed ? (s64)value <= (s64)number : value <= number;
	case HOP_FETCH_IS_AT_LEAST:
		return test->is_signed ? (s64)value >= (s64)number : value >= number;
	case HOP_FETCH_IS_MORE:
		return test->is_signed ? (s64)value > (s64)number : value > number;
	default:
		return value & number;
	}
}

/* A comparison of what could not be read does not hold. */
static __always_inline bool passes(const struct hop_fetched *record)
{
	u32 next = 0;

	for (u32 i = 0; i < HOP_FETCH_TESTS && i < cfg_tests; i++) {
		const volatile struct hop_fetch_test *test = &cfg_test[i];
		u32 fetch = test->fetch;
		bool is_true;

		if (i != next || fetch >= HOP_FETCHES)
			continue;
		is_true = !(record->unread & 1 << fetch) &&
			  holds(test, record->word[cfg_fetch[fetch].word & (HOP_FETCH_WORDS - 1)]);
		next = is_true ? test->if_true : test->if_false;
	}
	return !cfg_tests || next == HOP_FETCH_PASSES;
}

SEC("kprobe")
int fetch_function(struct pt_regs *ctx)
{
	struct hop_fetched *record;
	/* All of them: the verifier wants the place in the context to be known where it is read. */
	u64 registers[REGISTERS] = {
		PT_REGS_PARM1(ctx), PT_REGS_PARM2(ctx),  PT_REGS_PARM3(ctx), PT_REGS_PARM4(ctx),
		PT_REGS_PARM5(ctx), SIXTH_ARGUMENT(ctx), PT_REGS_RC(ctx),
	};
	u64 frames[2] = {};
	u32 zero = 0;

	record = bpf_map_lookup_elem(&records, &zero);
	if (!record)
		return 0;
	record->caller = 0;
	record->unread = 0;
	for (u32 i = 0; i < HOP_FETCHES && i < cfg_fetches; i++) {
		const volatile struct hop_fetch *fetch = &cfg_fetch[i];

		/* What is no number fits behind the last word that it can begin at. */
		if (!fetched(registers, fetch, &record->word[fetch->word & (HOP_FETCH_WORDS - 1)]))
			record->unread |= 1 << i;
	}
	if (!passes(record))
		return 0;
	if (cfg_caller_bytes && bpf_get_stack(ctx, frames, cfg_caller_bytes & 31, 0) == cfg_caller_bytes)
		record->caller = frames[cfg_caller_bytes > sizeof(u64)];
	record->stack = cfg_stack ? bpf_get_stackid(ctx, &stacks, 0) : -1;
	bpf_perf_event_output(ctx, &outputs, BPF_F_CURRENT_CPU, record, cfg_record_bytes & 2047);
	return 0;
}
