# SPDX-License-Identifier: Apache-2.0
"""One message on its way out, and which layer held it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

# What is left of the total when all hops that were seen are taken away.
UNSEEN: Final = "not seen"
# What holds a message before it leaves TCP (names of hopscope.model.cause); none: it left within its own send call.
CAUSES: Final = (
    "congestion-window", "receiver-window", "nagle", "cork", "pacing", "small-queue", "unknown", "none",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Flow:
    """Whose socket it was: addresses, ports, and who first sent there."""

    protocol: str
    local: str
    local_port: int
    peer: str
    peer_port: int
    netns: str
    pid: int
    comm: str

    def __str__(self) -> str:
        """As ``ss`` shows it."""
        return f"{_endpoint(self.local, self.local_port)} > {_endpoint(self.peer, self.peer_port)}"


@dataclass(frozen=True, slots=True)
class Device:
    """A device that a message came to, and how long after the first one."""

    name: str
    after_ns: int


@dataclass(frozen=True, slots=True)
class Message:
    """What one send call handed over, with its times (CLOCK_MONOTONIC, ns; None where one was not seen).

    Attributes
    ----------
    flow
        None where its record was turned out by those of later sockets.
    cookie
        A number of the flow; of TCP, the kernel's of the socket.
    end_byte
        TCP: where the message ends in what was seen of the stream.
    entry_ns, handed_ns, sched_ns, driver_ns, nic_ns, done_ns
        The send call had the socket; TCP had the bytes; the last byte left TCP; the driver had it; the NIC had sent it;
        it was acknowledged (datagrams: the driver's function had returned).
    qdisc_ns
        How long it was in queueing disciplines; None where no hook was there.
    devices
        In the order in which it passed them.
    cause
        What held it in TCP longest: a key of :data:`CAUSES`; ``none`` if it left within its own send call.
    slept
        The send call slept for room in the send buffer.
    aborted
        The socket was closed, or the datagram dropped, before it was done.
    """

    flow: Flow | None
    cookie: int
    pid: int
    len_bytes: int
    end_byte: int
    entry_ns: int | None
    handed_ns: int | None
    sched_ns: int | None
    driver_ns: int | None
    nic_ns: int | None
    done_ns: int | None
    qdisc_ns: int | None
    devices: Sequence[Device]
    retransmits: int
    cause: str
    slept: bool
    datagram: bool
    aborted: bool

    @property
    def start_ns(self) -> int | None:
        """When the send call was entered, or where that was not seen, when TCP had the bytes."""
        return self.handed_ns if self.entry_ns is None else self.entry_ns

    @property
    def total_ns(self) -> int | None:
        """From the start to the end; None where one was not seen."""
        return _between(self.start_ns, self.done_ns)

    @property
    def comm(self) -> str:
        """Name of the process that sent it; empty where the socket was remembered under another one."""
        return self.flow.comm if self.flow and self.flow.pid == self.pid else ""

    def hops(self) -> dict[str, int | None]:
        """Return hop → duration in ns; None where an end of it was not seen, or the clocks of two CPUs disagree."""
        if self.datagram:
            below = _less(_between(self.sched_ns, self.done_ns), self.qdisc_ns or 0)
            return {
                "tx.udp": _between(self.entry_ns, self.sched_ns),
                "tx.udp_qdisc": self.qdisc_ns,
                "tx.udp_driver": None if self.driver_ns is None else below,
            }
        return {
            "tx.tcp": _between(self.entry_ns, self.handed_ns),
            "tx.sched": _between(self.handed_ns, self.sched_ns),
            "tx.qdisc": self.qdisc_ns,
            "tx.driver": _less(_between(self.sched_ns, self.driver_ns), self.qdisc_ns or 0),
            "tx.nic": _between(self.driver_ns, self.nic_ns),
            "tx.ack": _between(self.driver_ns, self.done_ns),
        }

    def layers(self) -> dict[str, int]:
        """Return cause or layer → how long it held the message, ns; they add up to the total where that is known.

        What no hop accounts for, because one was not seen, is `UNSEEN`; for a packet that was lost before the driver
        had it, and sent again, that is the retransmission.
        """
        hops = self.hops()
        nic_ns = hops.pop("tx.nic", None)
        times = {self._layer(hop): duration for hop, duration in hops.items() if duration is not None}
        after_ns = _less(hops.get("tx.ack"), nic_ns or 0)
        if nic_ns is not None and after_ns is not None:
            times |= {"NIC": nic_ns, self._layer("tx.ack"): after_ns}
        unseen_ns = _less(self.total_ns, sum(times.values()))
        lost = self.retransmits and self.sched_ns is not None and self.driver_ns is None
        return times | {"retransmission" if lost else UNSEEN: unseen_ns} if unseen_ns else times

    def blame(self) -> tuple[str, int] | None:
        """Return the cause or layer that held the message longest, and for how long; None if nothing was seen."""
        times = self.layers()
        return max(times.items(), key=lambda item: item[1]) if times else None

    def _layer(self, hop: str) -> str:
        if hop == "tx.tcp":
            return "send-buffer" if self.slept else "send-copy"
        if hop == "tx.sched":
            return "stack" if self.cause == "none" else self.cause
        if hop == "tx.ack":
            return "retransmission" if self.retransmits else "network and receiver"
        return {"tx.udp": "UDP and IP", "tx.udp_qdisc": "queueing discipline", "tx.qdisc": "queueing discipline"}.get(
            hop, "driver"
        )


def _between(start_ns: int | None, end_ns: int | None) -> int | None:
    return None if start_ns is None else _less(end_ns, start_ns)


def _less(whole_ns: int | None, part_ns: int) -> int | None:
    return None if whole_ns is None or whole_ns < part_ns else whole_ns - part_ns


def _endpoint(address: str, port: int) -> str:
    if not port:
        return "*"  # not connected
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
