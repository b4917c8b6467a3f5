# SPDX-License-Identifier: Apache-2.0
"""The tracepoints of this kernel with their fields, which `record -e` takes.

``python -m hopscope.verbs.probes.events FOLDER`` writes the JSON schema, ``hopscope.probes.events-1.schema.json``.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hopscope.kernel.tracefs import Tracefs
from hopscope.kernel.tracepoint_format import Field, parse_format
from hopscope.kernel.tracepoints import Spec, unknown_tracepoint
from hopscope.term.json_lines import VERSION
from hopscope.term.schema_files import line_schema, object_schema, write_schemas

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hopscope.term.json_lines import Json

_NAME: Final = "probes.events"


class Event(NamedTuple):
    """A tracepoint: ``SUBSYSTEM:EVENT``, and its own fields."""

    name: str
    fields: list[Field]


def tracepoints(patterns: Sequence[str]) -> list[Event]:
    """Return the tracepoints that match one of these patterns, ``SUBSYSTEM:EVENT``.

    Raises
    ------
    UsageError
        A pattern is none, or matches no tracepoint.
    PrivilegeError, KernelError
        tracefs cannot be read.
    """
    found: dict[tuple[str, str], None] = {}
    with Tracefs() as tracefs:
        for spec in map(Spec.parse, patterns):
            matching = tracefs.matching(spec.subsystem, spec.event)
            if not matching:
                raise unknown_tracepoint(tracefs, spec)
            found |= dict.fromkeys(matching)
        return [Event(":".join(each), parse_format(tracefs.format(*each))) for each in found]


def lines(events: Sequence[Event]) -> Iterator[str]:
    """Yield the lines for people: the name of each event, then the declarations of its fields."""
    for event in events:
        yield event.name
        yield from (f"    {field.declaration}" for field in event.fields)


def to_json(event: Event) -> Json:
    """Return an event as :func:`schema` describes it."""
    fields = [
        {"name": field.name, "declaration": field.declaration, "offset": field.offset, "size_bytes": field.size}
        for field in event.fields
    ]
    return {"schema": f"hopscope.{_NAME}/{VERSION}", "event": event.name, "fields": fields}


def schema() -> dict[str, Any]:
    """Return the JSON schema of a line."""
    field: dict[str, dict[str, Any]] = {
        "name": {"type": "string"},
        "declaration": {"type": "string", "description": "In C."},
        "offset": {"type": "integer", "minimum": 0, "description": "In the bytes of the event."},
        "size_bytes": {"type": "integer", "minimum": 0, "description": "Of an array of any length: of its position."},
    }
    line: dict[str, dict[str, Any]] = {
        "event": {"type": "string", "description": "SUBSYSTEM:EVENT, as `record -e` takes it."},
        "fields": {"type": "array", "items": object_schema(field)},
    }
    return line_schema(
        _NAME, VERSION, "A line of `hopscope probes --events --json`: a tracepoint of the kernel.", object_schema(line)
    )


if __name__ == "__main__":
    sys.exit(write_schemas(sys.argv[1:], [schema()]))
