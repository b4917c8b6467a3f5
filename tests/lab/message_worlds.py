# SPDX-License-Identifier: Apache-2.0
"""Made-up traffic with known truth: messages, the packets that carry them, and who reads them when.

A byte's place in its flow is a number without limit; the trace has 32 bits of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from tests.lab.traces import STARTED_NS, MadeTrace

WRAP = 1 << 32
HEADERS = 66
CARRIED = ("tx.queue", "tx.start", "rx.driver", "rx.core", "rx.l4", "rx.tcp_queue")
# Where the kernel's program looks at the headers; elsewhere an event has no flow.
TELLS = ("tx.queue", "rx.driver", "rx.tcp_queue")


@dataclass
class Packet:
    """Bytes `start` up to `end` of a flow, with the points that they pass in one skb and when."""

    start: int
    end: int
    skb: int
    times: dict[str, int]


@dataclass
class Sent:
    """What a send call wrote; times since the start of the trace."""

    start: int
    end: int
    call: int
    send: int
    sent: int


@dataclass
class Read:
    """What a read delivered: all before `end`, in a call that began to read at `begin`."""

    begin: int
    end: int
    wake: int
    switch: int
    copy: int
    read: int
    received: int


@dataclass
class Stream:
    """One direction of a connection."""

    flow: int
    first: int
    sender: int
    reader: int
    sends: list[Sent] = field(default_factory=list)
    packets: list[Packet] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    ready: list[int] = field(default_factory=list)

    def write(self, made: MadeTrace, lost: set[tuple[str, int]] | None = None) -> None:
        """Put the events down, but for those that are lost: (point's name, time)."""
        gone = lost or set()
        for packet in self.packets:
            for point, at in packet.times.items():
                if (point, at) not in gone:
                    self._packet(made, packet, point, at)
        common = {"sock": self.flow % 1000 + 1, "flow": self.flow, "protocol": 6}
        for sent in self.sends:
            len_bytes = sent.end - sent.start
            own = {**common, "tid": self.sender, "len_bytes": len_bytes}
            if ("call.enter", sent.call) not in gone:
                made.socket("call.enter", sent.call, tid=self.sender)
            if ("tx.send", sent.send) not in gone:
                made.socket("tx.send", sent.send, seq=self._seq(sent.start), **own)
            if ("tx.sent", sent.sent) not in gone:
                made.socket("tx.sent", sent.sent, seq=self._seq(sent.end), **own)
        for at in self.ready:
            made.socket("rx.ready", at, **common | {"sock": 7})
        for read in self.reads:
            self._read(made, read, gone)

    def _packet(self, made: MadeTrace, packet: Packet, point: str, at: int) -> None:
        told = {
            "flow": self.flow,
            "seq": self._seq(packet.start),
            "header_bytes": HEADERS,
            "tcp_flags": 24,
        }
        len_bytes = packet.end - packet.start + HEADERS
        made.packet(point, at, skb=packet.skb, len_bytes=len_bytes, **(told if point in TELLS else {}))

    def _read(self, made: MadeTrace, read: Read, gone: set[tuple[str, int]]) -> None:
        own = {"sock": 7, "flow": self.flow, "protocol": 6, "tid": self.reader, "seq": self._seq(read.end)}
        if read.wake:
            made.work("sched.wake", read.wake, subject=self.reader)
        if read.switch:
            made.work("sched.switch", read.switch, subject=self.reader)
        made.packet("rx.copy", read.copy, skb=1, tid=self.reader, len_bytes=read.end - read.begin)
        if ("rx.read", read.read) not in gone:
            made.socket("rx.read", read.read, **own)
        if ("rx.received", read.received) not in gone:
            made.socket("rx.received", read.received, len_bytes=read.end - read.begin, **own)

    def _seq(self, place: int) -> int:
        return (self.first + place) % WRAP


def simple(made: MadeTrace, flow: int, count: int, len_bytes: int) -> Stream:
    """Return a stream of messages that are a packet each, read by a reader who sleeps in between."""
    stream = Stream(flow, 1000, made.thread(100, "client"), made.thread(200, "server"))
    for number in range(count):
        add_simple(stream, number, 1_000_000 + number * 100_000, len_bytes)
    return stream


def add_simple(stream: Stream, number: int, at: int, len_bytes: int) -> None:
    """Add a message that takes 26 µs: ever so long at each point."""
    start = stream.sends[-1].end if stream.sends else 0
    end = start + len_bytes
    stream.sends.append(Sent(start, end, at, at + 1_000, at + 12_000))
    times = dict(zip(CARRIED, (at + each for each in (3_000, 4_000, 5_000, 6_000, 7_000, 8_000)), strict=True))
    stream.packets.append(Packet(start, end, 0x1000 + number % 7 * 0x100, times))
    stream.ready.append(at + 9_000)
    stream.reads.append(Read(start, end, at + 10_000, at + 20_000, at + 23_000, at + 24_000, at + 26_000))


class World:
    """Traffic of one flow by chance: how it is cut, delayed, lost, sent again, merged and read.

    Parameters
    ----------
    seed
        Of the chance.
    flow, first
        The flow's number and its first sequence number.
    sizes
        Of the messages, bytes.
    """

    def __init__(self, seed: int, flow: int, first: int, sizes: list[int]) -> None:
        self.chance = Random(seed)  # noqa: S311 # no secret
        self.stream = Stream(flow, first, 100 * flow, 100 * flow + 1)
        self._skbs = 0
        self._times: set[int] = set()
        at, place = 1_000_000 + seed % 1000, 0
        # A slice of time holds less than 2 GiB of any flow, and a window less than 1 GiB.
        self._step = 40_000_000 if max(sizes) > 1 << 20 else 50_000
        for size in sizes:
            self._message(place, place + size, at)
            place += size
            at += self._step
        self._read_all(place, at)

    def _at(self, at: int) -> int:
        """Return a time that no other event of the flow has."""
        while at in self._times:
            at += 1
        self._times.add(at)
        return at

    def _message(self, start: int, end: int, at: int) -> None:
        call, send = self._at(at), self._at(at + self.chance.randint(100, 900))
        begin = send
        for begins, ends in self._cut(start, end):
            begin = self._transmit(begins, ends, begin)
        self.stream.sends.append(Sent(start, end, call, send, self._at(send + self.chance.randint(500, 20_000))))

    def _cut(self, start: int, end: int) -> list[tuple[int, int]]:
        cuts = sorted({self.chance.randint(start, end) for _ in range(self.chance.randint(0, 3))} - {start, end})
        return list(zip([start, *cuts], [*cuts, end], strict=True))

    def _transmit(self, start: int, end: int, at: int) -> int:
        """Send bytes, perhaps with ones before them, lose them perhaps and send them again, cut in another way."""
        queued = self._at(at + self.chance.randint(100, 3_000))
        lost = self.chance.random() < 0.2
        self._packet(start, end, queued, arrives=not lost)
        if lost or self.chance.random() < 0.1:
            again = queued + self.chance.randint(5_000, 2_000_000)
            for begins, ends in self._cut(max(start - self.chance.choice((0, 7)), 0), end):
                self._packet(begins, ends, self._at(again), arrives=True)
        return queued

    def _packet(self, start: int, end: int, at: int, *, arrives: bool) -> None:
        skb = self._skb()
        times = {"tx.queue": at, "tx.start": self._at(at + self.chance.randint(50, 500))}
        if not arrives:
            self.stream.packets.append(Packet(start, end, skb, times))
            return
        came = times["tx.start"] + self.chance.choice((100, 300, 1_000_000))
        if self.chance.random() < 0.5:
            self.stream.packets.append(Packet(start, end, skb, times | self._received(came)))
            return
        self.stream.packets.append(Packet(start, end, skb, times))
        for begins, ends in self._cut(start, end):
            self.stream.packets.append(Packet(begins, ends, self._skb(), self._received(came)))

    def _received(self, at: int) -> dict[str, int]:
        times = {}
        for point in CARRIED[2:]:
            at = self._at(at + self.chance.randint(1, 2_000))
            if point != "rx.tcp_queue" or self.chance.random() < 0.8:  # merged into one before: no event
                times[point] = at
        return times

    def _skb(self) -> int:
        """Return a free address; they are used again, when the packets before are long gone."""
        self._skbs += 1
        return (self.stream.flow << 32) + self._skbs * 0x100

    def _read_all(self, end: int, at: int) -> None:
        """Read what has arrived without holes, in calls of any size."""
        place, clock = 0, 1_000_000
        while place < end:
            clock += self.chance.randint(1_000, self._step)
            upto = self._arrived(clock)
            if upto <= place:
                if clock > at + 100_000_000:
                    break
                continue
            stop = self.chance.randint(place + 1, upto)
            times = [self._at(clock + each) for each in (10, 20, 30, 40)]
            self.stream.reads.append(Read(place, stop, 0, times[0], *times[1:]))
            place, clock = stop, times[-1]

    def _arrived(self, clock: int) -> int:
        """Return up to which byte all arrived until then."""
        place = 0
        came = sorted((p.start, p.end) for p in self.stream.packets if p.times.get("rx.l4", 1 << 62) < clock)
        for start, end in came:
            if start > place:
                break
            place = max(place, end)
        return place


def expected(stream: Stream, sent: Sent, lost: set[tuple[str, int]] | None = None) -> dict[str, int | None]:
    """Return column of the table `messages` → when the message passed it, by looking at every packet."""
    gone = lost or set()
    names = {
        "queue_ns": "tx.queue",
        "start_ns": "tx.start",
        "driver_ns": "rx.driver",
        "core_ns": "rx.core",
        "l4_ns": "rx.l4",
        "tcp_ns": "rx.tcp_queue",
    }
    raw = {
        column: min(
            (
                packet.times[point]
                for packet in stream.packets
                if packet.start < sent.end <= packet.end and point in packet.times
                if (point, packet.times[point]) not in gone
            ),
            default=None,
        )
        for column, point in names.items()
    }
    read = next((each for each in stream.reads if each.end >= sent.end), None)
    times = {**raw, "read_ns": read.read if read else None, "received_ns": read.received if read else None}
    found: dict[str, int | None] = {}
    for place, (column, at) in enumerate(times.items()):
        behind = [each for each in list(times.values())[place + 1 :] if each is not None]
        found[column] = None if at is None or (behind and at > min(behind)) else STARTED_NS + at
    return found
