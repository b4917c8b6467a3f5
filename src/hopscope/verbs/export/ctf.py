# SPDX-License-Identifier: Apache-2.0
"""A trace as a folder in the Common Trace Format 1.8, which babeltrace2 and Trace Compass read.

There is a file for each CPU and kind of event: all of its records have the same fields, so that NumPy makes them at
once. Readers merge the files by time. Lost events are what the format calls discarded.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from hopscope.gate import one_line
from hopscope.store.schema import BY_NAME, EVENT_TABLES, TEXT
from hopscope.term.format import plural
from hopscope.trace import events
from hopscope.verbs.export import tsdl
from hopscope.verbs.export.labels import Labels, number_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from hopscope.store.folder import OpenFolder
    from hopscope.store.schema import Table
    from hopscope.store.trace import Trace
    from hopscope.trace.selection import Selection

Columns: TypeAlias = "dict[str, NDArray[Any]]"

METADATA: Final = "metadata"
_HEADER: Final = ("time_ns", "cpu", "point")
# Column → what it is the number of.
_NAMED: Final = {"tid": "comm", "ifindex": "interface", "flow": "flow_name"}
# Names are in the metadata, which readers have in memory.
_MOST_FLOWS: Final = 50_000
# What a recording has may be negative where it makes no sense.
_UNSIGNED: Final = (1 << 64) - 1
# Of rows with texts, so many bytes are made at a time.
_MOST_BYTES: Final = 1 << 26


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of event.

    Attributes
    ----------
    table
        Where it is recorded.
    stream
        How it is described.
    dtype
        Of a record, without its texts, which follow.
    texts
        The columns that are texts.
    named
        Name of an enumeration → the names.
    """

    table: Table
    stream: tsdl.Stream
    dtype: np.dtype[Any]
    texts: Sequence[str]
    named: Mapping[str, Labels]


def write_ctf(trace: Trace, selection: Selection, folder: OpenFolder, *, limit: int | None) -> list[str]:
    """Write the files of the trace, of so many events, into a folder, and return sentences on what is missing."""
    events.prepare(trace, selection)
    selection, cut = events.at_most(trace, selection, limit)
    named, notes = _names(trace)
    kinds = list(_kinds(trace, named))
    for first_ns, until_ns in events.each_slice(trace, selection):
        window = f"time_ns >= {first_ns} AND time_ns < {until_ns} AND {selection.window(trace)}"
        for kind in kinds:
            _write_slice(trace, folder, kind, events.rows(trace, selection, kind.table.name, window))
    _write_losses(trace, selection, folder, len(kinds))
    streams = [*(kind.stream for kind in kinds), tsdl.Stream(len(kinds), (), {0: "lost"})]
    enumerations = {name: labels.texts for name, labels in named.items()}
    meta = trace.metadata
    text = tsdl.metadata(_environment(trace), meta.realtime_ns - meta.started_ns, enumerations, streams)
    folder.append(METADATA, text.encode())
    return [*cut, *notes, *events.notes(trace, selection)]


def _environment(trace: Trace) -> dict[str, str]:
    host = trace.metadata.host
    facts = {"hostname": host.get("name"), "kernel_release": host.get("release"), "machine": host.get("machine")}
    return {name: text for name, text in facts.items() if text}


def _names(trace: Trace) -> tuple[dict[str, Labels], list[str]]:
    flows = int(trace.rows("SELECT count(*) FROM flows")[0][0])
    named = {kind: Labels.of(trace, kind, _MOST_FLOWS) for kind in _NAMED.values()}
    if flows <= _MOST_FLOWS:
        return named, []
    left_out = plural(flows - _MOST_FLOWS, "flow")
    return named, [f"left out: the names of {left_out}, as readers keep all names in memory; their numbers are there"]


def _kinds(trace: Trace, named: Mapping[str, Labels]) -> Iterator[_Kind]:
    """Yield the kinds of event of the trace; a probe point has a name of its own."""
    for number, name in enumerate(EVENT_TABLES):
        found = trace.rows(
            f"SELECT DISTINCT e.point, p.name FROM {name} e LEFT JOIN points p ON p.point = e.point ORDER BY e.point"
        )
        points = {point & 0xFFFF: label or f"point {point}" for point, label in found}
        yield _kind(number, BY_NAME[name], points, named)
    for number, table in enumerate(events.own_tables(trace), len(EVENT_TABLES)):
        yield _kind(number, table, {0: table.name}, named)


def _kind(number: int, table: Table, names: Mapping[int, str], named: Mapping[str, Labels]) -> _Kind:
    columns = [column for column in table.columns if column.name not in _HEADER]
    numbers = [(each.name, np.dtype(each.dtype).newbyteorder("<").str) for each in columns if each.dtype != TEXT]
    texts = [each.name for each in columns if each.dtype == TEXT]
    its = {_NAMED[name]: named[_NAMED[name]] for name, _ in numbers if name in _NAMED}
    fields = [(name, tsdl.integer(name, dtype)) for name, dtype in numbers]
    fields += [(name, name) for name in its] + [(name, tsdl.TEXT) for name in texts]
    record = np.dtype([*tsdl.HEADER, *numbers, *((f"{name} name", "<u4") for name in its)])
    return _Kind(table, tsdl.Stream(number, fields, names), record, texts, its)


def _write_slice(trace: Trace, folder: OpenFolder, kind: _Kind, query: str) -> None:
    """Write the events of a query, as a packet for each CPU."""
    read = trace.columns(query)
    found = {name: np.ma.filled(array, "" if array.dtype.kind == "O" else 0) for name, array in read.items()}
    # What was recorded is nearly in order, which a stable sort takes little time for.
    order = np.argsort(found["time_ns"], kind="stable")
    order = order[np.argsort(found["cpu"][order], kind="stable")]
    found = {name: array[order] for name, array in found.items()}
    if not len(order):
        return
    records = _records(kind, found)
    inner = np.flatnonzero(found["cpu"][1:] != found["cpu"][:-1]) + 1
    for first, end in pairwise([0, *inner.tolist(), len(order)]):
        cpu = int(found["cpu"][first])
        texts = {name: found[name][first:end] for name in kind.texts}
        data = b"".join(_with_texts(records[first:end], texts)) if texts else records[first:end].tobytes()
        span_ns = int(found["time_ns"][first]), int(found["time_ns"][end - 1])
        _append(folder, kind.stream.number, cpu, _packet(kind.stream.number, cpu, span_ns, len(data)) + data)


def _records(kind: _Kind, found: Columns) -> NDArray[Any]:
    """Return the records of events, without their texts."""
    records = np.empty(len(found["time_ns"]), kind.dtype)
    records["id"] = found["point"].astype(np.int16).view(np.uint16) if "point" in found else 0
    records["timestamp"] = found["time_ns"]
    for name in kind.dtype.names or ():
        if name in found:
            records[name] = found[name]
    for name, labels in kind.named.items():
        records[f"{name} name"] = labels.places(number_of(name, found))
    return records


def _with_texts(records: NDArray[Any], texts: Columns) -> Iterator[bytes]:
    """Yield the bytes of records, each followed by its texts with a NUL at the end of each."""
    encoded = [_encoded(column) for column in texts.values()]
    widths = [column.dtype.itemsize for column in encoded]
    step = max(_MOST_BYTES // (records.itemsize + sum(widths) + len(widths)), 1)
    for first in range(0, len(records), step):
        part = records[first : first + step]
        parts = [part.view(np.uint8).reshape(len(part), -1)]
        kept = [np.ones(parts[0].shape, bool)]
        for column, width in zip(encoded, widths, strict=True):
            wide = column[first : first + step].astype(f"S{width + 1}")
            parts.append(wide.view(np.uint8).reshape(len(part), -1))
            kept.append(np.arange(width + 1) <= np.char.str_len(wide)[:, None])
        yield np.concatenate(parts, axis=1)[np.concatenate(kept, axis=1)].tobytes()


def _encoded(column: NDArray[Any]) -> NDArray[np.bytes_]:
    """Return texts as UTF-8, without control characters; most come again."""
    found, places = np.unique(column.astype(str), return_inverse=True)
    return np.array([one_line(text).encode() for text in found.tolist()], np.bytes_)[places.reshape(-1)]


def _write_losses(trace: Trace, selection: Selection, folder: OpenFolder, stream: int) -> None:
    """Write packets without events, of which each says how many were discarded since the one before."""
    window = f"{selection.window(trace, 'until_ns')} AND {selection.window(trace, 'from_ns')}"
    discarded: dict[int, int] = {}
    query = f"SELECT cpu, from_ns, until_ns, lost FROM losses WHERE {window} ORDER BY cpu, from_ns, until_ns"
    for cpu, from_ns, until_ns, lost in trace.rows(query):
        before = discarded.get(cpu, 0)
        discarded[cpu] = before + lost
        opening = _packet(stream, cpu, (from_ns, from_ns), 0, before)
        _append(folder, stream, cpu, opening + _packet(stream, cpu, (from_ns, until_ns), 0, before + lost))


def _packet(stream: int, cpu: int, span_ns: tuple[int, int], size_bytes: int, discarded: int = 0) -> bytes:
    """Return what stands before the records of a packet."""
    bits = 8 * (tsdl.PACKET.itemsize + size_bytes)
    begin_ns, end_ns, lost = (each & _UNSIGNED for each in (*span_ns, discarded))
    return np.array((tsdl.MAGIC, stream, begin_ns, end_ns, bits, bits, lost, cpu & 0xFFFFFFFF), tsdl.PACKET).tobytes()


def _append(folder: OpenFolder, stream: int, cpu: int, data: bytes) -> None:
    folder.append(f"cpu{cpu}_{stream}", data)
