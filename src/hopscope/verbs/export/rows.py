# SPDX-License-Identifier: Apache-2.0
"""Every event as a row: what ``report events`` lists, in a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO

from hopscope.verbs.report.events import write_events, write_parquet

if TYPE_CHECKING:
    from hopscope.store.trace import Trace
    from hopscope.trace.selection import Selection

__all__ = ["write_csv", "write_jsonl", "write_parquet"]


def write_csv(trace: Trace, selection: Selection, out: BinaryIO, *, limit: int | None) -> list[str]:
    """Write CSV with a header."""
    return write_events(trace, selection, "csv", out, limit=limit)


def write_jsonl(trace: Trace, selection: Selection, out: BinaryIO, *, limit: int | None) -> list[str]:
    """Write an object a line."""
    return write_events(trace, selection, "json", out, limit=limit)
