# SPDX-License-Identifier: Apache-2.0
"""Numbers of several kernels made unique: the kind of number in each column, and the offset added to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hopscope.store.schema import BY_NAME
from hopscope.trace.host_numbers import ADDRESSES, CPUS, NAMESPACES, THREADS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from hopscope.store.schema import Table
    from hopscope.trace.join.clocks import Axis

    Array = NDArray[Any]

# Column → offset per host; 0 means none and remains 0.
_ADDED: Final = {
    "tid": THREADS,
    "pid": THREADS,
    "netns": NAMESPACES,
    "skb": ADDRESSES,
    "head": ADDRESSES,
    "sock": ADDRESSES,
    "location": ADDRESSES,
    "address": ADDRESSES,
    "cgroup": ADDRESSES,
}
# Tables in which 0 is the host itself, which differs from host to host.
_OF_HOST: Final = frozenset({"counters", "settings", "unread"})
_TIMES: Final = frozenset({"time_ns", "from_ns", "until_ns"})
# A field of a kernel event may have the name of one of these columns, with a different meaning.
_OF_EVENTS: Final = frozenset({"time_ns", "cpu", "tid"})
_OF_CALLS: Final = _OF_EVENTS | {"address", "stack"}
# Kind of `subject` by how the point's name begins; for other points, its numbers are the same on all hosts.
_SUBJECTS: Final = {"sched.": THREADS, "napi.": ADDRESSES, "gro.": ADDRESSES, "nf.": ADDRESSES}
# The same of `value`.
_VALUES: Final = {"irq.enter": ADDRESSES}


@dataclass(slots=True)
class Numbers:
    """The conversion of the numbers of one trace to those of the joined trace.

    Attributes
    ----------
    host
        Its number.
    axis
        Of its clock.
    points, reasons
        Its numbers → those of the joined trace.
    names
        Its points' numbers → names.
    tables
        What its own tables are called there.
    first_stack
        Added to the numbers of stacks.
    flows
        Of flows that are local to it, while another host has one that is called the same: their own numbers.
    """

    host: int
    axis: Axis
    points: dict[int, int]
    reasons: dict[int, int]
    names: dict[int, str]
    tables: dict[str, str] = field(default_factory=dict)
    first_stack: int = 0
    flows: dict[int, int] = field(default_factory=dict)

    def converted(self, table: Table, columns: Mapping[str, Array]) -> dict[str, Array]:
        """Return the columns of a table as they are in the joined trace.

        Columns that the trace does not have, for it is older, are what is not known: 0, or no text.
        """
        plain = {column.name: _plain(columns[column.name], column.dtype) for column in table.columns}
        ours = _ours(table)
        found = {
            name: self._column(table, name, values, plain) if name in ours else values for name, values in plain.items()
        }
        return {column.name: found[column.name].astype(column.dtype, copy=False) for column in table.columns}

    def _column(self, table: Table, name: str, values: Array, columns: Mapping[str, Array]) -> Array:
        if name in _TIMES:
            return self.axis.times_ns(values)
        numbers = {"point": self.points, "reason": self.reasons, "flow": self.flows}.get(name)
        if numbers is not None:
            return _looked_up(values, numbers) if values.dtype != object else values
        if name == "stack":
            return np.where(values >= 0, values + self.first_stack, values)
        return self._of_host(table, name, values, columns) if self.host else values

    def _of_host(self, table: Table, name: str, values: Array, columns: Mapping[str, Array]) -> Array:
        """Return numbers that each kernel has of its own."""
        if name in {"cpu", "host"}:
            return values + self.host * (CPUS if name == "cpu" else 1)
        if name in {"subject", "value"} and table.name == "cpu":
            return self._of_points(values, columns["point"], _SUBJECTS if name == "subject" else _VALUES)
        added = self.host * _ADDED.get(name, 0)
        if name == "netns" and table.name in _OF_HOST:
            return values + added
        return np.where(values != 0, values + added, values) if added else values

    def _of_points(self, values: Array, points: Array, units: Mapping[str, int]) -> Array:
        found = values.copy()
        for prefix, unit in units.items():
            numbers = [number for number, name in self.names.items() if name.startswith(prefix)]
            found[np.isin(points, numbers) & (values != 0)] += self.host * unit
        return found


def _ours(table: Table) -> frozenset[str]:
    """Return the columns whose names say what they are."""
    if table.name in BY_NAME:
        return frozenset(column.name for column in table.columns)
    return _OF_CALLS if table.name.startswith(("e_function_", "e_return_")) else _OF_EVENTS


def merged(first: Mapping[int, str], others: Mapping[int, str]) -> tuple[dict[int, str], dict[int, int]]:
    """Put names together: return all of them, and the numbers that the others have there."""
    both = dict(first)
    numbers = {name: number for number, name in first.items()}
    for name in others.values():
        if name not in numbers:
            numbers[name] = max(both, default=-1) + 1
            both[numbers[name]] = name
    return both, {number: numbers[name] for number, name in others.items()}


def _looked_up(values: Array, numbers: Mapping[int, int]) -> Array:
    """Return other numbers for those that have one, in bulk."""
    changed = {old: new for old, new in numbers.items() if old != new}
    if not changed:
        return values
    olds = np.array(sorted(changed), np.int64)
    news = np.array([changed[int(old)] for old in olds], np.int64)
    place = np.minimum(np.searchsorted(olds, values), len(olds) - 1)
    return np.where(olds[place] == values, news[place], values)


def _plain(values: Array, dtype: Any) -> Array:  # noqa: ANN401 # of a column
    """Return a column without a mask."""
    is_text = np.dtype(dtype) == np.dtype(object)
    if isinstance(values, np.ma.MaskedArray):
        values = np.asarray(np.ma.filled(values.astype(object), None) if is_text else np.ma.filled(values, 0))
    return values if is_text else values.astype(np.int64 if np.dtype(dtype).itemsize < 8 else dtype, copy=False)
