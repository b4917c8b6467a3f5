# SPDX-License-Identifier: Apache-2.0
"""What other processes of the service tell the one that measures: a few numbers, in memory that both have."""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

# Of the flight recorder: recordings that were written, that could not be, and that were not as the last one was too
# recent; for how long and in how much memory events are kept; records that the kernel had no room for; bytes of all
# recordings on disk.
FLIGHT: Final = ("written", "failed", "skipped", "kept_ns", "kept_bytes", "lost", "stored_bytes")
# Of what pushes metrics: points that the receiver rejected of requests that it took.
PUSHED: Final = ("rejected",)


class Tally:
    """Numbers that one process writes, and others that are forked from the one that made it read.

    Parameters
    ----------
    fields
        Their names.
    """

    def __init__(self, fields: Sequence[str]) -> None:
        self._fields = fields
        memory = mmap.mmap(-1, mmap.PAGESIZE)  # shared with processes that are forked
        self._values = np.frombuffer(memory, np.int64, len(fields))

    def __getitem__(self, name: str) -> int:
        """Return a number by its name."""
        return int(self._values[self._fields.index(name)])

    def __setitem__(self, name: str, value: int) -> None:
        """Set a number."""
        self._values[self._fields.index(name)] = value
