# SPDX-License-Identifier: Apache-2.0
"""One JSON object per interval and line, and back again; ``docs/json/`` has the schemas.

Names keep the units of the data model. Figures that are not known, and bounds that do not exist, are null. What is read
back may be another host's: whatever does not fit its schema raises FormatError. Nothing is lost on the way but what is
for display alone: the time of day below a microsecond, and figures below a tenth of a nanosecond.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias, get_args

from hopscope.errors import FormatError
from hopscope.model.histogram_json import buckets_to_json, histogram_from_json
from hopscope.model.sampled import CONFIDENCE_PERCENT, Coverage
from hopscope.model.snapshot import (
    PACKET_FIGURES,
    PERCENTILES,
    Discard,
    Ending,
    HopRow,
    Kind,
    Outcome,
    Overhead,
    PacketAccount,
    PlanRow,
    PlanStatus,
    ProgramCost,
    Snapshot,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hopscope.model.checked_json import Fields
    from hopscope.model.snapshot import Bounds, HostFact, MethodStatus, PointStatus

Json: TypeAlias = dict[str, Any]

VERSION: Final = 1
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
OUTCOMES: Final[tuple[Outcome, ...]] = get_args(Outcome)
# Verbs that say what became of each packet.
ACCOUNTING: Final = frozenset({"rx"})
_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_ISO: Final = "%Y-%m-%dT%H:%M:%S.%fZ"
_STATUSES: Final[tuple[PlanStatus, ...]] = get_args(PlanStatus)
_MEMBERS: Final = {name: f"{name.replace('.', '_')}_ns" for name in PERCENTILES}


def to_json(snapshot: Snapshot) -> Json:
    """Return a snapshot as the object that schema ``hopscope.<verb>/1`` describes."""
    packets = {"packets": _packets(snapshot.packets)} if snapshot.verb in ACCOUNTING else {}
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
        "coverage": _coverage(snapshot.coverage),
        **packets,
    }


def from_json(document: Fields, verb: str) -> Snapshot:
    """Return the snapshot of `verb` that an object was made from.

    Raises
    ------
    FormatError
        It does not fit the schema.
    """
    document.choice("schema", [f"hopscope.{verb}/{VERSION}"])
    return Snapshot(
        verb=verb,
        kind=document.choice("kind", KINDS),
        started_ns=clock_ns(document.text("time")),
        duration_s=document.number("interval_s"),
        hops=[_hop_from(row) for row in document.parts("hops")],
        overhead=overhead_from_json(document.part("overhead")),
        lost=document.whole("lost"),
        discarded=[_discard_from(discard) for discard in document.parts("discarded")],
        plan=[plan_from_json(row) for row in document.parts("plan")],
        sampling_1_in=document.whole("sampling_1_in", least=1),
        filters=document.labels("filters"),
        notes=document.texts("notes"),
        coverage=_coverage_from(document.part_or_none("coverage")),
        packets=_packets_from(document.part_or_none("packets")) if verb in ACCOUNTING else None,
    )


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
    return escaped(json.dumps(document, allow_nan=False, separators=(",", ":")))


def escaped(text: str) -> str:
    """Return JSON with DEL escaped, too: of all control characters, `json` leaves only that one as it is."""
    return text.replace("\x7f", "\\u007f")


def _hop(row: HopRow) -> Json:
    histogram = row.histogram
    count = histogram.count
    return {
        "hop": row.hop,
        "group": dict(row.group),
        "from": row.from_point,
        "to": row.to_point,
        "unit": row.unit,
        "chain": row.chain,
        "count": count,
        "sum_ns": histogram.sum_ns,
        "mean_ns": _tenths(histogram.mean_ns),
        "max_ns": histogram.max_ns if count else None,
        **{_MEMBERS[name]: _tenths(histogram.percentile(q)) for name, q in PERCENTILES.items()},
        "bounds": None if row.bounds is None else {_MEMBERS[name]: _ends(row.bounds[name]) for name in PERCENTILES},
        "error_ns": row.error_ns,
        "cause": row.cause,
        "buckets": buckets_to_json(histogram),
    }


def _hop_from(row: Fields) -> HopRow:
    return HopRow(
        hop=row.text("hop"),
        from_point=row.text("from"),
        to_point=row.text("to"),
        unit=row.text("unit"),
        group=row.labels("group"),
        histogram=histogram_from_json(row),
        chain=row.text_or_none("chain"),
        error_ns=row.whole_or_none("error_ns"),
        cause=row.text_or_none("cause"),
        bounds=_bounds_from(row.part_or_none("bounds")),
    )


def _ends(bounds: Bounds) -> Json | None:
    return None if bounds is None else {"least_ns": _tenths(bounds[0]), "most_ns": _tenths(bounds[1])}


def _bounds_from(bounds: Fields | None) -> dict[str, Bounds] | None:
    if bounds is None:
        return None
    return {name: _ends_from(bounds.part_or_none(member)) for name, member in _MEMBERS.items()}


def _ends_from(ends: Fields | None) -> Bounds:
    return None if ends is None else (ends.number("least_ns"), ends.number_or_none("most_ns"))


def _coverage(coverage: Coverage | None) -> Json | None:
    if coverage is None:
        return None
    return {
        "budget_percent": coverage.budget_percent,
        "represented_s": coverage.represented_s,
        "open_s": coverage.open_s,
        "followed_s": coverage.followed_s,
        "slices": coverage.slices,
        "confidence_percent": CONFIDENCE_PERCENT,
    }


def _coverage_from(coverage: Fields | None) -> Coverage | None:
    if coverage is None:
        return None
    return Coverage(
        budget_percent=coverage.number("budget_percent"),
        represented_s=coverage.number("represented_s"),
        open_s=coverage.number("open_s"),
        followed_s=coverage.number("followed_s"),
        slices=coverage.whole("slices"),
    )


def _discard(discard: Discard) -> Json:
    return {
        "hop": discard.hop,
        "reason": discard.reason,
        "count": discard.count,
        "meaning": discard.meaning,
    }


def _packets(account: PacketAccount | None) -> Json | None:
    if account is None:
        return None
    return {
        **{name: getattr(account, name) for name in PACKET_FIGURES},
        **{outcome: account.ended(outcome) for outcome in OUTCOMES},
        "endings": [
            {
                "outcome": ending.outcome,
                "reason": ending.reason,
                "hop": ending.hop,
                "count": ending.count,
                "meaning": ending.meaning,
            }
            for ending in account.endings
        ],
    }


def _packets_from(account: Fields | None) -> PacketAccount | None:
    if account is None:
        return None
    return PacketAccount(
        **{name: account.whole(name, -(2**63) if name == "unaccounted" else 0) for name in PACKET_FIGURES},
        endings=[
            Ending(
                outcome=ending.choice("outcome", OUTCOMES),
                reason=ending.text("reason"),
                hop=ending.text("hop"),
                count=ending.whole("count"),
                meaning=ending.text("meaning"),
            )
            for ending in account.parts("endings")
        ],
    )


def _discard_from(discard: Fields) -> Discard:
    return Discard(discard.text("hop"), discard.text("reason"), discard.whole("count"), discard.text("meaning"))


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


def plan_from_json(row: Fields) -> PlanRow:
    """Return the way to attach a probe point that an object was made from."""
    return PlanRow(
        point=row.text("point"),
        way=row.text("way"),
        status=row.choice("status", _STATUSES),
        reason=row.text("reason"),
        differs=row.text("differs"),
        next_step=row.text("next_step"),
    )


def _way(way: MethodStatus) -> Json:
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


def overhead_from_json(overhead: Fields) -> Overhead:
    """Return the cost of measuring that an object was made from."""
    return Overhead(
        hits=overhead.whole("hits"),
        ns_per_hit=overhead.number_or_none("ns_per_hit"),
        bpf_cpu_percent=overhead.number_or_none("bpf_cpu_percent"),
        reader_cpu_percent=overhead.number("reader_cpu_percent"),
        missed=overhead.whole("missed"),
        by_program=[
            ProgramCost(
                name=program.text("name"),
                hits=program.whole("hits"),
                ns_per_hit=program.number_or_none("ns_per_hit"),
                floor_ns=program.number_or_none("floor_ns"),
                missed=program.whole("missed"),
            )
            for program in overhead.parts("by_program")
        ],
    )


def _tenths(value_ns: float | None) -> float | None:
    return None if value_ns is None else round(value_ns, 1)


def iso(clock_ns: int) -> str:
    """Return CLOCK_REALTIME as ISO 8601 in UTC with microseconds."""
    seconds, rest_ns = divmod(clock_ns, 10**9)
    moment = datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest_ns // 1000)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def clock_ns(text: str) -> int:
    """Return CLOCK_REALTIME from what :func:`iso` wrote.

    Raises
    ------
    FormatError
        It is no such time.
    """
    try:
        return (datetime.strptime(text, _ISO).replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1) * 1000
    except ValueError as error:
        raise FormatError(f"{text[:40]} is not a time") from error
