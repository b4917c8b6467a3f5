# SPDX-License-Identifier: Apache-2.0
"""The flight recorder: keep the last seconds in memory, and write them when something happens.

Of ``record --flight``, which ends with what it writes, and of ``serve --flight``, which goes on.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hopscope.bpf.layout import HopPoint
from hopscope.errors import KernelError, UsageError
from hopscope.kernel.drop_reasons import drop_reasons
from hopscope.live.recorder.tables import point_names, table_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from numpy.typing import NDArray

Columns = dict[str, "NDArray[Any]"]

# Rows that say what numbers in others mean: they are needed, however old.
_KEPT_FOR_EVER: Final = frozenset({"flows", "threads", "devices", "qdiscs", "stacks", "symbols", "lines"})
_UNITS_NS: Final = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
# So many digits are 30 years of any unit.
_NUMBER: Final = re.compile(r"[0-9]{1,18}(\.[0-9]{0,18})?|\.[0-9]{1,18}")
_DROP: Final = "drop"
# After these a packet's address is another's.
_ENDS: Final = (HopPoint.HOP_POINT_SKB_FREE, HopPoint.HOP_POINT_SKB_DROP)
_SENDING: Final = (
    HopPoint.HOP_POINT_TX_QUEUE,
    HopPoint.HOP_POINT_TX_ENQUEUE,
    HopPoint.HOP_POINT_TX_DEQUEUE,
    HopPoint.HOP_POINT_TX_START,
)
# A point at which a packet is first seen → the points after which it is one that was seen before: on a virtual device,
# on stacked devices, or forwarded. After any other, the address is another packet's: not each release is recorded.
_FIRST: Final = {
    HopPoint.HOP_POINT_RX_DRIVER: _SENDING,
    HopPoint.HOP_POINT_TX_QUEUE: (*_SENDING, HopPoint.HOP_POINT_RX_CORE, HopPoint.HOP_POINT_RX_IP),
}


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
    size_bytes : int
        Memory that they take.
    since_ns : int
        All events after this time are kept, as far as they have come, CLOCK_MONOTONIC; 0: nothing was forgotten yet.
    cut : bool
        Whether memory was short.
    """

    def __init__(self, last_ns: int, most_bytes: int) -> None:
        self._last_ns = last_ns
        self._most_bytes = most_bytes
        self.size_bytes = 0
        self._parts: deque[tuple[int, int, str, Columns]] = deque()
        self.since_ns = 0
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
        self.size_bytes += size
        self.expire(newest_ns)
        while self.size_bytes > self._most_bytes and len(self._parts) > 1:
            self.cut = True
            self._forget()

    def expire(self, now_ns: int) -> None:
        """Forget what is too old by this time."""
        while self._parts and self._parts[0][0] < now_ns - self._last_ns:
            self._forget()

    def take(self) -> Iterator[tuple[str, Columns]]:
        """Yield what is kept, the oldest first; nothing is kept afterwards."""
        while self._parts:
            _, _, table, columns = self._parts.popleft()
            yield table, columns
        self.size_bytes = 0

    def rows(self) -> Iterator[tuple[str, Columns]]:
        """Yield what is kept, the oldest first; it stays kept."""
        for _, _, table, columns in self._parts:
            yield table, columns

    def _forget(self) -> None:
        newest_ns, size, _, _ = self._parts.popleft()
        self.size_bytes -= size
        self.since_ns = max(self.since_ns, newest_ns)


@dataclass(frozen=True, slots=True)
class Trigger:
    """What must happen.

    Attributes
    ----------
    text
        As the user wrote it: ``drop``, ``drop:REASON``, or ``POINT>TIME``.
    point
        Number of the point at which a packet comes too late; None for a drop.
    least_ns
        So long after the point before it.
    reason
        Number of the reason of a drop; None: any.
    """

    text: str
    point: int | None = None
    least_ns: int = 0
    reason: int | None = None

    @classmethod
    def parse(cls, text: str) -> Trigger:
        """Read what the user wrote.

        Raises
        ------
        UsageError
            It is none of these, the kernel has no such reason, or the point is none of packets.
        """
        if text == _DROP:
            return cls(text)
        if text.startswith(f"{_DROP}:"):
            return cls(text, reason=_reason(text))
        name, _, time = (part.strip() for part in text.partition(">"))
        unit = time.lstrip("0123456789. ")
        number = _NUMBER.fullmatch(time.removesuffix(unit).strip())
        if name not in point_names().values() or unit not in _UNITS_NS or not number:
            raise UsageError(
                f"{text} is not a trigger",
                "Give `drop`, `drop:REASON`, or a point and a time such as 'rx.tcp_queue>1ms'",
            )
        known = {each: point for point, each in packet_points().items()}
        if name not in known:
            raise UsageError(
                f"--trigger {text} cannot fire: a delay is that of a packet, and packets do not pass {name}",
                f"The points of packets are {', '.join(known)}",
            )
        return cls(text, known[name], round(float(number[0]) * _UNITS_NS[unit]))

    @property
    def needs(self) -> str:
        """The probe point that it waits for."""
        return packet_points()[HopPoint.HOP_POINT_SKB_DROP if self.point is None else self.point]

    def require_recorded(self, names: Collection[str]) -> None:
        """Refuse the trigger if its point is not among the points that are recorded.

        Raises
        ------
        UsageError
            It is not.
        """
        if self.needs not in names:
            others = ", ".join(each for each in packet_points().values() if each in names) or "none of packets"
            raise UsageError(
                f"--trigger {self.text} cannot fire: {self.needs} is not recorded",
                f"Add --point {self.needs}, or use a point that is: {others}",
            )

    def require_attached(self, missing: Collection[str]) -> None:
        """Refuse the trigger if its point is among those that the kernel does not allow to attach.

        Raises
        ------
        KernelError
            It is.
        """
        if self.needs in missing:
            raise KernelError(
                f"--trigger {self.text} cannot fire: this kernel supports no attach method for {self.needs}",
                "`hopscope probes` says why; use another point",
            )


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
        # The last event of each packet in readings before the last one: a delay may span any number of them.
        self._earlier: list[Columns] = []

    def seen(self, rows: list[tuple[str, Columns]]) -> Trigger | None:
        """Return a trigger that is in the rows of a reading, together with the readings before it.

        Rings are read one after the other: a reading may have events that are earlier than some of the reading before.
        """
        for each in self._triggers:
            if each.reason is not None and any(_has_reason(each.reason, *row) for row in rows):
                return each
        packets = [columns for table, columns in rows if table == "packets"]
        looked_at = self._earlier + self._last + packets
        if not looked_at:
            return None
        by_packet = _by_packet(looked_at)
        found = next((each for each in self._triggers if each.reason is None and _happened(each, by_packet)), None)
        before = self._earlier + self._last
        self._earlier = [_last_events(_by_packet(before))] if before else []
        self._last = packets
        return found


def packet_points() -> dict[int, str]:
    """Return the number of each probe point that packets pass → its name."""
    return {point: name for point, name in point_names().items() if table_of(point) == "packets"}


def _reason(text: str) -> int:
    """Return the number of the reason in ``drop:REASON``.

    Raises
    ------
    UsageError
        The kernel has none of that name.
    """
    name = text.partition(":")[2]
    names = drop_reasons()
    found = next((number for number, each in names.items() if each == name), None)
    if found is None:
        why = "`hopscope drops` shows those that occur" if names else "This kernel names none: use `drop`"
        raise UsageError(f"--trigger {text} cannot fire: this kernel has no reason {name or 'without a name'}", why)
    return found


def _has_reason(reason: int, table: str, columns: Columns) -> bool:
    return table == "drops" and bool((columns["reason"] == reason).any())


def _by_packet(parts: list[Columns]) -> Columns:
    """Return events by address, then by time."""
    columns = {name: np.concatenate([part[name] for part in parts]) for name in ("time_ns", "skb", "point")}
    order = np.lexsort((columns["time_ns"], columns["skb"]))
    return {name: column[order] for name, column in columns.items()}


def _last_events(packets: Columns) -> Columns:
    """Return the last event of each address, unless it is the end of a packet."""
    skb = packets["skb"]
    last = np.append(skb[1:] != skb[:-1], True) & ~np.isin(packets["point"], _ENDS)
    return {name: column[last] for name, column in packets.items()}


def _happened(trigger: Trigger, packets: Columns) -> bool:
    if trigger.point is None:
        return bool((packets["point"] == HopPoint.HOP_POINT_SKB_DROP).any())
    time_ns, skb, point = (packets[name] for name in ("time_ns", "skb", "point"))
    same = (skb[1:] == skb[:-1]) & ~np.isin(point[:-1], _ENDS)
    if trigger.point in _FIRST:
        same &= np.isin(point[:-1], _FIRST[HopPoint(trigger.point)])
    late = time_ns[1:] - time_ns[:-1] >= trigger.least_ns
    return bool((same & late & (point[1:] == trigger.point)).any())
