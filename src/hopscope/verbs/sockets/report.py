# SPDX-License-Identifier: Apache-2.0
"""A table of sockets that is ready to be shown: chosen, put in order, and what else is to be said of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import numpy as np

from hopscope.kernel.sockets.change import Change, change
from hopscope.kernel.sockets.filter import matching
from hopscope.kernel.sockets.signs import Signs, rtt_inflation, signs
from hopscope.kernel.sockets.table import PROTOCOLS, STATE_NAMES, Seen, Sockets, State, has

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from hopscope.kernel.sockets.change import Baseline
    from hopscope.kernel.sockets.filter import Filter

Kind = Literal["snapshot", "interval", "total"]


class Owner(NamedTuple):
    """A process and the descriptor that a socket has in it."""

    pid: int
    comm: str
    fd: int


@dataclass(frozen=True, slots=True, eq=False)
class SocketReport:
    """Sockets, the worst or the largest first.

    Attributes
    ----------
    kind
        ``snapshot``: counters are since each socket began; else what happened in `duration_s`.
    started_ns
        CLOCK_REALTIME of its beginning.
    duration_s
        None for a snapshot.
    sockets, change, signs
        One row each, in the same order: that of the report, unless `order` says otherwise.
    order
        Which rows the report has, in its order; None: all, as they are. Rows are large, and mostly few are shown.
    read
        How many sockets were read, before the filter.
    owners
        Processes by inode of the socket; empty where they were not looked for.
    cgroups
        Names of cgroups by number.
    notes
        Sentences on what is not known.
    reader_cpu_percent
        What reading took, of one CPU; None for a snapshot.
    """

    kind: Kind
    started_ns: int
    duration_s: float | None
    sockets: Sockets
    change: Change
    signs: Signs
    read: int
    owners: Mapping[int, Sequence[Owner]] = field(default_factory=dict)
    cgroups: Mapping[int, str] = field(default_factory=dict)
    notes: Sequence[str] = ()
    reader_cpu_percent: float | None = None
    order: NDArray[np.intp] | None = None
    filters: Mapping[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        """Return the number of sockets."""
        return len(self.sockets) if self.order is None else len(self.order)

    @property
    def new(self) -> int:
        """How many of its sockets were not there before."""
        return int(np.count_nonzero(self._ordered(self.change.new)))

    def values(self, name: str) -> list[int]:
        """Return the different values of a column of the rows, or of a field of their message."""
        rows = self.sockets.rows
        column = rows[name] if name in (rows.dtype.names or ()) else rows["message"][name]
        found: list[int] = np.unique(self._ordered(column)).tolist()
        return found

    def _ordered(self, values: NDArray[Any]) -> NDArray[Any]:
        return values if self.order is None else values[self.order]

    def states(self) -> Counter[tuple[str, str]]:
        """Return how many sockets there are by protocol and state."""
        rows = self.sockets.rows
        protocols, states = self._ordered(rows["protocol"]), self._ordered(rows["message"]["state"])
        keys, counts = np.unique(protocols.astype(np.uint16) << np.uint16(8) | states, return_counts=True)
        found: Counter[tuple[str, str]] = Counter()
        for key, count in zip(keys.tolist(), counts.tolist(), strict=True):
            found[PROTOCOLS.get(key >> 8, str(key >> 8)), state_name(key & 0xFF)] += count
        return found

    def head(self, limit: int | None) -> SocketReport:
        """Return its first sockets, in order; None or 0: all."""
        if self.order is None and not 0 < (limit or 0) < len(self):
            return self
        return self.take(np.arange(min(limit or len(self), len(self))))

    def take(self, chosen: NDArray[Any]) -> SocketReport:
        """Return some of its sockets, by their place in the report."""
        if self.order is not None:
            chosen = self.order[chosen]
        return replace(
            self,
            order=None,
            sockets=replace(self.sockets, rows=self.sockets.rows[chosen]),
            change=self.change.take(chosen),
            signs=self.signs.take(chosen),
        )


def report(
    sockets: Sockets,
    chosen: Filter,
    before: Baseline | None,
    sort: str = "trouble",
    **more: Any,  # noqa: ANN401
) -> SocketReport:
    """Return the sockets that a filter lets pass, the largest first.

    Parameters
    ----------
    before
        What counters are compared with; None: what each socket counted since it began.
    sort
        A key of :data:`ORDERS`.
    """
    keep = np.ones(len(sockets), np.bool_)
    if chosen.states is not None:
        keep &= np.isin(sockets.rows["message"]["state"], [s for s in State if chosen.states >> s & 1])
    if chosen.condition is not None:
        keep &= matching(chosen.condition, sockets)
    done = change(sockets, before)
    made = SocketReport(sockets=sockets, change=done, signs=signs(sockets.rows, done), read=len(sockets), **more)
    order = _order(made, sort)
    return replace(made, order=order[keep[order]])


def in_order(report: SocketReport, by: str) -> SocketReport:
    """Return the same with the largest first, by a key of :data:`ORDERS`; what has no value comes last."""
    report = report.head(0)
    return report.take(_order(report, by))


def _order(report: SocketReport, by: str) -> NDArray[np.intp]:
    values = ORDERS[by](report).astype(np.float64)
    activity = report.change.sent_bytes + report.change.received_bytes
    return np.lexsort((-activity, np.where(np.isnan(values), np.inf, -values)))


def state_name(number: int) -> str:
    """Return a state as ss names it in its filters."""
    return STATE_NAMES[State(number)] if number in set(State) else f"state {number}"


def delivery_rate(report: SocketReport) -> NDArray[np.float64]:
    """Return the kernel's own figure, bytes a second; nan where there is none."""
    rows = report.sockets.rows
    return np.where(has(rows, Seen.INFO), rows["tcp"]["delivery_rate"].astype(np.float64), np.nan)


def rtt_us(report: SocketReport) -> NDArray[np.float64]:
    """Return round-trip times; nan where there is none yet."""
    rtt = report.sockets.rows["tcp"]["rtt"]
    return np.where(rtt > 0, rtt.astype(np.float64), np.nan)


ORDERS: Final[Mapping[str, Callable[[SocketReport], NDArray[Any]]]] = {
    "trouble": lambda report: report.signs.scores,
    "sent": lambda report: report.change.sent_bytes,
    "received": lambda report: report.change.received_bytes,
    "retransmits": lambda report: report.change["total_retrans"],
    "retransmit-share": lambda report: report.change.share("total_retrans", "data_segs_out"),
    "rtt": rtt_us,
    "rtt-inflation": lambda report: rtt_inflation(report.sockets.rows),
    "receive-queue": lambda report: report.sockets.rows["message"]["rqueue"],
    "send-queue": lambda report: report.sockets.rows["message"]["wqueue"],
    "memory": lambda report: (
        report.sockets.rows["memory"]["rmem_alloc"].astype(np.int64) + report.sockets.rows["memory"]["wmem_queued"]
    ),
    "drops": lambda report: report.change["drops"],
    "busy": lambda report: report.change["busy_time"],
    "rwnd-limited": lambda report: report.change["rwnd_limited"],
    "sndbuf-limited": lambda report: report.change["sndbuf_limited"],
    "delivery-rate": delivery_rate,
    "cwnd": lambda report: report.sockets.rows["tcp"]["snd_cwnd"],
}
