# SPDX-License-Identifier: Apache-2.0
"""The JSON schemas of reports over the recordings of a fleet, generated from their columns.

``python -m hopscope.verbs.fleet.raw.schema FOLDER`` writes ``hopscope.report.fleet.report.<question>-1.schema.json``.
"""

from __future__ import annotations

import sys
from typing import Any

from hopscope.term.schema_files import write_schemas
from hopscope.verbs.fleet.raw.questions import QUESTIONS
from hopscope.verbs.report.schema import rows_schema


def schema(name: str) -> dict[str, Any]:
    """Return the JSON schema of a question's rows, with --group-by host or without."""
    of_all = QUESTIONS[name]
    by_host = of_all.by_host or of_all
    always = [column for column in of_all.columns if column in by_host.columns]
    sometimes = [column for column in (*by_host.columns, *of_all.columns) if column not in always]
    return rows_schema(f"report.fleet.report.{name}", f"hopscope fleet report {name} --json", always, sometimes)


if __name__ == "__main__":
    sys.exit(write_schemas(sys.argv[1:], map(schema, QUESTIONS)))
