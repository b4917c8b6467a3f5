# SPDX-License-Identifier: Apache-2.0
"""What is wanted of the single messages of ``tx``: all of them, or the slowest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hopscope.clock.wall_clock import wall_offset_ns
from hopscope.verbs.tx.slowest import SlowestKeeper

if TYPE_CHECKING:
    from hopscope.model.message import Message
    from hopscope.model.slowest import Slowest
    from hopscope.model.snapshot import Kind
    from hopscope.verbs.tx.messages import Messages


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
    """

    def __init__(self, messages: Messages, *, each: bool, slowest: int) -> None:
        self._messages = messages
        self._each = each
        self._keeper = SlowestKeeper(slowest, messages.decode) if slowest else None

    @property
    def offset_ns(self) -> int:
        """Wall clock minus CLOCK_MONOTONIC of this host."""
        return wall_offset_ns()

    def fetch(self) -> list[Message]:
        """Return the messages that came since the last call, none where they are not wanted one by one."""
        records = self._messages.read()
        if self._keeper:
            self._keeper.add(records)
        return self._messages.decode(records) if self._each else []

    def slowest(self, kind: Kind) -> Slowest | None:
        """Return the slowest messages since the last call, or of the run; None where they are not wanted."""
        if self._keeper is None:
            return None
        return self._keeper.total() if kind == "total" else self._keeper.interval()
