# SPDX-License-Identifier: Apache-2.0
"""A report for programs: a JSON object a row, or CSV. Units are in the names; what is missing is null, or empty.

An identifier of 64 bits is a string in JSON: readers that store numbers as doubles, as JavaScript does, would round it.
"""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING, Any, Final

from hopscope.model.report import plain_values
from hopscope.term.json_lines import escaped

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from hopscope.model.report import Report, Unit

VERSION: Final = 1
# Texts whose form in JSON is remembered.
_MOST_KNOWN: Final = 1 << 16
_LINE_END: Final = "\r\n"


def json_lines(report: Report) -> Iterator[str]:
    """Iterate over the rows as objects that schema ``hopscope.report.<name>/1`` describes, each a line.

    They are what :func:`hopscope.term.json_lines.line` makes of them, but made a column after the other.
    """
    columns = report.columns
    members = [f'"schema":"hopscope.report.{report.name}/{VERSION}"', *(f"{_name(each.name)}:%s" for each in columns)]
    form = f"{{{','.join(members)}}}"
    known: dict[str, str] = {}
    for part in report.parts():
        for row in zip(*(_json_values(part[each.name], each.unit, known) for each in columns), strict=True):
            yield form % row


def _name(name: str) -> str:
    return escaped(json.dumps(name)).replace("%", "%%")


def _json_values(array: NDArray[Any], unit: Unit, known: dict[str, str]) -> Iterable[object]:
    """Return what stands in JSON for values; `known` is what stands there for texts, most of which come again."""
    values = plain_values(array)
    if unit == "id":
        return ["null" if value is None else f'"{value}"' for value in values]
    if array.dtype.kind in "iu":
        return values if None not in values else ["null" if value is None else value for value in values]
    return [_json_text(value, known) if isinstance(value, str) else json.dumps(value) for value in values]


def _json_text(text: str, known: dict[str, str]) -> str:
    found = known.get(text)
    if found is None:
        found = escaped(json.dumps(text))
        if len(known) < _MOST_KNOWN:
            known[text] = found
    return found


def csv_lines(report: Report) -> Iterator[str]:
    """Iterate over the lines of CSV (RFC 4180, but for the line ends): the names, then the rows."""
    writer = csv.writer(_Line(), lineterminator=_LINE_END)  # fields that contain any of it are quoted
    yield writer.writerow([column.name for column in report.columns])  # what _Line.write returns
    for row in report.rows():
        yield writer.writerow(row)


class _Line:
    """Where a writer of CSV writes each line to, and gets it back without its end."""

    def write(self, line: str) -> str:
        return line.removesuffix(_LINE_END)
