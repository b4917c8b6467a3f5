# SPDX-License-Identifier: Apache-2.0
"""Answers to the page as JSON: a report with its columns, and messages with their stages."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from hopscope.term.report_lines import json_lines
from hopscope.trace.messages.path import BY_COLUMN
from hopscope.verbs.report.messages_text import stages_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hopscope.model.report import Report
    from hopscope.verbs.web.wire import Answerer

_JSON: Final = "application/json"


def with_stages(report: Report) -> list[dict[str, Any]]:
    """Return the rows of a report of messages, each with its stages."""
    names = [column.name for column in report.columns]
    lines = map(json.loads, json_lines(report))
    found = []
    for line, values in zip(lines, report.rows(), strict=True):
        first, parts = stages_of(dict(zip(names, values, strict=True)))
        stages = [
            {
                "point": BY_COLUMN[part.column].title,
                "after_ns": part.after_ns,
                "duration_ns": part.duration_ns,
                "causes": part.causes,
                "told": part.told,
            }
            for part in parts
        ]
        found.append({**line, "first": BY_COLUMN[first].title, "stages": stages})
    return found


def head(kind: str = _JSON) -> dict[str, Any]:
    """Return the head of an answer of this type, which succeeded."""
    return {"status": 200, "type": kind}


def write_json(out: Answerer, document: Mapping[str, Any]) -> None:
    """Answer with a document."""
    out.begin(head())
    out.write(json.dumps(document, separators=(",", ":")).encode())


def report_document(report: Report) -> dict[str, Any]:
    """Return a report; its rows are the lines that --json prints."""
    return {
        "name": report.name,
        "columns": [
            {"name": each.name, "unit": each.unit, "meaning": each.meaning, "title": each.title, "rank": each.rank}
            for each in report.columns
        ],
        "notes": list(report.notes),
        "left_out": report.left_out,
        "heading": [line for line in report.heading if line],
        "rows": [json.loads(line) for line in json_lines(report)],
    }


def write_report(out: Answerer, report: Report, command: str, *, more: Sequence[Report] = ()) -> None:
    """Answer with a report, the command that prints it, and further reports of the same answer."""
    further = [report_document(each) for each in more]
    write_json(out, {**report_document(report), "more": further, "command": command})
