# SPDX-License-Identifier: Apache-2.0
"""One JSON object per interval and line; ``docs/json/`` has the schemas.

Names keep the units of the data model. Figures that are not known, and bounds that do not exist, are null.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from hopscope.analysis.histogram import OVERFLOW_SLOT, ZERO_SLOT, lower_bounds_s, upper_bounds_s

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hopscope.analysis.histogram import Histogram
    from hopscope.analysis.snapshot import (
        Discard,
        HopRow,
        HostFact,
        Overhead,
        PlanRow,
        PointStatus,
        Snapshot,
        WayStatus,
    )

Json: TypeAlias = dict[str, Any]

VERSION: Final = 1
PERCENTILES: Final = {"p50_ns": 50.0, "p90_ns": 90.0, "p99_ns": 99.0, "p99_9_ns": 99.9}


def to_json(snapshot: Snapshot) -> Json:
    """Return a snapshot as the object that schema ``hopscope.<verb>/1`` describes."""
    return {
        "schema": f"hopscope.{snapshot.verb}/{VERSION}",
        "kind": snapshot.kind,
        "time": iso(snapshot.started_ns),
        "interval_s": snapshot.duration_s,
        "sampling_1_in": snapshot.sampling_1_in,
        "filters": dict(snapshot.filters),
        "hops": [_hop(row) for row in snapshot.hops],
        "lost": snapshot.lost,
        "discarded": [_discard(discard) for discard in snapshot.discarded],
        "overhead": overhead_to_json(snapshot.overhead),
        "plan": [plan_to_json(row) for row in snapshot.plan],
        "notes": list(snapshot.notes),
    }


def probes_to_json(kernel: str, points: Sequence[PointStatus], host: Sequence[HostFact]) -> Json:
    """Return the state of all probe points and the host's facts, as schema ``hopscope.probes/1`` describes."""
    return {
        "schema": f"hopscope.probes/{VERSION}",
        "kernel": kernel,
        "points": [
            {
                "point": point.point,
                "marks": point.marks,
                "chosen": point.chosen,
                "ways": [_way(way) for way in point.ways],
            }
            for point in points
        ],
        "host": [{"name": fact.name, "value": fact.value, "ok": fact.ok, "next_step": fact.next_step} for fact in host],
    }


def line(document: Json) -> str:
    """Return a document as one line of strict JSON, without the line's end."""
    return json.dumps(document, allow_nan=False, separators=(",", ":"))


def _hop(row: HopRow) -> Json:
    histogram = row.histogram
    count = histogram.count
    return {
        "hop": row.hop,
        "group": dict(row.group),
        "from": row.from_point,
        "to": row.to_point,
        "unit": row.unit,
        "count": count,
        "sum_ns": histogram.sum_ns,
        "mean_ns": _tenths(histogram.mean_ns),
        "max_ns": histogram.max_ns if count else None,
        **{name: _tenths(histogram.percentile(q)) for name, q in PERCENTILES.items()},
        "error_ns": row.error_ns,
        "buckets": _buckets(histogram),
    }


def _buckets(histogram: Histogram) -> list[Json]:
    lower_s, upper_s = lower_bounds_s(), upper_bounds_s()
    return [
        {
            "gt_s": None if slot == ZERO_SLOT else float(lower_s[slot]),
            "le_s": None if slot == OVERFLOW_SLOT else float(upper_s[slot]),
            "count": int(histogram.counts[slot]),
        }
        for slot in np.flatnonzero(histogram.counts).tolist()
    ]


def _discard(discard: Discard) -> Json:
    return {
        "hop": discard.hop,
        "reason": discard.reason,
        "count": discard.count,
        "meaning": discard.meaning,
    }


def plan_to_json(row: PlanRow) -> Json:
    """Return one way to attach a probe point, and what became of it."""
    return {
        "point": row.point,
        "way": row.way,
        "status": row.status,
        "reason": row.reason,
        "differs": row.differs,
        "next_step": row.next_step,
    }


def _way(way: WayStatus) -> Json:
    return {
        "way": way.way,
        "granted": way.granted,
        "chosen": way.chosen,
        "reason": way.reason,
        "next_step": way.next_step,
        "differs": way.differs,
    }


def overhead_to_json(overhead: Overhead) -> Json:
    """Return what measuring itself cost."""
    return {
        "hits": overhead.hits,
        "ns_per_hit": _tenths(overhead.ns_per_hit),
        "bpf_cpu_percent": overhead.bpf_cpu_percent,
        "reader_cpu_percent": overhead.reader_cpu_percent,
        "missed": overhead.missed,
        "by_program": [
            {
                "name": program.name,
                "hits": program.hits,
                "ns_per_hit": _tenths(program.ns_per_hit),
                "floor_ns": _tenths(program.floor_ns),
                "missed": program.missed,
            }
            for program in overhead.by_program
        ],
    }


def _tenths(value_ns: float | None) -> float | None:
    return None if value_ns is None else round(value_ns, 1)


def iso(clock_ns: int) -> str:
    """Return CLOCK_REALTIME as ISO 8601 in UTC with microseconds."""
    seconds, rest_ns = divmod(clock_ns, 10**9)
    moment = datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest_ns // 1000)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
