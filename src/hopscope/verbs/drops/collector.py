# SPDX-License-Identifier: Apache-2.0
"""Count dropped packets by what they have in common, live.

The records of ``record`` at its point ``skb.drop``, counted as arrays; nothing of a single packet is kept. Counts are
exact but for records for which a ring had no room, and these are counted, too.
"""

from __future__ import annotations

import socket
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from hopscope.clock.wall_clock import wall_offset_ns
from hopscope.kernel.drop_reasons import drop_reasons
from hopscope.live.labels import NamespaceNames
from hopscope.live.recorder.collector import Recorder
from hopscope.model.drops import NOT_KNOWN, DropRow, DropSnapshot
from hopscope.verbs.drops.rules import RuleNames

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Iterator, Sequence

    from hopscope.live.cost import CostReading
    from hopscope.live.recorder.options import RecordOptions
    from hopscope.model.snapshot import Kind

Array = np.ndarray[Any, np.dtype[Any]]

# By group: what it is made of, in rows of the table `drops`.
_COLUMNS: Final = {
    "reason": ("reason",),
    "location": ("location",),
    "function": ("location",),
    "flow": ("flow",),
    "process": ("tid",),
    "interface": ("netns", "ifindex"),
    "netns": ("netns",),
    "cpu": ("cpu",),
}
# Of a ring: less is left for the interval's end, as each reading costs the same.
_WORTH: Final = 1 / 16
# The reason of drops by netfilter, and the function that drops where it is nftables (Linux 6.7 or newer).
_NETFILTER: Final = "NETFILTER_DROP"
_NFTABLES: Final = "nft_do_chain"
_PROTOCOLS: Final = {socket.IPPROTO_TCP: "tcp", socket.IPPROTO_UDP: "udp", socket.IPPROTO_ICMP: "icmp"}


class _Mark(NamedTuple):
    """Where an interval begins."""

    at_s: float
    lost: int
    cost: CostReading


class DropCollector(Recorder):
    """Counts drops; see :class:`~hopscope.live.contract.Collector`.

    Parameters
    ----------
    options
        What is asked for; the point ``skb.drop`` must be among it.
    group_by
        Keys of :data:`hopscope.model.drops.GROUPS`.
    """

    def __init__(self, options: RecordOptions, group_by: Sequence[str]) -> None:
        super().__init__(options)
        self._group_by = list(group_by)
        self._columns = list(dict.fromkeys(name for group in group_by for name in _COLUMNS[group]))
        self._total: Counter[tuple[int, ...]] = Counter()
        self._interval: Counter[tuple[int, ...]] = Counter()
        self._names = _Names()
        self._ruled: Counter[tuple[int, int]] = Counter()
        self._ruled_in_all: Counter[tuple[int, int]] = Counter()

    def _open(self, stack: contextlib.ExitStack) -> None:
        super()._open(stack)
        self._rules = RuleNames()
        self._first = self._last = self._mark()

    def drain(self) -> None:
        """Count what came, if rings fill up; to be called several times a second."""
        if self.fullness() >= _WORTH:
            self._take_all()

    def _take_all(self) -> None:
        for table, columns in self.read():
            if table == "drops":
                self._count(columns)
            else:
                self._names.learn(table, columns)

    def interval(self) -> DropSnapshot:
        """Return what was dropped since the last call."""
        self._rules.before_records()
        self._take_all()
        found, self._interval = self._interval, Counter()
        ruled, self._ruled = self._ruled, Counter()
        self._total.update(found)
        self._ruled_in_all.update(ruled)
        before, self._last = self._last, self._mark()
        notes = self._rules.interval(self._names.by_nftables(ruled), self._names.namespace)
        return self._snapshot("interval", found, before, notes)

    def total(self) -> DropSnapshot:
        """Return what was dropped since the start, as of the last :meth:`interval`."""
        notes = self._rules.total(self._names.by_nftables(self._ruled_in_all), self._names.namespace)
        return self._snapshot("total", self._total, self._first, notes)

    def _mark(self) -> _Mark:
        return _Mark(time.monotonic(), self.lost, self._cost.read())

    def _count(self, drops: dict[str, Array]) -> None:
        keys = np.stack([drops[name].astype(np.int64) for name in self._columns], axis=1)
        found, counts = np.unique(keys, axis=0, return_counts=True)
        for key, count in zip(found.tolist(), counts.tolist(), strict=True):
            self._interval[tuple(key)] += count
        ruled = drops["reason"] == self._names.netfilter
        places = zip(drops["netns"][ruled].tolist(), drops["location"][ruled].tolist(), strict=True)
        self._ruled.update(places)

    def _snapshot(
        self, kind: Kind, found: Counter[tuple[int, ...]], before: _Mark, notes: Sequence[str]
    ) -> DropSnapshot:
        after = self._last
        return DropSnapshot(
            kind=kind,
            started_ns=round(before.at_s * 1e9) + wall_offset_ns(),
            duration_s=after.at_s - before.at_s,
            rows=list(self._rows(found)),
            dropped=found.total(),
            lost=after.lost - before.lost,
            overhead=self._cost.overhead(before.cost, after.cost),
            plan=self.plan(),
            filters=dict(self._options.shown),
            notes=[*notes, *self.notes()],
        )

    def _rows(self, found: Counter[tuple[int, ...]]) -> Iterator[DropRow]:
        # Several numbers may have one name: instructions of a function.
        named: Counter[tuple[str, ...]] = Counter()
        for key, count in found.items():
            values = dict(zip(self._columns, key, strict=True))
            named[tuple(self._names.of(group, values) for group in self._group_by)] += count
        for names, count in named.most_common():
            yield DropRow(dict(zip(self._group_by, names, strict=True)), count)


class _Names:
    """Names for the numbers of rows; what it has learned stays, also when the thing itself is gone."""

    def __init__(self) -> None:
        self._reasons = drop_reasons()
        # Of a kernel that has no such reason, none.
        self.netfilter = next((number for number, name in self._reasons.items() if name == _NETFILTER), -1)
        self._symbols: dict[int, str] = {}
        self._offsets: dict[int, int] = {}
        self._lines: dict[int, str] = {}
        self._flows: dict[int, str] = {}
        self._threads: dict[int, str] = {}
        self._devices: dict[tuple[int, int], str] = {}
        self._namespaces = NamespaceNames()

    def learn(self, table: str, columns: dict[str, Array]) -> None:
        """Take rows of a table that says what numbers mean; others are no use."""
        if table == "symbols":
            self._symbols.update(zip(columns["address"].tolist(), columns["name"].tolist(), strict=True))
            self._offsets.update(zip(columns["address"].tolist(), columns["offset_bytes"].tolist(), strict=True))
        elif table == "lines":
            self._lines.update(zip(columns["address"].tolist(), columns["source"].tolist(), strict=True))
        elif table == "threads":
            self._threads.update(zip(columns["tid"].tolist(), columns["comm"].tolist(), strict=True))
        elif table == "devices":
            keys = zip(columns["netns"].tolist(), columns["ifindex"].tolist(), strict=True)
            self._devices.update(zip(keys, columns["name"].tolist(), strict=True))
        elif table == "flows":
            rows = zip(*(columns[name].tolist() for name in columns), strict=True)
            self._flows.update((row[0], _flow(dict(zip(columns, row, strict=True)))) for row in rows)

    def namespace(self, inode: int) -> str:
        """Return the name of a namespace."""
        return self._namespaces.name(inode)

    def by_nftables(self, ruled: Counter[tuple[int, int]]) -> dict[int, int]:
        """Return how many of these, by namespace and location, nftables dropped: others may be of other hooks."""
        found: Counter[int] = Counter()
        for (inode, location), count in ruled.items():
            if self._symbols.get(location) == _NFTABLES and inode:
                found[inode] += count
        return dict(found)

    def of(self, group: str, values: dict[str, int]) -> str:
        """Return the name of a group's value."""
        if group == "interface":
            device = self._devices.get((values["netns"], values["ifindex"]))
            return f"{device}@{self._namespaces.name(values['netns'])}" if device else NOT_KNOWN
        if group == "netns":
            return self._namespaces.name(values["netns"]) if values["netns"] else NOT_KNOWN
        if group == "process":
            tid = values["tid"]
            return f"{self._threads.get(tid, 'thread')} ({tid})" if tid else "idle"
        number = values.get(group, 0)
        if group == "reason":
            return self._reasons.get(number, f"reason {number}" if number else NOT_KNOWN)
        if group in {"function", "location"}:
            return (self._function if group == "function" else self._place)(values["location"])
        return self._flows.get(number, NOT_KNOWN) if group == "flow" else str(number)

    def _function(self, address: int) -> str:
        return self._symbols.get(address, f"{address & (2**64 - 1):#x}")

    def _place(self, address: int) -> str:
        """Return where in the kernel an address is, as `drop_places` of a recording has it."""
        offset, line = self._offsets.get(address, -1), self._lines.get(address)
        return f"{self._function(address)}{f'+{offset:#x}' if offset >= 0 else ''}{f' ({line})' if line else ''}"


def _flow(row: dict[str, Any]) -> str:
    protocol = _PROTOCOLS.get(row["protocol"], f"protocol {row['protocol']}")
    ends = [_end(row[end], row[f"{end}_port"]) for end in ("source", "destination")]
    return f"{protocol} {' > '.join(ends)}"


def _end(address: str, port: int) -> str:
    if not port:
        return address
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
