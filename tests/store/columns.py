# SPDX-License-Identifier: Apache-2.0
"""Rows of any table for tests of the store, in which each value says where it belongs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hopscope.store.meta import Metadata
from hopscope.store.schema import BY_NAME

if TYPE_CHECKING:
    from numpy.typing import NDArray


def rows(table: str, count: int, first: int = 0) -> dict[str, NDArray[Any]]:
    """Return rows whose values count up from `first`, in every column."""
    numbers = np.arange(first, first + count)
    return {
        column.name: np.array([f"it's {number}" for number in numbers], object)
        if column.dtype == "object"
        else numbers.astype(column.dtype)
        for column in BY_NAME[table].columns
    }


def metadata(**values: Any) -> Metadata:  # noqa: ANN401 - fields of Metadata
    given = {"hopscope": "0.1", "started_ns": 7, "realtime_ns": 11, "points": {1: "rx.driver"}}
    return Metadata(**{**given, **values})
