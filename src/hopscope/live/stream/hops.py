# SPDX-License-Identifier: Apache-2.0
"""How long a packet took from its event before to each event, while events come.

The rules are those of a recording's relation ``skb_lifetimes``, in the same SQL: each look reads the new events, and
the last ones of each address before them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import duckdb
import numpy as np

from hopscope.store.schema import BY_NAME
from hopscope.trace.packets.skb_lifetimes import previous_events

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

PACKET_COLUMNS: Final = tuple(column.name for column in BY_NAME["packets"].columns)
_KEYS: Final = ("skb", "point", "cpu", "time_ns")
# Addresses whose last events are remembered, and for how long losses are.
_MOST: Final = 1 << 16
_LOSSES_NS: Final = 60_000_000_000
_LOSS_COLUMNS: Final = ("from_ns", "until_ns", "cpu", "lost")


class Hops:
    """Knows the last events of each packet.

    Parameters
    ----------
    numbers
        Name → number of each probe point.
    """

    def __init__(self, numbers: Mapping[str, int]) -> None:
        self._tx_start = numbers.get("tx.start", -1)
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

    def of(self, packets: Mapping[str, NDArray[Any]]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the time since the packet's event before, in ns, and where it is known.

        Parameters
        ----------
        packets : columns of the table `packets`, shape (n,)
            In order of time, and later than all that were given before.
        """
        count = len(packets["time_ns"])
        every = {name: np.concatenate([self._before[name], packets[name]]) for name in PACKET_COLUMNS}
        kept = len(every["time_ns"]) - count
        self._engine.register("packets", every)
        self._engine.register("losses", self._losses)
        if not self._views:
            for name, query in self._queries.items():
                self._engine.execute(f"CREATE VIEW {name} AS {query}")
            self._views = True
        found = self._engine.execute("SELECT * FROM previous_events").fetchnumpy()
        from_ns, known = _aligned(every, found)
        self._remember(every)
        hop_ns = np.where(known, every["time_ns"] - from_ns, 0)
        return hop_ns[kept:], known[kept:]

    def _remember(self, every: Mapping[str, NDArray[Any]]) -> None:
        """Keep of each address the last event, the last one with headers, and the last call of a driver."""
        order = np.lexsort((every["time_ns"], every["skb"]))
        skb = every["skb"][order]
        kept = np.zeros(len(skb), bool)
        for wanted in (np.ones(len(skb), bool), every["flow"][order] != 0, every["point"][order] == self._tx_start):
            among = np.flatnonzero(wanted)
            last = np.append(skb[among][1:] != skb[among][:-1], True)[: len(among)]
            kept[among[last]] = True
        rows = order[kept]
        if len(rows) > 3 * _MOST:
            rows = rows[np.argsort(every["time_ns"][rows])[-_MOST:]]
        rows = rows[np.argsort(every["time_ns"][rows], kind="stable")]
        self._before = {name: every[name][rows] for name in PACKET_COLUMNS}
        newest = int(every["time_ns"].max(initial=0))
        recent = self._losses["until_ns"] >= newest - _LOSSES_NS
        self._losses = {name: column[recent] for name, column in self._losses.items()}


def _aligned(
    every: Mapping[str, NDArray[Any]], found: Mapping[str, Any]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return for each event what was found for it: an engine has its rows in any order."""
    asked = np.lexsort([every[name] for name in _KEYS])
    answered = np.lexsort([np.asarray(found[name]) for name in _KEYS])
    before = np.ma.asarray(found["from_time_ns"])[answered]
    from_ns = np.zeros(len(asked), np.int64)
    known = np.zeros(len(asked), bool)
    from_ns[asked] = np.ma.filled(before, 0)
    known[asked] = ~np.ma.getmaskarray(before)
    return from_ns, known
