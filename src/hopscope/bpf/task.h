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
