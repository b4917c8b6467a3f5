# SPDX-License-Identifier: Apache-2.0
"""What is known of sockets, and of what the network stack lives on: memory, CPU, clock; and settings worth knowing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.verbs.check.conditions import All, Figure, Fill, Hit, Judged, Level, Word, counted, standing
from hopscope.verbs.check.figures import Times
from hopscope.verbs.check.findings import Entry
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
        "{now} connections wait to be accepted by the listener {where}, which may have {limit} waiting",
        "When the queue is full, new connections are dropped. The application does not call accept() fast enough.",
        ("ss -ltnp  # whose?", "sysctl -w net.core.somaxconn={larger}  # and raise the backlog given to listen()"),
        "net/ipv4/inet_diag.c; include/net/sock.h sk_acceptq_is_full",
        "An application that keeps up accepts at once: the queue is nearly always empty.",
        advice={"larger": Times(sysctl("net.core.somaxconn"), 2, 4096)},
    ),
    Entry(
        "memory-pressure",
        "warning",
        "memory",
        _waited("memory", above=0.1),
        "Some tasks waited for memory {share} of the time",
        "The kernel has to look for free pages while packets wait: buffers cannot be had, readers stand still.",
        ("cat /proc/pressure/memory", "ps aux --sort -rss | head  # who has it?"),
        "Documentation/accounting/psi.rst",
        "A host with enough memory waits well below 1% of the time.",
    ),
    Entry(
        "memory-low",
        "warning",
        "memory",
        Judged((_AVAILABLE, _TOTAL), _little_memory),
        "Only {now} of memory ({share}) can still be had",
        "The card's ring and sockets need pages at once, in interrupts, where nothing can be waited for.",
        ("ps aux --sort -rss | head  # who has it?", "sysctl -w vm.min_free_kbytes=N  # twice what it is now"),
        "fs/proc/meminfo.c si_mem_available; Documentation/filesystems/proc.rst MemAvailable",
        "What caches hold counts as available: below 3% the kernel is near its reserves.",
    ),
    Entry(
        "cpu-steal",
        "warning",
        "cpu",
        Judged(_TICKS, _stolen),
        "The hypervisor took {share} of this machine's CPU time away",
        "Other guests ran meanwhile: packets wait although no counter here shows anything busy.",
        ("mpstat -P ALL 1  # %steal, over time", " # a host that is not overbooked, or CPUs of one's own"),
        "kernel/sched/cputime.c account_steal_time; Documentation/filesystems/proc.rst steal",
        "A few per cent are usual on shared hosts; from 5% latencies show it.",
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
        "A host that is used well has somebody waiting now and then; above 60% of the time it is short of CPUs.",
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
            "dmesg | grep -i -e clocksource -e tsc  # why was it left?",
            "echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource  # if it is offered",
        ),
        "Documentation/timers/timekeeping.rst; kernel/time/clocksource.c",
        "tsc, kvm-clock, Hyper-V's page and arch_sys_counter are read without a system call: these are well.",
    ),
    Entry(
        "note-slow-start-after-idle",
        "note",
        "tcp",
        Level(sysctl("net.ipv4.tcp_slow_start_after_idle"), above=0),
        "TCP begins slowly again after a connection was idle for a retransmission timeout",
        "Connections that are kept open for single large answers pay for it each time. In networks of one's own it can "
        "be off.",
        ("sysctl -w net.ipv4.tcp_slow_start_after_idle=0",),
        "Documentation/networking/ip-sysctl.rst tcp_slow_start_after_idle; RFC 5681 4.1",
        "It is the default: a note.",
    ),
    Entry(
        "note-busy-poll",
        "note",
        "softnet",
        Level(sysctl("net.core.busy_read"), above=0),
        "Sockets poll the card for {now} microseconds before they sleep (busy polling)",
        "It lowers latency, and takes CPU time all the while.",
        ("sysctl -w net.core.busy_read=0  # to switch it off",),
        "Documentation/admin-guide/sysctl/net.rst busy_read; Documentation/networking/napi.rst",
        "It is a choice: a note.",
    ),
    Entry(
        "note-timestamping",
        "note",
        "clock",
        All((Level(Ref("driver", ("phc_index",), since="cards with a clock of their own"), above=-1, name="clock"),)),
        "{where} can stamp packets itself, with its own clock /dev/ptp{clock}",
        "Stamps of the card show what the interrupt and the driver cost.",
        ("ethtool -T {device}", "hopscope rx --help  # stamps of the card"),
        "Documentation/networking/timestamping.rst",
        "An ability: a note.",
    ),
    Entry(
        "note-ecn",
        "note",
        "tcp",
        Level(sysctl("net.ipv4.tcp_ecn"), above=0, below=2),
        "TCP asks for ECN when it opens connections",
        "Congestion is then told by marks instead of losses, where the network does so.",
        ("sysctl net.ipv4.tcp_ecn",),
        "Documentation/networking/ip-sysctl.rst tcp_ecn; RFC 3168",
        "A choice: a note.",
    ),
)  # fmt: skip
