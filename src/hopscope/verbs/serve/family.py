# SPDX-License-Identifier: Apache-2.0
"""Metrics as Prometheus has them: families of series, and series that never go down and never become too many."""

from __future__ import annotations

import pickle
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np

from hopscope.model.histogram import Histogram

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from socket import socket

    from numpy.typing import NDArray

Type: TypeAlias = Literal["counter", "gauge", "histogram"]
Labels: TypeAlias = tuple[str, ...]
Value: TypeAlias = "int | float | Histogram"
# What all series are called that there is no room for.
OTHER: Final = "other"

# How many bytes follow, of what the process that measures says to the others.
HEAD: Final = struct.Struct("!I")


class Exemplar(NamedTuple):
    """A sample of a histogram, and the message that it is of.

    Attributes
    ----------
    message
        Its id: what ``hopscope explain --message`` takes.
    value_ns
        The duration.
    at_ns
        When it was done, CLOCK_REALTIME.
    """

    message: str
    value_ns: int
    at_ns: int


# The name of an exemplar's only label.
EXEMPLAR: Final = "message"


@dataclass(frozen=True, slots=True)
class Family:
    """A metric.

    Attributes
    ----------
    name
        With ``hopscope_``, the unit, and ``_total`` for a counter.
    type
        Of its series.
    help
        One sentence without a full stop.
    labels
        Names of the labels, in the order of the series' values.
    series
        Values of the labels → number, or histogram of durations.
    exemplars
        Values of the labels → a sample of this histogram; of most, none is known.
    """

    name: str
    type: Type
    help: str
    labels: Sequence[str] = ()
    series: Mapping[Labels, Value] = field(default_factory=dict)
    exemplars: Mapping[Labels, Exemplar] = field(default_factory=dict)


def handed(families: Sequence[Family], started_ns: int) -> bytes:
    """Return families, and since when is counted, as the process takes them that hands out their forms."""
    return framed(pickle.dumps((families, started_ns), pickle.HIGHEST_PROTOCOL))


def framed(data: bytes) -> bytes:
    """Return it with its length before it."""
    return HEAD.pack(len(data)) + data


def received(line: socket, size: int) -> bytes:
    """Return so many bytes of what comes over a line; fewer come where it ends, and then it is none."""
    data = bytearray()
    while len(data) < size and (part := line.recv(size - len(data))):
        data += part
    return bytes(data) if len(data) == size else b""


class Bounded:
    """Cumulative series of one metric, of which at most so many have a name; all others are ``other``.

    A series that has a name keeps it, also when it has nothing more to count. Free names go to those that counted most
    since the last look. What a series counted before it had a name stays with ``other``, so that no series ever goes
    down, and the sum of all is exact at every moment.

    Parameters
    ----------
    most
        How many have names.
    rest
        Labels of all others.
    count
        How much figures count.
    labels
        The labels of a series by what it is called in :meth:`update`; they may become others meanwhile, and then have
        what is counted from then on. None: they are the same.
    """

    def __init__(
        self,
        most: int,
        rest: Labels,
        count: Callable[[NDArray[np.int64]], int] = lambda all_: all_.sum(),
        labels: Callable[[Labels], Labels] | None = None,
    ) -> None:
        self._most = most
        self._rest = rest
        self._count = count
        self._labels = labels
        self._last: dict[Labels, NDArray[np.int64]] = {}
        self._named: dict[Labels, NDArray[np.int64]] = {}
        self._other: NDArray[np.int64] | None = None

    def update(self, now: Iterable[tuple[Labels, NDArray[np.int64]]]) -> dict[Labels, NDArray[np.int64]]:
        """Take what the series have counted since the start, and return those with names, and the rest if there is any.

        Parameters
        ----------
        now
            Labels and cumulative figures, int64 arrays of one shape. Those of equal labels are added up; a series that
            is not among them any more has counted nothing.
        """
        found: dict[Labels, NDArray[np.int64]] = {}
        for labels, figures in now:
            found[labels] = found[labels] + figures if labels in found else figures
        added = {labels: figures - self._last[labels] if labels in self._last else figures
                 for labels, figures in found.items()}  # fmt: skip
        self._last |= found
        added = self._labelled(added)
        self._name(added)
        for labels, figures in added.items():
            if labels in self._named:
                self._named[labels] = self._named[labels] + figures
            elif figures.any():
                self._other = figures if self._other is None else self._other + figures
        rest = {self._rest: self._other} if self._other is not None else {}
        return {**self._named, **rest}

    def widen(self, rows: int) -> None:
        """Have room for so many rows in figures of two dimensions; what there are come first."""

        def wide(figures: NDArray[np.int64]) -> NDArray[np.int64]:
            return np.pad(figures, ((0, rows - len(figures)), (0, 0)))

        self._last = {labels: wide(figures) for labels, figures in self._last.items()}
        self._named = {labels: wide(figures) for labels, figures in self._named.items()}
        self._other = None if self._other is None else wide(self._other)

    def _labelled(self, added: dict[Labels, NDArray[np.int64]]) -> dict[Labels, NDArray[np.int64]]:
        if self._labels is None:
            return added
        found: dict[Labels, NDArray[np.int64]] = {}
        for called, figures in added.items():
            labels = self._labels(called)
            found[labels] = found[labels] + figures if labels in found else figures
        return found

    def _name(self, added: Mapping[Labels, NDArray[np.int64]]) -> None:
        counts = {labels: self._count(figures) for labels, figures in added.items()}
        new = [each for each, count in counts.items() if count and each not in self._named and each != self._rest]
        for labels in sorted(new, key=lambda each: (-counts[each], each))[: self._most - len(self._named)]:
            self._named[labels] = np.zeros_like(added[labels])


def figures_of(histogram: Histogram) -> NDArray[np.int64]:
    """Return counts and sum in one array, int64 of shape (227,)."""
    return np.append(histogram.counts, histogram.sum_ns)


def histogram_of(figures: NDArray[Any]) -> Histogram:
    """Return the histogram of such an array; its largest duration is not known."""
    return Histogram(figures[:-1], int(figures[-1]), 0)
