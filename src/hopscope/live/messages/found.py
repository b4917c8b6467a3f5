# SPDX-License-Identifier: Apache-2.0
"""What is wanted of single messages: all of them, or the slowest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.clock.wall_clock import wall_offset_ns
from hopscope.live.messages.keeper import SlowestKeeper

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hopscope.live.messages.records import MessageRecords
    from hopscope.model.message import Message
    from hopscope.model.slowest import Slowest
    from hopscope.model.snapshot import Kind

# Messages that are made of records at once: fewer than can be printed in a tenth of a second.
_AT_ONCE: Final = 1000


class Found:
    """Single messages out of the rings; see :class:`~hopscope.live.contract.MessageSource`.

    Parameters
    ----------
    messages
        Reads them.
    each
        Whether each is wanted.
    slowest
        So many of the slowest; 0: none.

    Attributes
    ----------
    dropped
        As :class:`~hopscope.live.contract.MessageSource` has it.
    """

    def __init__(self, messages: MessageRecords, *, each: bool, slowest: int) -> None:
        self._messages = messages
        self._each = each
        self._keeper = SlowestKeeper(slowest, messages) if slowest else None
        self._waiting: NDArray[np.void] | None = None
        self._closed = False
        self.dropped = 0

    @property
    def offset_ns(self) -> int:
        """Wall clock minus CLOCK_MONOTONIC of this host."""
        return wall_offset_ns()

    def fetch(self) -> list[Message]:
        """Return the next messages, none where there are none or they are not wanted one by one."""
        if self._closed:
            return []
        records = self._read() if self._waiting is None else self._waiting
        self._waiting = records[_AT_ONCE:] if self._each and len(records) > _AT_ONCE else None
        return self._messages.decode(records[:_AT_ONCE]) if self._each else []

    def close(self) -> None:
        """Drop and count what has come and was not fetched; nothing is fetched any more."""
        if not self._closed:
            records = self._read()
            if self._each:
                self.dropped = len(records) + (0 if self._waiting is None else len(self._waiting))
            self._closed = True

    def slowest(self, kind: Kind) -> Slowest | None:
        """Return the slowest messages since the last call, or of the run; None where they are not wanted."""
        if self._keeper is None:
            return None
        return self._keeper.total() if kind == "total" else self._keeper.interval()

    def _read(self) -> NDArray[np.void]:
        records = self._messages.read()
        if self._keeper:
            self._keeper.add(records)
        return records
