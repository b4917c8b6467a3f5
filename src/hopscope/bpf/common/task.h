// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The running task. */
#pragma once

#include "common/kernel.h"

static __always_inline struct task_struct *current_task(void)
{
	return (void *)bpf_get_current_task();
}

static __always_inline u32 current_pid(void)
{
	return bpf_get_current_pid_tgid() >> 32;
}

/* 0 where it would like to run. */
static __always_inline u32 task_state(struct task_struct *task)
{
	struct task_struct___before_5_14 *old = (void *)task;

	if (bpf_core_field_exists(task->__state))
		return BPF_CORE_READ(task, __state);
	return BPF_CORE_READ(old, state);
}
