# SPDX-License-Identifier: Apache-2.0
"""The report ``outliers``: messages with an unusual path or a slow stage, what held them, and what else is different.

The usual duration is measured: for each stage, the median and the median absolute deviation of the logarithm of its
duration. A message is an outlier at a stage that took far longer, and a substantial part of the message's time. So is a
message that took far longer in total than nearly all others, however much its stages vary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hopscope.model.histogram import SLOTS, Histogram
from hopscope.model.report import Column, Report, of_rows
from hopscope.term.format import plural
from hopscope.trace.causes.blame import cause_totals
from hopscope.trace.gaps import loss_notes
from hopscope.trace.histogram_sql import slot
from hopscope.trace.messages.path import BY_COLUMN, STEPS, latest, stage
from hopscope.trace.relation import build, columns, fixed, relation
from hopscope.verbs.report.outliers_differences import NUMBERED, SAMPLES, differences

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.store.trace import Trace
    from hopscope.trace.relation import Context
    from hopscope.trace.selection import Selection

# Deviations above the median that make an outlier; with a log-normal distribution, one in a thousand million exceeds
# this.
ODD: Final = 6.0
# Minimum deviation in buckets (of 9 %): smaller deviations are within the variation of a stage.
LEAST_SLOTS: Final = 2.0
# With a normal distribution, 1.4826 times the median absolute deviation is the standard deviation.
_DEVIATIONS: Final = 1.4826
# Minimum share of the message's time.
LEAST_PART: Final = 0.2
# A path with a smaller share of the messages is unusual.
RARE: Final = 0.01
# A stage at which a larger share of the messages is slow has two usual durations.
OFTEN: Final = 0.1
LEAST_MESSAGES: Final = 50
# A message that took this many times as long as the 99th percentile of its protocol is an outlier, too: at stages with
# widely varying durations, such as the wait for a CPU, the limit above may be hours. Of exponentially distributed
# times, one in a thousand million is that long.
FAR: Final = 5
# Messages that may be that far out: this fraction, but at least so many.
_FAR_PART: Final = 0.01
_FAR_LEAST: Final = 3
SHOWN_DIFFERENCES: Final = 3

COLUMNS: Final = (
    Column("what", "text", "`time`: a stage took unusually long; `way`: an unusual path", "what"),
    Column("where", "text", "the stage, or the additional (+) and missing (-) points", "where"),
    Column("messages", "count", "number of messages", "messages"),
    Column("part", "part", "fraction of all messages", "of all", rank=2),
    Column("median_ns", "ns", "their median duration, of the stage or in total", "median"),
    Column("usual_ns", "ns", "the same for all messages", "usual"),
    Column("worst_ns", "ns", "the maximum", "worst", rank=1),
    Column("worst_at_ns", "at_ns", "beginning of the message with the maximum", "at", rank=3),
    Column("blame", "text", "cause that held them longest, all taken together (docs/causes.md)", "held by"),
    Column("different", "text", "what else distinguishes them, and how many times as frequent it is", "different"),
)


@dataclass(frozen=True, slots=True)
class _Usual:
    """Usual duration of a stage: the median, and the limit above which it is an outlier, ns."""

    median_ns: float
    limit_ns: int


def outliers(trace: Trace, selection: Selection, *, limit: int | None = None) -> Report:
    """Return a row per kind of outlier, those with the greatest excess time first."""
    build(trace, "numbered_messages", selection=selection)
    count = int(trace.rows("SELECT count(*) FROM numbered_messages")[0][0])
    if count < LEAST_MESSAGES:
        note = f"{plural(count, 'message')}: too few to tell what is usual; at least {LEAST_MESSAGES} are needed"
        return of_rows("outliers", COLUMNS, [], notes=[note, *loss_notes(trace)])
    usual = {step.column: each for step in STEPS[1:] if (each := _usual(trace, step.column))}
    far = _far_limits(trace)
    build(trace, "slow_stages", selection=selection, usual=usual, far=far)
    often = _often(trace, count)
    notes_on_often = [_sentence_on_often(trace, usual, *each, count) for each in often]
    places = [place for place, _ in often]
    build(trace, *SAMPLES, "slow_messages", "message_causes", selection=selection, usual=usual, far=far, often=places)
    rows = [*_long_stages(trace, usual, count), *_other_ways(trace, count)]
    rows.sort(key=lambda row: -row[-1])
    shown = [row[:-1] for row in (rows if limit is None else rows[:limit])]
    heading = [_sentence(trace, count), ""] if rows else []
    notes = [] if rows else [f"no outliers among {plural(count, 'message')}: usual paths, usual durations"]
    notes += [*notes_on_often, *loss_notes(trace)]
    return of_rows("outliers", COLUMNS, shown, notes=notes, left_out=len(rows) - len(shown), heading=heading)


# Whether the reader slept, and which packet had the first byte, are incidental: they do not change the path.
_LUCK: Final = frozenset({"first_ns", "neighbour_ns", "wake_ns", "switch_ns"})
# The points of a message, as a text with their columns in order.
_WAY: Final = ", ".join(
    f"CASE WHEN {column} IS NULL THEN '' ELSE '{column} ' END" for column in BY_COLUMN if column not in _LUCK
)
fixed(
    "numbered_messages",
    "a message with a duration, with its position in chronological order",
    NUMBERED,
    f"SELECT *, concat({_WAY}) AS way FROM messages WHERE total_ns > 0",
    needs=("messages",),
    report="outliers",
)


def _usual(trace: Trace, column: str) -> _Usual | None:
    """Return the usual duration of the stage that ends at a point; None if too few messages have it."""
    counts = np.zeros(SLOTS, np.int64)
    rows = trace.rows(
        f"SELECT slot, count(*) FROM (SELECT {slot('held_ns')} AS slot FROM"
        f" (SELECT {stage(column)} AS held_ns FROM numbered_messages) s WHERE held_ns IS NOT NULL) slots GROUP BY slot"
    )
    for bucket, count in rows:
        counts[bucket] = count
    if counts.sum() < LEAST_MESSAGES:
        return None
    histogram = Histogram(counts, 0, np.iinfo(np.int64).max)
    middle = int(np.searchsorted(np.cumsum(counts), counts.sum() / 2))
    away = np.bincount(np.abs(np.arange(SLOTS) - middle), weights=counts, minlength=SLOTS)
    deviation = max(_DEVIATIONS * int(np.searchsorted(np.cumsum(away), counts.sum() / 2)), LEAST_SLOTS)
    median_ns = histogram.percentile(50) or 0.0
    return _Usual(median_ns, round(median_ns * 2 ** (ODD * deviation / 8)))


def _far_limits(trace: Trace) -> dict[int, int]:
    """Return protocol → the total duration above which a message is an outlier, ns."""
    rows = trace.rows(
        "SELECT protocol, max(total_ns) FROM"
        " (SELECT protocol, total_ns, count(*) OVER (PARTITION BY protocol) AS rows_,"
        " row_number() OVER (PARTITION BY protocol ORDER BY total_ns DESC) AS place FROM numbered_messages) ranked"
        f" WHERE rows_ >= {LEAST_MESSAGES} AND place > {_FAR_LEAST} AND place > {_FAR_PART} * rows_ GROUP BY protocol"
    )
    return {int(protocol): FAR * int(total_ns) for protocol, total_ns in rows}


_SLOW: Final = columns(
    "message place held_ns excess_ns begins_ns far worst",
    message="number of the message (`numbered_messages`)",
    place="column of the point at which the stage ends",
    held_ns="length of the stage",
    excess_ns="excess over the usual duration",
    far="whether the message took far longer in total than nearly all others",
    worst="1: the stage at which it lost most time",
)


@relation(
    "slow_stages",
    "a message that took unusually long at a stage or in total, with the stage at which it lost most time",
    _SLOW,
    needs=("numbered_messages",),
    parameters=("usual", "far"),
    report="outliers",
)
def _slow_stages(context: Context) -> str:
    usual: dict[str, _Usual] = context["usual"] or {}
    limits: dict[int, int] = context["far"] or {}
    far = " OR ".join(f"(protocol = {protocol} AND total_ns > {limit})" for protocol, limit in limits.items())
    parts = " UNION ALL ".join(_slow_at(step.column, usual.get(step.column), far or "FALSE") for step in STEPS[1:])
    return (
        "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY message ORDER BY excess_ns DESC, place) AS worst"
        f" FROM ({parts}) p) ranked WHERE worst = 1"
    )


def _slow_at(column: str, usual: _Usual | None, far: str) -> str:
    """Return the query for the messages that are slow at the stage that ends at a point, or far out in total."""
    median_ns = round(usual.median_ns) if usual else 0
    slow = f"held_ns > {usual.limit_ns} AND held_ns - {median_ns} > {LEAST_PART} * total_ns" if usual else "FALSE"
    return (
        f"SELECT message, '{column}' AS place, held_ns, held_ns - {median_ns} AS excess_ns, begins_ns, {far} AS far"
        f" FROM (SELECT *, {stage(column)} AS held_ns FROM numbered_messages) s"
        f" WHERE held_ns > 0 AND (({slow}) OR {far})"
    )


@relation(
    "slow_messages",
    "one of `slow_stages`: far out in total, or at a stage at which few messages are slow",
    _SLOW,
    needs=("slow_stages",),
    parameters=("often",),
    report="outliers",
)
def _slow_messages(context: Context) -> str:
    listed = ", ".join(f"'{place}'" for place in context["often"] or ())
    return f"SELECT * FROM slow_stages{f' WHERE far OR place NOT IN ({listed})' if listed else ''}"


def _often(trace: Trace, count: int) -> list[tuple[str, int]]:
    """Return the stages at which too many messages are slow to be outliers, and their numbers."""
    return trace.rows(f"SELECT place, count(*) FROM slow_stages GROUP BY place HAVING count(*) > {OFTEN * count}")


def _sentence_on_often(trace: Trace, usual: dict[str, _Usual], place: str, messages: int, count: int) -> str:
    members = f"FROM slow_stages WHERE place = '{place}'"
    median_ns = trace.rows(_MEDIAN.format(source=f"SELECT held_ns AS time_ns {members}"))[0][0]
    name = _stage_name(trace, place, f"SELECT message {members}")
    times = f"{_in_us(median_ns)}, the others about {_in_us(usual[place].median_ns)}"
    return f"{name} has two usual durations: {messages / count:.0%} of the messages take about {times}"


def _long_stages(trace: Trace, usual: dict[str, _Usual], count: int) -> Iterator[list[Any]]:
    rows = trace.rows(
        "SELECT place, count(*), max(held_ns), max_by(begins_ns, held_ns), CAST(sum(excess_ns) AS BIGINT)"
        " FROM slow_messages GROUP BY place"
    )
    for place, messages, worst_ns, worst_at_ns, excess_ns in rows:
        known = usual.get(place)
        members = f"SELECT message FROM slow_messages WHERE place = '{place}'"
        median_ns = trace.rows(
            _MEDIAN.format(source=f"SELECT held_ns AS time_ns FROM slow_messages WHERE place = '{place}'")
        )[0][0]
        yield [
            "time",
            _stage_name(trace, place, members),
            messages,
            messages / count,
            median_ns,
            known.median_ns if known else None,
            worst_ns,
            worst_at_ns - trace.metadata.started_ns,
            _blame(trace, members),
            "; ".join(differences(trace, members, place)[:SHOWN_DIFFERENCES]),
            excess_ns,
        ]


def _blame(trace: Trace, members: str) -> str:
    """Return the cause that held these messages longest."""
    return next(iter(cause_totals(trace, f"(SELECT * FROM message_causes WHERE message IN ({members}))")))


def _other_ways(trace: Trace, count: int) -> Iterator[list[Any]]:
    """Iterate over the unusual paths of each protocol, compared with the most common one."""
    ways = trace.rows("SELECT protocol, way, count(*) FROM numbered_messages GROUP BY protocol, way ORDER BY 3 DESC, 2")
    common: dict[int, str] = {}
    of_protocol: dict[int, int] = {}
    for protocol, way, messages in ways:
        common.setdefault(protocol, way)
        of_protocol[protocol] = of_protocol.get(protocol, 0) + messages
    usual_ns = {protocol: _median_total(trace, way) for protocol, way in common.items()}
    for protocol, way, messages in ways:
        if messages >= RARE * of_protocol[protocol] or of_protocol[protocol] < LEAST_MESSAGES:
            continue
        difference = _difference(way, common[protocol])
        if not difference:
            continue
        worst_ns, worst_at_ns = trace.rows(
            f"SELECT max(total_ns), max_by(begins_ns, total_ns) FROM numbered_messages WHERE way = '{way}'"
        )[0]
        members = f"SELECT message FROM numbered_messages WHERE way = '{way}' AND protocol = {protocol}"
        median_ns = _median_total(trace, way)
        yield [
            "way",
            difference,
            messages,
            messages / count,
            median_ns,
            usual_ns[protocol],
            worst_ns,
            worst_at_ns - trace.metadata.started_ns,
            _blame(trace, members),
            "; ".join(differences(trace, members, "")[:SHOWN_DIFFERENCES]),
            max(median_ns - usual_ns[protocol], 0) * messages,
        ]


def _difference(way: str, usual: str) -> str:
    """Return the additional (+) and missing (-) points of a path compared with the usual one."""
    here, there = (set(text.split()) for text in (way, usual))
    marks = {**dict.fromkeys(here - there, "+"), **dict.fromkeys(there - here, "-")}
    return " ".join(f"{marks[column]}{step.title}" for column, step in BY_COLUMN.items() if column in marks)


def _stage_name(trace: Trace, column: str, members: str) -> str:
    """Return the stage's name, with the most common preceding point of the messages."""
    before = [step.column for step in STEPS[: list(BY_COLUMN).index(column)]]
    last = latest(tuple(before))
    cases = " ".join(f"WHEN {last} = {each} THEN '{BY_COLUMN[each].title}'" for each in reversed(before))
    name = trace.rows(
        f"SELECT CASE {cases} END, count(*) FROM numbered_messages WHERE message IN ({members})"
        " GROUP BY 1 ORDER BY 2 DESC, 1"
    )[0][0]
    return f"{name} → {BY_COLUMN[column].title}"


# Exact, as there are few rows.
_MEDIAN: Final = """
    SELECT time_ns FROM (SELECT time_ns, row_number() OVER (ORDER BY time_ns) AS place, count(*) OVER () AS rows_
    FROM ({source}) s) ranked WHERE place = floor((rows_ + 1) / 2)"""


def _median_total(trace: Trace, way: str) -> int:
    source = f"SELECT total_ns AS time_ns FROM numbered_messages WHERE way = '{way}'"
    return int(trace.rows(_MEDIAN.format(source=source))[0][0])


def _sentence(trace: Trace, count: int) -> str:
    odd = int(trace.rows("SELECT count(*) FROM slow_messages")[0][0])
    return f"{odd:,} of {plural(count, 'message')} took far longer than usual at one stage"


def _in_us(duration_ns: float) -> str:
    return f"{duration_ns / 1000:,.3g} µs" if duration_ns < 1e6 else f"{duration_ns / 1000:,.0f} µs"
