# SPDX-License-Identifier: Apache-2.0
"""Counts of events as JSON.

``python -m hopscope.verbs.count.json FOLDER`` writes the schema, ``hopscope.count-1.schema.json``.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from hopscope.term.json_lines import KINDS, VERSION, iso, overhead_to_json
from hopscope.term.schema_files import line_schema, object_schema, write_schemas

if TYPE_CHECKING:
    from hopscope.term.json_lines import Json
    from hopscope.verbs.count.snapshot import CountSnapshot

_NAME: Final = "count"


def count_to_json(snapshot: CountSnapshot) -> Json:
    """Return a snapshot as :func:`schema` describes it."""
    grouped = snapshot.group_by is not None
    return {
        "schema": f"hopscope.{_NAME}/{VERSION}",
        "kind": snapshot.kind,
        "time": iso(snapshot.started_ns),
        "interval_s": snapshot.duration_s,
        "group_by": snapshot.group_by,
        "events": [
            {
                "event": event.event,
                "count": event.count,
                "groups": [{"group": name, "count": count} for name, count in event.groups.items()]
                if grouped
                else None,
            }
            for event in snapshot.events
        ],
        "overhead": None if snapshot.overhead is None else overhead_to_json(snapshot.overhead),
        "notes": list(snapshot.notes),
    }


def schema() -> dict[str, Any]:
    """Return the JSON schema of a line."""
    count = {"type": "integer", "minimum": 0}
    group: dict[str, dict[str, Any]] = {
        "group": {"type": "string", "description": "Its name; `other`: groups beyond --max-groups."},
        "count": count,
    }
    event: dict[str, dict[str, Any]] = {
        "event": {"type": "string", "description": "SUBSYSTEM:EVENT, function:NAME or return:NAME."},
        "count": {**count, "description": "How often the kernel passed it: the sum of the groups."},
        "groups": {
            "type": ["array", "null"],
            "items": object_schema(group),
            "description": "By what --group-by says, the most frequent first; null without it.",
        },
    }
    cost = {"type": ["number", "null"]}
    program: dict[str, dict[str, Any]] = {
        "name": {"type": "string"},
        "hits": count,
        "ns_per_hit": cost,
        "floor_ns": cost,
        "missed": count,
    }
    overhead: dict[str, dict[str, Any]] = {
        "hits": {**count, "description": "Runs of the programs, scaled up from the time in which they were measured."},
        "ns_per_hit": cost,
        "bpf_cpu_percent": cost,
        "reader_cpu_percent": {"type": "number"},
        "missed": {**count, "description": "Runs that the kernel suppressed: events that are missing in the counts."},
        "by_program": {"type": "array", "items": object_schema(program)},
    }
    line: dict[str, dict[str, Any]] = {
        "kind": {"enum": list(KINDS)},
        "time": {"type": "string", "description": "Start, UTC."},
        "interval_s": {"type": "number"},
        "group_by": {"type": ["string", "null"]},
        "events": {"type": "array", "items": object_schema(event)},
        "overhead": object_schema(
            overhead,
            null=True,
            meaning="Null where the kernel counts without a program: it does not say what that costs.",
        ),
        "notes": {"type": "array", "items": {"type": "string"}},
    }
    return line_schema(_NAME, VERSION, "A line of `hopscope count --json`.", object_schema(line))


if __name__ == "__main__":
    sys.exit(write_schemas(sys.argv[1:], [schema()]))
