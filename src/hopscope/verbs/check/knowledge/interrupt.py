# SPDX-License-Identifier: Apache-2.0
"""What is known of the interrupts of network cards, and which CPUs take them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from hopscope.model.counters.readings import HOST
from hopscope.verbs.check.conditions import Figure, Hit, Judged, counted, standing
from hopscope.verbs.check.findings import Entry
from hopscope.verbs.check.knowledge.refs import Ref, optional
from hopscope.verbs.check.scene import Place

if TYPE_CHECKING:
    from hopscope.verbs.check.scene import Scene

_INTERFACE: Final = Ref("interrupt_setting", ("interface",), since="interrupts of network cards")
_NODE: Final = Ref("interrupt_setting", ("numa_node",), optional=True)
_COUNTS: Final = Ref("interrupt", ("cpu *",))
_CPUS: Final = Ref("softnet", ("processed",))
# Below it, one CPU has time enough.
_BUSY_PER_S: Final = 5000
_SHARED_PER_S: Final = 1000


def _cards(scene: Scene) -> list[Place]:
    words = {scene.word(_INTERFACE, place) or "" for place in scene.places(_INTERFACE)}
    return [Place(HOST, interface) for interface in sorted(words) if interface]


def _interrupts(scene: Scene, card: Place) -> list[Place]:
    """Return the interrupts of a card that came in between."""
    ours = [place for place in scene.places(_INTERFACE) if scene.word(_INTERFACE, place) == card.subject]
    return [place for place in ours if scene.by(_COUNTS, place)]


def _by_cpu(scene: Scene, places: list[Place]) -> Counter[str]:
    by: Counter[str] = Counter()
    for place in places:
        for move in scene.moves(_COUNTS, place):
            by[move.key.name] += move.by
    return by


def _on_one_cpu(scene: Scene, card: Place) -> Hit | None:
    places = _interrupts(scene, card)
    by = _by_cpu(scene, places)
    total = by.total()
    if len(places) < 2 or len(scene.places(_CPUS)) < 2 or total < _BUSY_PER_S * scene.seconds:
        return None
    cpu, most = by.most_common(1)[0]
    if most < 0.95 * total:
        return None
    rows = [row for place in places for row in counted(_COUNTS, scene, place, total)]
    figures = {
        "cpu": Figure(cpu, "text", "first"),
        "interrupts": Figure(len(places)),
        "share": Figure(most / total, "share", "max"),
        "per_s": Figure(total / scene.seconds, "per_s"),
    }  # fmt: skip
    return Hit(tuple(rows), figures)


def _on_other_node(scene: Scene, card: Place) -> Hit | None:
    places = _interrupts(scene, card)
    own = {node for place in places if (node := scene.value(_NODE, place)) is not None}
    by = _by_cpu(scene, places)
    far = {cpu for cpu in by if (node := scene.value(_NODE, Place(HOST, cpu))) is not None and node not in own}
    total, there = by.total(), sum(by[cpu] for cpu in far)
    if not own or total < _BUSY_PER_S * scene.seconds or there < 0.5 * total:
        return None
    rows = [row for place in places for row in counted(_COUNTS, scene, place, total) if row.key.name in far]
    figures = {
        "share": Figure(there / total, "share", "max"),
        "node": Figure(min(own), "number", "first"),
        "cpus": Figure(", ".join(sorted(far)), "text", "first"),
    }  # fmt: skip
    return Hit((*rows, *(row for place in places for row in standing(_NODE, scene, place))), figures)


def _users(subject: str) -> list[str]:
    """Return who asked for an interrupt: the names behind its number, as /proc/interrupts has them."""
    return subject.partition(" ")[2].split(", ")


def _others(scene: Scene, interrupt: Place) -> list[str]:
    """Return the users of a NIC's interrupt that are not the NIC."""
    interface = scene.word(_INTERFACE, interrupt) or ""
    parts = (f"{interface}-", f"{interface}:", f"{interface}.")
    return [user for user in _users(interrupt.subject) if user != interface and not user.startswith(parts)]


def _shared(scene: Scene, card: Place) -> Hit | None:
    busy = _SHARED_PER_S * scene.seconds
    places = [
        place
        for place in _interrupts(scene, card)
        if len(_users(place.subject)) > 1 and _others(scene, place) and scene.by(_COUNTS, place) >= busy
    ]
    if not places:
        return None
    others = sorted({user for place in places for user in _others(scene, place)})
    figures = {
        "others": Figure(", ".join(others), "text", "first"),
        "per_s": Figure(sum(scene.by(_COUNTS, place) for place in places) / scene.seconds, "per_s"),
    }
    return Hit(tuple(row for place in places for row in counted(_COUNTS, scene, place)), figures)


ENTRIES: Final = (
    Entry(
        "interrupt-one-cpu",
        "warning",
        "interrupt",
        Judged((_INTERFACE, Ref("interrupt", ("cpu *",), subjects="*"), Ref("softnet", ("processed",), subjects="*")),
               _on_one_cpu, _cards),
        "{share} of the {per_s} interrupts a second of {where} go to {cpu}, although it has {interrupts} interrupts",
        "One CPU handles all packets of the NIC while the others are available; it saturates first.",
        (
            "systemctl status irqbalance  # is it running, and does it exclude this NIC?",
            "grep -i {device} /proc/interrupts",
            "echo CPU > /proc/irq/NUMBER/smp_affinity_list  # one after the other, for each of them",
        ),
        "Documentation/core-api/irq/irq-affinity.rst; Documentation/networking/scaling.rst RSS IRQ Configuration",
        "A lightly loaded NIC may stay on one CPU: from 5,000 interrupts a second, 95% of them on one.",
    ),
    Entry(
        "interrupt-far-node",
        "warning",
        "interrupt",
        Judged((_INTERFACE, Ref("interrupt", ("cpu *",), subjects="*"),
                optional(Ref("interrupt_setting", ("numa_node",), subjects="*"))), _on_other_node, _cards),
        "{share} of the interrupts of {where} go to CPUs of a different NUMA node than the NIC's (node "
        "{node}): {cpus}",
        "Each packet crosses the interconnect between the processors, in the worst case twice.",
        (
            "lscpu | grep NUMA  # which CPUs belong to that node?",
            "echo CPUS > /proc/irq/NUMBER/smp_affinity_list  # CPUs of the NIC's node",
            "numactl --cpunodebind={node} COMMAND  # and the application there, too",
        ),
        "Documentation/networking/scaling.rst RSS IRQ Configuration; Documentation/core-api/irq/irq-affinity.rst",
        "From 5,000 interrupts a second, half of them on the wrong side.",
    ),
    Entry(
        "interrupt-shared",
        "warning",
        "interrupt",
        Judged((_INTERFACE, Ref("interrupt", ("cpu *",), subjects="*")), _shared, _cards),
        "{where} shares an interrupt, which comes {per_s} times a second, with {others}",
        "Each time, the handlers of all devices that share it run, and ask their device whether it was meant. A "
        "slow one delays the NIC's packets, and a storm of one device stops all of them.",
        (
            "grep -i {device} /proc/interrupts  # who shares it",
            "lspci -vv | grep -A40 Ethernet | grep MSI  # message-signalled interrupts are not shared: are they on?",
            "hopscope record -P cpu -d 10  # then `hopscope report interrupts` shows each handler",
        ),
        "Documentation/PCI/msi-howto.rst Why use MSIs?; kernel/irq/handle.c __handle_irq_event_percpu",
        "Sharing costs little below 1,000 interrupts a second.",
    ),
)  # fmt: skip
