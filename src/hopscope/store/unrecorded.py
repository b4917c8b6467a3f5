# SPDX-License-Identifier: Apache-2.0
"""The table of a recording that says which events its conditions left out (``record --keep``, ``--drop``)."""

from __future__ import annotations

from typing import Final

import numpy as np

from hopscope.store.schema import TEXT, Column, Table

# Options whose conditions leave events out.
RULES: Final = ("keep", "drop")
UNRECORDED: Final = Table(
    "unrecorded",
    "events that a condition left out: they have no row",
    (
        Column("from_ns", np.int64, "earliest time"),
        Column("until_ns", np.int64, "latest time"),
        Column("point", np.int16, "probe point (name: `points`)"),
        Column("condition", TEXT, "keep: that of --keep did not hold; drop: that of --drop did"),
        Column("events", np.int64, "number of events"),
    ),
)
