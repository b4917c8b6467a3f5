# SPDX-License-Identifier: Apache-2.0
"""What networking took from the processors as JSON; ``docs/json/hopscope.cpu-1.schema.json`` describes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hopscope.views.json_lines import VERSION, Json, iso, overhead_to_json, plan_to_json

if TYPE_CHECKING:
    from hopscope.analysis.breakdown import Share
    from hopscope.analysis.cpu import Counted, CpuRow, CpuSnapshot, Part


def cpu_to_json(snapshot: CpuSnapshot) -> Json:
    """Return a snapshot as the object that schema ``hopscope.cpu/1`` describes."""
    return {
        "schema": f"hopscope.cpu/{VERSION}",
        "kind": snapshot.kind,
        "time": iso(snapshot.started_ns),
        "interval_s": snapshot.duration_s,
        "cpus": snapshot.cpus,
        "total": _row(snapshot, snapshot.total),
        "rows": [_row(snapshot, row) for row in snapshot.rows],
        "sampling_hz": snapshot.hz,
        "breakdown": [_share(share) for share in snapshot.breakdown()],
        "lost": snapshot.lost,
        "energy_j": snapshot.energy_j,
        "overhead": overhead_to_json(snapshot.overhead),
        "plan": [plan_to_json(row) for row in snapshot.plan],
        "notes": list(snapshot.notes),
    }


def _row(snapshot: CpuSnapshot, row: CpuRow) -> Json:
    return {
        "group": dict(row.group),
        "ns": row.ns,
        "cpu_percent": snapshot.cores(row.ns) * 100,
        "parts": [_part(snapshot, name, part) for name, part in row.parts.items()],
    }


def _part(snapshot: CpuSnapshot, name: str, part: Part) -> Json:
    return {
        "part": name,
        "ns": part.ns,
        "cpu_percent": snapshot.cores(part.ns) * 100,
        "runs": part.runs,
        "packets": part.packets,
        "bytes": part.len_bytes,
        "counters": None if part.counted is None else _counted(part.counted),
    }


def _counted(counted: Counted) -> Json:
    return {
        "cycles": counted.cycles,
        "instructions": counted.instructions,
        "cache_misses": counted.cache_misses,
    }


def _share(share: Share) -> Json:
    return {
        "part": share.part,
        "category": share.category,
        "detail": share.detail,
        "samples": share.samples,
        "of_part": share.of_part,
        "of_part_low": share.low,
        "of_part_high": share.high,
        "ns": share.ns,
    }
