# SPDX-License-Identifier: Apache-2.0
"""The JSON schemas of questions on a fleet, generated from their columns.

``python -m hopscope.verbs.fleet.schema FOLDER`` writes ``hopscope.report.fleet.<question>-1.schema.json`` for each.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from hopscope.term.schema_files import write_schemas
from hopscope.verbs.fleet import began, common, differs, drops, hosts, objective
from hopscope.verbs.report.schema import rows_schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hopscope.model.report import Column

QUESTIONS: Final[Mapping[str, Sequence[Column]]] = {
    "hosts": hosts.COLUMNS,
    "differs": differs.COLUMNS,
    "began": began.COLUMNS,
    "common": common.COLUMNS,
    "drops": drops.COLUMNS,
    "objective": objective.COLUMNS,
}


def schema(question: str) -> dict[str, Any]:
    """Return the JSON schema of a question's rows."""
    return rows_schema(f"report.fleet.{question}", f"hopscope fleet {question} --json", QUESTIONS[question])


if __name__ == "__main__":
    sys.exit(write_schemas(sys.argv[1:], map(schema, QUESTIONS)))
