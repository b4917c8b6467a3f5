# SPDX-License-Identifier: Apache-2.0
"""The slowest messages of an interval or of a run, and which layers held them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from heapq import nlargest
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hopscope.model.message import Message
    from hopscope.model.snapshot import Kind


@dataclass(frozen=True, slots=True)
class Slowest:
    """The messages with the longest totals.

    Attributes
    ----------
    kind
        ``interval`` or ``total``.
    asked
        How many were asked for.
    seen
        How many messages they were chosen from: those whose total is known.
    unfinished
        Messages without a total: aborted, or their beginning was not seen. They may have been slower.
    messages
        The slowest first.
    """

    kind: Kind
    asked: int
    seen: int
    unfinished: int
    messages: Sequence[Message]

    def held(self) -> dict[str, int]:
        """Return layer → how many of the messages it held longest, the most frequent first."""
        blamed = (message.blame() for message in self.messages)
        return dict(Counter(blame[0] for blame in blamed if blame).most_common())


def in_turn(parts: Sequence[Slowest]) -> Slowest:
    """Return the slowest messages of times that followed each other; the last says for what it stands."""
    last = parts[-1]
    return Slowest(
        kind=last.kind,
        asked=last.asked,
        seen=sum(part.seen for part in parts),
        unfinished=sum(part.unfinished for part in parts),
        messages=nlargest(last.asked, (message for part in parts for message in part.messages), key=_total_ns),
    )


def _total_ns(message: Message) -> int:
    return message.total_ns or 0
