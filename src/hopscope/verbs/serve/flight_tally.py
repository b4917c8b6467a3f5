# SPDX-License-Identifier: Apache-2.0
"""What the flight recorder tells the process that measures: a few numbers, in memory that both have."""

from __future__ import annotations

import mmap
from typing import Final

import numpy as np

# Recordings that were written, that could not be, and that were not as the last one was too recent; for how long and in
# how much memory events are kept; records that the kernel had no room for; bytes of all recordings on disk.
_FIELDS: Final = ("written", "failed", "skipped", "kept_ns", "kept_bytes", "lost", "stored_bytes")


class FlightTally:
    """Numbers that one process writes, and others that are forked from the one that made it read."""

    def __init__(self) -> None:
        memory = mmap.mmap(-1, mmap.PAGESIZE)  # shared with processes that are forked
        self._values = np.frombuffer(memory, np.int64, len(_FIELDS))

    def __getitem__(self, name: str) -> int:
        """Return a number by its name."""
        return int(self._values[_FIELDS.index(name)])

    def __setitem__(self, name: str, value: int) -> None:
        """Set a number."""
        self._values[_FIELDS.index(name)] = value
