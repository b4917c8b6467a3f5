// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The running task. */
#pragma once

#include "kernel.h"

INLINE struct task_struct *current_task(void)
{
	return (void *)bpf_get_current_task();
}

INLINE u32 current_pid(void)
{
	return bpf_get_current_pid_tgid() >> 32;
}

/* 0 where it would like to run. */
INLINE u32 task_state(struct task_struct *task)
{
	struct task_struct___before_5_14 *old = (void *)task;

	if (core_exists(task->__state))
		return probe_field(task, __state);
	return probe_field(old, state);
}
