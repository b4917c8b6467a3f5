# SPDX-License-Identifier: Apache-2.0
"""What a packet's events before say of each event, while they come: how long ago they were, and which flow it is of.

The rules are those of a recording's relation ``skb_lifetimes``, in the same SQL: each look reads the new events, and
the last ones of each address before them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import duckdb
import numpy as np

from hopscope.store.schema import BY_NAME
from hopscope.term.format import plural
from hopscope.trace.packets.continues import ENDS
from hopscope.trace.packets.skb_lifetimes import previous_events

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

PACKET_COLUMNS: Final = tuple(column.name for column in BY_NAME["packets"].columns)
# Events that are remembered, up to three of an address; addresses that are left where they would be more.
_MOST_EVENTS: Final = 3 << 16
MOST: Final = 1 << 16
# For how long losses are.
_LOSSES_NS: Final = 60_000_000_000
_LOSS_COLUMNS: Final = ("from_ns", "until_ns", "cpu", "lost")


class Followed(NamedTuple):
    """What is known of packets' events.

    Attributes
    ----------
    hop_ns : ndarray of int64, shape (n,)
        Time since the packet's event before.
    known : ndarray of bool, shape (n,)
        Where there was one.
    flow : ndarray of int64, shape (n,)
        The packet's flow, as far as headers were looked at by then; 0: it is not known.
    """

    hop_ns: NDArray[np.int64]
    known: NDArray[np.bool_]
    flow: NDArray[np.int64]

    def part(self, rows: slice) -> Followed:
        """Return what is known of some of them."""
        return Followed(self.hop_ns[rows], self.known[rows], self.flow[rows])


def forgotten_note(count: int) -> str:
    """Return what is missing of packets that were forgotten."""
    return f"the next hop of {plural(count, 'packet')} is unknown, as more than {MOST:,} were under way at once"


class Hops:
    """Knows the last events of each packet.

    Parameters
    ----------
    numbers
        Name → number of each probe point.

    Attributes
    ----------
    forgotten : int
        Packets that had not come to their end when their events were forgotten: there were more than :data:`MOST`.
    """

    def __init__(self, numbers: Mapping[str, int]) -> None:
        self.forgotten = 0
        self._ends = [numbers[name] for name in ENDS if name in numbers]
        self._tx_start, self._tx_driver = numbers.get("tx.start", -1), numbers.get("tx.driver", -1)
        self._before_flows = np.zeros(0, np.int64)
        self._engine = duckdb.connect(":memory:", config={"threads": "1"})
        self._engine.execute("SET enable_external_access = false")
        self._before = {
            name: np.zeros(0, BY_NAME["packets"].columns[at].dtype) for at, name in enumerate(PACKET_COLUMNS)
        }
        self._losses = {name: np.zeros(0, np.int64) for name in _LOSS_COLUMNS}
        self._queries = previous_events(numbers)
        self._views = False

    def close(self) -> None:
        """Forget all."""
        self._engine.close()

    def lost(self, losses: Mapping[str, NDArray[Any]]) -> None:
        """Take rows of the table `losses`: no packet is followed across them."""
        for name in _LOSS_COLUMNS:
            self._losses[name] = np.concatenate([self._losses[name], losses[name].astype(np.int64)])

    def of(self, packets: Mapping[str, NDArray[Any]]) -> Followed:
        """Return what is known of the packets' events.

        Parameters
        ----------
        packets : columns of the table `packets`, shape (n,)
            In order of time, and later than all that were given before.
        """
        count = len(packets["time_ns"])
        every = {name: np.concatenate([self._before[name], packets[name]]) for name in PACKET_COLUMNS}
        kept = len(every["time_ns"]) - count
        self._engine.register("packets", every | {"row": np.arange(len(every["time_ns"]))})
        self._engine.register("losses", self._losses)
        if not self._views:
            for name, query in self._queries.items():
                self._engine.execute(f"CREATE VIEW {name} AS {query}")
            self._views = True
        found = self._engine.execute("SELECT * FROM previous_events").fetchnumpy()
        from_ns, known = np.zeros(len(every["time_ns"]), np.int64), np.zeros(len(every["time_ns"]), bool)
        from_ns[found["row"]], known[found["row"]] = found["from_time_ns"], True
        order = np.argsort(every["skb"], kind="stable")
        flow = self._flows(every, order, from_ns, known, kept)
        self._remember(every, order, flow)
        hop_ns = np.where(known, every["time_ns"] - from_ns, 0)
        return Followed(hop_ns[kept:], known[kept:], flow[kept:])

    def _flows(
        self,
        every: Mapping[str, NDArray[Any]],
        order: NDArray[np.int64],
        from_ns: NDArray[np.int64],
        continues: NDArray[np.bool_],
        kept: int,
    ) -> NDArray[np.int64]:
        """Return the last flow that is known of each packet up to an event; the order is by address, then time."""
        is_driver = every["point"] == self._tx_driver
        known = (every["flow"] != 0) | ~continues
        found = every["flow"].astype(np.int64)
        known[:kept], found[:kept] = True, self._before_flows
        order = order[~is_driver[order]]
        if len(order):
            last = np.maximum.accumulate(np.where(known[order], np.arange(len(order)), 0))
            found[order] = found[order][last]
        # The driver's function returns to where it was called, whatever has become of the address meanwhile.
        calls = np.flatnonzero(every["point"] == self._tx_start)
        calls = calls[np.argsort(every["time_ns"][calls], kind="stable")]
        returns = np.flatnonzero(is_driver & ~known)
        if len(calls) and len(returns):
            places = np.searchsorted(every["time_ns"][calls], from_ns[returns])
            for later in (1, 0):  # two CPUs may call at the same time
                at = calls[np.minimum(places + later, len(calls) - 1)]
                same = (every["skb"][at] == every["skb"][returns]) & (every["time_ns"][at] == from_ns[returns])
                found[returns[same]] = found[at[same]]
        return found

    def _remember(self, every: Mapping[str, NDArray[Any]], order: NDArray[np.int64], flow: NDArray[np.int64]) -> None:
        """Keep of each address the last event, the last one with headers, and the last call of a driver."""
        skb = every["skb"][order]
        kept = np.zeros(len(skb), bool)
        for wanted in (np.ones(len(skb), bool), every["flow"][order] != 0, every["point"][order] == self._tx_start):
            among = np.flatnonzero(wanted)
            last = np.append(skb[among][1:] != skb[among][:-1], True)[: len(among)]
            kept[among[last]] = True
        if np.count_nonzero(kept) > _MOST_EVENTS:
            kept = self._newest(kept, every["point"][order], every["time_ns"][order], skb)
        rows = order[kept]
        rows = rows[np.argsort(every["time_ns"][rows], kind="stable")]
        self._before = {name: every[name][rows] for name in PACKET_COLUMNS}
        self._before_flows = flow[rows]
        newest = int(every["time_ns"].max(initial=0))
        recent = self._losses["until_ns"] >= newest - _LOSSES_NS
        self._losses = {name: column[recent] for name, column in self._losses.items()}

    def _newest(
        self, kept: NDArray[np.bool_], point: NDArray[Any], time_ns: NDArray[Any], skb: NDArray[Any]
    ) -> NDArray[np.bool_]:
        """Return which events there is room for, of those to be kept, all in the order of address and time."""
        last = np.append(skb[1:] != skb[:-1], True)
        address = np.append(0, np.cumsum(last)[:-1])
        # Nothing continues what has come to its end.
        left = ~np.isin(point[last], self._ends)
        if np.count_nonzero(kept & left[address]) > _MOST_EVENTS:
            older = np.argsort(np.where(left, time_ns[last], 0))[:-MOST]
            self.forgotten += int(np.count_nonzero(left[older]))
            left[older] = False
        return np.asarray(kept & left[address])
