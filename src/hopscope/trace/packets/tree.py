# SPDX-License-Identifier: Apache-2.0
"""A single packet: its events, the CPU activity around it, its clones and segments."""

from __future__ import annotations

from dataclasses import dataclass, field

from hopscope.trace.packets.continues import BEGINNINGS, ENDS


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a packet, or around it.

    Attributes
    ----------
    time_ns, cpu, tid
        Time, CPU and thread.
    point
        The probe point's name.
    depth
        Nesting of devices: the transmission of a lower device is within that of the upper one.
    device, thread
        Names; empty: none.
    says
        Further details, as text.
    of_packet
        Whether it is an event of the packet itself.
    """

    time_ns: int
    cpu: int
    tid: int
    point: str
    depth: int = 0
    device: str = ""
    thread: str = ""
    says: str = ""
    of_packet: bool = True


@dataclass(slots=True, eq=False)
class PacketTree:
    """A packet.

    Attributes
    ----------
    packet, skb
        Its number in the trace, and its address.
    flow
        Names of its flows, several if its headers were rewritten.
    len_bytes
        Its maximum length.
    kind
        ``packet``; for one below another, ``clone`` or ``segment``.
    events
        In order of time.
    kin
        Clones that share its data, and its segments.
    """

    packet: int
    skb: int
    flow: tuple[str, ...]
    len_bytes: int
    events: list[Event]
    kind: str = "packet"
    kin: list[PacketTree] = field(default_factory=list)

    @property
    def own(self) -> list[Event]:
        """Its own events, without those around it."""
        return [event for event in self.events if event.of_packet]

    @property
    def begins_ns(self) -> int:
        """When it was first seen."""
        return self.own[0].time_ns

    @property
    def ends_ns(self) -> int:
        """When it was last seen."""
        return self.own[-1].time_ns

    @property
    def remarks(self) -> list[str]:
        """The parts of its path that were not seen, with possible reasons."""
        names = [event.point for event in self.own]
        remarks = []
        if names[0] not in BEGINNINGS and self.kind != "segment":
            remarks.append(
                "beginning not seen: lost, before the recording, probe point not attached, or "
                "segmented from another packet"
            )
        if names[-1] == "rx.tcp_queue":
            remarks.append(
                "read not seen: the data was merged into an earlier packet, had not been read yet, "
                "or the event was lost"
            )
        elif names[-1] != "rx.copy" and not set(names) & set(ENDS):  # TCP frees packets that were read without an event
            remarks.append("end not seen: merged into another packet, still queued, lost, or probe point not attached")
        return remarks
