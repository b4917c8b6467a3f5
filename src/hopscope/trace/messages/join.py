# SPDX-License-Identifier: Apache-2.0
"""Finding the byte ranges that contain a byte, with a join by equality.

A range of a length up to 4**n is assigned to the one or two cells of 4**n bytes that it overlaps. A byte can then only
be in ranges of its own cell, for each width that occurs. The effort is proportional to the result, regardless of how
ranges overlap and how they are ordered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from hopscope.trace.relation import columns, fixed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hopscope.trace.relation import Meaning

_WIDTH: Final = "CAST(power(4, ceil(log2(end_byte - start_byte) / 2)) AS BIGINT)"


def cells(name: str, ranges: str, carried: Mapping[str, Meaning], **declared: Any) -> None:  # noqa: ANN401 # as Relation has them
    """Declare ``<name>_cells``, the rows of a relation once for each cell that they overlap, and the widths that occur.

    Parameters
    ----------
    name
        Name of the rows.
    ranges
        The relation, with ``flow``, ``connection``, ``start_byte``, ``end_byte``.
    carried
        Its columns.
    declared
        Further declarations of both.
    """
    sized = f"(SELECT *, {_WIDTH} AS width FROM {ranges}) sized"
    first, last = "start_byte - start_byte % width", "end_byte - 1 - (end_byte - 1) % width"
    fixed(
        f"{name}_cells",
        f"a row of `{ranges}` in a cell that it overlaps",
        dict(carried) | columns("width cell"),
        f"SELECT *, {first} AS cell FROM {sized} UNION ALL SELECT *, {last} FROM {sized} WHERE {first} <> {last}",
        needs=(ranges,),
        temporary=True,
        **declared,
    )
    fixed(
        f"{name}_widths",
        f"a cell width used in `{name}_cells` for a connection",
        columns("flow connection width"),
        f"SELECT DISTINCT flow, connection, width FROM {name}_cells",
        needs=(f"{name}_cells",),
        temporary=True,
        **declared,
    )


def probes(name: str, query: str) -> str:
    """Return the query for bytes (``flow``, ``connection``, ``byte``, …), with the cells of `name` to search.

    It must be a table, not part of the join, to prevent an engine from joining cells and widths first.
    """
    return (
        f"SELECT b.*, w.width, b.byte - b.byte % w.width AS cell FROM ({query}) b"
        f" JOIN {name}_widths w ON w.flow = b.flow AND w.connection = b.connection"
    )


def holds(cells: str, probes: str) -> str:
    """Return the condition that a range of `cells` contains the byte of `probes`."""
    equal = " AND ".join(f"{cells}.{name} = {probes}.{name}" for name in ("flow", "connection", "width", "cell"))
    return f"{equal} AND {cells}.start_byte <= {probes}.byte AND {probes}.byte < {cells}.end_byte"
