# SPDX-License-Identifier: Apache-2.0
"""Benchmarks in so little time that a machine which stands still takes all of it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, TypeVar

from bench.tools import ToolError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
_TRIES: Final = 20


def until(enough: Callable[[T], bool], measure: Callable[[], T]) -> T:
    """Measure until there is enough in it, some times at most; return the last, or raise why there is none."""
    for _ in range(_TRIES - 1):
        # Nothing was seen, or nothing to divide by.
        with contextlib.suppress(ToolError, ZeroDivisionError):
            if enough(found := measure()):
                return found
    return measure()
