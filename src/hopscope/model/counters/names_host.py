# SPDX-License-Identifier: Apache-2.0
"""What the host's own counters count: interrupts, pressure, memory, CPUs.

:mod:`hopscope.model.counters.explanation` has the form. Interrupts, softirqs and CPUs are explained by their
subject, for their names are CPUs.
"""

from __future__ import annotations

from typing import Final

INTERRUPT: Final = """
#* | plain | /proc/interrupts; kernel/irq/proc.c show_interrupts
  Interrupts of a device (NIC queues have one each), by the CPU that took them.
  = The spread shows which CPUs receive. One for many packets: NAPI and coalescing work.
NMI* PMI* | plain | arch/x86/kernel/irq.c arch_show_interrupts
  Non-maskable interrupts, most of them of performance counters (perf).
  = Somebody profiles.
LOC* | plain | arch/x86/kernel/irq.c: Local timer interrupts
  The timer of each CPU.
  = Busy, not idle.
RES* | plain | arch/x86/kernel/irq.c: Rescheduling interrupts
  Interrupts by which one CPU wakes another for a task that became runnable.
  = Wake-ups across CPUs: an application and its softirq live on different ones.
CAL* TLB* | plain | arch/x86/kernel/irq.c: Function call interrupts, TLB shootdowns
  Interrupts by which one CPU has another run a function (RPS is one such), or forget mappings.
  = RPS, membarrier, or a process with many threads that unmaps.
IWI* | plain | arch/x86/kernel/irq.c: IRQ work interrupts
  Work that could not be done where it was found; BPF's ring buffers wake their reader so.
  = Tracing, among others.
MCE* MCP* THR* TRM* DFR* | bad | arch/x86/kernel/irq.c: Machine check, thermal
  Hardware that reports itself: memory errors, heat.
  = Look at dmesg. (MCP alone is a poll every five minutes.)
ERR* MIS* SPU* | bad | arch/x86/kernel/irq.c
  Interrupts that nobody asked for, or that were lost.
  = A driver or controller in trouble.
* | plain | /proc/interrupts; arch/*/kernel/irq.c arch_show_interrupts
  Interrupts of the architecture, or of one device, by CPU.
  = Work.
"""

SOFTIRQ: Final = """
NET_RX | plain | net/core/dev.c net_rx_action
  Rounds of receiving, by CPU: the driver's poll, GRO, IP, TCP, UDP.
  = All of it on one CPU: spread interrupts (RSS) or packets (RPS).
NET_TX | plain | net/core/dev.c net_tx_action
  Rounds of sending from queues that waited, and of freeing sent packets.
  = Queues that were stopped by a full ring.
HI TIMER BLOCK IRQ_POLL TASKLET SCHED HRTIMER RCU * | plain | kernel/softirq.c; /proc/softirqs
  Rounds of this kind of softirq, by CPU: timers, disks, tasklets, the scheduler, RCU.
  = Competes with NET_RX for the same CPU.
"""

CPU: Final = """
user nice system idle iowait irq steal guest guest_nice | plain | fs/proc/stat.c; Documentation/filesystems/proc.rst
  Ticks (1/100 s) that a CPU spent so. Without CONFIG_IRQ_TIME_ACCOUNTING by sampling at the timer.
  = Where time goes; steal is what the hypervisor gave to others.
softirq | plain | fs/proc/stat.c
  Ticks that a CPU spent in softirqs, outside of ksoftirqd.
  = Near 100 a second on one CPU: receiving is bound by that CPU. `hopscope cpu` says by what.
ticks_per_second | plain | sysconf(_SC_CLK_TCK)
  A constant: how many ticks are a second.
  = Nothing.
"""

PRESSURE: Final = """
*.some.total_us | bad | kernel/sched/psi.c; Documentation/accounting/psi.rst
  Time (µs) in which at least one task waited for the resource.
  = cpu: tasks wait for a CPU, readers of sockets among them. memory: reclaim. io: disks.
*.full.total_us | bad | kernel/sched/psi.c; Documentation/accounting/psi.rst
  Time (µs) in which all tasks that had something to do waited for it.
  = Nothing got done in that time.
*.avg10_per_10000 | bad | kernel/sched/psi.c; Documentation/accounting/psi.rst
  A level: the share of the last 10 s, in hundredths of a per cent, in which tasks waited for the resource.
  = As the total, of now.
"""

MEMORY: Final = """
MemAvailable_kB | either | fs/proc/meminfo.c
  A level: what could be given to programs without swapping.
  = Small: packets may be dropped for want of memory (IpInDiscards, rx_dropped).
Slab_kB SUnreclaim_kB | either | fs/proc/meminfo.c
  A level: the kernel's own objects; sk_buffs and sockets are among them.
  = Rising with traffic that does not rise: buffers that nobody reads.
*_kB | plain | fs/proc/meminfo.c; Documentation/filesystems/proc.rst
  A level: memory of this kind.
  = How much there is, and what for.
"""

TIMEKEEPING: Final = """
tai_minus_monotonic_ns reading_bound_ns tai_minus_utc_s | plain | kernel/time/timekeeping.c; docs/clocks.md
  A level: how far CLOCK_TAI is ahead of CLOCK_MONOTONIC, of UTC, and how exactly that was read.
  = The first changes when the clock is set, and with a leap second it does not.
synchronized | plain | kernel/time/ntp.c: STA_UNSYNC
  1 if a time daemon says that the clock is right.
  = 0: nobody vouches for the time of day.
*_error_ns *_bound_ns | plain | kernel/time/ntp.c; chronyc(1) tracking; pmc(8)
  A level: how wrong the time of day may be, as the kernel was told, or as chronyd or ptp4l says.
  = The kernel's own rises by 500 ppm from one word of the daemon to the next.
"""
