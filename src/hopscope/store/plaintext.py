# SPDX-License-Identifier: Apache-2.0
"""Contents of TLS connections in a trace: the table, which is there only if it was asked for, and what that means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from hopscope.store.schema import TEXT, Column, Table

if TYPE_CHECKING:
    from collections.abc import Iterable

PLAINTEXTS: Final = Table(
    "e_plaintext",
    "the first bytes of plaintext of a call in a TLS library: contents, which may be secret",
    (
        Column("time_ns", np.int64, "when the call returned, CLOCK_MONOTONIC, as in `sockets`"),
        Column("cpu", np.int16, "where"),
        Column("tid", np.int32, "its thread"),
        Column("text", TEXT, "the bytes; those that are not printable ASCII, and backslashes, escaped as in Python"),
    ),
)
# What is said of contents.
CAUTION: Final = (
    "such as passwords and personal data: keep it as secret as these, and delete it when you are done with it"
)


def risk_notes(tables: Iterable[Table]) -> list[str]:
    """Return a sentence on what is at risk where a trace with these tables is passed on."""
    if all(table.name != PLAINTEXTS.name for table in tables):
        return []
    return [f"risk: the trace has contents of TLS connections, {CAUTION}"]
