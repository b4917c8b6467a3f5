# SPDX-License-Identifier: Apache-2.0
"""The schemas of reports' JSON, made from their columns.

``python -m hopscope.views.report_schema FOLDER`` writes ``hopscope.report.<name>-1.schema.json`` of all of them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hopscope.analysis import (
    compare,
    drop_reasons,
    flows,
    hop_times,
    messages,
    netdev_times,
    outliers,
    packet_rows,
    summary,
)
from hopscope.analysis.event_lines import COLUMNS as EVENT_COLUMNS
from hopscope.views.report_lines import VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hopscope.analysis.report import Column

# Report → its columns, and those that it has by option only.
REPORTS: Final[Mapping[str, tuple[Sequence[Column], Sequence[Column]]]] = {
    "summary": (summary.COLUMNS, ()),
    "flows": (flows.COLUMNS, ()),
    "hops": (hop_times.COLUMNS, hop_times.BY_COLUMNS),
    "packets": (packet_rows.COLUMNS, ()),
    "drops": (drop_reasons.COLUMNS, (drop_reasons.STACK,)),
    "netdev-times.rx": (netdev_times.RX_COLUMNS, ()),
    "netdev-times.tx": (netdev_times.TX_COLUMNS, ()),
    "events": (EVENT_COLUMNS, ()),
    "messages": (messages.COLUMNS, ()),
    "outliers": (outliers.COLUMNS, ()),
    "compare": (compare.COLUMNS, ()),
}
_TYPES: Final = {"text": "string", "count": "integer", "bytes": "integer", "at_ns": "integer", "number": "integer"}


def schema(name: str) -> dict[str, Any]:
    """Return the JSON schema of a report's rows."""
    always, sometimes = REPORTS[name]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:hopscope:schema:report.{name}:{VERSION}",
        "title": f"hopscope.report.{name}/{VERSION}",
        "description": f"A line of `hopscope report {name.partition('.')[0]} --json`. Null is what was not seen.",
        "type": "object",
        "additionalProperties": False,
        "required": ["schema", *(column.name for column in always)],
        "properties": {
            "schema": {"const": f"hopscope.report.{name}/{VERSION}"},
            **{column.name: _property(column) for column in (*sometimes, *always)},
        },
    }


def _property(column: Column) -> dict[str, Any]:
    return {"type": [_TYPES.get(column.unit, "number"), "null"], "description": column.meaning}


def main(arguments: list[str]) -> int:
    """Write all schemas; return the exit code."""
    (folder,) = arguments
    for name in REPORTS:
        path = Path(folder) / f"hopscope.report.{name}-{VERSION}.schema.json"
        path.write_text(json.dumps(schema(name), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
