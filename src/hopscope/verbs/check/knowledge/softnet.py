# SPDX-License-Identifier: Apache-2.0
"""What is known of the per-CPU receive queues and of the time that the receive softirq gets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.model.counters.readings import HOST
from hopscope.verbs.check.conditions import Figure, Hit, Judged, Level, Rises, counted, rising, standing
from hopscope.verbs.check.figures import Times
from hopscope.verbs.check.findings import Entry
from hopscope.verbs.check.knowledge.refs import Ref, optional, sysctl
from hopscope.verbs.check.scene import Place

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hopscope.verbs.check.conditions import Evidence
    from hopscope.verbs.check.scene import Scene

_PROCESSED: Final = Ref("softnet", ("processed",))
_SQUEEZED: Final = Ref("softnet", ("time_squeeze",))
_BUDGET: Final = sysctl("net.core.netdev_budget")
_SQUEEZES: Final = 50
_SQUEEZES_PER_S: Final = 10
_SQUEEZED_PART: Final = 0.1

# Guests' time is in `user` and `nice` already.
_KINDS: Final = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
_TICKS: Final = tuple(Ref("cpu", (kind,)) for kind in _KINDS)
_SOFTIRQ: Final = Ref("cpu", ("softirq",))
_LEAST_TICKS: Final = 50

_RPS: Final = Ref("queue", ("rps_cpus",), only=("* rx-0",), but=("lo *",))
_QUEUES: Final = Ref("queue", ("rps_cpus",), subjects="{device} rx-*")
_RECEIVED: Final = Ref("link", ("rx_packets",), subjects="{device}")
_BUSY_PER_S: Final = 10_000


def _squeezed(scene: Scene, place: Place) -> Hit | None:
    by, processed = scene.by(_SQUEEZED, place), scene.by(_PROCESSED, place)
    budget = scene.value(_BUDGET, place) or 300
    if by < _SQUEEZES or by < _SQUEEZES_PER_S * scene.seconds or by * budget < _SQUEEZED_PART * processed:
        return None
    rows = [row for ref in (_SQUEEZED, _PROCESSED) for row in counted(ref, scene, place)]
    return Hit((*rows, *standing(_BUDGET, scene, place)), rising("by", by, scene))


def busy(scene: Scene) -> Mapping[str, float]:
    """Return the part of each CPU's time that softirqs took, by the CPU's name; those that hardly ran are left out."""
    parts = {}
    for place in scene.places(_SOFTIRQ):
        total = sum(scene.by(ref, place) for ref in _TICKS)
        if total >= _LEAST_TICKS:
            parts[place.subject] = scene.by(_SOFTIRQ, place) / total
    return parts


def _saturated(scene: Scene, place: Place) -> Hit | None:
    part = busy(scene).get(place.subject, 0.0)
    if part <= 0.9:
        return None
    return Hit(_ticks(scene, place), {"share": Figure(part, "share", "max")})


def _ticks(scene: Scene, place: Place) -> list[Evidence]:
    total = sum(scene.by(ref, place) for ref in _TICKS)
    return counted(_SOFTIRQ, scene, place, total)


def _not_spread(scene: Scene, place: Place) -> Hit | None:
    mask = scene.word(_RPS, place) or ""
    per_s = scene.by(_RECEIVED, place) / scene.seconds
    if mask.strip("0,") or len(scene.keys(_QUEUES, place)) != 1 or per_s < _BUSY_PER_S:
        return None
    parts = sorted(busy(scene).items(), key=lambda item: -item[1])
    if len(parts) < 2 or parts[0][1] < 0.5 or parts[1][1] > 0.2:
        return None
    cpu, part = parts[0]
    rows = (*standing(_RPS, scene, place), *_ticks(scene, Place(HOST, cpu)), *counted(_RECEIVED, scene, place))
    figures = {
        "cpu": Figure(cpu, "text", "first"), "share": Figure(part, "share", "max"), "per_s": Figure(per_s, "per_s"),
        "mask": Figure(_mask(len(parts)), "text", "first"),
    }  # fmt: skip
    return Hit(rows, figures)


def _mask(cpus: int) -> str:
    """Return the mask of that many CPUs as sysfs takes it: groups of 32 bits."""
    digits = f"{(1 << cpus) - 1:x}"
    groups = [digits[max(end - 8, 0) : end] for end in range(len(digits), 0, -8)]
    return ",".join(reversed(groups))


ENTRIES: Final = (
    Entry(
        "softnet-backlog-drop",
        "critical",
        "softnet",
        Rises(Ref("softnet", ("dropped",)), at_least=10),
        "{by} packets were dropped because the receive backlog of {where} was full",
        "Packets arrive faster than this CPU processes them: those of RPS, veth, loopback and drivers without "
        "NAPI wait in this queue.",
        ("sysctl -w net.core.netdev_max_backlog={larger}", "hopscope cpu  # what is that CPU doing?"),
        "net/core/dev.c enqueue_to_backlog; Documentation/admin-guide/sysctl/net.rst netdev_max_backlog",
        "A healthy host drops none here, however busy it is; a handful may be one stall.",
        advice={"larger": Times(sysctl("net.core.netdev_max_backlog"), 2, 2000)},
    ),
    Entry(
        "softnet-time-squeeze",
        "warning",
        "softnet",
        Judged((_SQUEEZED, _PROCESSED, optional(_BUDGET)), _squeezed),
        "The receive softirq of {where} ran out of its budget {times} ({per_s} a second) with packets left",
        "The rest waits until the softirq runs again, possibly after other threads. Either the budget is too "
        "small, or the CPU receives more packets than it can handle.",
        (
            "sysctl -w net.core.netdev_budget={budget}",
            "sysctl -w net.core.netdev_budget_usecs={usecs}",
            "hopscope cpu  # is it busy with other things?",
        ),
        "net/core/dev.c net_rx_action; Documentation/admin-guide/sysctl/net.rst netdev_budget",
        "Busy hosts run out occasionally. Reported from 50 times and 10 a second, if at least a tenth of the "
        "packets came in such rounds.",
        advice={
            "budget": Times(_BUDGET, 2, 600),
            "usecs": Times(sysctl("net.core.netdev_budget_usecs"), 2, 4000),
        },
    ),
    Entry(
        "softnet-flow-limit",
        "warning",
        "softnet",
        Rises(Ref("softnet", ("flow_limit_count",)), at_least=10),
        "{by} packets of flows that dominated the backlog of {where} were dropped",
        "The flow limit drops packets of large flows early when a backlog is half full, to protect small ones: "
        "that CPU cannot keep up with one flow.",
        ("sysctl -w net.core.netdev_max_backlog={larger}", "hopscope rx --group-by cpu  # where do packets wait?"),
        "net/core/dev.c skb_flow_limit; Documentation/networking/scaling.rst RPS Flow Limit",
        "None as long as a backlog stays below half of its size.",
        advice={"larger": Times(sysctl("net.core.netdev_max_backlog"), 2, 2000)},
    ),
    Entry(
        "softnet-cpu-saturated",
        "warning",
        "softnet",
        Judged((_SOFTIRQ, *_TICKS), _saturated),
        "{where} spends {share} of its time in softirqs",
        "It has no time left: packets queue up, and threads bound to it starve. All packets of one flow are "
        "handled by one CPU.",
        (
            "hopscope cpu  # in which part of the stack?",
            "cat /proc/interrupts  # which interrupts does it receive? spread them, or use more queues: ethtool -L",
        ),
        "kernel/sched/cputime.c irqtime_account_process_tick; Documentation/networking/scaling.rst",
        "A CPU that serves a NIC may be busy; above 90% it has no reserve.",
    ),
    Entry(
        "softnet-rps-off",
        "warning",
        "softnet",
        Judged((_RPS, _RECEIVED, optional(_QUEUES), Ref("cpu", ("softirq",), subjects="*")),
               _not_spread),
        "{device} has one receive queue and no RPS: {cpu} alone handles its {per_s} packets a second ({share} "
        "softirq)",
        "The other CPUs could share the protocol processing: receive packet steering (RPS) distributes packets "
        "to them by flow.",
        ("tee /sys/class/net/{device}/queues/rx-0/rps_cpus <<< {mask}",),
        "Documentation/networking/scaling.rst RPS",
        "Only from 10,000 packets a second, with one CPU at 50% softirq and no other above 20%.",
    ),
    Entry(
        "softnet-backlog-standing",
        "warning",
        "softnet",
        Level(Ref("softnet", ("backlog_len",)), above=500),
        "{now} packets are waiting in the receive backlog of {where}",
        "Each waits for all those in front of it: at 100,000 packets a second, {now} packets mean milliseconds.",
        ("hopscope rx  # how long do they wait?", "hopscope cpu  # what is that CPU doing?"),
        "net/core/net-procfs.c softnet_seq_show",
        "The backlog of a CPU that keeps up is nearly always empty; half of the usual limit of 1,000 is not.",
    ),
)  # fmt: skip
