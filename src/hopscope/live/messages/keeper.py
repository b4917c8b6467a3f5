# SPDX-License-Identifier: Apache-2.0
"""Keep the slowest messages: a few of however many, chosen as arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hopscope.model.slowest import Slowest, in_turn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from hopscope.live.messages.records import Decodes
    from hopscope.model.message import Message


class SlowestKeeper:
    """Keeps the slowest messages of the interval and of the run.

    Parameters
    ----------
    most
        How many.
    records
        Turns those that are kept into messages, while their sockets are still known.
    """

    def __init__(self, most: int, records: Decodes) -> None:
        self._most = most
        self._records = records
        self._interval, self._total = Slowest("interval", most, 0, 0, ()), Slowest("total", most, 0, 0, ())

    def add(self, records: NDArray[np.void]) -> None:
        """Look at records as :meth:`~hopscope.live.messages.records.MessageRecords.read` returns them."""
        totals_ns = self._records.totals_ns(records)
        known = totals_ns >= 0
        kept = self._interval.messages
        floor_ns = (kept[-1].total_ns or 0) if len(kept) == self._most else -1
        candidates = np.flatnonzero(totals_ns > floor_ns)
        if len(candidates) > self._most:
            top = np.argpartition(totals_ns[candidates], -self._most)[-self._most :]
            candidates = candidates[top]
        found = self._records.decode(records[candidates])
        self._interval = in_turn([_of(found, known), self._interval])

    def interval(self) -> Slowest:
        """Return those since the last call."""
        taken, self._interval = self._interval, Slowest("interval", self._most, 0, 0, ())
        self._total = in_turn([taken, self._total])
        return taken

    def total(self) -> Slowest:
        """Return those since the start, as of the last :meth:`interval`."""
        return self._total


def _of(messages: Sequence[Message], known: NDArray[np.bool_]) -> Slowest:
    seen = int(known.sum())
    return Slowest("interval", len(messages), seen, len(known) - seen, messages)
