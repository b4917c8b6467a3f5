// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Transmit latency: the send call begins. */
#pragma once

#include "tx/datagram.h"
#include "tx/stamped.h"
#include "tx/traced.h"

/* `once`: the hook sees each call a single time. */
static __always_inline int tcp_send_enters(struct sock *sk, struct msghdr *msg, bool once)
{
	if (cfg_stamped)
		stamped_enter(sk, msg, once);
	else
		traced_enter(sk, msg, once);
	return 0;
}

/* Where no function can be hooked: any call that sends, of which only the file is known. */
static __always_inline int system_call_enters(struct pt_regs *regs, u64 number)
{
	switch (number) {
	case NR_sendto:
	case NR_sendmsg:
	case NR_sendmmsg:
	case NR_write:
	case NR_writev:
		send_enters(NULL, (u32)PT_REGS_PARM1(regs));
	}
	return 0;
}
