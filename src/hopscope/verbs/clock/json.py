# SPDX-License-Identifier: Apache-2.0
"""Clocks of several hosts as JSON: schema ``hopscope.clock/1``. Offsets are exact integers, in ns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hopscope.term.json_lines import VERSION, iso

if TYPE_CHECKING:
    from hopscope.term.json_lines import Json
    from hopscope.verbs.clock.report import ClockReport, Delays, HostRow, PairRow


def clocks_to_json(report: ClockReport) -> Json:
    """Return a report as the object that the schema describes."""
    return {
        "schema": f"hopscope.clock/{VERSION}",
        "kind": report.kind,
        "time": iso(report.time_ns),
        "interval_s": report.duration_s,
        "pairs": [_pair(row) for row in report.pairs],
        "hosts": [_host(row) for row in report.hosts],
        "loops": [
            {"hosts": list(loop.hosts), "off_ns": loop.off_ns, "bound_ns": loop.bound_ns} for loop in report.loops
        ],
        "changes": [
            {"host": change.host, "rate_ppb": round(change.rate * 1e9, 3), "step_ns": change.step_ns}
            for change in report.changes
        ],
        "notes": list(report.notes),
    }


def _pair(row: PairRow) -> Json:
    now = row.now
    return {
        "first": row.first,
        "second": row.second,
        "state": row.state,
        "failure": row.why or None,
        "offset_ns": now and now.offset_ns,
        "bound_ns": now and now.bound_ns,
        "drift_ppb": now and round(now.drift * 1e9, 3),
        "drift_bound_ppb": now and round(now.drift_bound * 1e9, 3),
        "there": row.there and _delays(row.there),
        "back": row.back and _delays(row.back),
        "probes": row.probes,
        "answered": row.answered,
        "lost": row.lost,
        "refused": dict(row.refused),
        "changes": row.changes,
        "stamps": row.stamps or None,
    }


def _delays(delays: Delays) -> Json:
    return {"least_ns": delays.least_ns, "median_ns": delays.median_ns}


def _host(row: HostRow) -> Json:
    return {
        "name": row.name,
        "address": row.address,
        "realtime_ns": row.realtime_ns,
        "realtime_bound_ns": row.realtime_bound_ns,
        "synchronized": row.synchronized,
        "max_error_ns": row.max_error_ns,
        "tai_offset_s": row.tai_offset_s,
        "daemons": list(row.daemons),
        "phcs": [{"name": phc.name, "ahead_ns": phc.ahead_ns, "bound_ns": phc.bound_ns} for phc in row.phcs],
    }
