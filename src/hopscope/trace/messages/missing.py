# SPDX-License-Identifier: Apache-2.0
"""Why a point on the path of a message was not seen."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from hopscope.trace.gaps import attached
from hopscope.trace.host_numbers import hosts
from hopscope.trace.messages.path import BY_COLUMN, RECEIVED, STEPS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from hopscope.store.trace import Trace

Columns: TypeAlias = "Mapping[str, NDArray[Any]]"

NOT_ATTACHED: Final = "not attached"
LOST: Final = "events were lost"
DROPPED: Final = "dropped before"
ELSEWHERE: Final = "not on this host"
NOT_RECORDED: Final = "not on any recorded host"
ABSENT: Final = "host not recorded at that time"
UNSURE: Final = "indistinguishable from others"
UNREAD: Final = "not read while recorded"
AWAKE: Final = "the reader was awake"
WOKEN: Final = "the reader had been woken up before"
NO_QUEUE: Final = "no queue on the device"
NOT_SEEN: Final = "not seen"

UNTOLD: Final = "order within the clocks' bound"

# A message that left this shortly before its receiver was absent may have arrived during the absence.
ON_THE_WAY_NS: Final = 50_000_000
# More than the maximum number of hosts.
_HOSTS: Final = 1 << 10
_UDP: Final = 17
_OF_TCP_ONLY: Final = frozenset({"send_ns", "first_ns", "tcp_ns"})
# For small datagrams, there is no event of the copy nor, if another CPU frees them, of its end.
_UNTOLD: Final = frozenset({"copy_ns", "read_ns"})
_OPTIONAL: Final = frozenset({"first_ns", "neighbour_ns", "order_ns"})
_QUEUE: Final = frozenset({"enqueue_ns", "dequeue_ns"})
_SLEEP: Final = frozenset({"wake_ns", "switch_ns"})
_READING: Final = frozenset({"copy_ns", "read_ns", "received_ns"})
_RECEIVING: Final = frozenset({"driver_ns", "core_ns", "ip_ns", "l4_ns", "tcp_ns", "ready_ns"}) | _SLEEP | _READING


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What is missing from a trace: unattached points, flows that are not received on this host, times of losses."""

    absent: frozenset[str]
    sent_only: frozenset[int]
    losses_ns: Sequence[tuple[int, int]]
    hosts: Mapping[int, str] = field(default_factory=dict)
    absences_ns: Mapping[int, Sequence[tuple[int, int]]] = field(default_factory=dict)

    @classmethod
    def of(cls, trace: Trace) -> Circumstances:
        """Return the circumstances of a trace whose table ``messages`` has been built."""
        used = attached(trace) or {name for (name,) in trace.rows(_USED)}
        absent = frozenset(step.column for step in STEPS if step.point not in used)
        received = ", ".join(f"count({column})" for column in sorted(_RECEIVING - _SLEEP))
        flows = trace.rows(f"SELECT flow, {received} FROM messages GROUP BY flow")
        sent_only = frozenset(flow for flow, *counts in flows if not any(counts))
        losses = trace.rows("SELECT from_ns, until_ns FROM losses WHERE lost > 0 ORDER BY from_ns")
        absences: dict[int, list[tuple[int, int]]] = {}
        for host, *span in trace.rows("SELECT host, from_ns, until_ns FROM absences ORDER BY from_ns"):
            absences.setdefault(host, []).append((int(span[0]), int(span[1])))
        return cls(absent, sent_only, [(int(begin), int(end)) for begin, end in losses], hosts(trace), absences)

    def lost_between(self, rows: Columns) -> NDArray[np.bool_]:
        """Return which messages left one host and did not arrive at another one that was recorded at that time."""
        left = ~np.ma.getmaskarray(rows["start_ns"]) & ~np.ma.getmaskarray(rows["network_bound_ns"])
        came = ~np.logical_and.reduce([np.ma.getmaskarray(rows[column]) for column in RECEIVED])
        known = np.asarray(np.ma.filled(rows["state"], "lost")) != "unsure"
        blind = self.while_absent(rows) | self._lost(rows, np.asarray(rows["ends_ns"], np.int64) + ON_THE_WAY_NS)
        lost: NDArray[np.bool_] = left & ~came & known & ~blind
        return lost

    def while_absent(self, rows: Columns) -> NDArray[np.bool_]:
        """Return which messages were not received, and left shortly before or during an absence of their receiver."""
        at_ns = np.asarray(rows["ends_ns"], np.int64)
        host = np.asarray(np.ma.filled(rows["receiver_host"], -1), np.int64)
        hit = np.zeros(len(at_ns), bool)
        for number, spans in self.absences_ns.items():
            for from_ns, until_ns in spans:
                hit |= (host == number) & (at_ns >= from_ns - ON_THE_WAY_NS) & (at_ns < until_ns)
        unread: NDArray[np.bool_] = np.ma.getmaskarray(rows["received_ns"])
        return hit & unread

    def lost_during(self, rows: Columns) -> NDArray[np.bool_]:
        """Return which messages were in transit while events were lost."""
        whole = ~np.ma.getmaskarray(rows["received_ns"])
        return self._lost(rows, np.where(whole, np.ma.filled(rows["ends_ns"], 0), np.iinfo(np.int64).max))

    def _lost(self, rows: Columns, ends: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return for which messages, from their beginnings to these ends, events were lost."""
        begins = np.asarray(rows["begins_ns"], np.int64)
        hit = np.zeros(len(begins), bool)
        if not self.losses_ns:
            return hit
        from_ns, until_ns = (np.array(each, np.int64) for each in zip(*self.losses_ns, strict=True))
        # Of the losses that begin before the message ends, the latest end counts.
        running = np.maximum.accumulate(until_ns)
        place = np.searchsorted(from_ns, ends, side="right") - 1
        hit[:] = (place >= 0) & (running[np.maximum(place, 0)] >= begins)
        return hit


# If a trace does not list attached points, those with events were attached.
_USED: Final = (
    "SELECT p.name FROM points p JOIN (SELECT DISTINCT point FROM packets UNION SELECT DISTINCT point FROM sockets"
    " UNION SELECT DISTINCT point FROM cpu) u ON u.point = p.point"
)


def missing(rows: Columns, circumstances: Circumstances) -> NDArray[Any]:
    """Return for each message the points on its path that were not seen, with reasons, as text."""
    facts = {step.column: ~np.ma.getmaskarray(rows[step.column]) for step in STEPS}
    facts["udp"] = np.asarray(rows["protocol"]) == _UDP
    facts["lost"] = circumstances.lost_during(rows)
    facts["dropped"] = ~np.ma.getmaskarray(rows["dropped_ns"])
    facts["sent only"] = np.isin(np.asarray(rows["flow"]), np.array([*circumstances.sent_only], np.int64))
    if circumstances.hosts:
        facts |= _between(rows, circumstances)
    bits = sum(each.astype(np.int64) << place for place, each in enumerate(facts.values()))
    ends = _ends(rows)
    kinds, kind = np.unique(np.stack([bits, ends]), axis=1, return_inverse=True)
    texts = []
    for number, way in kinds.T.tolist():
        known = {name: bool(number >> place & 1) for place, name in enumerate(facts)}
        told = [f"{BY_COLUMN[column].title}: {why}" for column, why in _of_kind(known, circumstances, way)]
        if known.get("untold"):
            told.append(f"network: {UNTOLD}")
        texts.append("; ".join(told))
    return np.array(texts, dtype=object)[kind.reshape(-1)]


def _between(rows: Columns, circumstances: Circumstances) -> dict[str, NDArray[np.bool_]]:
    """Return facts about messages between hosts."""
    across = ~np.ma.getmaskarray(rows["network_bound_ns"])
    came = ~np.logical_and.reduce([np.ma.getmaskarray(rows[column]) for column in RECEIVED])
    return {
        "across": across,
        "untold": across & came & np.ma.getmaskarray(rows["network_ns"]),
        "lost between": circumstances.lost_between(rows),
        "receiver absent": circumstances.while_absent(rows),
        "unsure": np.asarray(np.ma.filled(rows["state"], "")) == "unsure",
    }


def _ends(rows: Columns) -> NDArray[np.int64]:
    """Return the hosts of sender and receiver as one number; negative where they are unknown."""
    sender, receiver = (np.asarray(np.ma.filled(rows[f"{end}_host"], -1), np.int64) for end in ("sender", "receiver"))
    return np.where((sender < 0) | (receiver < 0), -1, sender * _HOSTS + receiver)


def _of_kind(known: Mapping[str, bool], circumstances: Circumstances, way: int) -> Iterator[tuple[str, str]]:
    """Iterate over the columns of points that were not seen, with reasons, for messages with these facts.

    `way`: sending and receiving host, as returned by :func:`_ends`.
    """
    for column in BY_COLUMN:
        if known[column] or column in _OPTIONAL or (known["udp"] and column in _OF_TCP_ONLY):
            continue
        if column in _UNTOLD and known["udp"] and known["received_ns"]:
            continue
        if column in circumstances.absent:
            yield column, NOT_ATTACHED
        elif known["dropped"] and column in _RECEIVING:
            yield column, DROPPED
        elif column in RECEIVED and known.get("receiver absent"):
            yield column, ABSENT
        elif column in RECEIVED and known.get("lost between"):
            yield column, "lost between {} and {}".format(*(circumstances.hosts[each] for each in divmod(way, _HOSTS)))
        elif known["lost"]:
            yield column, LOST
        elif column in RECEIVED and known.get("unsure"):
            yield column, UNSURE
        else:
            yield column, _why(column, known)


def _why(column: str, known: Mapping[str, bool]) -> str:
    if column in _QUEUE:
        return NO_QUEUE
    if column in _RECEIVING and known["sent only"]:
        return NOT_RECORDED if "across" in known else ELSEWHERE
    read = any(known[each] for each in _READING)
    if column in _SLEEP:
        if not read:
            return UNREAD
        return WOKEN if known["switch_ns"] else AWAKE
    if column in _READING and not read:
        return UNREAD
    return NOT_SEEN
