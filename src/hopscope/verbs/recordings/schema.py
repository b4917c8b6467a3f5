# SPDX-License-Identifier: Apache-2.0
"""The schema of what ``hopscope recordings --json`` prints.

``python -m hopscope.verbs.recordings.schema FOLDER`` writes ``hopscope.recordings-1.schema.json``.
"""

from __future__ import annotations

import sys
from typing import Any, Final, get_args

from hopscope.store.recordings import RecordingState
from hopscope.term.json_lines import VERSION
from hopscope.term.schema_files import line_schema, object_schema, write_schemas

_PROPERTIES: Final[dict[str, dict[str, Any]]] = {
    "name": {"type": "string", "description": "Name of the folder; every verb that reads takes it as TRACE."},
    "folder": {"type": "string", "description": "Its path."},
    "state": {
        "enum": list(get_args(RecordingState)),
        "description": "cut off: its recorder was killed; unreadable: damaged, or of another version.",
    },
    "time": {"type": ["string", "null"], "format": "date-time", "description": "Its beginning; null: unreadable."},
    "duration_s": {"type": ["number", "null"], "description": "Null: not known, as it has no end."},
    "size_bytes": {"type": "integer", "minimum": 0, "description": "Of all of its files."},
    "events": {"type": ["integer", "null"], "minimum": 0, "description": "In complete files; null: unreadable."},
    "lost": {"type": ["integer", "null"], "minimum": 0, "description": "Events that are missing; null: unreadable."},
    "hosts": {"type": "array", "items": {"type": "string"}, "description": "Those that were recorded."},
    "options": {"type": "object", "description": "What was asked for: profiles, points, filters and others."},
    "problem": {"type": ["string", "null"], "description": "Why it is unreadable."},
    "deleted": {"type": "boolean", "description": "With --delete: it was deleted; false with --dry-run."},
}


def schema() -> dict[str, Any]:
    """Return the JSON schema of a line."""
    meaning = "A line of `hopscope recordings --json`: a recording."
    return line_schema("recordings", VERSION, meaning, object_schema(_PROPERTIES))


if __name__ == "__main__":
    sys.exit(write_schemas(sys.argv[1:], [schema()]))
