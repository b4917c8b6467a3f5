# SPDX-License-Identifier: Apache-2.0
"""Counters that moved, one row each: CPUs and queues put together, in the order of the stack's layers."""

from __future__ import annotations

import fnmatch
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from hopscope.model.counters.deltas import Move
from hopscope.model.counters.names import explained
from hopscope.model.counters.readings import HOST, Key
from hopscope.model.counters.sources import LAYERS, kind_of, layer_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from hopscope.model.counters.deltas import How
    from hopscope.model.counters.explanation import Sign
    from hopscope.model.counters.readings import Readings
    from hopscope.model.snapshot import Kind

Event: TypeAlias = Literal["", "new", "wrapped", "restarted"]

# What must be said of a counter when several of its parts differ, the last of them most.
_EVENTS: Final[tuple[Event, ...]] = ("", "new", "wrapped", "restarted")
_EVENT_OF: Final[Mapping[How, Event]] = {"appeared": "new", "wrapped": "wrapped", "restarted": "restarted"}

# In these the name is a CPU, and the subject is what it counts.
_NAME_IS_CPU: Final = frozenset({"interrupt", "softirq"})
# In this the subject ends with the queue: "eth0 rx-0".
_OF_QUEUES: Final = "queue_stats"
_CPU: Final = re.compile(r" ?\bcpu \d+$")
# Each namespace shows those of the whole host (net/ipv4/proc.c: sockstat_seq_show).
_OF_HOST: Final = frozenset(("sockstat", name) for name in ("TCP.orphan", "TCP.alloc", "TCP.mem", "UDP.mem"))
# "24 virtio2-input.0", "57 mlx5_comp12@pci:0000:03:00.0": number of the interrupt, its user, number of the queue.
_INTERRUPT: Final = re.compile(r"\d+ (.*?)[-.]?\d*(@.*)?$")


@dataclass(frozen=True, slots=True)
class CounterRow:
    """A counter, or a level, and what became of it.

    Attributes
    ----------
    layer
        One of :data:`hopscope.model.counters.sources.LAYERS`.
    netns, namespace
        Inode of the network namespace and its name; 0 and empty for what all of them share.
    source, subject, name
        As in :class:`hopscope.model.counters.readings.Key`, without the CPU. An interrupt's name is that of its device.
    level
        It is a gauge: `count` is by how much it changed.
    count
        Counted in the interval; without what it counted while it restarted, which nobody knows.
    now
        Its value at the end.
    by_cpu
        `count` by CPU or by queue, where the kernel keeps it so.
    event
        ``new``: it was not there before. ``wrapped``: it went round, the count is right. ``restarted``: it fell,
        for somebody set it to 0.
    sign
        Of its explanation; None where there is none.
    """

    layer: str
    netns: int
    namespace: str
    source: str
    subject: str
    name: str
    level: bool
    count: int
    now: int
    by_cpu: Mapping[str, int] = field(default_factory=dict)
    event: Event = ""
    sign: Sign | None = None

    @property
    def is_loss(self) -> bool:
        """Whether it says that something was lost or refused in the interval."""
        return self.sign == "loss" and not self.level and self.count > 0

    @property
    def is_bad(self) -> bool:
        """Whether it is a bad sign, though nothing need be lost."""
        return self.sign == "bad" and not self.level and self.count > 0


@dataclass(frozen=True, slots=True)
class CounterSnapshot:
    """What counters counted in an interval, or in the whole run.

    Attributes
    ----------
    started_ns
        CLOCK_REALTIME at the earlier reading.
    rows
        In the order of the layers, within them losses first.
    read
        Counters and levels that were read, CPUs put together.
    left_out
        Rows that moved and are not shown, as they have little to do with the network: see :func:`is_background`.
    reader_cpu_percent
        What reading took, of one CPU.
    """

    kind: Kind
    started_ns: int
    duration_s: float
    rows: list[CounterRow]
    read: int
    left_out: int
    reader_cpu_percent: float
    filters: Mapping[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which counters are asked for; an empty collection is all.

    Attributes
    ----------
    layers
        Of :data:`hopscope.model.counters.sources.LAYERS`.
    patterns
        As a shell has them, of names; case does not matter.
    unmoved
        Also what did not move, and what moves always: see :func:`is_background`.
    """

    layers: Collection[str] = ()
    patterns: Collection[str] = ()
    unmoved: bool = False

    def __contains__(self, key: Key) -> bool:
        """Tell whether a counter is asked for."""
        if kind_of(key) == "setting" or (self.layers and layer_of(key) not in self.layers):
            return False
        name = folded(key)[0].name.lower()
        return not self.patterns or any(fnmatch.fnmatchcase(name, pattern.lower()) for pattern in self.patterns)


def is_background(key: Key) -> bool:
    """Tell whether it moves on every host all the time, and has little to do with the network."""
    if key.source == "interrupt":
        return not key.subject[:1].isdigit()
    if key.source == "softirq":
        return not key.subject.startswith("NET_")
    return key.source in {"memory", "timekeeping"} or (key.source == "pressure" and kind_of(key) != "counter")


def folded(key: Key) -> tuple[Key, str]:
    """Return the key of the counter that this one is a part of, and which CPU's or queue's; empty if it is whole."""
    if (key.source, key.name) in _OF_HOST:
        return key._replace(netns=HOST), ""
    if key.source in _NAME_IS_CPU:
        named = _INTERRUPT.fullmatch(key.subject) if key.source == "interrupt" else None
        name = named[1] + (named[2] or "") if named else key.subject
        return Key(key.netns, key.source, "", name), key.name
    if key.source == _OF_QUEUES:
        device, _, queue = key.subject.rpartition(" ")
        return key._replace(subject=device), queue
    found = _CPU.search(key.subject)
    if found is None:
        return key, ""
    return key._replace(subject=key.subject[: found.start()]), found[0].strip()


class Sums:
    """What counters counted since it began, reading after reading: what is gone meanwhile is in it, too."""

    def __init__(self) -> None:
        self._moves: dict[Key, Move] = {}

    def add(self, moves: Iterable[Move]) -> None:
        """Add what was counted from one reading to the next."""
        for move in moves:
            old = self._moves.get(move.key)
            self._moves[move.key] = move if old is None else _sum(old, move)

    def moves(self) -> list[Move]:
        """Return what was counted; levels that are again what they were are left out."""
        return [move for move in self._moves.values() if move.by or move.how != "changed"]


def rows_of(
    moves: Iterable[Move], now: Readings, wanted: Wanted, namespaces: Mapping[int, str]
) -> tuple[list[CounterRow], int, int]:
    """Return the rows, how many counters there are to choose from, and how many rows are left out as background.

    Parameters
    ----------
    namespaces
        Names by inode, of those that are gone, too.
    """
    wholes: dict[Key, _Whole] = {}
    for key, value in now.numbers.items():
        if key in wanted:
            whole, _ = folded(key)
            wholes.setdefault(whole, _Whole(key)).see(value)
    read = len(wholes)
    for move in moves:
        if move.key in wanted:
            whole, cpu = folded(move.key)
            wholes.setdefault(whole, _Whole(move.key)).take(cpu, move)
    moved = {key: whole for key, whole in wholes.items() if whole.moves or wanted.unmoved}
    shown = {
        key: whole
        for key, whole in moved.items()
        if wanted.unmoved or wanted.layers or wanted.patterns or not is_background(whole.example)
    }
    rows = [_row(key, whole, namespaces) for key, whole in shown.items()]
    return _ordered(rows), read, len(moved) - len(shown)


class _Whole:
    # A counter and its parts: of each CPU, each queue; or the same of each namespace.

    def __init__(self, example: Key) -> None:
        self.example = example
        self.now = 0
        self.moves: list[tuple[str, Move]] = []
        self._once = (example.source, example.name) in _OF_HOST
        self._seen = False

    def see(self, value: int) -> None:
        self.now = value if self._once else self.now + value
        self._seen = True

    def take(self, cpu: str, move: Move) -> None:
        if self._once and self.moves:
            return
        self.moves.append((cpu, move))
        if not self._seen:  # it is gone
            self.now += move.now


def _row(key: Key, whole: _Whole, namespaces: Mapping[int, str]) -> CounterRow:
    explanation = explained(whole.example)
    by_cpu: Counter[str] = Counter()
    for cpu, move in whole.moves:
        if cpu:
            by_cpu[cpu] += move.by
    return CounterRow(
        layer=layer_of(whole.example),
        netns=key.netns,
        namespace="" if key.netns == HOST else namespaces.get(key.netns, f"netns {key.netns}"),
        source=key.source,
        subject=key.subject,
        name=key.name,
        level=kind_of(whole.example) != "counter",
        count=sum(move.by for _, move in whole.moves),
        now=whole.now,
        by_cpu=dict(by_cpu),
        event=max((_EVENT_OF.get(move.how, "") for _, move in whole.moves), key=_EVENTS.index, default=""),
        sign=explanation.sign if explanation else None,
    )


def _ordered(rows: list[CounterRow]) -> list[CounterRow]:
    """Return the rows by layer; in it things that lost something first, and of each its losses first."""
    worst: dict[tuple[str, int, str], int] = {}
    for row in rows:
        thing = (row.layer, row.netns, row.subject)
        worst[thing] = min(worst.get(thing, 2), _rank(row))

    def place(row: CounterRow) -> tuple[object, ...]:
        thing = (row.layer, row.netns, row.subject)
        # What is the host's, and then its own namespace, before all others.
        whose = (row.netns != HOST, row.namespace != "host", row.namespace)
        return (LAYERS.index(row.layer), worst[thing], *whose, row.subject, row.netns, _rank(row))

    return sorted(rows, key=place)  # stable: else in the kernel's order


def _rank(row: CounterRow) -> int:
    return 0 if row.is_loss else 1 if row.is_bad else 2


def _sum(old: Move, move: Move) -> Move:
    how = max((old.how, move.how), key=lambda each: _EVENTS.index(_EVENT_OF.get(each, "")))
    return Move(move.key, old.before, move.now, old.by + move.by, how)
