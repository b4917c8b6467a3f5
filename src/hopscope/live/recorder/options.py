# SPDX-License-Identifier: Apache-2.0
"""What the user asks of ``record``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from hopscope.errors import UsageError
from hopscope.live.filters import Selection
from hopscope.probes.catalogue import POINTS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PREFIX: Final = "record."

_CORE: Final = ("skb.free", "skb.drop")
_RX: Final = (
    "rx.driver",
    "rx.core",
    "rx.l4",
    "rx.tcp_queue",
    "rx.ready",
    "rx.copy",
    "rx.read",
    "rx.received",
    "rx.full",
)
_TX: Final = (
    *("tx.send", "tx.sent", "tx.limit", "tx.neighbour"),
    *("tx.queue", "tx.enqueue", "tx.dequeue", "tx.start", "tx.driver", "tcp.retransmit"),
)
# What `report tcp` needs.
_TCP: Final = ("tcp.probe", "tcp.state", "tcp.retransmit", "tx.limit", "tx.queue", "rx.driver", "rx.l4")
_CPU: Final = ("irq.enter", "irq.exit", "softirq.raise", "softirq.enter", "softirq.exit", "napi.poll")
_SCHED: Final = ("sched.switch", "sched.wake")
_URING: Final = ("uring.submit", "uring.work", "uring.complete")
# Points in libraries, by the option --library alone.
LIBRARY_POINTS: Final = ("tls.write", "tls.read")
# What says which socket such a call was about.
_OF_LIBRARY: Final = (*LIBRARY_POINTS, "call.enter", "call.exit", "tx.sent", "rx.received")
_EVERY: Final = tuple(name.removeprefix(PREFIX) for name in POINTS if name.startswith(PREFIX))
# A profile is a set of points that answers a question.
PROFILES: Final[Mapping[str, tuple[str, ...]]] = {
    "messages": (*_RX, *_TX, *_CORE, *_SCHED, "softirq.wait", "tcp.state", "nf.rules"),
    "packets": (
        *("rx.driver", "rx.core", "rx.copy"),
        *("tx.queue", "tx.enqueue", "tx.dequeue", "tx.start", "tx.driver"),
        *_CORE,
        "napi.poll",
    ),
    "rx": (*_RX, *_CORE, "napi.poll", *_SCHED, "softirq.wait"),
    "tx": (*_TX, *_CORE),
    "tcp": (*_TCP, *_CORE),
    "calls": ("call.enter", "call.exit", *_URING, "tx.sent", "rx.received", "tcp.state"),
    "cpu": (*_CPU, *_SCHED),
    "drops": ("skb.drop", "rx.full", "tcp.retransmit", "xdp.exception"),
    "all": tuple(name for name in _EVERY if name not in LIBRARY_POINTS),
}
# With records come the names of threads.
_ALWAYS: Final = "threads"
# Where whose socket it is shows: packets of a process are known by them.
_OF_PROCESS: Final = ("tx.send", "tx.sent", "rx.received", "tcp.state")
RING_BYTES: Final = 1 << 24


class EventClass(NamedTuple):
    """Events that have rings of their own.

    Attributes
    ----------
    name
        That the user gave.
    condition
        Which they are.
    ring_bytes
        Of each CPU's ring: a power of two.
    """

    name: str
    condition: str
    ring_bytes: int = RING_BYTES


@dataclass(frozen=True, slots=True)
class RecordOptions(Selection):
    """Everything that ``record`` can be asked for.

    Attributes
    ----------
    profiles
        Keys of :data:`PROFILES`.
    points
        Points besides those of the profiles.
    optional
        Points besides these, which may be missing where the kernel grants no way to attach them.
    tracepoints
        Tracepoints and functions of the kernel, as :class:`~hopscope.kernel.tracepoints.Spec` reads them.
    interfaces
        (ifindex, namespace inode).
    pcap
        Only packets that this expression of pcap's language wants, and what their sockets do; empty: all.
    stacks
        Take the kernel's stack at each drop.
    sample
        Follow one flow in so many, both of its directions, at every point.
    snap_bytes
        Keep so many bytes of each frame, as a device has it; 0: none.
    payload_bytes
        Keep so many bytes of what each packet carries for TCP or UDP; 0: none.
    ring_bytes
        Of each CPU's ring: a power of two.
    ways
        Probe point → the only way to use.
    marks
        Take marks (:mod:`hopscope.live.recorder.marks`).
    libraries
        Record calls in these, as :func:`hopscope.kernel.libraries.find` takes them.
    tls_bytes
        Keep so many bytes of the plaintext of each of these calls; 0: none.
    keep, drop
        Only events for which this condition holds, and none of those for which this one does
        (:mod:`hopscope.live.recorder.rules`); empty: all.
    classes
        Of these, which have rings of their own.
    own_ethertype
        Frames of this EtherType are hopscope's own: nothing of them is recorded, nor calls of threads that use packet
        sockets, nor when these run; 0: there are none.
    """

    profiles: Sequence[str] = ("messages",)
    points: Sequence[str] = ()
    optional: Sequence[str] = ()
    tracepoints: Sequence[str] = ()
    interfaces: Sequence[tuple[int, int]] = ()
    pcap: str = ""
    stacks: bool = False
    sample: int = 1
    snap_bytes: int = 0
    payload_bytes: int = 0
    ring_bytes: int = RING_BYTES
    ways: Mapping[str, str] = field(default_factory=dict)
    marks: bool = False
    libraries: Sequence[str] = ()
    tls_bytes: int = 0
    keep: str = ""
    drop: str = ""
    classes: Sequence[EventClass] = ()
    own_ethertype: int = 0

    def names(self) -> list[str]:
        """Return the points that are wanted, by their names in the catalogue and in its order.

        Raises
        ------
        UsageError
            There is no such point.
        """
        wanted = {f"{PREFIX}{name}" for profile in self.profiles for name in PROFILES[profile]}
        for name in self.points:
            if f"{PREFIX}{name}" not in POINTS:
                raise UsageError(f"No probe point is named {name}", f"The points are {', '.join(_EVERY)}")
            if name in LIBRARY_POINTS and not self.libraries:
                raise UsageError(f"{name} is in a library, and none is selected", "Add --library auto")
            wanted.add(f"{PREFIX}{name}")
        wanted.update(f"{PREFIX}{name}" for name in (*self.optional, _ALWAYS))
        if self.libraries:
            wanted.update(f"{PREFIX}{name}" for name in _OF_LIBRARY)
        if self.pids or self.comms or self.cgroups:
            wanted.update(f"{PREFIX}{name}" for name in _OF_PROCESS)
        return [name for name in POINTS if name in wanted]
