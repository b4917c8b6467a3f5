# SPDX-License-Identifier: Apache-2.0
"""What a hop is: the interval that ends at a probe point. Each verb has a table of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hopscope.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from collections.abc import Set as AbstractSet


@dataclass(frozen=True, slots=True)
class Hop:
    """A hop.

    Parameters
    ----------
    hop
        Its number in the kernel side.
    name
        As shown.
    starts
        Points at which it may begin, the best first: the first that is attached counts.
    ends
        The point at which it ends.
    unit
        What one sample is.
    also
        Further points without which it is not recorded.
    chain
        Which hops it adds up with (:class:`~hopscope.model.snapshot.HopRow`).
    protocol
        ``tcp``, ``udp``, or None before that is known.
    cause
        Of its time, as :class:`~hopscope.model.snapshot.HopRow`.
    """

    hop: int
    name: str
    starts: tuple[str, ...]
    ends: str
    unit: str
    also: tuple[str, ...] = ()
    chain: str | None = None
    protocol: str | None = None
    cause: str | None = None

    def start(self, attached: AbstractSet[str]) -> str | None:
        """Return where it begins with these points attached; None if it is not recorded then."""
        if not {self.ends, *self.also} <= attached:
            return None
        return next((point for point in self.starts if point in attached), None)


def named(hops: Iterable[Hop], wanted: Collection[str]) -> list[Hop]:
    """Return the hops of these names, all if none is given.

    Raises
    ------
    UsageError
        There is no such hop.
    """
    hops = list(hops)
    names = [hop.name for hop in hops]
    for name in wanted:
        if name not in names:
            raise UsageError(f"No hop is named {name}", f"The hops are {', '.join(names)}")
    return [hop for hop in hops if not wanted or hop.name in wanted]
