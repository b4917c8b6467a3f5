# SPDX-License-Identifier: Apache-2.0
"""What is wanted of the single messages of ``tx``: all of them, the slowest, or none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from hopscope.collectors.tx_slowest import SlowestKeeper
from hopscope.collectors.wall_clock import wall_offset_ns

if TYPE_CHECKING:
    from hopscope.analysis.message import Message
    from hopscope.analysis.slowest import Slowest
    from hopscope.analysis.snapshot import Kind
    from hopscope.collectors.tx_messages import Messages


class MessageSource(Protocol):
    """Where single messages come from."""

    @property
    def offset_ns(self) -> int:
        """Wall clock minus CLOCK_MONOTONIC where the messages were stamped."""

    def fetch(self) -> list[Message]:
        """Return the messages that came since the last call, none where they are not wanted one by one.

        To be called several times a second, also where only the slowest are wanted.
        """

    def slowest(self, kind: Kind) -> Slowest | None:
        """Return the slowest messages since the last call, or of the run; None where they are not wanted."""


class Found:
    """Single messages out of the rings; see :class:`MessageSource`.

    Parameters
    ----------
    messages
        Reads them; None where nothing is wanted.
    each
        Whether each is wanted.
    slowest
        So many of the slowest; 0: none.
    """

    def __init__(self, messages: Messages | None, *, each: bool, slowest: int) -> None:
        self._messages = messages
        self._each = each
        self._keeper = SlowestKeeper(slowest, messages.decode) if messages and slowest else None

    @property
    def offset_ns(self) -> int:
        """Wall clock minus CLOCK_MONOTONIC of this host."""
        return wall_offset_ns()

    def fetch(self) -> list[Message]:
        """Return the messages that came since the last call, none where they are not wanted one by one."""
        if self._messages is None:
            return []
        records = self._messages.read()
        if self._keeper:
            self._keeper.add(records)
        return self._messages.decode(records) if self._each else []

    def slowest(self, kind: Kind) -> Slowest | None:
        """Return the slowest messages since the last call, or of the run; None where they are not wanted."""
        if self._keeper is None:
            return None
        return self._keeper.total() if kind == "total" else self._keeper.interval()
