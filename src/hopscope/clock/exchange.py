# SPDX-License-Identifier: Apache-2.0
"""One side of an exchange of probes: sends, answers, and keeps the kernel's stamp of each packet on its way.

The kernel stamps where a packet leaves its hands (skb_tx_timestamp, in the driver) and where it gets it back
(netif_rx, netif_receive_skb): less lies between these two than between any two tracepoints, so that the least delay,
which is the bound, is smallest. The stamps are CLOCK_REALTIME and are handed on as CLOCK_MONOTONIC (`RealtimeClock`).
Where the NIC stamps as well, still less lies between: these stamps are kept beside them (`NicStamps`).
"""

from __future__ import annotations

import select
import socket
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from hopscope.clock.probe import LAST_NUMBER, SIZE_BYTES, Gate, Kind, Refusal, Session, packet
from hopscope.clock.realtime import RealtimeClock
from hopscope.errors import UsageError
from hopscope.timestamping import Sof, Stage, StampedSocket

if TYPE_CHECKING:
    from types import TracebackType

    from hopscope.clock.nic_stamps import NicStamps
    from hopscope.clock.phc import Domain
    from hopscope.timestamping import Message

BURST: Final = 15
TRAIN: Final = 5
PACKETS_PER_S: Final = 60
REPLY_WITHIN_S: Final = 0.02
# How many a side sends at most at once, when it has been silent: two bursts.
_CREDIT: Final = 2 * BURST
_AT_ONCE: Final = 256
_LAST_STAMPS_S: Final = 0.05
_KEPT: Final = 4096
_STAMPS: Final = Sof.TX_SOFTWARE | Sof.RX_SOFTWARE | Sof.RX_HARDWARE | Sof.OPT_CMSG | Sof.OPT_PKTINFO
_WITH_NIC: Final = Sof.TX_SOFTWARE | Sof.TX_HARDWARE
# Stamps of sends tell the interface: by include/uapi/linux/in.h, in6.h
_TELL_INTERFACE: Final = {
    socket.AF_INET: (socket.IPPROTO_IP, 8),  # IP_PKTINFO, which Python 3.11 has no name for
    socket.AF_INET6: (socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO),
}


class Stamped(NamedTuple):
    """Number of a packet, and its stamp, CLOCK_MONOTONIC of the host that took it."""

    number: int
    time_ns: int


@dataclass(frozen=True, slots=True)
class Harvest:
    """What one side has stamped since the last time.

    Attributes
    ----------
    sent, received
        Its own packets, and those of the other side.
    bound_ns
        How far the stamps may be off because they were taken by another clock.
    was_set
        That clock was set meanwhile: there are no stamps.
    lost
        Stamps that did not come, or that nobody fetched in time; with `was_set`, those that were thrown away.
    refused
        Packets that were not taken, by reason.
    answered
        Of its own probes, as many as answers came.
    nic_sent, nic_received, nic_bound_ns
        As `sent`, `received` and `bound_ns`, by the NIC's stamps, of those packets that it stamped.
    """

    sent: list[Stamped]
    received: list[Stamped]
    bound_ns: int
    was_set: bool
    lost: int
    refused: dict[str, int]
    answered: int
    nic_sent: list[Stamped]
    nic_received: list[Stamped]
    nic_bound_ns: int


class Endpoint:
    """One side. It stays silent unless told to probe, or asked by a probe.

    Parameters
    ----------
    sock
        A UDP socket with an address, of which it becomes the owner.
    peer
        Address and port of the other side.
    session
        What both sides know.
    role
        0 on one side, 1 on the other.
    nic
        Makes use of the NIC's stamps; it becomes the owner of that, too.

    Raises
    ------
    UsageError, KernelError
        The kernel does not stamp (as `StampedSocket`), or has no timer (as `RealtimeClock`).
    """

    def __init__(
        self, sock: socket.socket, peer: tuple[str, int], session: Session, role: int, nic: NicStamps | None = None
    ) -> None:
        sock.settimeout(0)
        sock.setsockopt(*_TELL_INTERFACE[socket.AddressFamily(sock.family)], 1)
        self._sock = sock
        self._peer = peer
        self._session = session
        self._role = role
        self._nic = nic
        self._left_by: int | None = None  # the interface
        self._gate = Gate(session, role)
        self._clock = RealtimeClock()
        self._stamped = StampedSocket(sock, _STAMPS, limit=_KEPT)
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        self._numbers: dict[int, int] = {}  # of packets, by the kernel's number of the send
        self._next = 0
        self._sent: list[Stamped] = []
        self._received: list[Stamped] = []
        self._nic_sent: list[Stamped] = []
        self._nic_received: list[Stamped] = []
        self._lost = 0
        self._replies = self._told = 0
        self._credit = float(_CREDIT)
        self._credited_s = time.monotonic()

    def close(self) -> None:
        """Close the socket; idempotent."""
        self._stamped.close()
        self._sock.close()
        self._clock.close()
        if self._nic:
            self._nic.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def fileno(self) -> int:
        """Return the socket's descriptor: when it is readable, `pump` has something to do."""
        return self._sock.fileno()

    @property
    def to_monotonic(self) -> Domain:
        """CLOCK_MONOTONIC minus CLOCK_REALTIME, as the stamps are converted by."""
        return self._clock.to_monotonic

    def burst(self, count: int = BURST, train: int = TRAIN) -> int:
        """Send probes, some at once, then the next when these were answered or have had their time.

        Parameters
        ----------
        count
            Probes.
        train
            How many at once: the first of them finds caches cold, the last ones may find a queue.

        Returns
        -------
        int
            How many were answered.
        """
        answered = 0
        for sent in range(0, count, train):
            probes = min(train, count - sent)
            for _ in range(probes):
                self._send(Kind.PROBE)
            answered += self._wait_for_replies(probes)
        return answered

    def pump(self) -> None:
        """Take what has arrived, stamps as well, and answer probes."""
        self._collect(self._stamped.collect().messages)
        for _ in range(_AT_ONCE):
            try:
                got = self._stamped.receive(SIZE_BYTES + 1)
            except OSError:  # nothing there, or an ICMP error: the next probe will tell
                return
            nic_ns = got.hardware_ns if self._nic and got.ifindex == self._nic.ifindex else None
            self._take(got.data, got.address, got.software_ns, nic_ns)

    def harvest(self) -> Harvest:
        """Return the stamps of all since the last call."""
        self._collect(self._stamped.finish(_LAST_STAMPS_S).messages)
        nic_sent, nic_received, nic_bound_ns = self._harvest_nic()
        before = self._clock.to_monotonic
        sent, received = self._sent, self._received
        self._sent, self._received = [], []
        was_set = self._clock.was_set()
        lost, self._lost = self._lost, 0
        if was_set:
            lost += len(sent) + len(received)
            sent, received, nic_sent, nic_received = [], [], [], []
        refused = dict(self._gate.refused)
        self._gate.refused = Counter()
        answered, self._told = self._replies - self._told, self._replies
        return Harvest(
            [Stamped(number, time_ns + before.offset_ns) for number, time_ns in sent],
            [Stamped(number, time_ns + before.offset_ns) for number, time_ns in received],
            before.bound_ns,
            was_set,
            lost,
            {str(reason): count for reason, count in refused.items()},
            answered,
            nic_sent,
            nic_received,
            nic_bound_ns,
        )

    def _harvest_nic(self) -> tuple[list[Stamped], list[Stamped], int]:
        between = self._nic.look(self._left_by) if self._nic else None
        sent, received = self._nic_sent, self._nic_received
        self._nic_sent, self._nic_received = [], []
        if between is None:
            return [], [], 0
        return between.convert(sent), between.convert(received), between.bound_ns

    def _take(self, data: bytes, sender: tuple[str, int], time_ns: int | None, nic_ns: int | None) -> None:
        if sender[:2] != self._peer:
            self._gate.refused[Refusal.FOREIGN] += 1
            return
        accepted = self._gate.admit(data)
        if accepted is None:
            return
        if time_ns is None:
            self._gate.refused[Refusal.UNSTAMPED] += 1
        else:
            self._keep(self._received, Stamped(accepted.number, time_ns))
            if nic_ns is not None:
                self._keep(self._nic_received, Stamped(accepted.number, nic_ns))
        if accepted.kind is Kind.PROBE:
            self._send(Kind.REPLY)
        else:
            self._replies += 1

    def _send(self, kind: Kind) -> None:
        if not self._may_send():
            self._gate.refused[Refusal.OVER_RATE] += 1
            return
        if self._next > LAST_NUMBER:
            raise UsageError("This session has no numbers left", "Begin a new one")
        data = packet(self._session, self._role, kind, self._next)
        try:
            record = _WITH_NIC if self._nic and self._nic.ifindex is not None else None
            message = self._stamped.sendto(data, self._peer, record=record)
        except OSError:  # no route, no room: as if it were lost on its way
            self._lost += 1
        else:
            self._numbers[message.id] = self._next
        self._next += 1
        self._collect(self._stamped.collect().messages)

    def _may_send(self) -> bool:
        # Each side may send half of what a pair may.
        now_s = time.monotonic()
        self._credit = min(_CREDIT, self._credit + (now_s - self._credited_s) * PACKETS_PER_S / 2)
        self._credited_s = now_s
        if self._credit < 1:
            return False
        self._credit -= 1
        return True

    def _wait_for_replies(self, count: int) -> int:
        before = self._replies
        deadline_s = time.monotonic() + REPLY_WITHIN_S
        while self._replies < before + count and (remaining_s := deadline_s - time.monotonic()) > 0:
            self._poll.poll(remaining_s * 1e3)
            self.pump()
        return self._replies - before

    def _collect(self, messages: list[Message]) -> None:
        for message in messages:
            number = self._numbers.pop(message.id, None)
            time_ns = message.time_ns.get(Stage.SND)
            if number is None or time_ns is None:
                self._lost += 1
            else:
                self._keep(self._sent, Stamped(number, time_ns))
                self._collect_nic(number, message)

    def _collect_nic(self, number: int, message: Message) -> None:
        self._left_by = message.ifindex
        nic_ns = message.time_ns.get(Stage.SND_HARDWARE)
        if nic_ns is not None and self._nic and message.ifindex == self._nic.ifindex:
            self._keep(self._nic_sent, Stamped(number, nic_ns))

    def _keep(self, kept: list[Stamped], stamped: Stamped) -> None:
        if len(kept) < _KEPT:
            kept.append(stamped)
        else:
            self._lost += 1
