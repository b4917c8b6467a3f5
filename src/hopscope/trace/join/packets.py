# SPDX-License-Identifier: Apache-2.0
"""Packets of applications recorded by two hosts: their departure on one, and their arrival on the other.

Like probes, they bound the offset between two clocks, provided that both hosts recorded the same packet and not a
second copy of it. Therefore only unambiguous packets are used:

- TCP: the first transmission of a byte. The first byte of a segment was certainly not sent before if it was written
  during the recording (`tx.send`, or SYN), and if no later byte had been sent. The receiver sees any copy of this byte
  later. With TSO, it is the first byte of the first segment.
- UDP: a datagram whose IP identification and hash of the first bytes occur once on each side, and in order. Without an
  identification (IPv6, sometimes IPv4), the hash of the preceding datagram of the flow is used instead.

After lost events, nothing is certain until the application writes again. If single events are missing at an unknown
time (the kernel suppressed BPF runs), a retransmission may be mistaken for the first copy. However, it left at least
one round trip later, so that packets in the opposite direction, or probes, contradict it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from hopscope.trace.names import points

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from numpy.typing import NDArray

    from hopscope.store.trace import Trace

    Ns = NDArray[np.int64]
    Columns = dict[str, Ns]

# Maximum per trace and direction. Beyond it, only a sample of the keys is used; for TCP, of time slices.
MOST: Final = 1 << 21
WHILE_NS: Final = 100_000_000
_MOST_FLOWS: Final = 4096
_ID_STEP: Final = 1 << 16
# Error of the difference of two time stamps: some CPUs have counters with steps of 10 ns.
_RESOLUTION_NS: Final = 10

_UDP: Final = f"tcp_flags = 0 AND seq >= {_ID_STEP}"
_TCP: Final = "tcp_flags > 0 AND tcp_flags % 4 < 2 AND len_bytes > header_bytes"
# If a device saw it twice, these are two copies or two packets.
_SEEN: Final = """
    SELECT flow, seq, min(time_ns) AS time_ns
    FROM (SELECT flow, seq, netns, ifindex, min({time}) AS time_ns, count(*) AS times
          FROM {source} WHERE {wanted} GROUP BY flow, seq, netns, ifindex) d
    GROUP BY flow, seq HAVING max(times) = 1"""
# Datagrams; those without an identification have a number that identifies two consecutive ones.
_TOLD_APART: Final = f"""
    (SELECT flow, seq, netns, ifindex, {{time}} FROM {{source}} WHERE {{wanted}} AND seq % {_ID_STEP} <> 0
     UNION ALL
     SELECT flow, seq * {_ID_STEP} + before, netns, ifindex, {{time}}
     FROM (SELECT flow, seq, netns, ifindex, {{time}},
                  lag(seq) OVER (PARTITION BY flow, netns, ifindex ORDER BY {{time}}) AS before
           FROM {{source}} WHERE {{wanted}} AND seq % {_ID_STEP} = 0) followed
     WHERE before IS NOT NULL) told"""
# The driver is called for a packet that was queued at the device before.
_STARTED: Final = """
    (SELECT *, lead(point) OVER own AS next_point, lead(time_ns) OVER own AS next_ns FROM packets
     WHERE point IN ({queue}, {start}) WINDOW own AS (PARTITION BY skb ORDER BY time_ns)) s"""
_SEGMENTS: Final = """
    SELECT flow, seq, time_ns, coalesce(next_ns, time_ns) AS next_ns, len_bytes - header_bytes AS size,
           CASE WHEN next_point = {start} THEN 1 ELSE 0 END AS started
    FROM {source} WHERE point = {queue} AND {tcp} AND {wanted}"""
_BEGUN: Final = """
    SELECT flow, seq, time_ns FROM sockets WHERE point = {send} AND protocol = 6 AND {wanted}
    UNION ALL
    SELECT flow, seq + 1, time_ns FROM packets WHERE point = {queue} AND tcp_flags % 4 >= 2 AND {wanted}"""


@dataclass(frozen=True, slots=True)
class Seen:
    """Packets of one host, one per row, unordered.

    Attributes
    ----------
    flow, seq
        int64: the key that identifies them.
    time_ns
        int64: time, by the host's clock.
    """

    flow: Ns
    seq: Ns
    time_ns: Ns

    @classmethod
    def joined(cls, parts: Sequence[Seen]) -> Seen:
        """Return the packets of several parts of a recording, without those that occur in more than one part."""
        columns = [np.concatenate([getattr(part, name) for part in parts]) for name in ("flow", "seq", "time_ns")]
        found = cls(*columns)
        if len(parts) < 2:
            return found
        _, place, times = np.unique(_keys(found), return_index=True, return_counts=True)
        kept = place[times == 1]
        return cls(*(column[kept] for column in columns))


_NOTHING: Final = Seen(*(np.empty(0, np.int64),) * 3)


def sent(trace: Trace, flows: Collection[int], *, every: int = 1) -> Seen:
    """Return the packets whose first transmission is certain.

    Parameters
    ----------
    trace
        Of the host.
    flows
        Those that another host has as well.
    every
        Sample one in `every` keys.
    """
    number = points(trace)
    if not flows or "tx.start" not in number:
        return _NOTHING
    terms = {"queue": number.get("tx.queue", -1), "start": number["tx.start"], "send": number.get("tx.send", -1)}
    source = _STARTED.format(**terms)
    wanted = f"{_among(flows)} AND time_ns % {WHILE_NS * every} < {WHILE_NS}"
    segments = _ints(trace, _SEGMENTS.format(source=source, tcp=_TCP, wanted=wanted, **terms))
    begun = _ints(trace, _BEGUN.format(wanted=wanted, **terms))
    gaps = _ints(trace, "SELECT from_ns, until_ns FROM losses WHERE lost > 0 ORDER BY from_ns")
    udp = f"{_among(flows)} AND point = {terms['queue']} AND next_point = {terms['start']} AND {_UDP}"
    query = _datagrams(source, udp, "next_ns", every)
    tcp = _first_times(segments, begun, gaps, every)
    chosen = tcp.seq % every == 0
    return Seen.joined([Seen(tcp.flow[chosen], tcp.seq[chosen], tcp.time_ns[chosen]), Seen(**_ints(trace, query))])


def received(trace: Trace, flows: Collection[int], *, every: int = 1) -> Seen:
    """Return the packets received from a driver; parameters as for :func:`sent`."""
    if not flows:
        return _NOTHING
    point = points(trace).get("rx.driver", -1)
    came = f"point = {point} AND {_among(flows)}"
    tcp = _SEEN.format(time="time_ns", source="packets", wanted=f"{came} AND {_TCP} AND seq % {every} = 0")
    udp = _datagrams("packets", f"{came} AND {_UDP}", "time_ns", every)
    return Seen(**_ints(trace, f"{tcp} UNION ALL {udp}"))


def _datagrams(source: str, wanted: str, time: str, every: int) -> str:
    """Return the query for datagrams that occur only once in a source."""
    told = _TOLD_APART.format(source=source, wanted=wanted, time=time)
    return _SEEN.format(time=time, source=told, wanted=f"seq % {every} = 0")


def one_in(traces: Iterable[Trace]) -> int:
    """Return the sampling interval with which none of the traces has too many packets."""
    most = max(
        (trace.rows(f"SELECT count(*) FROM packets WHERE point = {points(trace).get('tx.queue', -1)}")[0][0])
        for trace in traces
    )
    # Odd, and not a divisor of usual segment sizes: otherwise all or none of a flow would be sampled.
    every = int(most) // MOST
    return 1 if not every else every * 2 + 1


def matched(left: Seen, arrived: Seen) -> tuple[Ns, Ns]:
    """Return when packets left, and when they arrived, each by the clock of its host."""
    _, first, second = np.intersect1d(_keys(left), _keys(arrived), return_indices=True)
    same = (left.flow[first] == arrived.flow[second]) & (left.seq[first] == arrived.seq[second])
    first, second = first[same], second[same]
    order = np.lexsort((left.time_ns[first], left.flow[first]))
    first, second = first[order], second[order]
    flow, came = left.flow[first], arrived.time_ns[second]
    # A packet that arrived before an earlier one of the flow was sent may be a different packet with the same key.
    group = np.cumsum(np.diff(flow, prepend=flow[:1]) != 0)
    base = int(came.min()) if len(came) else 0
    in_order = came - base >= _most_so_far(came - base, group)
    return left.time_ns[first][in_order], came[in_order] + _RESOLUTION_NS


def fewest(sent_ns: Ns, received_ns: Ns, slot_ns: int = 1_000_000) -> tuple[Ns, Ns]:
    """Return the fastest packet of each ms, as the others give less information about the clocks."""
    order = np.lexsort((received_ns - sent_ns, sent_ns // slot_ns))
    slots = (sent_ns // slot_ns)[order]
    kept = order[np.diff(slots, prepend=-1) != 0]
    return sent_ns[kept], received_ns[kept]


def _first_times(segments: Columns, begun: Columns, gaps: Columns, every: int) -> Seen:
    """Return the segments with bytes that were not sent before.

    This is certain for bytes written after another recorded write (`begun`), if no later byte was sent in between, and
    without a gap in the events.
    """
    count = len(segments["seq"])
    flow, seq, time_ns = (np.concatenate([segments[name], begun[name]]) for name in ("flow", "seq", "time_ns"))
    size = np.concatenate([segments["size"], np.zeros(len(begun["seq"]), np.int64)])
    is_segment = np.arange(len(flow)) < count
    interval = _between_gaps(time_ns, gaps, every)
    order = np.lexsort((is_segment, time_ns, interval, flow))
    order = order[interval[order] >= 0]
    group = _groups(flow[order], interval[order])
    # Bytes before the first recorded write may have been sent before.
    writes = np.cumsum(~is_segment[order])
    order = order[writes > (writes - ~is_segment[order])[_first(group)]]
    group = _groups(flow[order], interval[order])
    first = _first(group)
    # Sequence numbers wrap at 32 bits, their differences do not.
    steps = np.diff(seq[order], prepend=seq[order][:1]).astype(np.int32).astype(np.int64)
    place = np.cumsum(steps)
    place -= place[first]
    ends = np.where(is_segment[order], place + size[order], 0)
    before = _most_so_far(np.concatenate([[0], ends[:-1]]) * (np.arange(len(order)) != first), group)
    kept = order[is_segment[order] & (place >= before)]
    kept = kept[
        (segments["started"][kept] == 1) & (interval[kept] == _between_gaps(segments["next_ns"][kept], gaps, every))
    ]
    return Seen(flow[kept], seq[kept], segments["next_ns"][kept])


def _between_gaps(time_ns: Ns, gaps: Columns, every: int) -> Ns:
    """Return the number of the gap-free interval that contains a time; negative in a gap."""
    before = np.searchsorted(gaps["from_ns"], time_ns, side="right")
    until = np.concatenate([[np.iinfo(np.int64).min], np.maximum.accumulate(gaps["until_ns"])])
    while_ = time_ns // (WHILE_NS * every) if every > 1 else np.zeros(len(time_ns), np.int64)
    return np.where(time_ns <= until[before], -1, before + (len(gaps["from_ns"]) + 1) * while_)


def _groups(*columns: Ns) -> Ns:
    """Return ascending numbers of the groups of equal neighbours."""
    differs = np.zeros(len(columns[0]), bool)
    for column in columns:
        differs |= np.diff(column, prepend=column[:1]) != 0
    return np.cumsum(differs)


def _first(group: Ns) -> NDArray[np.intp]:
    """Return for each row the index of the first row of its group."""
    return np.searchsorted(group, group)


def _most_so_far(values: Ns, group: Ns) -> Ns:
    """Return the greatest value up to each row in its group; values are not below 0."""
    step = int(values.max(initial=0)) + 1
    result: Ns = np.maximum.accumulate(values + group * step) - group * step
    return result


def _keys(seen: Seen) -> NDArray[np.uint64]:
    """Return a number for each that is hardly that of another."""
    return seen.flow.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15) ^ seen.seq.view(np.uint64)


def _among(flows: Collection[int]) -> str:
    if len(flows) > _MOST_FLOWS:
        return "flow <> 0"
    return f"flow IN ({', '.join(map(str, flows))})"


def _ints(trace: Trace, query: str) -> Columns:
    return {name: np.asarray(column, np.int64) for name, column in trace.columns(query).items()}
