# SPDX-License-Identifier: Apache-2.0
"""A timeline as Chrome's trace events: "Trace Event Format", Nat Duca and Dean Michael Ang, 2016.

Its readers keep all of it as objects in memory: it is for small parts. Times are in microseconds.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import numpy as np

from hopscope import __version__
from hopscope.term.json_lines import escaped
from hopscope.verbs.export.recorded import timeline
from hopscope.verbs.export.timeline import together

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from hopscope.store.trace import Trace
    from hopscope.trace.selection import Selection
    from hopscope.verbs.export.timeline import Marks, Timeline

_US: Final = 1000
_WHERE: Final = '"pid":%d,"tid":%d,"ts":%d.%03d'
_WHAT: Final = '"cat":%s,"name":%s,"args":{"of":%s,"number":%d}'
_SLICE: Final = f'{{"ph":"X",{_WHERE},"dur":%d.%03d,{_WHAT}}}'
_MARK: Final = f'{{"ph":"i","s":"t",{_WHERE},{_WHAT}}}'
_ARROW: Final = f'{{"ph":"%s",{_WHERE},"cat":"arrow","name":"message","bp":"e","id":"%x"}}'
_VALUE: Final = f'{{"ph":"C",{_WHERE},"name":%s,"args":{{"value":%d}}}}'


def write_chrome(trace: Trace, selection: Selection, out: BinaryIO, *, limit: int | None) -> list[str]:
    """Write the file, and return sentences on what is missing."""
    found = timeline(trace, selection, limit=limit)
    other = escaped(json.dumps({"recording": found.title, "hopscope": __version__, "missing": found.notes}))
    out.write(b'{"displayTimeUnit":"ns","traceEvents":[\n')
    separator = b""
    for line in _lines(found):
        out.write(separator + line.encode())
        separator = b",\n"
    out.write(f'\n],"otherData":{other}}}\n'.encode())
    return found.notes


def _lines(found: Timeline) -> Iterator[str]:
    texts = [escaped(json.dumps(text)) for text in found.names.texts]
    roots = _roots(found)
    yield from _tracks(found, roots)

    def said(numbers: NDArray[Any]) -> Iterator[str]:
        return (texts[number] for number in numbers.tolist())

    def where(track: NDArray[Any], time_ns: NDArray[Any]) -> tuple[list[int], ...]:
        return tuple(each.tolist() for each in (roots[track], track, *_us(time_ns)))

    if found.slices:
        all_slices = together(found.slices)
        dur = (each.tolist() for each in _us(all_slices.end_ns - all_slices.begin_ns))
        what = (*map(said, (all_slices.category, all_slices.name, all_slices.detail)), all_slices.number.tolist())
        yield from _formatted(_SLICE, *where(all_slices.track, all_slices.begin_ns), *dur, *what)
    for marks in found.marks:
        what = (*map(said, (marks.category, marks.name, marks.detail)), marks.number.tolist())
        yield from _formatted(_MARK, *where(marks.track, marks.time_ns), *what)
    phase, arrows = _arrows(found.marks)
    if arrows is not None:
        yield from _formatted(_ARROW, phase, *where(arrows[0], arrows[1]), arrows[2].tolist())
    names = [escaped(json.dumps(track.name)) for track in found.tracks]
    for values in found.values:
        of = (names[track - 1] for track in values.track.tolist())
        yield from _formatted(_VALUE, *where(values.track, values.time_ns), of, values.value.tolist())


def _formatted(form: str, *columns: Iterable[Any]) -> Iterator[str]:
    return map(form.__mod__, zip(*columns, strict=True))


def _us(ns: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return microseconds, and the rest."""
    return ns // _US, ns % _US


def _roots(found: Timeline) -> NDArray[np.int64]:
    """Return the track at the top of each: the format has two levels."""
    roots = np.arange(len(found.tracks) + 1)
    for track in found.tracks:
        roots[track.number] = roots[track.parent] if track.parent else track.number
    return roots


def _tracks(found: Timeline, roots: NDArray[np.int64]) -> Iterator[str]:
    for track in found.tracks:
        kinds = ["thread"] if track.parent else ["process", "thread"]
        for kind in kinds:
            event = {"ph": "M", "pid": int(roots[track.number]), "tid": track.number, "name": f"{kind}_name"}
            yield escaped(json.dumps({**event, "args": {"name": track.name}}))


def _arrows(marks: list[Marks]) -> tuple[list[str], tuple[NDArray[Any], NDArray[Any], NDArray[Any]] | None]:
    """Return the phases of arrows (s: begins, t: goes on, f: ends), and track, time and number of each."""
    found = [tuple(each[mark.arrow > 0] for each in (mark.track, mark.time_ns, mark.arrow)) for mark in marks]
    if not found:
        return [], None
    track, time_ns, arrow = (np.concatenate(parts) for parts in zip(*found, strict=True))
    order = np.lexsort((time_ns, arrow))
    track, time_ns, arrow = track[order], time_ns[order], arrow[order]
    first = np.diff(arrow, prepend=np.uint64(0)) != 0
    last = np.append(first[1:], True)[: len(first)]
    whole = ~(first & last)
    phase = np.where(first, "s", np.where(last, "f", "t"))[whole]
    return phase.tolist(), (track[whole], time_ns[whole], arrow[whole])
