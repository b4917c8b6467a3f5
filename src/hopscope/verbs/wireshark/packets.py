# SPDX-License-Identifier: Apache-2.0
"""Events of a subscription, put together to packets with their hops, as blocks of a pcapng file."""

from __future__ import annotations

import itertools
import json
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from hopscope.term import pcapng
from hopscope.term.pcapng_packets import IPV4_BYTES, IPV6_BYTES, LINK_BYTES, UDP_BYTES, Flows, Headers, Options, blocks
from hopscope.term.ragged import Joined

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

# What is asked for of each event.
FIELDS: Final = (
    *("point", "time_ns", "hop_ns", "skb", "comm", "pid", "interface", "netns", "reason"),
    *("source", "source_port", "destination", "destination_port", "protocol"),
    *("len_bytes", "header_bytes", "seq", "tcp_flags"),
)
_ENDS: Final = ("source", "source_port", "destination", "destination_port", "protocol")
_HEADERS: Final = ("seq", "tcp_flags", "header_bytes", "len_bytes")  # as Headers has them
# A packet is complete if nothing has been heard of it for so long.
_QUIET_NS: Final = 500_000_000
# That are under way at once; then the oldest are taken for complete.
_MOST: Final = 1 << 16
_TCP, _UDP = 6, 17


class Packets:
    """Takes events in order of time, gives packets.

    Parameters
    ----------
    points
        Names that an event can have.
    host
        For the file's first block.
    realtime_offset_ns
        To be added to times for CLOCK_REALTIME.
    """

    def __init__(self, points: Iterable[str], host: str, realtime_offset_ns: int) -> None:
        self._points = sorted(points)
        self._host = host
        self._realtime_offset_ns = realtime_offset_ns
        self._interfaces: dict[tuple[str | None, int], int] = {}
        # By the last event's time, as a packet whose events come has moved to the end; and each of its events.
        self._open: dict[int, list[Mapping[str, Any]]] = {}
        self._of: dict[tuple[int, int], int] = {}
        self._unwritten: list[bytes] = []
        self.number = 0

    def begin(self) -> bytes:
        """Return what a file begins with."""
        fields = ["packet:number", "total:us", *(f"{name}:us" for name in self._points)]
        fields += ["dropped:text", "pid:number", "comm:text", "synthetic:flag"]
        return pcapng.section(fields, f"hopscope, live on {self._host}")

    def take(self, data: bytearray) -> Iterator[bytes]:
        """Take the lines that are whole, and remove them; yield blocks on what is missing."""
        end = data.rfind(b"\n") + 1
        lines = bytes(data[:end]).splitlines()
        del data[:end]
        for line in lines:
            event: dict[str, Any] = json.loads(line)
            if "point" in event:
                self.add(event)
            else:
                yield self.lost(event, time.monotonic_ns())

    def add(self, event: Mapping[str, Any]) -> None:
        """Take an event."""
        time_ns, skb = event["time_ns"], int(event["skb"] or 0)
        if not skb:
            return
        life = None if event["hop_ns"] is None else self._of.get((skb, time_ns - event["hop_ns"]))
        if life is None:
            self.number += 1
            life = self.number
        events = self._open.pop(life, [])
        events.append(event)
        self._open[life] = events
        self._of[skb, time_ns] = life

    def lost(self, told: Mapping[str, int], at_ns: int) -> bytes:
        """Return the block of what is missing, as the server has told."""
        return pcapng.journal(pcapng.lost(told["kernel_lost"], told["lost"]), at_ns + self._realtime_offset_ns)

    def complete(self, now_ns: int | None) -> Iterator[bytes]:
        """Yield the blocks of packets that are complete by a time; None: of all."""
        found: list[_Row] = []
        for life in list(self._open):
            events = self._open[life]
            if now_ns is not None and events[-1]["time_ns"] > now_ns - _QUIET_NS and len(self._open) <= _MOST:
                break
            del self._open[life]
            for event in events:
                self._of.pop((int(event["skb"]), event["time_ns"]), None)
            if row := self._row(life, events):
                found.append(row)
        yield from self._unwritten
        self._unwritten = []
        if found:
            yield from self._written(found)

    def _row(self, life: int, events: Sequence[Mapping[str, Any]]) -> _Row | None:
        """Return what is written of a packet; None: its headers are not known."""
        known = next((event for event in events if event["source"] is not None and event["header_bytes"]), None)
        if not known:
            return None
        first = events[0]
        place = next(((event["interface"], event["netns"]) for event in events if event["interface"]), (None, 0))
        if place not in self._interfaces:
            self._interfaces[place] = len(self._interfaces)
            told = f"in network namespace {place[1]}" if place[0] else "no device is known"
            self._unwritten.append(pcapng.interface(place[0] or "-", told))
        return _Row(
            tuple(known[name] for name in _ENDS),
            (*(int(known[name] or 0) for name in _HEADERS), _link_bytes(known)),
            self._interfaces[place],
            first["time_ns"] + self._realtime_offset_ns,
            life,
            first["point"].startswith(("tx.", "tcp.")),
            f"hopscope {' '.join(_words(life, events))} synthetic".encode(),
        )

    def _written(self, rows: Sequence[_Row]) -> Iterator[bytes]:
        """Yield a block of each packet whose addresses are some."""
        numbers = {ends: at for at, ends in enumerate(dict.fromkeys(row.ends for row in rows))}
        flows = Flows((at, *ends) for ends, at in numbers.items())
        flow = flows.places(np.array([numbers[row.ends] for row in rows]))
        chosen = [row for row, at in zip(rows, flow.tolist(), strict=True) if at >= 0]
        if not chosen:
            return
        told = np.array([row.headers for row in chosen], np.int64).reshape(len(chosen), -1)
        data, lengths = flows.headers(Headers(flow[flow >= 0], *told.T))
        interface, at_ns, number = np.array([row[2:5] for row in chosen], np.int64).reshape(len(chosen), -1).T
        sends = np.array([row.sends for row in chosen], bool)
        options = Options(interface, at_ns, number, sends, Joined.of(row.comment for row in chosen))
        made, starts = blocks(data, lengths, options)
        for start, end in itertools.pairwise([*starts.tolist(), len(made)]):
            yield made[start:end].tobytes()


class _Row(NamedTuple):
    """What is written of a packet."""

    ends: tuple[Any, ...]
    headers: tuple[int, ...]
    interface: int
    at_ns: int
    number: int
    sends: bool
    comment: bytes


def _link_bytes(event: Mapping[str, Any]) -> int:
    """Return how many bytes of the link's header a packet has; lengths of TCP's and IP's headers are whole words."""
    before = event["header_bytes"] - (IPV6_BYTES if ":" in event["source"] else IPV4_BYTES)
    if event["protocol"] == _UDP:
        return LINK_BYTES if before - UDP_BYTES >= LINK_BYTES else 0
    return LINK_BYTES if before % 4 == LINK_BYTES % 4 else 0


def _words(life: int, events: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield f"packet={life}"
    yield f"total={(events[-1]['time_ns'] - events[0]['time_ns']) / 1000:.3f}us"
    # On a further device a point comes again, and adds to its time.
    spent: dict[str, int] = {}
    for event in events:
        if event["hop_ns"] is not None:
            spent[event["point"]] = spent.get(event["point"], 0) + event["hop_ns"]
    yield from (f"{name}={spent_ns / 1000:.3f}us" for name, spent_ns in spent.items())
    yield from (f"dropped={pcapng.quoted(event['reason'])}" for event in events if event["reason"])
    # The process that sends, in its call; TCP also sends while any other runs.
    first = events[0]
    if first["point"].startswith("tx.") and first["comm"] and _TCP not in {event["protocol"] for event in events}:
        yield from (f"pid={first['pid']}", f"comm={pcapng.quoted(first['comm'])}")
