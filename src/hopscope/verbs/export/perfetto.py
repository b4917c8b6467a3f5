# SPDX-License-Identifier: Apache-2.0
"""A timeline for Perfetto: https://perfetto.dev/docs/reference/trace-packet-proto and synthetic-track-event.

Times are CLOCK_MONOTONIC, which the trace's clock is said to be. Names are written once, and numbered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, BinaryIO, Final

import numpy as np

from hopscope.gate import one_line
from hopscope.term import protobuf as pb
from hopscope.verbs.export.recorded import timeline
from hopscope.verbs.export.timeline import interleaved

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from hopscope.store.trace import Trace
    from hopscope.term.protobuf import Part
    from hopscope.trace.selection import Selection
    from hopscope.verbs.export.timeline import Marks, Names, Timeline, Track

# Field numbers: Trace, TracePacket, TrackEvent, TrackDescriptor, DebugAnnotation, InternedData and what they have.
_PACKET: Final = 1
_TIMESTAMP, _SEQUENCE, _TRACK_EVENT, _INTERNED, _FLAGS, _CLOCKS, _DESCRIPTOR = 8, 10, 11, 12, 13, 6, 60
_CATEGORY, _DETAILS, _TYPE, _NAME, _TRACK, _VALUE, _ARROW, _LAST_ARROW = 3, 4, 9, 10, 11, 30, 47, 48
_DETAIL_NAME, _DETAIL_NUMBER, _DETAIL_TEXT = 1, 4, 17
_CATEGORIES, _EVENT_NAMES, _DETAIL_NAMES, _DETAIL_TEXTS = 1, 2, 3, 29
_UUID, _LABEL, _PROCESS, _THREAD, _PARENT, _COUNTER, _ORDERING = 1, 2, 3, 4, 5, 8, 11
_BEGIN, _END, _INSTANT, _COUNT = 1, 2, 3, 4
_CLEARED, _NEEDED = 1, 2
_EXPLICIT: Final = 3
_RANK: Final = 12
_MONOTONIC, _BOOTTIME, _REALTIME = 3, 6, 1
_PRIMARY: Final = 2
_OUR_SEQUENCE: Final = 1
# What belongs to an interval or a mark, in the order of their numbers.
DETAILS: Final = ("of", "number")
_OF, _NUMBER = 1, 2
_LONGEST: Final = 1 << 20


def write_perfetto(trace: Trace, selection: Selection, out: BinaryIO, *, limit: int | None) -> list[str]:
    """Write the file, and return sentences on what is missing."""
    found = timeline(trace, selection, limit=limit)
    out.writelines(_parts(found))
    return found.notes


def _parts(found: Timeline) -> Iterator[bytes | memoryview]:
    yield _clocks(found)
    yield _names(found.names)
    for track in found.tracks:
        yield _packet(pb.content(_DESCRIPTOR, _descriptor(track)))
    if found.slices:
        slices, whose, begins = interleaved(found.slices)
        ordered = {name: getattr(slices, name)[whose] for name in ("track", "category", "name", "detail", "number")}
        ordered["time"] = np.where(begins, slices.begin_ns[whose], slices.end_ns[whose])
        yield _slices(ordered, begins)
    for marks in found.marks:
        yield from _marks(marks)
    for values in found.values:
        arrays = {"time": values.time_ns, "track": values.track, "value": values.value}
        yield _events(_COUNT, arrays, pb.numbers(_VALUE, "value", values.value)).data


def _slices(ordered: Mapping[str, NDArray[Any]], begins: NDArray[np.bool_]) -> memoryview:
    """Return begins, with details or without, and ends in their order; the messages of each have another size."""
    has_details = begins & ((ordered["detail"] > 0) | (ordered["number"] > 0))
    kinds = []
    for kind, chosen in ((_BEGIN, has_details), (_BEGIN, begins & ~has_details), (_END, ~begins)):
        arrays = {name: array[chosen] for name, array in ordered.items()}
        kinds.append((chosen, _events(kind, arrays, _described(arrays) if kind == _BEGIN else [])))
    sizes = np.empty(len(begins), np.int64)
    for chosen, rows in kinds:
        sizes[chosen] = rows.shape[1]
    ends = np.cumsum(sizes)
    found = np.empty(int(sizes.sum()), np.uint8)
    for chosen, rows in kinds:
        places = (ends - sizes)[chosen]
        for byte in range(rows.shape[1]):
            found[places + byte] = rows[:, byte]
    return found.data


def _marks(marks: Marks) -> Iterator[memoryview]:
    """Yield marks without an arrow, those that one comes by, and those at which one ends."""
    has_arrow = marks.arrow > 0
    kinds: list[tuple[NDArray[np.bool_], list[Part]]] = [
        (~has_arrow, []),
        (has_arrow & ~marks.last, pb.fixed(_ARROW, "arrow")),
        (has_arrow & marks.last, pb.fixed(_LAST_ARROW, "arrow")),
    ]
    for chosen, arrow in kinds:
        if chosen.any():
            names = ("track", "category", "name", "detail", "number", "arrow")
            arrays = {name: getattr(marks, name)[chosen] for name in names}
            arrays["time"] = marks.time_ns[chosen]
            yield _events(_INSTANT, arrays, [*_described(arrays), *arrow]).data


def _described(arrays: Mapping[str, NDArray[Any]]) -> list[Part]:
    """Return category, name and details, as far as there are any."""
    parts = [*pb.numbers(_CATEGORY, "category", arrays["category"]), *pb.numbers(_NAME, "name", arrays["name"])]
    if arrays["detail"].any():
        text = pb.numbers(_DETAIL_TEXT, "detail", arrays["detail"])
        parts += pb.inside(_DETAILS, [pb.number(_DETAIL_NAME, _OF), *text])
    if arrays["number"].any():
        value = pb.numbers(_DETAIL_NUMBER, "number", arrays["number"])
        parts += pb.inside(_DETAILS, [pb.number(_DETAIL_NAME, _NUMBER), *value])
    return parts


def _events(kind: int, arrays: Mapping[str, NDArray[Any]], more: list[Part]) -> NDArray[np.uint8]:
    event = [pb.number(_TYPE, kind), *pb.numbers(_TRACK, "track", arrays["track"]), *more]
    sequence = pb.number(_SEQUENCE, _OUR_SEQUENCE) + pb.number(_FLAGS, _NEEDED)
    packet = [*pb.numbers(_TIMESTAMP, "time", arrays["time"]), sequence, *pb.inside(_TRACK_EVENT, event)]
    return pb.encoded(pb.inside(_PACKET, packet), arrays)


def _clocks(found: Timeline) -> bytes:
    at = {_MONOTONIC: found.started_ns, _BOOTTIME: found.started_ns}
    at[_REALTIME] = found.realtime_ns + found.started_ns
    clocks = b"".join(pb.content(1, pb.number(1, clock) + pb.number(2, ns)) for clock, ns in at.items())
    return _packet(pb.content(_CLOCKS, clocks + pb.number(_PRIMARY, _MONOTONIC)))


def _names(names: Names) -> bytes:
    """Return all texts, numbered as what they can be: of a category, an interval or mark, and a detail."""
    texts = b"".join(
        pb.content(kind, pb.number(1, place) + pb.content(2, one_line(text)))
        for kind in (_CATEGORIES, _EVENT_NAMES, _DETAIL_TEXTS)
        for place, text in enumerate(names.texts)
        if place
    )
    details = b"".join(
        pb.content(_DETAIL_NAMES, pb.number(1, place) + pb.content(2, name)) for place, name in enumerate(DETAILS, 1)
    )
    return _packet(pb.number(_FLAGS, _CLEARED | _NEEDED) + pb.content(_INTERNED, texts + details))


def _descriptor(track: Track) -> bytes:
    found, name = pb.number(_UUID, track.number), one_line(track.name)
    if track.kind == "process":
        return found + pb.content(_PROCESS, pb.number(1, track.pid) + pb.content(6, name))
    if track.kind == "thread":
        return found + pb.content(_THREAD, pb.number(1, track.pid) + pb.number(2, track.tid) + pb.content(5, name))
    found += pb.content(_LABEL, name) + pb.number(_ORDERING, _EXPLICIT) + pb.number(_RANK, track.number)
    if track.parent:
        found += pb.number(_PARENT, track.parent)
    return found + pb.content(_COUNTER, b"") if track.kind == "counter" else found


def _packet(packet: bytes) -> bytes:
    return pb.content(_PACKET, packet + pb.number(_SEQUENCE, _OUR_SEQUENCE))
