# SPDX-License-Identifier: Apache-2.0
"""What a check found, for programs: an object a finding, as schema ``hopscope.check/1`` describes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hopscope.term.json_lines import VERSION, Json, iso, line
from hopscope.verbs.check.table import select

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.verbs.check.conditions import Evidence
    from hopscope.verbs.check.findings import Check, Checked, Finding, Severity

_SCHEMA = f"hopscope.check/{VERSION}"


def check_lines(check: Check, time_ns: int, *, least: Severity = "notice", everything: bool = False) -> Iterator[str]:
    """Yield a line for each finding, then, with `everything`, for each note and entry; the summary is the last.

    Parameters
    ----------
    time_ns
        When the later reading was made, CLOCK_REALTIME.
    """
    common: Json = {"schema": _SCHEMA, "time": iso(time_ns), "interval_s": round(check.seconds, 6)}
    shown = select(check, least)
    for finding in (*shown, *(check.notes if everything else ())):
        yield line({**common, "kind": "finding", **_finding(finding)})
    if everything:
        for checked in check.checked:
            yield line({**common, "kind": "entry", **_entry(checked)})
    states = [each.state for each in check.checked if each.entry.severity != "note"]
    worst = shown[0].severity if shown else None
    yield line({
        **common,
        "kind": "summary",
        "worst": worst,
        "findings": len(shown),
        "looked_at": len(states) - states.count("unseen"),
        "well": states.count("well"),
        "unseen": states.count("unseen"),
        "unread": list(check.unread),
    })  # fmt: skip


def _finding(finding: Finding) -> Json:
    return {
        "id": finding.id,
        "severity": finding.severity,
        "layer": finding.entry.layer,
        "netns": finding.netns or None,
        "namespace": finding.namespace or None,
        "subject": finding.subject or None,
        "sentence": finding.sentence,
        "evidence": [_evidence(row) for row in finding.evidence],
        "why": finding.entry.why,
        "causes": list(finding.causes),
        "fixes": [_fix(fix) for fix in finding.fixes],
        "source": finding.entry.source,
    }


def _evidence(row: Evidence) -> Json:
    return {
        "source": row.key.source,
        "netns": row.key.netns or None,
        "subject": row.key.subject or None,
        "counter": row.key.name,
        "before": row.before,
        "now": row.now,
        "by": row.by,
        "per_s": None if row.per_s is None else round(row.per_s, 3),
        "share": None if row.share is None else round(row.share, 6),
        "how": row.how or None,
    }


def _fix(fix: str) -> Json:
    if fix.startswith("# "):
        return {"command": None, "note": fix[2:]}
    command, _, note = fix.partition("  # ")
    return {"command": command, "note": note or None}


def _entry(checked: Checked) -> Json:
    return {
        "id": checked.entry.id,
        "severity": checked.entry.severity,
        "layer": checked.entry.layer,
        "state": checked.state,
        "places_found": len(checked.findings),
        "places_well": checked.well,
        "unseen": list(checked.unseen),
        "total": checked.total,
    }
