# SPDX-License-Identifier: Apache-2.0
"""What networking took from the processors as JSON, both ways; ``docs/json/hopscope.cpu-1.schema.json`` describes it.

Stacks are not in it, only what they add up to; :func:`stacks_to_json` has them for another hopscope.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.errors import FormatError
from hopscope.model.cpu import NO_PART, Counted, CpuRow, CpuSnapshot, Part
from hopscope.model.parts import PARTS
from hopscope.model.stacks import Stack
from hopscope.term.json_lines import (
    KINDS,
    VERSION,
    Json,
    clock_ns,
    iso,
    overhead_from_json,
    overhead_to_json,
    plan_from_json,
    plan_to_json,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hopscope.model.breakdown import Share
    from hopscope.model.checked_json import Fields

_COUNTERS: Final = ("cycles", "instructions", "cache_misses")


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
        "ticks": snapshot.ticks,
        "energy_j": snapshot.energy_j,
        "overhead": overhead_to_json(snapshot.overhead),
        "plan": [plan_to_json(row) for row in snapshot.plan],
        "notes": list(snapshot.notes),
    }


def cpu_from_json(document: Fields, stacks: Iterable[Stack] = ()) -> CpuSnapshot:
    """Return the snapshot that an object was made from, with its stacks, which the object does not have.

    Raises
    ------
    FormatError
        It does not fit the schema.
    """
    document.choice("schema", [f"hopscope.cpu/{VERSION}"])
    return CpuSnapshot(
        kind=document.choice("kind", KINDS),
        started_ns=clock_ns(document.text("time")),
        duration_s=document.number("interval_s"),
        cpus=document.whole("cpus"),
        total=_row_from(document.part("total")),
        rows=[_row_from(row) for row in document.parts("rows")],
        overhead=overhead_from_json(document.part("overhead")),
        hz=document.whole("sampling_hz"),
        stacks=list(stacks),
        lost=document.whole("lost"),
        ticks=document.whole("ticks"),
        energy_j=document.number_or_none("energy_j"),
        plan=[plan_from_json(row) for row in document.parts("plan")],
        notes=document.texts("notes"),
    )


def stacks_to_json(stacks: Iterable[Stack]) -> Json:
    """Return stacks as an object in which each function's name stands once."""
    numbers: dict[str, int] = {}
    rows = [
        {
            "part": stack.part,
            "group": stack.group,
            "samples": stack.samples,
            "frames": [numbers.setdefault(name, len(numbers)) for name in stack.frames],
        }
        for stack in stacks
    ]
    return {"names": list(numbers), "stacks": rows}


def stacks_from_json(document: Fields) -> list[Stack]:
    """Return the stacks that an object was made from.

    Raises
    ------
    FormatError
        It is not as :func:`stacks_to_json` makes it.
    """
    names = document.texts("names")
    try:
        return [
            Stack(
                part=stack.choice("part", PARTS),
                frames=tuple(names[number] for number in stack.wholes("frames")),
                samples=stack.whole("samples"),
                group=stack.text("group"),
            )
            for stack in document.parts("stacks")
        ]
    except IndexError as error:
        raise FormatError("A stack has a function without a name") from error


def _row(snapshot: CpuSnapshot, row: CpuRow) -> Json:
    return {
        "group": dict(row.group),
        "ns": row.ns,
        "cpu_percent": snapshot.cores(row.ns) * 100,
        "parts": [_part(snapshot, row, name) for name in row.parts],
    }


def _part(snapshot: CpuSnapshot, row: CpuRow, name: str) -> Json:
    part, sampled = row.parts[name], bool(snapshot.ticks)
    low_ns, high_ns = snapshot.bounds_ns(part.samples, of_one_cpu="cpu" in row.group) if sampled else (None, None)
    return {
        "part": name,
        "ns": part.ns,
        "ns_low": low_ns,
        "ns_high": high_ns,
        "samples": part.samples if sampled else None,
        "cpu_percent": snapshot.cores(part.ns) * 100,
        "runs": None if sampled else part.runs,
        "packets": None if sampled else part.packets,
        "bytes": None if sampled else part.len_bytes,
        "counters": None if part.counted is None else _counted(part.counted),
    }


def _row_from(row: Fields) -> CpuRow:
    parts = {part.choice("part", PARTS): _part_from(part) for part in row.parts("parts")}
    return CpuRow(row.labels("group"), dict.fromkeys(PARTS, NO_PART) | parts)


def _part_from(part: Fields) -> Part:
    counters = part.part_or_none("counters")
    return Part(
        ns=part.whole("ns"),
        runs=part.whole_or_none("runs") or 0,
        packets=part.whole_or_none("packets") or 0,
        len_bytes=part.whole_or_none("bytes") or 0,
        counted=Counted(*(counters.whole_or_none(name) for name in _COUNTERS)) if counters else None,
        samples=part.whole_or_none("samples") or 0,
    )


def _counted(counted: Counted) -> Json:
    return {name: getattr(counted, name) for name in _COUNTERS}


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
