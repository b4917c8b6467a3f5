# SPDX-License-Identifier: Apache-2.0
"""Events of a subscription, put together to packets with their hops, as blocks of a pcapng file."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

from hopscope.term import pcapng

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

# What is asked for of each event.
FIELDS: Final = (
    *("point", "time_ns", "hop_ns", "skb", "comm", "pid", "interface", "netns", "reason"),
    *("source", "source_port", "destination", "destination_port", "protocol"),
    *("len_bytes", "header_bytes", "seq", "tcp_flags"),
)
_ENDS: Final = ("source", "source_port", "destination", "destination_port", "protocol")
_HEADERS: Final = ("seq", "tcp_flags", "header_bytes", "len_bytes")
# A packet is complete if nothing has been heard of it for so long.
_QUIET_NS: Final = 500_000_000
# That are under way at once; then the oldest are taken for complete.
_MOST: Final = 1 << 16
_TCP, _UDP = 6, 17
_UDP_BYTES: Final = 8


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
        self.number = 0

    def begin(self) -> bytes:
        """Return what a file begins with."""
        fields = ["packet:number", "total:us", *(f"{name}:us" for name in self._points)]
        fields += ["dropped:text", "pid:number", "comm:text", "synthetic:flag"]
        return pcapng.section(fields, f"hopscope, live on {self._host}")

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
        found = f"lost: {told['kernel_lost']:,} by the kernel, {told['lost']:,} because this capture read too slowly"
        return pcapng.journal(f"{found} (events)", at_ns + self._realtime_offset_ns)

    def complete(self, now_ns: int | None) -> Iterator[bytes]:
        """Yield the blocks of packets that are complete by a time; None: of all."""
        for life in list(self._open):
            events = self._open[life]
            if now_ns is not None and events[-1]["time_ns"] > now_ns - _QUIET_NS and len(self._open) <= _MOST:
                return
            del self._open[life]
            for event in events:
                self._of.pop((int(event["skb"]), event["time_ns"]), None)
            yield from self._written(life, events)

    def _written(self, life: int, events: Sequence[Mapping[str, Any]]) -> Iterator[bytes]:
        known = next((event for event in events if event["source"] is not None and event["header_bytes"]), None)
        flow = known and pcapng.Flow.of(*(known[name] for name in _ENDS))
        if not known or not flow:
            return
        first = events[0]
        place = next(((event["interface"], event["netns"]) for event in events if event["interface"]), (None, 0))
        if place not in self._interfaces:
            self._interfaces[place] = len(self._interfaces)
            name = place[0] or "-"
            yield pcapng.interface(name, f"in network namespace {place[1]}" if place[0] else "no device is known")
        data, length = flow.headers(**{name: int(known[name] or 0) for name in _HEADERS}, link=_link_bytes(flow, known))
        sends = first["point"].startswith(("tx.", "tcp."))
        options = (
            (pcapng.COMMENT, f"hopscope {' '.join(_words(life, events))} synthetic".encode()),
            (pcapng.FLAGS, struct.pack("<I", pcapng.OUTBOUND if sends else pcapng.INBOUND)),
            (pcapng.PACKET_ID, struct.pack("<Q", life)),
        )
        at_ns = first["time_ns"] + self._realtime_offset_ns
        yield pcapng.packet(self._interfaces[place], at_ns, data, length, options)


def _link_bytes(flow: pcapng.Flow, event: Mapping[str, Any]) -> int:
    """Return how many bytes of the link's header a packet has; lengths of TCP's and IP's headers are whole words."""
    before = event["header_bytes"] - flow.network_bytes
    if flow.protocol == _UDP:
        return pcapng.LINK_BYTES if before - _UDP_BYTES >= pcapng.LINK_BYTES else 0
    return pcapng.LINK_BYTES if before % 4 == pcapng.LINK_BYTES % 4 else 0


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
