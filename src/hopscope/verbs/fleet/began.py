# SPDX-License-Identifier: Apache-2.0
"""When a host's hop began to differ from what it was: the change of its place among all hosts, minute by minute."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hopscope.errors import UsageError
from hopscope.model.blocked_ranks import LEAST_HOSTS, block_scores
from hopscope.model.change_point import LEAST, find_step, largest_steps
from hopscope.model.histogram import SLOTS
from hopscope.model.report import Column, Report, of_rows
from hopscope.store.fleet.fleet import text, text_of_minute
from hopscope.store.fleet.schema import MINUTES_OF_HOUR
from hopscope.verbs.fleet.chance import FALSE_RATE
from hopscope.verbs.fleet.questions import absences, check_hosts, durations, heading, histogram, hops, host_names, three

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from hopscope.store.fleet.fleet import Fleet

COLUMNS: Final = (
    Column("host", "text", "name of the host", "host"),
    Column("began", "text", "first minute after the change, UTC, by the host's clock", "began"),
    Column("earliest", "text", "the change was not before this minute, with 95 % confidence", "earliest"),
    Column("latest", "text", "the change was not after this minute, with 95 % confidence", "latest"),
    Column("before_median_ns", "ns", "median duration before", "p50", rank=2),
    Column("after_median_ns", "ns", "median duration after", "p50 after", rank=2),
    Column("ratio", "ratio", "of both medians; each may be off by 9 %, the width of a bucket", "ratio"),
    Column("hop", "text", "hop", "hop", rank=9),
    Column(
        "superiority_before",
        "part",
        "probability that its duration is longer than one of all other hosts in the same hour, before",
        "longer",
        rank=4,
    ),
    Column("superiority_after", "part", "the same, after the change", "longer after", rank=4),
    Column("minutes", "count", "number of minutes that were compared", "minutes", rank=5),
    Column("probability", "ratio", "that so large a change is found where there is none", "p", rank=2),
    Column("others", "part", "which part of the other hosts has a change of its hours as large", "others", rank=3),
)
# Changes as large as so many hosts have are usual.
_USUAL: Final = 0.05
_LEAST_HOURS: Final = 2
_HALF_WEIGHT: Final = 30


def began(fleet: Fleet, *, hosts: Sequence[str], hop: str, probability: float = FALSE_RATE) -> Report:
    """Return when a hop of each of these hosts changed most, of those of which it did.

    Each minute is compared with all other hosts in the same hour, so that what all hosts have in common, such as the
    load of the day, is no change. Without other hosts, it is compared with the host's own durations.

    Raises
    ------
    UsageError
        There is no such host or hop, or it was measured in too few minutes.
    """
    check_hosts(fleet, hosts)
    (name,) = hops(fleet, hop)
    steps = _steps_of_hours(fleet, name)
    rows: list[tuple[Any, ...]] = []
    notes: list[str] = []
    for host in hosts:
        row, why_not = _change(fleet, host, name, steps, probability)
        rows += [row] if row else []
        notes += [why_not] if why_not else []
    notes += absences(fleet)
    return of_rows("fleet.began", COLUMNS, rows, notes=notes, heading=[*heading(fleet)[:1], name, ""])


def _change(
    fleet: Fleet, host: str, hop: str, steps: Mapping[str, float], probability: float
) -> tuple[tuple[Any, ...] | None, str]:
    """Return the row of a host, or else a sentence."""
    minute, slot, samples = _minutes(fleet, host, hop)
    minutes, number = np.unique(minute, return_inverse=True)
    if len(minutes) < 2 * LEAST:
        raise UsageError(
            f"{host} has {hop} in {len(minutes):,} minutes of that time, and {2 * LEAST} are needed",
            "Give more time with --from",
        )
    ridits = _ridits(fleet, host, hop, (slot, samples))
    counts = np.bincount(number, samples)
    hour = minute // MINUTES_OF_HOUR - fleet.hours.start
    scores = np.bincount(number, samples * ridits[hour, slot]) / counts
    step = find_step(scores, counts / (counts + _HALF_WEIGHT))
    rest = [size for name, size in steps.items() if name != host]
    others = sum(size >= steps[host] for size in rest) / len(rest) if host in steps else None
    if not step or step.probability > probability:
        chance = f" (p = {step.probability:.3g})" if step else ""
        return None, f"{hop} of {host} did not change in that time more than by chance{chance}"
    if others is not None and others > _USUAL:
        return (
            None,
            f"{hop} of {host} changed, but not more than that of {others:.0%} of the other hosts: that is usual",
        )
    before, after = (
        histogram(np.bincount(slot[part], samples[part], SLOTS).astype(np.int64)).percentile(50)
        for part in (number < step.at, number >= step.at)
    )
    return (
        host,
        *(text_of_minute(int(minutes[place])) for place in (step.at, step.least, step.most)),
        before,
        after,
        three(after / before if before and after else None),
        hop,
        three(step.before),
        three(step.after),
        len(minutes),
        three(step.probability),
        others,
    ), ""


def _steps_of_hours(fleet: Fleet, hop: str) -> dict[str, float]:
    """Return how large the best step of each host's hours is; nothing where there are too few hosts."""
    names = host_names(fleet)
    if len(names) < LEAST_HOSTS:
        return {}
    scores, samples = block_scores(durations(fleet, hop, {name: number for number, name in enumerate(names)}))
    weights = samples / (samples + _HALF_WEIGHT)
    measured = weights.any(axis=0)
    steps = largest_steps(np.nan_to_num(scores[:, measured]), weights[:, measured], _LEAST_HOURS)
    return dict(zip(names, steps.tolist(), strict=True))


def _minutes(fleet: Fleet, host: str, hop: str) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    found = fleet.columns(
        "SELECT minute, unnest(slots) AS slot, unnest(counts) AS samples FROM hop_minutes"
        f" WHERE host = {text(host)} AND hop = {text(hop)}"
    )
    minute, slot, samples = (np.ma.getdata(found[name]).astype(np.int64) for name in ("minute", "slot", "samples"))
    return minute, slot, samples


def _ridits(fleet: Fleet, host: str, hop: str, own: tuple[NDArray[np.int64], NDArray[np.int64]]) -> NDArray[np.float64]:
    """Return the mean rank of each slot among all other hosts, by hour; each of them weighs the same."""
    found = fleet.columns(
        f"SELECT block, slot, sum(part) AS part FROM ("
        f" SELECT hour - {fleet.hours.start} AS block, unnest(slots) AS slot,"
        " unnest(counts) / CAST(count AS DOUBLE) AS part"
        f" FROM hop_hours WHERE hop = {text(hop)} AND host <> {text(host)}) GROUP BY ALL"
    )
    block, slot = (np.ma.getdata(found[name]).astype(np.int64) for name in ("block", "slot"))
    shape = len(fleet.hours), SLOTS
    mixture = np.zeros(shape)
    mixture[block, slot] = np.ma.getdata(found["part"])
    whole = np.bincount(*own, SLOTS).astype(np.float64)
    sizes = mixture.sum(axis=1, keepdims=True)
    mixture = np.where(sizes > 0, mixture / np.maximum(sizes, 1e-12), whole / whole.sum())
    return np.asarray(np.cumsum(mixture, axis=1) - mixture / 2)
