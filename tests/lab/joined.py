# SPDX-License-Identifier: Apache-2.0
"""Traces of several hosts made up by tests: what each sees, and how exactly its clock is known."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from hopscope.trace.clock_bounds import SLOT_NS
from hopscope.trace.host_numbers import ADDRESSES, CPUS, THREADS
from tests.lab.traces import STARTED_NS, MadeTrace, points

if TYPE_CHECKING:
    from pathlib import Path

NAMES: Final = ("a", "b", "c")
_SECONDS: Final = 10
_ENDS: Final = ("tx.queue", "rx.driver")
_ALWAYS: Final = ("len_bytes", "ifindex", "netns")


@dataclass
class JoinedTrace:
    """A trace of some hosts in the making; the bound is of each host's clock but the first one's.

    Times of a host but the first one's may be `wrong_ns` off.
    """

    count: int = 2
    bound_ns: int = 500
    wrong_ns: int = 0
    made: MadeTrace = field(default_factory=MadeTrace)

    def __post_init__(self) -> None:
        for host in range(self.count):
            self.made.add("hosts", host=host, name=NAMES[host])
            bound_ns = self.bound_ns if host else 0
            for slot in range(-1, 2 * _SECONDS + 1):
                time_ns = STARTED_NS - STARTED_NS % SLOT_NS + slot * SLOT_NS
                self.made.add("clocks", host=host, time_ns=time_ns, low_ns=-bound_ns, high_ns=bound_ns)

    def at(self, host: int, at: int) -> int:
        """Return what the trace has for a time of a host."""
        return at + (self.wrong_ns if host else 0)

    def packet(self, host: int, point: str, at: int, *, skb: int, **columns: int) -> None:
        """Put down that a packet passes a point of a host."""
        own = {"skb": skb + host * ADDRESSES, "head": skb + 64 + host * ADDRESSES, "cpu": host * CPUS}
        self.made.packet(point, self.at(host, at), **own, **columns)

    def pass_on(self, host: int, way: tuple[str, ...], at: int, *, skb: int, **told: int) -> None:
        """Put down that a packet passes these points of a host, 1 µs apart; `told`: where headers are looked at."""
        for place, point in enumerate(way):
            columns = told if point in _ENDS else {name: told[name] for name in _ALWAYS if name in told}
            self.packet(host, point, at + 1_000 * place, skb=skb, **columns)

    def socket(self, host: int, point: str, at: int, *, tid: int = 0, **columns: int) -> None:
        """Put down what happens to a socket of a host."""
        self.made.socket(point, self.at(host, at), cpu=host * CPUS, tid=tid + host * THREADS, **columns)

    def absent(self, host: int, from_ns: int, until_ns: int) -> None:
        """Put down that a host was not recorded then."""
        self.made.add("absences", host=host, from_ns=STARTED_NS + from_ns, until_ns=STARTED_NS + until_ns, reason="cut")

    def write(self, folder: Path, **more: Any) -> Path:  # noqa: ANN401 # as of MadeTrace
        """Write the trace and return its folder."""
        assert points()
        return self.made.write(folder, **more)
