# SPDX-License-Identifier: Apache-2.0
"""Events in the form that a subscriber wants: an Arrow IPC stream, or JSON lines."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from hopscope.errors import UsageError
from hopscope.model.event_batch import Numbers
from hopscope.model.event_fields import BY_NAME, Kind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from hopscope.model.event_batch import Columns

LOST, KERNEL_LOST = "lost_before", "kernel_lost_before"
# Numbers of 64 bits that JSON's readers may round.
_IDENTIFIERS: Final = frozenset({"flow", "skb", "sock", "seq", "value"})
_TEXTS: Final = frozenset({Kind.TEXT, Kind.ADDRESS})


class Encoder(Protocol):
    """Makes bytes of events."""

    def batch(self, events: Columns, chosen: NDArray[np.bool_], lost: int, kernel_lost: int) -> bytes:
        """Return events, and how many this subscriber, and the kernel, lost before them."""


def encoder(form: str, fields: Sequence[str], own: Mapping[str, Kind]) -> Encoder:
    """Return what makes a form.

    Raises
    ------
    UsageError
        A library is missing.
    """
    if form == "json":
        return _JsonLines(fields)
    return _Arrow(fields, {name: BY_NAME[name].kind if name in BY_NAME else own[name] for name in fields})


class _JsonLines:
    def __init__(self, fields: Sequence[str]) -> None:
        self._fields = fields

    def batch(self, events: Columns, chosen: NDArray[np.bool_], lost: int, kernel_lost: int) -> bytes:
        lines = [json.dumps({"lost": lost, "kernel_lost": kernel_lost})] if lost or kernel_lost else []
        columns = [self._values(events, name, chosen) for name in self._fields]
        lines += [json.dumps(dict(zip(self._fields, row, strict=True))) for row in zip(*columns, strict=True)]
        return "".join(f"{line}\n" for line in lines).encode()

    def _values(self, events: Columns, name: str, chosen: NDArray[np.bool_]) -> list[Any]:
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

    def _taken(self) -> bytes:
        data = self._out.getvalue()
        self._out.seek(0)
        self._out.truncate()
        return data

    def batch(self, events: Columns, chosen: NDArray[np.bool_], lost: int, kernel_lost: int) -> bytes:
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

    def _array(self, events: Columns, name: str, chosen: NDArray[np.bool_]) -> Any:  # noqa: ANN401 # pyarrow's
        pa, column = self._pa, events.column(name)
        if isinstance(column, Numbers):
            missing = None if column.known is None else ~column.known[chosen]
            return pa.array(column.values[chosen].astype(np.int64), mask=missing)
        codes = column.codes[chosen]
        return pa.array(column.names, pa.string()).take(pa.array(codes, mask=codes < 0))
