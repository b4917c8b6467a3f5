# SPDX-License-Identifier: Apache-2.0
"""What became of each packet that entered: read, queued, dropped with the kernel's reason, or something else.

The kernel side (``bpf/rx/account.h``) counts the end of a packet where a hook sees it. Most packets that are not for a
socket end unseen: their stamps stay open, until their memory carries another packet. The open ones are looked for here,
in the table of stamps itself, so that the sum is a check: nothing is missing, and nothing counts twice.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hopscope.bpf.layout import HopLimits, HopRxEnd, HopRxLife, HopRxPlace, HopRxStage
from hopscope.kernel.drop_reasons import drop_reasons
from hopscope.model.snapshot import Ending, PacketAccount

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.libbpf import BpfObject

Array = np.ndarray[Any, np.dtype[Any]]

UNKNOWN: Final = "unknown"
# Reading takes a fraction of a millisecond, in which a packet may enter; on a busy host, some do each time.
_LOOKS: Final = 3
_LAST_REASON: Final = HopLimits.HOP_REASONS - 1
_PLACES: Final = {
    HopRxPlace.HOP_PLACE_DRIVER: "rx.driver",
    HopRxPlace.HOP_PLACE_CORE: "rx.core",
    HopRxPlace.HOP_PLACE_IP: "rx.ip",
    HopRxPlace.HOP_PLACE_FORWARD: "rx.forward",
    HopRxPlace.HOP_PLACE_TCP: "rx.tcp",
    HopRxPlace.HOP_PLACE_UDP: "rx.udp",
    HopRxPlace.HOP_PLACE_QUEUE: "rx.udp_queue",
}
# Of packets that were not dropped: what the place where they were seen last tells.
_GONE: Final = {
    HopRxPlace.HOP_PLACE_CORE: ("not_ip", "not for this host's IP: ARP, bridged, or another protocol"),
    HopRxPlace.HOP_PLACE_IP: (
        "not_transport",
        "for the kernel's IP (ICMP, IGMP), a tunnel, a fragment joined with its first one, or no full TCP socket",
    ),
    HopRxPlace.HOP_PLACE_FORWARD: ("forwarded", "sent on to another host or namespace"),
    HopRxPlace.HOP_PLACE_TCP: ("no_data", "TCP without data for a reader: acknowledgements, SYN, FIN"),
    HopRxPlace.HOP_PLACE_UDP: ("not_queued", "taken by a tunnel, or cut into datagrams, which are counted themselves"),
}
_ENDS: Final = {
    HopRxEnd.HOP_END_MERGED: ("merged", "rx.tcp_queue", "in the socket with the segment before: too many waited there"),
    HopRxEnd.HOP_END_REPEATED: ("duplicate", "rx.tcp_queue", "bytes that had arrived before, or come again"),
    HopRxEnd.HOP_END_DUPLICATE: ("duplicate", "rx.tcp", "bytes that had arrived before"),
    HopRxEnd.HOP_END_MPTCP: ("mptcp", "rx.tcp_queue", "a segment of an MPTCP connection, whose reads are not seen"),
    HopRxEnd.HOP_END_NO_MEMORY: ("no_memory", "rx.tcp_queue", "no memory for the state of the socket"),
    HopRxEnd.HOP_END_UNREAD: ("unread", "rx.tcp_queue", "the socket was closed before it was read"),
    HopRxEnd.HOP_END_SLOT_TAKEN: ("slot_taken", "", "no room to follow it further: what became of it is not known"),
}


@dataclass(frozen=True, slots=True)
class _Reading:
    """All of it at one instant; the counts are cumulative.

    Attributes
    ----------
    ended, gone
        int64, by :class:`HopRxEnd` and by :class:`HopRxPlace`.
    dropped
        int64, shape (places, reasons).
    open
        int64: packets by place whose end is not counted yet.
    """

    entered: int
    ended: Array
    gone: Array
    dropped: Array
    open: Array

    @property
    def read(self) -> int:
        """What leaves a UDP socket's queue and was not dropped was read."""
        ends = self.ended[[HopRxEnd.HOP_END_READ_UDP, HopRxEnd.HOP_END_READ_TCP]].sum()
        return int(ends + self.gone[HopRxPlace.HOP_PLACE_QUEUE])

    @property
    def queued(self) -> int:
        left = (*range(HopRxEnd.HOP_END_MERGED, HopRxEnd.HOP_END_UNREAD + 1), HopRxEnd.HOP_END_READ_TCP)
        in_tcp = self.ended[HopRxEnd.HOP_END_JOINED] - self.ended[list(left)].sum()
        return int(in_tcp + self.open[HopRxPlace.HOP_PLACE_QUEUE])

    @property
    def under_way(self) -> int:
        return int(self.open[list(_GONE)].sum())


class Account:
    """Reads what the kernel side counts.

    Parameters
    ----------
    bpf
        The loaded object.
    """

    def __init__(self, bpf: BpfObject) -> None:
        self._counters = bpf.maps["counters"].array()
        self._stamps = bpf.data(".bss.stamps")["stamps"]
        self._reasons = drop_reasons()
        self._first = self._before = self._last = self._read()

    def refresh(self) -> None:
        """Read it anew: an interval ends."""
        self._before, self._last = self._last, self._read()

    def interval(self) -> PacketAccount:
        """Return what became of packets in the last interval; those that are not known to have ended are under way."""
        return self._account(self._before, self._last, final=False)

    def total(self) -> PacketAccount:
        """Return the same since the start; what has not ended has gone no further than where it was seen last."""
        return self._account(self._first, self._last, final=True)

    def _read(self) -> _Reading:
        for _ in range(_LOOKS):
            before, open_, after = self._counted(), self._open(), self._counted()
            if all(np.array_equal(before[name], after[name]) for name in before):
                break
        # What ended or entered meanwhile, if something did each time, is missing in the sum, and not in it twice.
        return _Reading(
            entered=int(after["entered"]),
            ended=before["ended"],
            gone=before["gone"],
            dropped=before["dropped"].reshape(HopRxPlace.HOP_PLACES, HopLimits.HOP_REASONS),
            open=open_,
        )

    def _counted(self) -> dict[str, Array]:
        names = ("ended", "gone", "dropped", "entered")
        return {name: self._counters[name].astype(np.int64).sum(axis=0) for name in names}

    def _open(self) -> Array:
        """Return how many stamps are open at each place."""
        # All of the table is looked at for this one field; of the others, only what is open.
        found = np.flatnonzero(self._stamps["life"] == HopRxLife.HOP_LIFE_OPEN)
        stage, way = (self._stamps[name][found].astype(np.int64) for name in ("stage", "way"))
        early = (stage - HopRxStage.HOP_STAGE_DRIVER).clip(0)
        early[stage >= HopRxStage.HOP_STAGE_L4] = HopRxPlace.HOP_PLACE_UDP
        place = np.where(way > 0, way, early)
        place = np.where(stage == HopRxStage.HOP_STAGE_QUEUE, HopRxPlace.HOP_PLACE_QUEUE, place)
        return np.bincount(place, minlength=HopRxPlace.HOP_PLACES).astype(np.int64)

    def _account(self, before: _Reading, after: _Reading, *, final: bool) -> PacketAccount:
        gone = after.gone - before.gone + (after.open if final else 0)
        endings = [*self._dropped(after.dropped - before.dropped), *_discarded(after.ended - before.ended, gone)]
        earlier, entered, read = (
            before.entered - _over(before),
            after.entered - before.entered,
            after.read - before.read,
        )
        under_way = 0 if final else after.under_way
        known = read + after.queued + under_way + sum(ending.count for ending in endings)
        return PacketAccount(
            before=earlier,
            entered=entered,
            read=read,
            queued=after.queued,
            under_way=under_way,
            unaccounted=earlier + entered - known,
            endings=endings,
        )

    def _dropped(self, dropped: Array) -> Iterator[Ending]:
        for place, number in zip(*np.nonzero(dropped), strict=True):
            yield Ending("dropped", self._reason(int(number)), _PLACES[HopRxPlace(place)], int(dropped[place, number]))

    def _reason(self, number: int) -> str:
        return "other" if number == _LAST_REASON else self._reasons.get(number, UNKNOWN)


def _over(reading: _Reading) -> int:
    """Return the packets whose end is counted."""
    gone = reading.gone[list(_GONE)].sum()
    others = reading.ended[list(_ENDS)].sum()
    return int(reading.read + gone + others + reading.dropped.sum())


def _discarded(ended: Array, gone: Array) -> Iterator[Ending]:
    found: Counter[tuple[str, str, str]] = Counter()
    for place, (reason, meaning) in _GONE.items():
        found[reason, _PLACES[place], meaning] += int(gone[place])
    for end, (reason, hop, meaning) in _ENDS.items():
        found[reason, hop, meaning] += int(ended[end])
    for (reason, hop, meaning), count in found.items():
        if count:
            yield Ending("discarded", reason, hop, count, meaning)
