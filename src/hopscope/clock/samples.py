# SPDX-License-Identifier: Apache-2.0
"""Packets time-stamped by two hosts, as arrays: the information that they give about the offset of the two clocks.

A packet cannot arrive before it left. The difference of the two time stamps of a packet from the first host to the
second is an upper bound of how far the second clock is ahead; a packet in the opposite direction gives a lower bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from hopscope.clock.domain import ClockDomain

    Ns = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Direction:
    """Packets of one direction.

    Attributes
    ----------
    sent_ns, received_ns
        int64, of equal length: the sender's stamps by the sender's clock, the receiver's by the receiver's.
    """

    sent_ns: Ns
    received_ns: Ns

    @classmethod
    def matched(cls, sent: Mapping[int, int], received: Mapping[int, int]) -> Self:
        """Return those that both sides stamped: stamps by what tells packets apart."""
        keys = sorted(sent.keys() & received.keys())
        return cls(_array(sent[key] for key in keys), _array(received[key] for key in keys))

    @classmethod
    def joined(cls, directions: Iterable[Direction]) -> Self:
        """Return several as one."""
        parts = [(direction.sent_ns, direction.received_ns) for direction in directions] or [(_array(()), _array(()))]
        sent, received = (np.concatenate(column) for column in zip(*parts, strict=True))
        return cls(sent, received)

    def __len__(self) -> int:
        """How many packets."""
        return len(self.sent_ns)


@dataclass(frozen=True, slots=True)
class Samples:
    """Packets of both directions.

    Attributes
    ----------
    first, second
        The clocks.
    there, back
        From the first host to the second, and from the second to the first.
    bound_ns
        How far the difference of two stamps may be off because of how they were taken.
    by_nics
        All four stamps of a round trip are NICs'; else all are the kernels'.
    """

    first: ClockDomain
    second: ClockDomain
    there: Direction
    back: Direction
    bound_ns: int = 0
    by_nics: bool = False

    @classmethod
    def joined(cls, parts: Iterable[Samples]) -> Samples:
        """Return several of the same two clocks as one; there must be one at least."""
        every = list(parts)
        there, back = Direction.joined(part.there for part in every), Direction.joined(part.back for part in every)
        return cls(every[0].first, every[0].second, there, back, max(part.bound_ns for part in every))

    def upper(self) -> tuple[Ns, Ns]:
        """Return times by the first clock, and how far the second was ahead then at most."""
        return self.there.sent_ns, self.there.received_ns - self.there.sent_ns

    def lower(self) -> tuple[Ns, Ns]:
        """Return times by the first clock, and how far the second was ahead then at least."""
        return self.back.received_ns, self.back.sent_ns - self.back.received_ns


def _array(times_ns: Iterable[int]) -> Ns:
    return np.fromiter(times_ns, np.int64)
