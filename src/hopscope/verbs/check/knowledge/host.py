# SPDX-License-Identifier: Apache-2.0
"""What is known of sockets, and of what the network stack lives on: memory, CPU, clock; and settings worth knowing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.verbs.check.conditions import All, Figure, Fill, Hit, Judged, Level, Word, counted, standing
from hopscope.verbs.check.findings import Entry
from hopscope.verbs.check.knowledge import backlog
from hopscope.verbs.check.knowledge.refs import Ref, sysctl

if TYPE_CHECKING:
    from hopscope.verbs.check.scene import Place, Scene

_KINDS: Final = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
_TICKS: Final = tuple(Ref("cpu", (kind,), subjects="cpu *") for kind in _KINDS)
_STEAL: Final = _TICKS[-1]
_TOTAL: Final = Ref("memory", ("MemTotal_kB",))
_AVAILABLE: Final = Ref("memory", ("MemAvailable_kB",))
_QUEUE: Final = Ref("socket", ("queue",), only=("* listener",))
_US: Final = 1e6
# Of less time nothing can be said.
_LEAST_S: Final = 0.5


def _stolen(scene: Scene, place: Place) -> Hit | None:
    total, by = sum(scene.by(ref, place) for ref in _TICKS), scene.by(_STEAL, place)
    if total < 50 or by <= 0.05 * total:
        return None
    return Hit(tuple(counted(_STEAL, scene, place, total)), {"share": Figure(by / total, "share", "max")})


def _little_memory(scene: Scene, place: Place) -> Hit | None:
    total, available = scene.value(_TOTAL, place), scene.value(_AVAILABLE, place)
    if not total or available is None or available >= 0.03 * total:
        return None
    rows = (*standing(_AVAILABLE, scene, place, available / total), *standing(_TOTAL, scene, place))
    figures = {"now": Figure(available * 1024, "bytes", "max"), "share": Figure(available / total, "share", "max")}
    return Hit(rows, figures)


def _waited(resource: str, above: float) -> Judged:
    """Return the condition that some tasks waited for a resource for more than this part of the time."""
    ref = Ref("pressure", (f"{resource}.some.total_us",), subjects="", since="kernels with CONFIG_PSI")

    def judge(scene: Scene, place: Place) -> Hit | None:
        part = scene.by(ref, place) / (scene.seconds * _US)
        if part <= above or scene.seconds < _LEAST_S:
            return None
        rows = counted(ref, scene, place, scene.seconds * _US)
        return Hit(tuple(rows), {"share": Figure(min(part, 1.0), "share", "max")})

    return Judged((ref,), judge)


ENTRIES: Final = (
    Entry(
        "socket-listener-filling",
        "warning",
        "socket",
        Fill(_QUEUE, Ref("socket", ("backlog",)), above=0.8, at_least=2),
        "{now} connections are waiting to be accepted by the listener {where}, whose limit is {limit}",
        "When the queue is full, new connections are dropped. The application does not call accept() fast enough.",
        ("ss -ltnp  # whose?", *backlog.FIXES),
        "net/ipv4/inet_diag.c; include/net/sock.h sk_acceptq_is_full",
        "An application that keeps up accepts at once: the queue is nearly always empty.",
        advice=backlog.ADVICE,
    ),
    Entry(
        "memory-pressure",
        "warning",
        "memory",
        _waited("memory", above=0.1),
        "Some tasks waited for memory {share} of the time",
        "The kernel has to search for free pages while packets wait: buffers cannot be allocated, and readers stall.",
        ("cat /proc/pressure/memory", "ps aux --sort -rss | head  # which processes use it?"),
        "Documentation/accounting/psi.rst",
        "A host with enough memory waits well below 1% of the time.",
    ),
    Entry(
        "memory-low",
        "warning",
        "memory",
        Judged((_AVAILABLE, _TOTAL), _little_memory),
        "Only {now} of memory ({share}) is still available",
        "The NIC's ring and sockets need pages immediately, in interrupt context, where the kernel cannot wait "
        "for memory.",
        (
            "ps aux --sort -rss | head  # which processes use it?",
            "sysctl -w vm.min_free_kbytes=N  # twice what it is now",
        ),
        "fs/proc/meminfo.c si_mem_available; Documentation/filesystems/proc.rst MemAvailable",
        "Caches count as available: below 3%, the kernel is close to its reserves.",
    ),
    Entry(
        "cpu-steal",
        "warning",
        "cpu",
        Judged(_TICKS, _stolen),
        "The hypervisor took {share} of this machine's CPU time away",
        "Other guests ran at that time: packets wait although no counter on this host shows any load.",
        ("mpstat -P ALL 1  # %steal, over time", " # a host that is not overcommitted, or dedicated CPUs"),
        "kernel/sched/cputime.c account_steal_time; Documentation/filesystems/proc.rst steal",
        "A few per cent are usual on shared hosts; from 5% on, latencies suffer.",
    ),
    Entry(
        "cpu-pressure",
        "notice",
        "cpu",
        _waited("cpu", above=0.6),
        "Some tasks waited for a CPU {share} of the time",
        "Applications read and send later than they could: their data waits in socket buffers.",
        ("hopscope rx --hop rx.tcp_wake --hop rx.udp_wake  # how long?", "ps -eo pid,comm,pcpu --sort -pcpu | head"),
        "Documentation/accounting/psi.rst",
        "On a well-used host some task is occasionally waiting; above 60% of the time, it is short of CPUs.",
    ),
    Entry(
        "clock-slow",
        "warning",
        "clock",
        Word(Ref("clock", ("current_clocksource",)),
             ill=frozenset({"hpet", "acpi_pm", "jiffies", "refined-jiffies", "pit", "xen"})),
        "The kernel's clock is read from {now}, which is slow",
        "Each time stamp of a packet, and each clock_gettime() of an application, costs a system call or a read over "
        "the bus: up to microseconds instead of 20 ns.",
        (
            "cat /sys/devices/system/clocksource/clocksource0/available_clocksource",
            "dmesg | grep -i -e clocksource -e tsc  # why was it abandoned?",
            "echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource  # if it is offered",
        ),
        "Documentation/timers/timekeeping.rst; kernel/time/clocksource.c",
        "tsc, kvm-clock, Hyper-V's page and arch_sys_counter are read without a system call: these are fine.",
    ),
    Entry(
        "note-slow-start-after-idle",
        "note",
        "tcp",
        Level(sysctl("net.ipv4.tcp_slow_start_after_idle"), above=0),
        "TCP returns to slow start after a connection was idle for a retransmission timeout",
        "Persistent connections with occasional large answers pay for it each time. In a private network, it "
        "can be switched off.",
        ("sysctl -w net.ipv4.tcp_slow_start_after_idle=0",),
        "Documentation/networking/ip-sysctl.rst tcp_slow_start_after_idle; RFC 5681 4.1",
        "It is the default: for information only.",
    ),
    Entry(
        "note-busy-poll",
        "note",
        "softnet",
        Level(sysctl("net.core.busy_read"), above=0),
        "Sockets poll the card for {now} microseconds before they sleep (busy polling)",
        "It lowers latency, but uses CPU time continuously.",
        ("sysctl -w net.core.busy_read=0  # to switch it off",),
        "Documentation/admin-guide/sysctl/net.rst busy_read; Documentation/networking/napi.rst",
        "It is a matter of choice: for information only.",
    ),
    Entry(
        "note-timestamping",
        "note",
        "clock",
        All((Level(Ref("driver", ("phc_index",), since="cards with a clock of their own"), above=-1, name="clock"),)),
        "{where} can time-stamp packets itself, with its own clock /dev/ptp{clock}",
        "The NIC's time stamps show the delay caused by the interrupt and the driver.",
        ("ethtool -T {device}", "hopscope rx --help  # time stamps of the NIC"),
        "Documentation/networking/timestamping.rst",
        "It is a capability: for information only.",
    ),
    Entry(
        "note-ecn",
        "note",
        "tcp",
        Level(sysctl("net.ipv4.tcp_ecn"), above=0, below=2),
        "TCP asks for ECN when it opens connections",
        "Congestion is then signalled by marks instead of losses, if the network supports it.",
        ("sysctl net.ipv4.tcp_ecn",),
        "Documentation/networking/ip-sysctl.rst tcp_ecn; RFC 3168",
        "It is a matter of choice: for information only.",
    ),
)  # fmt: skip
