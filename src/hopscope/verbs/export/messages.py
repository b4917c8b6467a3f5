# SPDX-License-Identifier: Apache-2.0
"""Messages on a timeline: each as an interval with its stages inside, and an arrow from the send call to the read.

Messages of a process overlap, so each has a lane, which is no thread's. The arrow comes by marks of its own, on the
track of the sender, of the CPUs that sent and received its packet, and of the reader: where two messages shared one,
viewers would follow the arrows of both as one.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hopscope.trace.causes.blame import most_blamed
from hopscope.trace.host_numbers import host_of_thread
from hopscope.trace.messages.path import STEPS
from hopscope.trace.names import UNNAMED, points
from hopscope.trace.relation import build
from hopscope.verbs.export.timeline import lanes
from hopscope.verbs.export.tracks import tracks_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hopscope.verbs.export.timeline import I64
    from hopscope.verbs.export.tracks import Place

_QUERY: Final = f"""
    SELECT m.*, c.*, coalesce(n.name, {UNNAMED.format("m.flow")}) AS flow_name,
           coalesce(s.pid, r.pid) AS pid,
           coalesce({host_of_thread("coalesce(m.sender_tid, m.reader_tid)")}, 0) AS host
    FROM messages m LEFT JOIN message_causes c ON c.message = m.message
    LEFT JOIN flow_names n ON n.flow = m.flow
    LEFT JOIN thread_names s ON s.tid = m.sender_tid LEFT JOIN thread_names r ON r.tid = m.reader_tid
    WHERE m.total_ns > 0 ORDER BY m.message"""
# The packet with the last byte: on which CPU it was sent, and came.
_ON_CPUS: Final = """
    SELECT m.message, p.time_ns, min(p.cpu) AS cpu FROM messages m JOIN packets p
    ON p.time_ns = m.{column} AND p.point = {point} AND p.flow = m.flow
    WHERE m.total_ns > 0 GROUP BY m.message, p.time_ns"""
_CPU_MARKS: Final = {"transmit": ("start_ns", "tx.start"), "receive": ("driver_ns", "rx.driver")}


def add_messages(place: Place) -> None:
    """Add the messages that `report messages` lists."""
    trace, found = place.trace, place.timeline
    build(trace, "messages", "message_causes", "flow_names", "thread_names", selection=place.selection)
    rows = trace.columns(_QUERY)
    number, begins, ends = (_known(rows, name) for name in ("message", "begins_ns", "ends_ns"))
    if not len(number):
        return
    track = _lane_tracks(place, rows, begins, ends)
    detail = found.names.places(np.ma.getdata(rows["flow_name"]).tolist())
    blame = np.ma.filled(most_blamed(rows)[0], "unknown").tolist()
    name = found.names.places(f"message held by {cause}" for cause in blame)
    found.add_slices("message", track, begins, ends, name=name, detail=detail, number=number)
    _add_stages(place, rows, track)
    _add_arrows(place, rows, number)


def _known(rows: dict[str, NDArray[Any]], name: str, otherwise: int = 0) -> I64:
    return np.ma.filled(rows[name], otherwise).astype(np.int64)


def _lane_tracks(place: Place, rows: dict[str, NDArray[Any]], begins: I64, ends: I64) -> I64:
    """Return the track of each message: a lane below the process that sent it, or else read it."""
    pid, host = _known(rows, "pid", -1), _known(rows, "host")
    group = np.where(pid >= 0, pid, -1 - host)
    keys, at = np.unique(np.stack((group, lanes(group, begins, ends))), axis=1, return_inverse=True)
    made = []
    for owner in keys[0].tolist():
        above = place.processes.get(owner) or place.hosts.get(-1 - owner) or place.root
        made.append(place.timeline.track("messages", parent=above))
    return np.array(made, np.int64)[at.reshape(-1)]


def _add_stages(place: Place, rows: dict[str, NDArray[Any]], track: I64) -> None:
    """Add the time between two points that were seen, of each message."""
    names = place.timeline.names
    last_ns, last = _known(rows, "begins_ns"), np.full(len(track), -1, np.int64)
    for step, each in enumerate(STEPS):
        at_ns = _known(rows, each.column, -1)
        seen = at_ns >= last_ns
        long = seen & (at_ns > last_ns)
        known = names.places(f"{before.title} → {each.title}" for before in STEPS[:step]) if step else last[:0]
        if long.any():
            name = np.where(last >= 0, np.append(known, 0)[last], names.place(f"→ {each.title}"))
            _stage(place, track, rows, long, last_ns, at_ns, name)
        last_ns, last = np.where(seen, at_ns, last_ns), np.where(seen, step, last)
    ends_ns = _known(rows, "ends_ns")
    long = ends_ns > last_ns
    name = np.full(len(track), names.place("→ dropped"), np.int64)
    _stage(place, track, rows, long, last_ns, ends_ns, name)


def _stage(  # noqa: PLR0913, PLR0917 # the arrays of all messages
    place: Place,
    track: I64,
    rows: dict[str, NDArray[Any]],
    chosen: NDArray[np.bool_],
    from_ns: I64,
    until_ns: I64,
    name: I64,
) -> None:
    number = _known(rows, "message")[chosen]
    place.timeline.add_slices(
        "stage", track[chosen], from_ns[chosen], until_ns[chosen], name=name[chosen], depth=1, number=number
    )


def _add_arrows(place: Place, rows: dict[str, NDArray[Any]], number: I64) -> None:
    """Add the marks by which the arrow of each message comes."""
    sender, reader = _known(rows, "sender_tid", -1), _known(rows, "reader_tid", -1)
    received_ns = _known(rows, "received_ns", -1)
    read_ns = np.where(received_ns >= 0, received_ns, _known(rows, "read_ns", -1))
    sends, reads = tracks_of(place.threads, sender, 0), np.where(read_ns >= 0, tracks_of(place.threads, reader, 0), 0)
    _mark(place, "send", sends, _known(rows, "begins_ns"), number)
    for name, (column, point) in _CPU_MARKS.items():
        on = place.trace.columns(_ON_CPUS.format(column=column, point=points(place.trace).get(point, -1)))
        track = tracks_of(place.cpus, np.asarray(on["cpu"]), 0)
        _mark(place, name, track, np.asarray(on["time_ns"]), np.asarray(on["message"]).astype(np.int64))
    _mark(place, "read", reads, read_ns, number, last=True)


def _mark(place: Place, name: str, track: I64, time_ns: I64, number: I64, *, last: bool = False) -> None:  # noqa: PLR0913 # as add_marks
    shown = track > 0
    boot = f"{place.trace.metadata.host.get('boot', '')} {place.timeline.started_ns}"
    base = np.uint64(int.from_bytes(blake2b(boot.encode(), digest_size=8).digest(), "little") | 1 << 63)
    place.timeline.add_marks(
        "arrow",
        track[shown],
        time_ns[shown],
        name=place.timeline.names.place(name),
        number=number[shown],
        arrow=base + number[shown].astype(np.uint64),
        last=np.full(int(shown.sum()), last),
    )
