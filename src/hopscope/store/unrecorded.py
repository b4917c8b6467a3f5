# SPDX-License-Identifier: Apache-2.0
"""The tables that say what conditions did with events: left them out (``record --keep``, ``--drop``), or to a class."""

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
# Of --class: name → condition.
CLASSES_OPTION: Final = "classes"
CLASSES: Final = Table(
    "classes",
    "events of each class, and what its rings lost",
    (
        Column("from_ns", np.int64, "earliest time"),
        Column("until_ns", np.int64, "latest time"),
        Column("class", TEXT, "name of the class"),
        Column("events", np.int64, "events that were recorded"),
        Column("lost", np.int64, "records for which its rings had no room; `losses` has them, too"),
    ),
)
