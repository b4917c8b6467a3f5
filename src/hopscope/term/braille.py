# SPDX-License-Identifier: Apache-2.0
"""Dots in braille characters: eight to a character, four rows of two."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

BLANK: Final = 0x2800
# Bits of a character's dots, rows from the top.
_DOTS: Final = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]])


def cells(dots: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Return what to add to `BLANK` for each character: (height, width) for dots of (4 · height, 2 · width)."""
    height, width = dots.shape[0] // 4, dots.shape[1] // 2
    bits: npt.NDArray[np.int64] = (dots.reshape(height, 4, width, 2) * _DOTS[:, None, :]).sum(axis=(1, 3))
    return bits
