# SPDX-License-Identifier: Apache-2.0
"""What an analysis of a trace gives: a table with units, and sentences on what it does not know."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

Unit: TypeAlias = Literal["ns", "at_ns", "bytes", "count", "per_s", "part", "ratio", "number", "id", "text"]

Value: TypeAlias = int | float | str | None

_DIGITS: Final = 6
_PART_ROWS: Final = 1 << 14


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a report.

    Parameters
    ----------
    name
        In JSON, CSV and SQL; with the unit where there is one, as ``p99_ns``.
    unit
        ``ns`` a duration; ``at_ns`` a time since the start of the recording; ``bytes``; ``count``; ``per_s``;
        ``part`` of a whole, 0..1; ``ratio`` of two, or another figure without a unit; ``number`` shown as it is, such
        as an address; ``id`` an identifier of 64 bits, such as a flow's: an integer here, a string in JSON; ``text``.
    meaning
        One sentence.
    title
        In tables for people.
    rank
        Where a table is too wide, columns of the highest rank are left out first; those of rank 0 never are.
    """

    name: str
    unit: Unit
    meaning: str
    title: str
    rank: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Report:
    """The result of an analysis.

    Parameters
    ----------
    name
        Of the analysis, such as ``hops``.
    columns
        In order.
    values
        Column's name → its values, arrays of one length; a masked one has no value there: what that is the case of was
        not seen.
    notes
        Sentences: what is missing, what was left out, and why.
    left_out
        Rows that a limit kept out.
    heading
        Lines that stand above the table, where people read it.
    """

    name: str
    columns: Sequence[Column]
    values: Mapping[str, NDArray[Any]]
    notes: Sequence[str] = ()
    left_out: int = 0
    heading: Sequence[str] = ()

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.values[self.columns[0].name]) if self.columns else 0

    def column(self, name: str) -> list[Value]:
        """Return a column's values as Python's, None for what is missing."""
        return plain_values(self.values[name])

    def rows(self) -> Iterator[tuple[Value, ...]]:
        """Iterate over the rows; None for what is missing."""
        for part in self.parts():
            yield from zip(*(plain_values(part[each.name]) for each in self.columns), strict=True)

    def named_rows(self) -> Iterator[dict[str, Value]]:
        """Iterate over the rows as column → value; None for what is missing."""
        names = [column.name for column in self.columns]
        return (dict(zip(names, values, strict=True)) for values in self.rows())

    def parts(self) -> Iterator[dict[str, NDArray[Any]]]:
        """Iterate over the values of some rows after the other: as Python's, they need many times the memory."""
        for first in range(0, len(self), _PART_ROWS):
            yield {name: array[first : first + _PART_ROWS] for name, array in self.values.items()}


def of_rows(name: str, columns: Sequence[Column], rows: Sequence[Sequence[Value]], **more: Any) -> Report:  # noqa: ANN401 # as of Report
    """Return the report with these rows, None where a value is missing; `more` is as of :class:`Report`."""
    values = {column.name: _array([row[index] for row in rows]) for index, column in enumerate(columns)}
    return Report(name, columns, values, **more)


def _array(cells: Sequence[Value]) -> NDArray[Any]:
    missing = [cell is None for cell in cells]
    array = np.array(["" if cell is None else cell for cell in cells], dtype=object)
    return np.ma.MaskedArray(array, missing) if any(missing) else array


def plain_values(array: NDArray[Any]) -> list[Value]:
    """Return an array's values as Python's, None for what is masked or no number."""
    values: list[Any] = np.ma.getdata(array).tolist()
    if array.dtype.kind not in "iu":
        values = [_plain(value) for value in values]
    mask = np.ma.getmaskarray(array)
    if mask.any():
        return [None if missing else value for value, missing in zip(values, mask.tolist(), strict=True)]
    return values


def _plain(value: Any) -> Value:  # noqa: ANN401 # of any dtype
    if value is np.ma.masked or value is None:
        return None
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None
    return value if isinstance(value, int | str) else str(value)
