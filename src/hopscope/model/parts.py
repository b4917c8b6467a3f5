# SPDX-License-Identifier: Apache-2.0
"""What a CPU does for networking: the parts that the account tells apart."""

from __future__ import annotations

from typing import Final

# Part → what it is, in the order in which they are shown. A CPU is in one of them at a time, or in none.
PARTS: Final = {
    "irq": "hard interrupts of network devices",
    "net_rx": "NET_RX softirq",
    "net_tx": "NET_TX softirq",
    "timer": "timers of the network stack",
    "tasklet": "tasklets and BH work items of the network stack",
    "ksoftirqd": "NET_RX and NET_TX, run by ksoftirqd",
    "napi_thread": "threaded NAPI",
    "workqueue": "work items of the network stack, run by kworker threads",
    "busy_poll": "system calls that poll a device busily",
    "send": "socket calls that send",
    "receive": "socket calls that receive",
    "control": "socket calls that neither send nor receive",
    "io_uring": "socket calls of io_uring's workers",
}
