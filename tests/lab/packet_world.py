# SPDX-License-Identifier: Apache-2.0
"""A small world of packets for property tests: what kernels do to skbs and their addresses, with the truth kept.

Addresses of skbs and of their data come from two stacks, as slabs give back what was freed last: a packet that is gone,
with an event or without, leaves its address to the next one. Events have what `hopscope record` knows at their points:
flows where headers are looked at, devices where there is one, no data address where the packet may be gone.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from tests.lab.traces import NETNS, TCP, UDP, MadeTrace

_LOOKED_AT: Final = {"rx.driver", "tx.queue", "rx.tcp_queue", "skb.drop", "tcp.retransmit"}
_NOWHERE: Final = {"rx.tcp_queue", "rx.copy", "skb.free", "skb.drop", "tcp.retransmit"}
_HEADER_BYTES: Final = 52
_DATA: Final = 24


@dataclass(frozen=True)
class Step:
    """A packet passes a point.

    Once a tunnel put headers before it, it has the `outer` flow; once NAT changed them, the `translated` one. For a new
    header its data may have been `moved`.
    """

    point: str
    device: str = "eth0"
    flow: str = "own"
    moved: bool = False


def _steps(*texts: str) -> tuple[Step, ...]:
    """Return the steps of texts such as ``tx.queue vlan0`` or ``tx.queue eth1 outer moved``."""
    parts = [text.split() for text in texts]
    return tuple(
        Step(each[0], *each[1:2], flow=next((name for name in FLOWS if name in each), "own"), moved="moved" in each)
        for each in parts
    )


# Of what a packet says that it is → ends and protocol.
FLOWS: Final = {
    "own": ("10.0.0.1:1", "10.0.0.2:2", TCP),
    "translated": ("10.0.0.3:5", "10.0.0.4:6", TCP),
    "outer": ("192.0.2.1:3", "192.0.2.2:4", UDP),
}
_RECEIVED = ("rx.driver", "rx.core", "rx.l4")
_CROSSED = ("tx.queue veth0", "tx.start veth0", "rx.driver veth1", "rx.core veth1", "rx.l4 veth1", "rx.tcp_queue")
# What can become of a packet. Those that do not end with skb.free or skb.drop vanish.
WAYS: Final = {
    "read": _steps(*_RECEIVED, "rx.tcp_queue", "rx.copy", "rx.copy", "skb.free"),
    "datagram": _steps(*_RECEIVED, "skb.free"),
    "coalesced": _steps(*_RECEIVED, "rx.tcp_queue"),
    "merged by GRO": _steps("rx.driver"),
    "its data stolen": _steps("rx.driver", "rx.core"),
    "dropped": _steps("rx.driver", "rx.core", "skb.drop"),
    "sent": _steps("tx.queue", "tx.enqueue", "tx.dequeue", "tx.start", "tx.driver", "skb.free"),
    "dropped by the queue": _steps("tx.queue", "tx.enqueue", "skb.drop"),
    "crossed": _steps(*_CROSSED, "rx.copy", "skb.free"),
    "crossed and coalesced": _steps(*_CROSSED),
    "translated": _steps(
        "rx.driver", "rx.core", "tx.queue eth1 translated", "tx.enqueue eth1", "tx.start eth1", "tx.driver eth1",
        "skb.free",
    ),
    "routed, its data moved": _steps(
        "rx.driver", "rx.core", "rx.ip", "tx.queue eth1 moved", "tx.start eth1", "rx.driver veth1", "rx.core veth1",
        "rx.l4 veth1", "rx.tcp_queue",
    ),
    "translated, its data moved": _steps(
        "rx.driver", "rx.core", "tx.queue eth1 translated moved", "tx.start eth1", "tx.driver eth1", "skb.free"
    ),
    "translated on one device": _steps(
        "rx.driver br0", "rx.core br0", "tx.queue br0 translated moved", "tx.start br0", "tx.driver br0", "skb.free"
    ),
    "encapsulated": _steps(
        "rx.driver", "rx.core", "tx.queue tun0 moved", "tx.start tun0", "tx.queue eth1 outer", "tx.start eth1",
        "tx.driver eth1", "tx.driver tun0", "skb.free",
    ),
    "stacked, its data moved": _steps(
        "tx.queue vlan0", "tx.start vlan0", "tx.queue eth0 moved", "tx.start", "tx.driver", "tx.driver vlan0",
        "skb.free",
    ),
    "bridged": _steps(
        "rx.driver", "rx.core", "rx.core br0", "tx.queue eth1", "tx.start eth1", "tx.driver eth1", "skb.free"
    ),
    "stacked": _steps(
        "tx.queue vlan0", "tx.start vlan0", "tx.queue", "tx.enqueue", "tx.dequeue", "tx.start", "tx.driver",
        "tx.driver vlan0", "skb.free",
    ),
    "tunnelled": _steps(
        "rx.driver eth0 outer", "rx.core", "rx.l4", "rx.driver tun0", "rx.core tun0", "rx.l4 tun0", "rx.tcp_queue",
        "skb.free",
    ),
    "segment": _steps("tx.start", "tx.driver", "skb.free"),
    "segmented": _steps("tx.queue", "tx.enqueue", "tx.dequeue", "skb.free"),
}  # fmt: skip
_DEVICES: Final = {"eth0": 2, "eth1": 3, "veth0": 4, "br0": 5, "vlan0": 6, "tun0": 7, "veth1": 8}


@dataclass
class _Packet:
    number: int
    skb: int
    head: int
    cpu: int
    left: list[Step]
    seq: int
    stolen: bool


@dataclass
class World:
    """Packets on their ways; a test says which goes on next."""

    made: MadeTrace = field(default_factory=MadeTrace)
    lost_ns: list[tuple[int, int]] = field(default_factory=list)
    _at: int = 0
    _packets: list[_Packet] = field(default_factory=list)
    _late: list[tuple[_Packet, Step]] = field(default_factory=list)
    _free_skbs: list[int] = field(default_factory=list)
    _free_heads: list[int] = field(default_factory=list)
    _count: int = 0
    _heads: int = 0
    _seqs: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.devices = {
            name: self.made.device(name, number, NETNS + (name == "veth1")) for name, number in _DEVICES.items()
        }
        self.flows = {name: self.made.flow(*ends) for name, ends in FLOWS.items()}

    @property
    def on_the_way(self) -> int:
        """How many packets there are."""
        return len(self._packets)

    def begin(self, way: str, cpu: int, *, again: bool = False) -> None:
        """Make a packet; `again`: with the bytes of the last one that went this way."""
        self._count += 1
        if not again or way not in self._seqs:
            self._seqs[way] = 1_000 * self._count
        skb = self._free_skbs.pop() if self._free_skbs else 0x1000 * self._count
        self._packets.append(
            _Packet(self._count, skb, self._head(), cpu, list(WAYS[way]), self._seqs[way], "stolen" in way)
        )

    def go_on(self, which: int, *, cpu: int, late: bool = False) -> None:
        """Let a packet pass its next point; the return of a driver's function may come `late`."""
        packet = self._packets[which % len(self._packets)]
        step = packet.left.pop(0)
        if step.point in {"rx.core", "rx.copy"}:
            packet.cpu = cpu
        if step.moved:
            left = packet.head
            packet.head = self._head()
            self._free_heads.append(left)
        if step.point == "tx.driver" and late:
            self._late.append((replace(packet, left=[]), step))
        else:
            self._put(packet, step)
        if not packet.left:
            self._packets.remove(packet)
            self._free_skbs.append(packet.skb)
            if not packet.stolen:
                self._free_heads.append(packet.head)

    def catch_up(self) -> None:
        """Let the drivers' functions return that are late, the last first."""
        while self._late:
            self._put(*self._late.pop())

    def free_another(self, cpu: int) -> None:
        """Free an skb that is no packet of a device: of a unix socket, say."""
        self._count += 1
        skb = self._free_skbs[-1] if self._free_skbs else 0x1000 * self._count
        self._tick()
        if not self._is_lost():
            self.made.packet("skb.free", self._at, skb=skb, head=7, packet=self._count, cpu=cpu, len_bytes=1)

    def lose_next(self, duration_ns: int) -> None:
        """Lose all events of the next time."""
        self.lost_ns.append((self._at + 1, self._at + duration_ns))
        self.made.lose(self._at + 1, self._at + duration_ns)

    def finish(self) -> None:
        """Let all packets go their ways to the end."""
        while self._packets:
            self.go_on(0, cpu=0)
        self.catch_up()

    def _head(self) -> int:
        self._heads += 1
        return self._free_heads.pop() if self._free_heads else 0x1000 * self._heads + 0x40

    def _tick(self) -> None:
        self._at += 10

    def _is_lost(self) -> bool:
        return any(since <= self._at <= until for since, until in self.lost_ns)

    def _put(self, packet: _Packet, step: Step) -> None:
        self._tick()
        if self._is_lost():
            return
        known = step.point in _LOOKED_AT
        self.made.packet(
            step.point,
            self._at,
            skb=packet.skb,
            packet=packet.number,
            cpu=packet.cpu,
            head=0 if step.point == "tx.driver" else packet.head,
            flow=self.flows[step.flow] if known else 0,
            seq=(packet.number if step.flow == "outer" else packet.seq) if known else 0,
            tcp_flags=_DATA if known and step.flow != "outer" else 0,
            header_bytes=_HEADER_BYTES if known else 0,
            len_bytes=1_500,
            **({} if step.point in _NOWHERE else self.devices[step.device]),
        )
