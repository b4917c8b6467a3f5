# SPDX-License-Identifier: Apache-2.0
"""Read the totals of earlier runs back from hopscope's own JSON lines."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from hopscope.errors import FormatError, UsageError
from hopscope.model.checked_json import Fields
from hopscope.model.histogram import Histogram
from hopscope.model.histogram_json import histogram_from_json

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

Json: TypeAlias = dict[str, Any]

_SCHEMAS: Final = ("hopscope.rx/1", "hopscope.tx/1")
# A total with all groups that there may be is much shorter; /dev/zero has no second line.
_LINE_CHARACTERS: Final = 64 << 20
_WHOLE_RUN: Final = "Let the run end by itself or by Ctrl-C, which writes its total"


def last_total(path: Path) -> Json:
    """Return the last object of a file that is the total of a run.

    Raises
    ------
    UsageError
        The file cannot be read.
    FormatError
        It is not the output of ``rx --json`` or ``tx --json``, is cut off, or has no total.
    """
    total: Json | None = None
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(iter(lambda: lines.readline(_LINE_CHARACTERS), ""), 1):
                document = _parsed(path, number, line)
                if document.get("kind") == "total" and document.get("schema") in _SCHEMAS:
                    total = document
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", "Name the output of a run with --json") from error
    except UnicodeDecodeError as error:
        raise FormatError(f"{path} is not text", "Name the output of a run with --json") from error
    if total is None:
        raise FormatError(f"{path} contains no total of `rx --json` or `tx --json`", _WHOLE_RUN)
    return total


def _parsed(path: Path, number: int, line: str) -> Json:
    if len(line) == _LINE_CHARACTERS:
        raise FormatError(f"Line {number} of {path} is too long", "Name the output of a run with --json")
    try:
        document = json.loads(line)
    except (ValueError, RecursionError) as error:
        if not line.endswith("\n"):
            raise FormatError(f"{path} is cut off in line {number}", _WHOLE_RUN) from error
        raise FormatError(f"Line {number} of {path} is not JSON", "Name the output of a run with --json") from error
    if not isinstance(document, dict):
        raise FormatError(f"Line {number} of {path} was not written by hopscope", "Name the output of a run")
    return document


def hop_histogram(path: Path, total: Json, hop: str) -> Histogram:
    """Return the durations of a hop, all groups together.

    Parameters
    ----------
    path
        Where the total is from, for errors.
    total
        As from :func:`last_total`.
    hop
        The hop's name.

    Raises
    ------
    UsageError
        The hop is not there, or has no samples.
    FormatError
        What is there is no histogram of hopscope's.
    """
    try:
        hops = [(row.text("hop"), row) for row in Fields(total, "The total").parts("hops")]
        names = dict.fromkeys(name for name, row in hops if row.whole("count"))
        rows = [row for name, row in hops if name == hop]
        merged = sum((histogram_from_json(row) for row in rows), Histogram.empty())
    except FormatError as error:
        raise FormatError(f"The total in {path} has no valid histograms", "Run it again") from error
    if not merged.count:
        what = "no samples of" if rows else "no hop"
        raise UsageError(f"{path} has {what} {hop}", f"It has {_listed(names)}")
    return merged


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "no samples at all"
