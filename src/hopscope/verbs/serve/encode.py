# SPDX-License-Identifier: Apache-2.0
"""Events in the form that a subscriber wants: an Arrow IPC stream, JSON lines, or frames of ``hopscope wire``."""

from __future__ import annotations

import io
import json
import time
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from hopscope.errors import UsageError
from hopscope.live.wire.frames import Frames
from hopscope.model.event_batch import Numbers
from hopscope.model.event_fields import BY_NAME, Kind
from hopscope.term.ragged import Ragged

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from hopscope.live.stream.events import Assembler, Events
    from hopscope.store.meta import Metadata

LOST, KERNEL_LOST = "lost_before", "kernel_lost_before"
# Numbers of 64 bits that JSON's readers may round.
_IDENTIFIERS: Final = frozenset({"flow", "skb", "sock", "seq", "value"})
_TEXTS: Final = frozenset({Kind.TEXT, Kind.ADDRESS})


_CATALOGUE_S: Final = 1.0
_LENGTH_BYTES: Final = 4
_NO_ADDRESS: Final = bytes(6)


class Encoder(Protocol):
    """Makes bytes of events."""

    def is_due(self) -> bool:
        """Return whether something is to be said though no event comes."""

    def batch(self, events: Events, chosen: NDArray[np.bool_], lost: int, kernel_lost: int) -> bytes:
        """Return events, and how many this subscriber, and the kernel, lost before them."""


def encoder(form: str, fields: Sequence[str], own: Mapping[str, Kind], assembler: Assembler) -> Encoder:
    """Return what makes a form.

    Parameters
    ----------
    form
        The form.
    fields, own
        Of events, and kinds of those that tracepoints have; frames have fields of their own.
    assembler
        Where the events come from.

    Raises
    ------
    UsageError
        A library is missing.
    """
    if form == "json":
        return _JsonLines(fields)
    if form == "wire":
        return _Frames(assembler)
    return _Arrow(fields, {name: BY_NAME[name].kind if name in BY_NAME else own[name] for name in fields})


class _Frames:
    """Each frame with its length before it, and the catalogue once a second."""

    def __init__(self, assembler: Assembler) -> None:
        self._assembler = assembler
        self._metadata: Metadata | None = None  # of the recorder whose events came last
        self._frames: Frames | None = None
        self._catalogue_s = 0.0
        self._sent = self._not_sent = self._lost = 0

    def is_due(self) -> bool:
        return time.monotonic() >= self._catalogue_s

    def batch(self, events: Events, chosen: NDArray[np.bool_], lost: int, kernel_lost: int) -> bytes:
        self._not_sent += lost
        self._lost += kernel_lost
        frames = self._of_recorder()
        made = self._described(frames) if self.is_due() else b""
        if chosen.any():
            found = frames.of(events, chosen)
            self._sent += len(found.starts)
            made += _with_lengths(found)
        return made

    def _of_recorder(self) -> Frames:
        """Return what makes frames; where another recorder has begun, the catalogue comes anew."""
        metadata, names = self._assembler.metadata, self._assembler.point_names
        if self._frames is None or metadata is not self._metadata:
            number = self._frames.number if self._frames else 0
            self._frames = Frames(metadata, names, _NO_ADDRESS, _NO_ADDRESS, full=True, number=number)
            self._metadata, self._catalogue_s = metadata, 0.0
        return self._frames

    def _described(self, frames: Frames) -> bytes:
        self._catalogue_s = time.monotonic() + _CATALOGUE_S
        counts = self._sent, self._not_sent, self._lost
        return _with_lengths(Ragged.of(frames.catalogue(counts, self._assembler.names, time.monotonic_ns())))


def _with_lengths(frames: Ragged) -> bytes:
    sizes = frames.lengths + _LENGTH_BYTES
    starts = np.cumsum(sizes) - sizes
    made = np.zeros(int(sizes.sum()), np.uint8)
    lengths = frames.lengths.astype(">u4").view(np.uint8).reshape(-1, _LENGTH_BYTES)
    made[starts[:, np.newaxis] + np.arange(_LENGTH_BYTES)] = lengths
    frames.put(made, starts + _LENGTH_BYTES)
    return made.tobytes()


class _JsonLines:
    def __init__(self, fields: Sequence[str]) -> None:
        self._fields = fields

    def is_due(self) -> bool:
        return False

    def batch(self, events: Events, chosen: NDArray[np.bool_], lost: int, kernel_lost: int) -> bytes:
        lines = [json.dumps({"lost": lost, "kernel_lost": kernel_lost})] if lost or kernel_lost else []
        columns = [self._values(events, name, chosen) for name in self._fields]
        lines += [json.dumps(dict(zip(self._fields, row, strict=True))) for row in zip(*columns, strict=True)]
        return "".join(f"{line}\n" for line in lines).encode()

    def _values(self, events: Events, name: str, chosen: NDArray[np.bool_]) -> list[Any]:
        column = events.column(name)
        if not isinstance(column, Numbers):
            names = [*column.names, None]
            return [names[code] for code in column.codes[chosen].tolist()]
        values: list[Any] = column.values[chosen].tolist()
        if name in _IDENTIFIERS:
            values = [str(value) for value in values]
        if column.known is None:
            return values
        return [value if known else None for value, known in zip(values, column.known[chosen].tolist(), strict=True)]


class _Arrow:
    def __init__(self, fields: Sequence[str], kinds: Mapping[str, Kind]) -> None:
        try:
            import pyarrow as pa  # noqa: PLC0415 # it is optional
        except ImportError as error:
            raise UsageError(
                "Arrow needs pyarrow there", 'pip install \'hopscope[arrow]\', or ask for "format": "json"'
            ) from error
        self._pa = pa
        self._fields = fields
        types = [pa.string() if kinds[name] in _TEXTS else pa.int64() for name in fields]
        columns = [*zip(fields, types, strict=True), (LOST, pa.int64()), (KERNEL_LOST, pa.int64())]
        self._schema = pa.schema(columns, metadata={"hopscope": "events/1"})
        self._out = io.BytesIO()
        self._writer = pa.ipc.new_stream(self._out, self._schema)

    def is_due(self) -> bool:
        return False

    def _taken(self) -> bytes:
        data = self._out.getvalue()
        self._out.seek(0)
        self._out.truncate()
        return data

    def batch(self, events: Events, chosen: NDArray[np.bool_], lost: int, kernel_lost: int) -> bytes:
        count = int(np.count_nonzero(chosen))
        arrays = [self._array(events, name, chosen) for name in self._fields]
        for number in (lost, kernel_lost):
            column = np.zeros(count, np.int64)
            column[:1] = number
            arrays.append(self._pa.array(column))
        batch = self._pa.record_batch(arrays, schema=self._schema)
        # They are in the columns only where there are rows.
        said = {LOST: str(lost), KERNEL_LOST: str(kernel_lost)} if lost or kernel_lost else None
        self._writer.write_batch(batch, custom_metadata=said)
        return self._taken()

    def _array(self, events: Events, name: str, chosen: NDArray[np.bool_]) -> Any:  # noqa: ANN401 # pyarrow's
        pa, column = self._pa, events.column(name)
        if isinstance(column, Numbers):
            missing = None if column.known is None else ~column.known[chosen]
            return pa.array(column.values[chosen].astype(np.int64), mask=missing)
        codes = column.codes[chosen]
        return pa.array(column.names, pa.string()).take(pa.array(codes, mask=codes < 0))
