# SPDX-License-Identifier: Apache-2.0
"""The JSON schemas of reports, generated from their columns.

``python -m hopscope.verbs.report.schema FOLDER`` writes ``hopscope.report.<name>-1.schema.json`` for each report.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from hopscope.term.report_lines import VERSION
from hopscope.term.schema_files import line_schema, write_schemas
from hopscope.verbs.report import (
    after,
    calls,
    compare,
    cpu,
    flows,
    interrupts,
    message_packets,
    messages,
    moments,
    netdev_times,
    network,
    outliers,
    packet_rows,
    requests,
    summary,
    tcp,
    tls,
)
from hopscope.verbs.report import counters as counter_history
from hopscope.verbs.report import drops as drop_reasons
from hopscope.verbs.report import hops as hop_times
from hopscope.verbs.report.event_lines import COLUMNS as EVENT_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hopscope.model.report import Column

# Report → its columns, and its optional columns.
REPORTS: Final[Mapping[str, tuple[Sequence[Column], Sequence[Column]]]] = {
    "summary": (summary.COLUMNS, ()),
    "flows": (flows.COLUMNS, ()),
    "tcp": (tcp.COLUMNS, ()),
    "tcp.history": (tcp.HISTORY_COLUMNS, ()),
    "after": (after.COLUMNS, ()),
    "calls": (calls.COLUMNS, ()),
    "calls.summary": (calls.SUMMARY_COLUMNS, ()),
    "tls": (tls.COLUMNS, ()),
    "tls.summary": (tls.SUMMARY_COLUMNS, ()),
    "cpu": (cpu.COLUMNS, cpu.BY_COLUMNS),
    "interrupts": (interrupts.COLUMNS, ()),
    "hops": (hop_times.COLUMNS, (*hop_times.BY_COLUMNS, hop_times.BOUND)),
    "packets": (packet_rows.COLUMNS, ()),
    "drops": (drop_reasons.COLUMNS, (drop_reasons.STACK,)),
    "counters": (counter_history.COLUMNS, ()),
    "moments": (moments.COLUMNS, ()),
    "netdev-times.rx": (netdev_times.RX_COLUMNS, (netdev_times.CPU_NAME,)),
    "netdev-times.tx": (netdev_times.TX_COLUMNS, (netdev_times.CPU_NAME,)),
    "events": (EVENT_COLUMNS, ()),
    "messages": (messages.COLUMNS, ()),
    "messages.packets": (message_packets.COLUMNS, ()),
    "network": (network.COLUMNS, ()),
    "requests": (requests.COLUMNS, requests.NAMED_COLUMNS),
    "requests.groups": (requests.GROUP_COLUMNS, requests.BY_COLUMNS),
    "outliers": (outliers.COLUMNS, ()),
    "compare": (compare.COLUMNS, ()),
}
_TYPES: Final = {
    **dict.fromkeys(("text", "id"), "string"),
    **dict.fromkeys(("count", "bytes", "at_ns", "number"), "integer"),
}


def schema(name: str) -> dict[str, Any]:
    """Return the JSON schema of a report's rows."""
    always, sometimes = REPORTS[name]
    verb = name.partition(".")[0]
    return rows_schema(f"report.{name}", f"hopscope report {verb} --json", always, sometimes)


def rows_schema(name: str, command: str, always: Sequence[Column], sometimes: Sequence[Column] = ()) -> dict[str, Any]:
    """Return the JSON schema of a command's rows: columns that they always have, and optional ones."""
    line = {
        "type": "object",
        "additionalProperties": False,
        "required": [column.name for column in always],
        "properties": {column.name: _property(column) for column in (*sometimes, *always)},
    }
    return line_schema(name, VERSION, f"A line of `{command}`. Null: not observed.", line)


def _property(column: Column) -> dict[str, Any]:
    return {"type": [_TYPES.get(column.unit, "number"), "null"], "description": column.meaning}


if __name__ == "__main__":
    sys.exit(write_schemas(sys.argv[1:], map(schema, REPORTS)))
