# SPDX-License-Identifier: Apache-2.0
"""Values over time in one line of characters."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hopscope.term.bar import ASCII_BLOCKS, BLOCKS

if TYPE_CHECKING:
    from collections.abc import Sequence

_LEVELS = len(BLOCKS) - 1


def sparkline(values: Sequence[float | None], *, unicode: bool) -> str:
    """Return a character for each value; the axis is logarithmic, from the lowest to the highest of them.

    Parameters
    ----------
    values
        The oldest first; None is a blank.
    unicode
        Whether blocks can be shown; else characters of ASCII.
    """
    logs = [None if value is None else math.log2(max(value, 1.0)) for value in values]
    known = [each for each in logs if each is not None]
    low, span = min(known, default=0.0), max(known, default=0.0) - min(known, default=0.0)
    blocks = BLOCKS if unicode else ASCII_BLOCKS
    return "".join(
        " " if each is None else blocks[1 + round((_LEVELS - 1) * (each - low) / span) if span else 1] for each in logs
    )
