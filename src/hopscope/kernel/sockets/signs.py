# SPDX-License-Identifier: Apache-2.0
"""What looks wrong with a socket, and how wrong: the order of the table, and the words in its last column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hopscope.kernel.sockets.table import TCP, TIMERS, Seen, State, has
from hopscope.kernel.sockets.tcp_info import NO_RTT_US

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from hopscope.kernel.sockets.change import Change
    from hopscope.kernel.sockets.table import Rows

_PERSIST: Final = TIMERS.index("persist")
_HALF: Final = 0.5
_LIMITED: Final = 0.1
_RETRANSMITTED: Final = 0.01
_INFLATED: Final = 3.0
_INFLATED_US: Final = 10_000
_UNREAD_MS: Final = 1_000
_RECENT_MS: Final = 2_000
_NO_ANSWER: Final = 2


@dataclass(frozen=True, slots=True)
class Sign:
    """A sign of trouble.

    Attributes
    ----------
    name
        In JSON.
    text
        For people, with ``{}`` for the value.
    unit
        Of the value: ``part`` of 1, ``ms``, ``ratio``, ``count``.
    weight
        How bad it is at its worst, 0..1, and how bad where it begins.
    meaning
        What it means and what limits it.
    of
        Returns the value of each socket, nan where there is no such sign, and how far it is to the worst, 0..1.
    """

    name: str
    text: str
    unit: str
    weight: tuple[float, float]
    meaning: str
    of: Callable[[Rows, Change], tuple[NDArray[Any], NDArray[Any]]]


@dataclass(frozen=True, slots=True, eq=False)
class Signs:
    """The signs of the sockets of a table.

    Attributes
    ----------
    values
        Sign's name → its value, nan where a socket does not have it.
    scores
        How bad each socket is, larger is worse; 0: nothing is known to be wrong.
    """

    values: dict[str, NDArray[np.float64]]
    scores: NDArray[np.float64]

    def of(self, index: int) -> list[tuple[Sign, float]]:
        """Return the signs of one socket, the worst first."""
        found = [(sign, float(self.values[sign.name][index])) for sign in SIGNS]
        return [(sign, value) for sign, value in found if not np.isnan(value)]

    def take(self, chosen: NDArray[Any]) -> Signs:
        """Return those of some of the sockets."""
        return Signs({name: values[chosen] for name, values in self.values.items()}, self.scores[chosen])


def signs(rows: Rows, change: Change) -> Signs:
    """Return what looks wrong, as of a change: what counters say is of that time."""
    values: dict[str, NDArray[np.float64]] = {}
    worst = np.zeros(len(rows))
    together = np.zeros(len(rows))
    for sign in SIGNS:
        value, far = sign.of(rows, change)
        values[sign.name] = value.astype(np.float64)
        low, high = sign.weight
        weight = np.where(np.isnan(values[sign.name]), 0.0, low + (high - low) * np.clip(np.nan_to_num(far), 0, 1))
        worst = np.maximum(worst, weight)
        together += weight
    return Signs(values, worst + together / 100)


def rtt_inflation(rows: Rows) -> NDArray[np.float64]:
    """Return the round-trip time over the smallest one of late; nan where one of them is not known."""
    rtt, smallest = rows["tcp"]["rtt"].astype(float), rows["tcp"]["min_rtt"].astype(float)
    known = (rtt > 0) & (smallest > 0) & (smallest < NO_RTT_US)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(known, rtt / smallest, np.nan)


def _where(condition: NDArray[Any], value: NDArray[Any]) -> NDArray[np.float64]:
    return np.where(condition, value.astype(np.float64), np.nan)


def _is_tcp(rows: Rows) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = rows["protocol"] == TCP
    return found


def _state(rows: Rows, *states: State) -> NDArray[np.bool_]:
    return np.isin(rows["message"]["state"], states)


def _accept_queue(rows: Rows, _change: Change) -> tuple[NDArray[Any], NDArray[Any]]:
    message = rows["message"]
    share = message["rqueue"] / np.maximum(message["wqueue"], 1)
    listening = _is_tcp(rows) & _state(rows, State.LISTEN) & (message["rqueue"] > 0)
    return _where(listening & (share >= _HALF), share), share


def _no_answer(rows: Rows, _change: Change) -> tuple[NDArray[Any], NDArray[Any]]:
    timeouts = np.maximum(rows["tcp"]["retransmits"], rows["message"]["retrans"] * (rows["message"]["timer"] == 1))
    needed = np.where(_state(rows, State.SYN_SENT), 1, _NO_ANSWER)
    return _where(_is_tcp(rows) & (timeouts >= needed), timeouts), timeouts / 8


def _window_closed(rows: Rows, _change: Change) -> tuple[NDArray[Any], NDArray[Any]]:
    probes = rows["message"]["retrans"]
    return _where(rows["message"]["timer"] == _PERSIST, probes), probes / 8


def _dropped(rows: Rows, change: Change) -> tuple[NDArray[Any], NDArray[Any]]:
    # A connection also drops what came twice, which is no loss.
    lossy = ~_is_tcp(rows) | _state(rows, State.LISTEN)
    drops = change["drops"]
    return _where(lossy & (drops > 0) & change.known, drops), drops / 1000


def _retransmitted(_rows: Rows, change: Change) -> tuple[NDArray[Any], NDArray[Any]]:
    share = change.share("total_retrans", "data_segs_out")
    return _where(np.nan_to_num(share) >= _RETRANSMITTED, share), share * 5


def _rwnd_limited(_rows: Rows, change: Change) -> tuple[NDArray[Any], NDArray[Any]]:
    share = change.share("rwnd_limited", "busy_time")
    return _where(np.nan_to_num(share) >= _LIMITED, share), share


def _sndbuf_limited(_rows: Rows, change: Change) -> tuple[NDArray[Any], NDArray[Any]]:
    share = change.share("sndbuf_limited", "busy_time")
    return _where(np.nan_to_num(share) >= _LIMITED, share), share


def _buffer_full(rows: Rows, _change: Change) -> tuple[NDArray[Any], NDArray[Any]]:
    memory = rows["memory"]
    share = memory["rmem_alloc"] / np.maximum(memory["rcvbuf"], 1)
    return _where((memory["rcvbuf"] > 0) & (share >= _HALF), share), share


def _unread(rows: Rows, _change: Change) -> tuple[NDArray[Any], NDArray[Any]]:
    since = rows["tcp"]["last_data_recv"]
    waiting = has(rows, Seen.INFO) & ~_state(rows, State.LISTEN) & (rows["message"]["rqueue"] > 1)
    return _where(waiting & (since >= _UNREAD_MS), since), since / 30_000


def _inflated(rows: Rows, _change: Change) -> tuple[NDArray[Any], NDArray[Any]]:
    ratio = rtt_inflation(rows)
    above_us = rows["tcp"]["rtt"].astype(float) - rows["tcp"]["min_rtt"]
    # What was measured long ago says nothing of now.
    recent = (rows["tcp"]["unacked"] > 0) | (rows["tcp"]["last_ack_recv"] <= _RECENT_MS)
    inflated = recent & (np.nan_to_num(ratio) >= _INFLATED) & (above_us >= _INFLATED_US)
    return _where(inflated, ratio), ratio / 50


def _not_closed(rows: Rows, _change: Change) -> tuple[NDArray[Any], NDArray[Any]]:
    since = rows["tcp"]["last_ack_recv"]
    return _where(_state(rows, State.CLOSE_WAIT) & (since >= _UNREAD_MS), since), since / 60_000


SIGNS: Final = (
    Sign("accept_queue", "accept queue {} full", "part", (0.7, 1.0),
         "connections that wait for accept(), of the backlog; a full queue drops what comes", _accept_queue),
    Sign("no_answer", "no answer, {} timeouts", "count", (0.8, 0.98),
         "retransmission timeouts in a row after which nothing was heard of the peer", _no_answer),
    Sign("window_closed", "peer's window closed, {} probes unanswered", "count", (0.75, 0.95),
         "the peer does not read: there is something to send, and its window has no room for it", _window_closed),
    Sign("dropped", "dropped {}", "count", (0.7, 0.95),
         "packets that this socket had no room for, or could not take", _dropped),
    Sign("retransmitted", "retransmits {}", "part", (0.5, 0.9),
         "segments sent again, of those with data", _retransmitted),
    Sign("rwnd_limited", "peer's window {}", "part", (0.4, 0.7),
         "time in which the peer's window stopped us, of the time with something to send", _rwnd_limited),
    Sign("receive_buffer", "receive buffer {} full", "part", (0.4, 0.8),
         "memory of what is received and not read, of the limit", _buffer_full),
    Sign("unread", "not read for {}", "ms", (0.35, 0.65),
         "data lies in the receive queue, and this long ago the last of it came", _unread),
    Sign("rtt_inflation", "rtt {} of min", "ratio", (0.3, 0.6),
         "round-trip time over the smallest one of late: a queue on the way", _inflated),
    Sign("sndbuf_limited", "send buffer {}", "part", (0.25, 0.5),
         "time in which our own send buffer was too small, of the time with something to send", _sndbuf_limited),
    Sign("not_closed", "peer closed {} ago", "ms", (0.1, 0.3),
         "the peer has closed and the application here has not (close-wait)", _not_closed),
)  # fmt: skip
