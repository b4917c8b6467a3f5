# SPDX-License-Identifier: Apache-2.0
"""One message on its way out of a host or into one, and which layer held it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

# What is left of the total when all hops that were seen are taken away.
UNSEEN: Final = "not seen"
# What holds a message before it leaves TCP (names of hopscope.model.cause); none: it left within its own send call.
CAUSES: Final = (
    "congestion-window", "receiver-window", "nagle", "cork", "pacing", "small-queue", "unknown", "none",
)  # fmt: skip

# Where a message of TCP is when the state of its socket is read: TCP has its bytes; its last byte leaves TCP; the
# driver has it; its ACK has come.
STAGES: Final = ("handed", "sched", "driver", "ack")
# What is read there; docs/messages.md has the meanings.
FIELDS: Final = (
    "cwnd", "ssthresh", "in_flight", "unacked_bytes", "snd_wnd_bytes", "rcv_wnd_bytes", "srtt_ns", "retransmits",
    "state",
)  # fmt: skip
# Of congestion control, by the kernel's number (enum tcp_ca_state).
CONGESTION_STATES: Final = ("open", "disorder", "reduced", "recovery", "loss")
# What the kernel has for a slow start threshold that was not set.
SSTHRESH_NOT_SET: Final = 0x7FFFFFFF


@dataclass(frozen=True, slots=True)
class Flow:
    """Whose socket it was: addresses, ports, and who first sent there (pid 0: not known)."""

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
        return f"{endpoint(self.local, self.local_port)} > {endpoint(self.peer, self.peer_port)}"

    def received(self) -> str:
        """As what comes to the socket goes."""
        return f"{endpoint(self.peer, self.peer_port)} > {endpoint(self.local, self.local_port)}"


@dataclass(frozen=True, slots=True)
class Device:
    """A device that a message came to, and how long after the first one."""

    name: str
    after_ns: int


@dataclass(frozen=True, slots=True)
class Message(ABC):
    """What is known of any message; times are CLOCK_MONOTONIC in ns, None where one was not seen.

    Attributes
    ----------
    verb
        What finds such messages.
    flow
        None where its record was turned out by those of later sockets.
    cookie
        A number of the flow; of TCP that is sent, the kernel's of the socket.
    pid
        Of the process that sent or read it.
    end_byte
        TCP: where the message ends in what was seen of the stream.
    datagram
        It is not TCP.
    done_ns
        The last that was seen of it.
    """

    verb: ClassVar[str]

    flow: Flow | None
    cookie: int
    pid: int
    len_bytes: int
    end_byte: int
    datagram: bool
    done_ns: int | None

    @property
    @abstractmethod
    def start_ns(self) -> int | None:
        """The first that was seen of it."""

    @property
    @abstractmethod
    def comm(self) -> str:
        """Name of its process; empty where that is not known."""

    @property
    def path(self) -> str:
        """From where to where it goes."""
        return str(self.flow) if self.flow else ""

    @property
    def total_ns(self) -> int | None:
        """From the start to the end; None where one was not seen."""
        return _between(self.start_ns, self.done_ns)

    @abstractmethod
    def hops(self) -> dict[str, int | None]:
        """Return hop → duration in ns; None where an end of it was not seen, or the clocks of two CPUs disagree."""

    @abstractmethod
    def layers(self) -> dict[str, int]:
        """Return cause or layer → how long it held the message, ns; they add up to the total where that is known.

        What no hop accounts for, because one was not seen, is `UNSEEN`.
        """

    def blame(self) -> tuple[str, int] | None:
        """Return the cause or layer that held the message longest, and for how long; None if nothing was seen."""
        times = self.layers()
        return max(times.items(), key=lambda item: item[1]) if times else None

    def remarks(self) -> Iterator[str]:
        """Iterate over what is special, in words."""
        yield from ()


@dataclass(frozen=True, slots=True)
class SentMessage(Message):
    """What one send call handed over.

    Attributes
    ----------
    entry_ns, handed_ns, sched_ns, driver_ns, nic_ns
        The send call had the socket; TCP had the bytes; the last byte left TCP; the driver had it; the NIC had sent it.
        Then, `done_ns`, it was acknowledged (datagrams: the driver's function had returned).
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
    tcp
        Where it was asked for: stage of :data:`STAGES` → field of :data:`FIELDS` → its value then, None where it was
        not set; None instead of the fields where the stage was not seen.
    """

    verb: ClassVar[str] = "tx"

    entry_ns: int | None
    handed_ns: int | None
    sched_ns: int | None
    driver_ns: int | None
    nic_ns: int | None
    qdisc_ns: int | None
    devices: Sequence[Device]
    retransmits: int
    cause: str
    slept: bool
    aborted: bool
    tcp: Mapping[str, Mapping[str, int | str | None] | None] | None = None

    @property
    def start_ns(self) -> int | None:
        """When the send call was entered, or where that was not seen, when TCP had the bytes."""
        return self.handed_ns if self.entry_ns is None else self.entry_ns

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
        """Return cause or layer → how long it held the message, as :meth:`Message.layers`.

        What is not seen of a packet that was lost before the driver had it, and sent again, is the retransmission.
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

    def remarks(self) -> Iterator[str]:
        """Iterate over what is special, in words."""
        if self.aborted:
            yield "dropped" if self.datagram else "closed"
        if self.slept:
            yield "slept"
        if self.cause != "none":
            yield self.cause
        if self.retransmits:
            yield "1 retransmit" if self.retransmits == 1 else f"{self.retransmits:,} retransmits"

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


@dataclass(frozen=True, slots=True)
class ReceivedMessage(Message):
    """What a socket got as one: a datagram, or a segment as GRO left it; and a thread has read all of it.

    Attributes
    ----------
    reader
        Name of the process that read it.
    entry_ns, core_ns, ip_ns, transport_ns, queued_ns
        The driver handed it over; the core, IP, and TCP or UDP had it; it had joined its socket. Then, `done_ns`, it
        was read.
    ordered_ns
        TCP: it had arrived out of order, and what was missing before it was there; None where it did not wait for it.
    asleep_ns, runnable_ns
        From then on to the read, how long the thread that read it slept, and how long it waited for a CPU; None where
        that is not known.
    """

    verb: ClassVar[str] = "rx"

    reader: str
    entry_ns: int | None
    core_ns: int | None
    ip_ns: int | None
    transport_ns: int | None
    queued_ns: int | None
    ordered_ns: int | None
    asleep_ns: int | None
    runnable_ns: int | None

    @property
    def start_ns(self) -> int | None:
        """When the driver handed it over; what entered the stack past the drivers' hooks: when the core had it."""
        return self.entry_ns

    @property
    def comm(self) -> str:
        """Name of the process that read it."""
        return self.reader

    @property
    def path(self) -> str:
        """From where to where it goes."""
        return self.flow.received() if self.flow else ""

    def hops(self) -> dict[str, int | None]:
        """Return hop → duration in ns; None where its end was not seen, and its time is in the next one.

        ``rx.tcp_order`` is there only if the message waited for it.
        """
        protocol = "udp" if self.datagram else "tcp"
        ends = {
            "rx.core": self.core_ns,
            "rx.ip": self.ip_ns,
            f"rx.{protocol}": self.transport_ns,
            f"rx.{protocol}_queue": self.queued_ns,
        }
        if self.ordered_ns is not None:
            ends["rx.tcp_order"] = self.ordered_ns
        hops: dict[str, int | None] = {}
        last_ns = self.entry_ns
        for hop, end_ns in ends.items():
            hops[hop] = _between(last_ns, end_ns)
            last_ns = last_ns if end_ns is None else end_ns
        hops[f"rx.{protocol}_asleep"] = self.asleep_ns
        hops[f"rx.{protocol}_runnable"] = self.runnable_ns
        off_ns = None if self.asleep_ns is None or self.runnable_ns is None else self.asleep_ns + self.runnable_ns
        hops[f"rx.{protocol}_read"] = None if off_ns is None else _less(_between(last_ns, self.done_ns), off_ns)
        return hops

    def layers(self) -> dict[str, int]:
        """Return cause or layer → how long it held the message, as :meth:`Message.layers`."""
        times: dict[str, int] = {}
        for hop, duration_ns in self.hops().items():
            if duration_ns:
                layer = _RECEIVING_LAYERS.get(hop.removeprefix("rx.tcp_").removeprefix("rx.udp_"), "stack")
                layer = "backlog" if hop == "rx.tcp_queue" else layer
                times[layer] = times.get(layer, 0) + duration_ns
        unseen_ns = _less(self.total_ns, sum(times.values()))
        return times | {UNSEEN: unseen_ns} if unseen_ns else times


# Hop, without its protocol → cause or layer; the rest is the stack's own processing.
_RECEIVING_LAYERS: Final = {
    "rx.core": "GRO or backlog",
    "order": "stream-hole",
    "asleep": "reader-asleep",
    "runnable": "reader-runnable",
    "read": "reader-running",
}


def _between(start_ns: int | None, end_ns: int | None) -> int | None:
    return None if start_ns is None else _less(end_ns, start_ns)


def _less(whole_ns: int | None, part_ns: int) -> int | None:
    return None if whole_ns is None or whole_ns < part_ns else whole_ns - part_ns


def endpoint(address: str, port: int) -> str:
    """Return address and port as ``ss`` shows them; port 0: there is none."""
    if not port:
        return "*"  # not connected
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
