# SPDX-License-Identifier: Apache-2.0
"""Keep the slowest messages of ``tx``: a few of however many, chosen as arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hopscope.model.slowest import Slowest, in_turn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from hopscope.model.message import Message


class SlowestKeeper:
    """Keeps the slowest messages of the interval and of the run.

    Parameters
    ----------
    most
        How many.
    decode
        Turns records into messages: called for those that are kept, while their sockets are still known.
    """

    def __init__(self, most: int, decode: Callable[[Iterable[np.void]], list[Message]]) -> None:
        self._most = most
        self._decode = decode
        self._interval, self._total = Slowest("interval", most, 0, 0, ()), Slowest("total", most, 0, 0, ())

    def add(self, records: NDArray[np.void]) -> None:
        """Look at records as :meth:`~hopscope.verbs.tx.messages.Messages.read` returns them."""
        totals_ns = _totals_ns(records)
        known = totals_ns >= 0
        kept = self._interval.messages
        floor_ns = (kept[-1].total_ns or 0) if len(kept) == self._most else -1
        candidates = np.flatnonzero(totals_ns > floor_ns)
        if len(candidates) > self._most:
            top = np.argpartition(totals_ns[candidates], -self._most)[-self._most :]
            candidates = candidates[top]
        found = self._decode(records[candidates])
        self._interval = in_turn([_of(found, known), self._interval])

    def interval(self) -> Slowest:
        """Return those since the last call."""
        taken, self._interval = self._interval, Slowest("interval", self._most, 0, 0, ())
        self._total = in_turn([taken, self._total])
        return taken

    def total(self) -> Slowest:
        """Return those since the start, as of the last :meth:`interval`."""
        return self._total


def _of(messages: list[Message], known: NDArray[np.bool_]) -> Slowest:
    seen = int(known.sum())
    return Slowest("interval", len(messages), seen, len(known) - seen, messages)


def _totals_ns(records: NDArray[np.void]) -> NDArray[np.int64]:
    """Return the time from the first to the last that was seen of each, -1 where one of them was not."""
    entered, handed, done = (records[name].astype(np.int64) for name in ("entry_ns", "handed_ns", "done_ns"))
    started = np.where(entered > 0, entered, handed)
    return np.where((started > 0) & (done >= started), done - started, -1)
