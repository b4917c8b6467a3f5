# SPDX-License-Identifier: Apache-2.0
"""A send and its stamps, and how one finds the other. No socket in here."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from hopscope.timestamping.flags import Stage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hopscope.timestamping.errqueue import Stamp

_IDS: Final = 1 << 32


class Missing(enum.Enum):
    """Why a message lacks a stamp."""

    COALESCED = "a later send went into the same packet and took the place of its stamps"
    OVERFLOW = "the error queue was full meanwhile, so that the kernel dropped stamps"
    NO_STAMP = "none came: it was dropped on its way, is still under way, or the driver does not stamp"
    UNCOUNTED = "a send before it failed, after which this kernel's counter is not known; it was sent without stamps"


@dataclass(slots=True, eq=False)
class Message:
    """What one call to send handed over, and when it was where.

    Attributes
    ----------
    id
        TCP: offset in the stream of its last byte, from 0 where stamps were switched on. Datagrams: number, from 0.
        Neither wraps.
    len_bytes
        What the kernel took, which can be less than what it was given.
    called_ns, returned_ns
        Right before and after the call, by the application's own clock: CLOCK_REALTIME, as the stamps.
    wanted
        Stages that were asked for.
    time_ns
        The first stamp of each stage. `Stage.SND_HARDWARE` is of the NIC's clock, all others are CLOCK_REALTIME.
    repeats
        How many more stamps of a stage came: retransmissions, and devices stacked on one another.
    stats
        With ``OPT_STATS``, TCP's figures at each stage.
    missing
        Why a wanted stage is not in `time_ns`; None if all are.
    ifindex
        With ``OPT_CMSG`` and IP_PKTINFO (or IPV6_RECVPKTINFO) on the socket: the interface of the last stamp.

    SCHED and SND often come before the call returns: the kernel then sends in the caller's time.
    """

    id: int
    len_bytes: int
    called_ns: int
    returned_ns: int
    wanted: tuple[Stage, ...]
    time_ns: dict[Stage, int] = field(default_factory=dict)
    repeats: dict[Stage, int] = field(default_factory=dict)
    stats: dict[Stage, Mapping[str, int]] = field(default_factory=dict)
    missing: Missing | None = None
    ifindex: int | None = None

    @property
    def complete(self) -> bool:
        """All stages that were asked for are there."""
        return all(stage in self.time_ns for stage in self.wanted)


class Correlator:
    """Gives stamps to the messages that they are of.

    Parameters
    ----------
    stream
        Ids are offsets of last bytes, and messages leave in order.
    limit
        How many messages may wait for stamps; one more, and the oldest is given up.
    first_packet_id
        What the kernel calls id 0, modulo 2^32.
    """

    def __init__(self, *, stream: bool, limit: int, first_packet_id: int = 0) -> None:
        self._stream = stream
        self.first_packet_id = first_packet_id
        self._limit = limit
        self._waiting: dict[int, Message] = {}  # by rising id
        self._done: list[Message] = []
        self._newest_id = -1
        self._suspect_id = -1  # up to this one, stamps may have been dropped
        self.unmatched = 0

    @property
    def waiting(self) -> int:
        """How many messages wait for stamps."""
        return len(self._waiting)

    def sent(self, message: Message) -> None:
        """Take a message that was sent; its id is above those before."""
        if message.missing:
            self._done.append(message)
            return
        self._waiting[message.id] = message
        self._newest_id = message.id
        while len(self._waiting) > self._limit:
            self._give_up(next(iter(self._waiting.values())), Missing.NO_STAMP)

    def stamped(self, stamp: Stamp) -> None:
        """Take a stamp; one of no waiting message is counted."""
        message = self._waiting.get(unwrap(stamp.packet_id - self.first_packet_id, self._newest_id))
        if message is None:
            self.unmatched += 1
            return
        if stamp.stage in message.time_ns:
            message.repeats[stamp.stage] = message.repeats.get(stamp.stage, 0) + 1
            return
        message.time_ns[stamp.stage] = stamp.time_ns
        message.ifindex = stamp.ifindex
        if stamp.stats:
            message.stats[stamp.stage] = stamp.stats
        if self._stream:
            self._give_up_overtaken(message, stamp.stage)
        if message.complete:
            del self._waiting[message.id]
            self._done.append(message)

    def overflowed(self) -> None:
        """Note that the queue was full at some time before now."""
        self._suspect_id = self._newest_id

    def give_up_all(self) -> None:
        """Do not wait any longer."""
        for message in list(self._waiting.values()):
            self._give_up(message, Missing.NO_STAMP)

    def take(self) -> list[Message]:
        """Return, once each, the messages that wait for nothing any more."""
        done, self._done = self._done, []
        return done

    def _give_up_overtaken(self, overtaker: Message, stage: Stage) -> None:
        # ACKs come in the order of the stream, and so does what TCP sends for the first time. The driver's stamps need
        # not: a queueing discipline may drop a packet, which is stamped when it is sent again.
        if stage not in {Stage.ACK, Stage.SCHED}:
            return
        overtaken = []
        for message in self._waiting.values():
            if message is overtaker:
                break
            no_more_comes = stage == Stage.ACK or not (message.time_ns or Stage.ACK in message.wanted)
            if stage in message.wanted and no_more_comes:
                overtaken.append(message)
        for message in overtaken:
            self._give_up(message, Missing.COALESCED)

    def _give_up(self, message: Message, why: Missing) -> None:
        message.missing = Missing.OVERFLOW if message.id <= self._suspect_id else why
        del self._waiting[message.id]
        self._done.append(message)


def unwrap(packet_id: int, newest_id: int) -> int:
    """Return the whole number whose lowest 32 bits are an id, the greatest that is not above the newest.

    Right as long as no stamp is 2^32 datagrams or bytes late. Negative for an id that was never sent.
    """
    return newest_id - (newest_id - packet_id) % _IDS
