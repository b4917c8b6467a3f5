# SPDX-License-Identifier: Apache-2.0
"""Dropped packets as JSON, both ways; ``docs/json/hopscope.drops-1.schema.json`` describes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hopscope.model.drops import DropRow, DropSnapshot
from hopscope.term.json_lines import (
    KINDS,
    VERSION,
    Json,
    clock_ns,
    iso,
    overhead_from_json,
    overhead_to_json,
    plan_from_json,
    plan_to_json,
)

if TYPE_CHECKING:
    from hopscope.model.checked_json import Fields


def drops_to_json(snapshot: DropSnapshot) -> Json:
    """Return a snapshot as the object that schema ``hopscope.drops/1`` describes."""
    return {
        "schema": f"hopscope.drops/{VERSION}",
        "kind": snapshot.kind,
        "time": iso(snapshot.started_ns),
        "interval_s": snapshot.duration_s,
        "dropped": snapshot.dropped,
        "lost": snapshot.lost,
        "rows": [{"group": dict(row.group), "packets": row.count} for row in snapshot.rows],
        "filters": dict(snapshot.filters),
        "overhead": overhead_to_json(snapshot.overhead),
        "plan": [plan_to_json(row) for row in snapshot.plan],
        "notes": list(snapshot.notes),
    }


def drops_from_json(document: Fields) -> DropSnapshot:
    """Return the snapshot that an object was made from.

    Raises
    ------
    FormatError
        It does not fit the schema.
    """
    document.choice("schema", [f"hopscope.drops/{VERSION}"])
    return DropSnapshot(
        kind=document.choice("kind", KINDS),
        started_ns=clock_ns(document.text("time")),
        duration_s=document.number("interval_s"),
        rows=[DropRow(row.labels("group"), row.whole("packets")) for row in document.parts("rows")],
        dropped=document.whole("dropped"),
        lost=document.whole("lost"),
        overhead=overhead_from_json(document.part("overhead")),
        plan=[plan_from_json(row) for row in document.parts("plan")],
        filters=document.labels("filters"),
        notes=document.texts("notes"),
    )
