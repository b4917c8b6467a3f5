# SPDX-License-Identifier: Apache-2.0
"""What changed between two readings, right also where a counter wrapped or began anew."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import numpy as np

from hopscope.model.counters.readings import signed
from hopscope.model.counters.sources import SOURCES, kind_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from hopscope.model.counters.readings import Key, Readings, Unread

How: TypeAlias = Literal["counted", "wrapped", "restarted", "appeared", "changed"]
# What `differences` gives, by number.
HOW: Final[tuple[How, ...]] = ("counted", "wrapped", "restarted")

# Subjects of their sources begin with the name of an interface.
_LAYERS_OF_DEVICES: Final = frozenset({"nic", "device", "qdisc"})


@dataclass(frozen=True, slots=True)
class Move:
    """One number that is another now.

    Attributes
    ----------
    before, now
        Its values; `before` is 0 for one that appeared.
    by
        How much was counted in between; for a gauge or a setting, the difference. Of a counter that fell, because
        somebody set it to 0 or a sum lost a part (a NIC has fewer queues), or that leapt by more than anything counts,
        that is not known, and 0; one that appeared was not there before, so that its value now is what it counted.
        Those of a CPU that comes back, of an interface that came with another name or from elsewhere, and of a
        namespace that was not seen before go on where they were, and have not appeared.
    """

    key: Key
    before: int
    now: int
    by: int
    how: How


def moves(before: Readings, now: Readings) -> Iterator[Move]:
    """Yield what changed: counters that were there before, then those that appeared, then gauges and settings.

    What is gone from the later reading is not in it.
    """
    changed = [key for key, value in now.numbers.items() if before.numbers.get(key, value) != value]
    counters = [key for key in changed if kind_of(key) == "counter"]
    by, how = differences(
        np.array([signed(before.numbers[key]) for key in counters], np.int64),
        np.array([signed(now.numbers[key]) for key in counters], np.int64),
        np.array([SOURCES[key.source].bits for key in counters], np.int64),
    )
    for key, each_by, each_how in zip(counters, by.tolist(), how.tolist(), strict=True):
        yield Move(key, before.numbers[key], now.numbers[key], each_by, HOW[each_how])
    fresh = [key for key, value in now.numbers.items() if value and key not in before.numbers]
    if fresh:
        begun = Begun(before.numbers, before.unread)
        for key in fresh:
            if kind_of(key) == "counter" and begun.counted_from_0(key):
                yield Move(key, 0, now.numbers[key], now.numbers[key], "appeared")
    for key in changed:
        if kind_of(key) != "counter":
            old, value = before.numbers[key], now.numbers[key]
            yield Move(key, old, value, value - old, "changed")


def differences(
    before: NDArray[np.int64], now: NDArray[np.int64], bits: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int8]]:
    """Return what counters counted between two values.

    Parameters
    ----------
    before, now : ndarray of int64, shape (n,)
        Values; one without a sign that is too large for the type has its bits.
    bits : ndarray of int64, shape (n,)
        After which each begins again at 0: 32, 64, or 0 where it may be either.

    Returns
    -------
    by : ndarray of int64, shape (n,)
        0 where it restarted: what it counted then is not known.
    how : ndarray of int8, shape (n,)
        Index into :data:`HOW`.
    """
    by = now - before  # of 64 bits without a sign, it is right also where they went round
    narrow = (bits == 32) | ((bits == 0) & (before >= 0) & (before < 1 << 32))
    # Near the end of its range before, near the beginning now: it went round. Else somebody set it to 0.
    round_32 = narrow & (now >= 0) & (by < 0) & (by + (1 << 32) < 1 << 30)
    round_64 = ~narrow & (before < 0) & (now >= 0) & (by >= 0) & (by < 1 << 62)
    by = np.where(round_32, by + (1 << 32), by)
    fell = ~round_32 & ~round_64 & (now.view(np.uint64) < before.view(np.uint64))
    # Nothing counts so far: the registers of a device that was pulled out read as ones.
    leapt = ~fell & (by.view(np.uint64) >= 1 << 62)
    restarted = fell | leapt
    by = np.where(restarted, 0, by)
    return by, np.select([round_32 | round_64, restarted], [1, 2], 0).astype(np.int8)


def seconds_between(before: Readings, now: Readings) -> float:
    """Return the time from one reading to the other, in seconds."""
    return (now.time_ns - before.time_ns) / 1e9


class Begun:
    """Which of the counters that appear began at 0 since a reading.

    Parameters
    ----------
    keys
        That were in that reading.
    unread
        What it lacks: a source that could not be read had its values all the same.
    """

    def __init__(self, keys: Iterable[Key], unread: Iterable[Unread]) -> None:
        self._unread = {(each.netns, each.source) for each in unread}
        self._known: Counter[tuple[str, int | str, str]] = Counter()
        for key in keys:
            self.learn(key)

    def learn(self, key: Key) -> None:
        """Add a counter to those of the reading."""
        self._known.update(_signs(key))

    def forget(self, key: Key) -> None:
        """Take a counter away again."""
        self._known.subtract(_signs(key))

    def counted_from_0(self, key: Key) -> bool:
        """Whether a counter that was not in the reading has counted all that it shows since."""
        if (key.netns, key.source) in self._unread:
            return False
        source = SOURCES[key.source]
        if source.sparse:
            return self._known["sparse", key.source, key.name] > 0
        # What a namespace or an interface has is made and removed. They themselves may be older than they look: an
        # interface that is renamed keeps its counters, as does a namespace that nobody had a name or a process in. A
        # CPU goes on counting where it was when it comes back.
        if _is_of_device(key) and not self._known["device", key.netns, _device(key)]:
            return False
        return source.scope == "namespace" and self._known["namespace", key.netns, ""] > 0


def _signs(key: Key) -> Iterator[tuple[str, int | str, str]]:
    yield "namespace", key.netns, ""
    if SOURCES[key.source].sparse:
        yield "sparse", key.source, key.name
    if _is_of_device(key):
        yield "device", key.netns, _device(key)


def _is_of_device(key: Key) -> bool:
    return SOURCES[key.source].layer in _LAYERS_OF_DEVICES


def _device(key: Key) -> str:
    return key.subject.partition(" ")[0]
