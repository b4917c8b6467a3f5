# SPDX-License-Identifier: Apache-2.0
"""Which ranges of bytes have a byte: a join that engines do by equality.

A range of a length up to 4**n is put into the one or two cells, 4**n bytes wide, that it touches. A byte can then only
be in ranges of the cell that it lies in, for each width that there is. So the work grows with what is found, however
ranges overlap, and in whatever order they come.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from hopscope.store.trace import Trace

_WIDTH: Final = "CAST(power(4, ceil(log2(end_byte - start_byte) / 2)) AS BIGINT)"


def make_cells(trace: Trace, name: str, ranges: str) -> None:
    """Make the table `name`: the rows of table `ranges`, once for each cell that they touch, with `width`, `cell`.

    `ranges` has ``flow``, ``connection``, ``start_byte``, ``end_byte``.
    """
    sized = f"(SELECT *, {_WIDTH} AS width FROM {ranges}) sized"
    first, last = "start_byte - start_byte % width", "end_byte - 1 - (end_byte - 1) % width"
    trace.make_table(
        name,
        f"SELECT *, {first} AS cell FROM {sized} UNION ALL SELECT *, {last} FROM {sized} WHERE {first} <> {last}",
    )
    trace.make_table(f"{name}_widths", f"SELECT DISTINCT flow, connection, width FROM {name}")


def make_probes(trace: Trace, name: str, cells: str, query: str) -> None:
    """Make the table `name`: the bytes of a query (``flow``, ``connection``, ``byte``, …), with the cells to look in.

    It is a table, not a part of the join, lest an engine joins cells and widths first.
    """
    trace.make_table(
        name,
        f"SELECT b.*, w.width, b.byte - b.byte % w.width AS cell FROM ({query}) b"
        f" JOIN {cells}_widths w ON w.flow = b.flow AND w.connection = b.connection",
    )


def holds(cells: str, probes: str) -> str:
    """Return the condition that a range of `cells` has the byte of `probes`."""
    equal = " AND ".join(f"{cells}.{name} = {probes}.{name}" for name in ("flow", "connection", "width", "cell"))
    return f"{equal} AND {cells}.start_byte <= {probes}.byte AND {probes}.byte < {cells}.end_byte"
