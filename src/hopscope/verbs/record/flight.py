# SPDX-License-Identifier: Apache-2.0
"""The flight recorder: keep the last seconds in memory, and write them when something happens."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hopscope.bpf.layout import HopPoint
from hopscope.errors import UsageError
from hopscope.live.recorder.tables import point_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

Columns = dict[str, "NDArray[Any]"]

# Rows that say what numbers in others mean: they are needed, however old.
_KEPT_FOR_EVER: Final = frozenset({"flows", "threads", "devices", "stacks", "symbols"})
_UNITS_NS: Final = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_DROP: Final = "drop"
# After these a packet's address is another's.
_ENDS: Final = (HopPoint.HOP_POINT_SKB_FREE, HopPoint.HOP_POINT_SKB_DROP)


class Kept:
    """Rows of the last seconds.

    Parameters
    ----------
    last_ns
        How far back.
    most_bytes
        Of memory; where the last seconds need more, it is fewer seconds.

    Attributes
    ----------
    cut : bool
        Whether memory was short.
    """

    def __init__(self, last_ns: int, most_bytes: int) -> None:
        self._last_ns = last_ns
        self._most_bytes = most_bytes
        self._bytes = 0
        self._parts: deque[tuple[int, int, str, Columns]] = deque()
        self.cut = False

    def add(self, table: str, columns: Columns) -> Iterator[tuple[str, Columns]]:
        """Take rows; yield them again if they are not to be kept back."""
        if table in _KEPT_FOR_EVER:
            yield table, columns
            return
        times = columns.get("time_ns", columns.get("until_ns"))
        newest_ns = int(times.max()) if times is not None else 0
        size = sum(column.nbytes for column in columns.values())
        self._parts.append((newest_ns, size, table, columns))
        self._bytes += size
        while self._parts[0][0] < newest_ns - self._last_ns:
            self._forget()
        while self._bytes > self._most_bytes and len(self._parts) > 1:
            self.cut = True
            self._forget()

    def take(self) -> Iterator[tuple[str, Columns]]:
        """Yield what is kept, the oldest first; nothing is kept afterwards."""
        while self._parts:
            _, _, table, columns = self._parts.popleft()
            yield table, columns
        self._bytes = 0

    def _forget(self) -> None:
        _, size, _, _ = self._parts.popleft()
        self._bytes -= size


@dataclass(frozen=True, slots=True)
class Trigger:
    """What must happen.

    Attributes
    ----------
    text
        As the user wrote it: ``drop``, or ``POINT>TIME``.
    point
        Number of the point at which a packet comes too late; None for a drop.
    least_ns
        So long after the point before it.
    """

    text: str
    point: int | None = None
    least_ns: int = 0

    @classmethod
    def parse(cls, text: str) -> Trigger:
        """Read what the user wrote.

        Raises
        ------
        UsageError
            It is neither.
        """
        if text == _DROP:
            return cls(text)
        name, _, time = text.partition(">")
        numbers = {each: number for number, each in point_names().items()}
        unit = time.lstrip("0123456789. ")
        number = time.removesuffix(unit).strip()
        if name.strip() not in numbers or unit not in _UNITS_NS or not number:
            raise UsageError(
                f"{text} is not a trigger", "Give `drop`, or a point and a time such as 'rx.tcp_queue>1ms'"
            )
        return cls(text, numbers[name.strip()], round(float(number) * _UNITS_NS[unit]))


class Watch:
    """Looks for triggers in rows as they come.

    Parameters
    ----------
    triggers
        Any of them will do.
    """

    def __init__(self, triggers: Iterable[Trigger]) -> None:
        self._triggers = list(triggers)
        self._last: list[Columns] = []

    def seen(self, rows: list[tuple[str, Columns]]) -> Trigger | None:
        """Return a trigger that is in the rows of one reading, or lies between them and those of the reading before."""
        packets = [columns for table, columns in rows if table == "packets"]
        looked_at = self._last + packets
        self._last = packets
        if not looked_at:
            return None
        names = ("time_ns", "skb", "point")
        columns = {name: np.concatenate([part[name] for part in looked_at]) for name in names}
        return next((each for each in self._triggers if _happened(each, columns)), None)


def _happened(trigger: Trigger, packets: Columns) -> bool:
    if trigger.point is None:
        return bool((packets["point"] == HopPoint.HOP_POINT_SKB_DROP).any())
    order = np.lexsort((packets["time_ns"], packets["skb"]))
    time_ns, skb, point = (packets[name][order] for name in ("time_ns", "skb", "point"))
    same = (skb[1:] == skb[:-1]) & ~np.isin(point[:-1], _ENDS)
    late = time_ns[1:] - time_ns[:-1] >= trigger.least_ns
    return bool((same & late & (point[1:] == trigger.point)).any())
