# SPDX-License-Identifier: Apache-2.0
"""Two peers, driven from one place: they probe each other in turns, and what both stamped comes back as samples."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from hopscope.clock.change import between
from hopscope.clock.exchange import BURST, TRAIN
from hopscope.clock.probe import Session
from hopscope.clock.samples import Direction, Samples

if TYPE_CHECKING:
    from hopscope.clock.change import Change, Look
    from hopscope.clock.remote import Remote, Taken

WINDOW_S: Final = 0.5
# A stamp is cut off to what the clock counts in. Some CPUs' counters go in steps of 10 ns.
RESOLUTION_NS: Final = 10
# A packet may be on its way when its window ends. Who has sent so many after it need not wait for it any more.
_LATE: Final = 8 * BURST


class Pair:
    """Two peers that know each other.

    Parameters
    ----------
    first, second
        Either side.
    nic_stamps
        Let their NICs stamp meanwhile; otherwise those that stamp already are used.

    Attributes
    ----------
    sides
        They.
    looks
        How the clocks of either were at the end of the last window; None before.
    changes
        What was changed at either from the window before to the last one, in its own time; None: nothing.
    probes, answered
        Probes that were to be sent, and how many were answered so far.
    refused
        Packets that either side did not take, by reason.
    lost
        Stamps that did not come, and packets that only one side stamped.
    windows_set
        Windows without stamps because somebody set a clock.
    """

    def __init__(self, first: Remote, second: Remote, *, nic_stamps: bool = False) -> None:
        self.sides = (first, second)
        self._turn = 0
        session = Session.new()
        secret = {"token": session.token.hex(), "key": session.key.hex()}
        for role, (side, other) in enumerate(((first, second), (second, first))):
            side.ask("meet", peer=[other.address, other.port], role=role, nic_stamps=nic_stamps, **secret)
        self._ways = (_Matcher(), _Matcher())
        self.looks: tuple[Look, Look] | None = None
        self.changes: tuple[Change | None, Change | None] = (None, None)
        self.probes = self.answered = 0
        self.refused: Counter[str] = Counter()
        self.lost = 0
        self.windows_set = 0

    def close(self) -> None:
        """End both peers; idempotent."""
        for side in self.sides:
            side.close()

    def window(self, count: int = BURST, train: int = TRAIN) -> Samples:
        """Let one side probe the other, which is the one that did not last time, and return what both stamped.

        A packet that is still on its way is in the samples of a later window.
        """
        initiator = self.sides[self._turn]
        self._turn = 1 - self._turn
        initiator.ask("burst", count=count, train=train)
        self.probes += count
        for side in self.sides:
            side.tell("take")
        taken = self.sides[0].taken(), self.sides[1].taken()
        self._count(taken)
        there = self._ways[0].match(taken[0].sent, taken[1].received)
        back = self._ways[1].match(taken[1].sent, taken[0].received)
        self.lost += sum(way.take_lost() for way in self._ways)
        by_nics = self._by_nics(taken)
        if by_nics is not None:
            return by_nics
        bound_ns = RESOLUTION_NS + sum(part.bound_ns for part in taken)
        return Samples(self.sides[0].domain, self.sides[1].domain, there, back, bound_ns)

    def _by_nics(self, taken: tuple[Taken, Taken]) -> Samples | None:
        """Return the packets that both NICs stamped within this window; None if there are not some of each direction.

        A NIC at one end alone, or in one direction, would make the two directions asymmetric by the delay of its host.
        """
        there = Direction.matched(taken[0].nic_sent, taken[1].nic_received)
        back = Direction.matched(taken[1].nic_sent, taken[0].nic_received)
        if not (len(there) and len(back)):
            return None
        bound_ns = RESOLUTION_NS + sum(part.nic_bound_ns for part in taken)
        return Samples(self.sides[0].domain, self.sides[1].domain, there, back, bound_ns, by_nics=True)

    def _count(self, taken: tuple[Taken, Taken]) -> None:
        for part in taken:
            self.lost += part.lost
            self.answered += part.answered
            self.windows_set += part.was_set
            self.refused.update(part.refused)
        looks = taken[0].look, taken[1].look
        if self.looks:
            self.changes = between(self.looks[0], looks[0]), between(self.looks[1], looks[1])
        self.looks = looks


class _Matcher:
    """Finds the two stamps of each packet of one direction, which may come in different windows."""

    def __init__(self) -> None:
        self._sent: dict[int, int] = {}
        self._received: dict[int, int] = {}
        self._lost = 0

    def match(self, sent: dict[int, int], received: dict[int, int]) -> Direction:
        """Take the stamps of a window; return the packets that have both by now."""
        self._sent |= sent
        self._received |= received
        direction = Direction.matched(self._sent, self._received)
        newest = max((*self._sent, *self._received), default=0)
        both = self._sent.keys() & self._received.keys()
        for stamps in (self._sent, self._received):
            for number in [number for number in stamps if number in both or number <= newest - _LATE]:
                self._lost += number not in both
                del stamps[number]
        return direction

    def take_lost(self) -> int:
        """Return how many stamps were given up since the last call."""
        lost, self._lost = self._lost, 0
        return lost
