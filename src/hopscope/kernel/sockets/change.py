# SPDX-License-Identifier: Apache-2.0
"""What sockets did between two looks at them: differences of the kernel's counters, socket by socket."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hopscope.kernel.sockets.table import TCP, Seen, cookies, has

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hopscope.kernel.sockets.table import Rows, Sockets

# Of struct tcp_info; those of 32 bits and less wrap.
_TCP: Final = (
    ("bytes_sent", "<u8"), ("bytes_retrans", "<u8"), ("bytes_acked", "<u8"), ("bytes_received", "<u8"),
    ("busy_time", "<u8"), ("rwnd_limited", "<u8"), ("sndbuf_limited", "<u8"),
    ("total_retrans", "<u4"), ("data_segs_out", "<u4"), ("data_segs_in", "<u4"),
    ("segs_out", "<u4"), ("segs_in", "<u4"), ("delivered", "<u4"), ("total_rto", "<u2"),
)  # fmt: skip
_COUNTERS: Final = np.dtype([*_TCP, ("drops", "<u4")])
# Counter → the field of a row that has it.
_COLUMNS: Final = {**{name: "tcp" for name, _ in _TCP}, "drops": "memory"}
_BASE: Final = np.dtype([("cookie", "<u8"), ("netns", "<i8"), ("counters", _COUNTERS)])
# `bytes_sent` came with Linux 4.19; before that, what the peer acknowledged has to do.
_WITH_BYTES_SENT: Final = 216

Counts = np.ndarray[Any, np.dtype[np.void]]


@dataclass(frozen=True, slots=True, eq=False)
class Baseline:
    """The counters of all sockets at one moment, by cookie; a fifth of what the whole table takes."""

    time_ns: int
    sockets: Counts
    namespaces: frozenset[int]


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """What happened to each socket of a table since a baseline, in the order of the table.

    Attributes
    ----------
    counts
        Differences of the counters; of a socket that was not there before, all that it counted.
    known
        Which of them are differences, or of a new socket. Else the namespace was not read before, and they are 0.
    new
        Sockets that were not there before.
    gone
        How many are not there any more. What they did after the baseline was not seen.
    seconds
        Between both; None where there is no baseline and `counts` is since each socket began.
    sent_is_acked
        This kernel does not count what is sent: `sent` is what was acknowledged.
    """

    counts: Counts
    known: NDArray[np.bool_]
    new: NDArray[np.bool_]
    gone: int
    seconds: float | None
    sent_is_acked: bool = False

    def __getitem__(self, name: str) -> NDArray[np.float64]:
        """Return a counter's difference as numbers that can be divided."""
        found: NDArray[np.float64] = self.counts[name].astype(np.float64)
        return found

    @property
    def sent_bytes(self) -> NDArray[np.float64]:
        """Data sent for the first time."""
        if self.sent_is_acked:
            return self["bytes_acked"]
        return np.maximum(self["bytes_sent"] - self["bytes_retrans"], 0)

    @property
    def received_bytes(self) -> NDArray[np.float64]:
        """Data received in order."""
        return self["bytes_received"]

    def share(self, part: str, whole: str) -> NDArray[np.float64]:
        """Return one counter's part of another, 0..1; nan where there was nothing of the whole."""
        of = self[whole]
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(of > 0, np.minimum(self[part] / of, 1.0), np.nan)

    def take(self, chosen: NDArray[Any]) -> Change:
        """Return the change of some of the sockets."""
        return Change(
            self.counts[chosen], self.known[chosen], self.new[chosen], self.gone, self.seconds, self.sent_is_acked
        )


def baseline(sockets: Sockets) -> Baseline:
    """Return what later tables are compared with."""
    rows = sockets.rows
    numbers = cookies(rows)
    order = np.argsort(numbers, kind="stable")
    base = np.zeros(len(sockets), _BASE)
    base["cookie"], base["netns"] = numbers[order], rows["netns"][order]
    for name, of in _COLUMNS.items():
        base["counters"][name] = rows[of][name][order]
    unread = {each.netns for each in sockets.unread}
    return Baseline(sockets.time_ns, base, frozenset(sockets.namespaces) - unread)


def change(sockets: Sockets, before: Baseline | None = None) -> Change:
    """Return what happened since a baseline; without one, since each socket began."""
    rows = sockets.rows
    counts = np.zeros(len(rows), _COUNTERS)
    for name, of in _COLUMNS.items():
        counts[name] = rows[of][name]
    acked = 0 < sockets.tcp_info_bytes < _WITH_BYTES_SENT
    if before is None:
        nothing = np.zeros(len(rows), np.bool_)
        return Change(counts, ~nothing, nothing, 0, None, acked)
    matched, at = _match(rows, before.sockets)
    _subtract(counts, before.sockets["counters"], matched, at)
    read_before = np.isin(rows["netns"], list(before.namespaces))
    # A connection that ended leaves a small socket with its cookie and without its counters.
    counts[~(matched | read_before) | ((rows["protocol"] == TCP) & ~has(rows, Seen.INFO))] = 0
    return Change(
        counts=counts,
        known=matched | read_before,
        new=~matched & read_before,
        gone=len(before.sockets) - int(np.count_nonzero(matched)),
        seconds=(sockets.time_ns - before.time_ns) / 1e9,
        sent_is_acked=acked,
    )


def _match(rows: Rows, base: Counts) -> tuple[NDArray[np.bool_], NDArray[np.intp]]:
    """Return which rows are in the baseline, and where those are."""
    wanted = cookies(rows)
    at = np.searchsorted(base["cookie"], wanted)
    inside = at < len(base)
    matched = np.zeros(len(rows), np.bool_)
    there = base[at[inside]]
    matched[inside] = (there["cookie"] == wanted[inside]) & (there["netns"] == rows["netns"][inside])
    return matched, at[matched]


def _subtract(counts: Counts, base: Counts, matched: NDArray[np.bool_], at: NDArray[np.intp]) -> None:
    """Subtract what was there before, modulo each counter's size. A socket that was connected anew counts from 0."""
    same = np.flatnonzero(matched)
    anew = counts["bytes_received"][same] < base["bytes_received"][at]
    anew |= counts["bytes_acked"][same] < base["bytes_acked"][at]
    same, at = same[~anew], at[~anew]
    for name in _COLUMNS:
        counts[name][same] -= base[name][at]
