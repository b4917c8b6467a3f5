# SPDX-License-Identifier: Apache-2.0
"""Packets that two hosts stamped, as arrays: what they say about the difference of the two clocks.

A packet cannot arrive before it left. One from the first host to the second says that the second clock is ahead by at
most what its two stamps differ by; one the other way says by how much it is ahead at least.
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
class Way:
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
    def joined(cls, ways: Iterable[Way]) -> Self:
        """Return several as one."""
        parts = [(way.sent_ns, way.received_ns) for way in ways] or [(_array(()), _array(()))]
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
    there: Way
    back: Way
    bound_ns: int = 0
    by_nics: bool = False

    @classmethod
    def joined(cls, parts: Iterable[Samples]) -> Samples:
        """Return several of the same two clocks as one; there must be one at least."""
        every = list(parts)
        there, back = Way.joined(part.there for part in every), Way.joined(part.back for part in every)
        return cls(every[0].first, every[0].second, there, back, max(part.bound_ns for part in every))

    def upper(self) -> tuple[Ns, Ns]:
        """Return times by the first clock, and how far the second was ahead then at most."""
        return self.there.sent_ns, self.there.received_ns - self.there.sent_ns

    def lower(self) -> tuple[Ns, Ns]:
        """Return times by the first clock, and how far the second was ahead then at least."""
        return self.back.received_ns, self.back.sent_ns - self.back.received_ns


def _array(times_ns: Iterable[int]) -> Ns:
    return np.fromiter(times_ns, np.int64)
