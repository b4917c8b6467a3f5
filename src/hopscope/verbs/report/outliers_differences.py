# SPDX-License-Identifier: Apache-2.0
"""Further differences of some messages: attributes that they have more often, and activity at the same time.

Only differences of at least half of them that are not explained by chance are named.
"""

from __future__ import annotations

from math import exp, lgamma, log
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from hopscope.trace.causes.arrivals import SOFTIRQS
from hopscope.trace.messages.path import BY_COLUMN, before, latest
from hopscope.trace.messages.segments import number
from hopscope.trace.messages.table import MESSAGE
from hopscope.trace.names import points
from hopscope.trace.relation import columns, relation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from hopscope.store.trace import Trace
    from hopscope.trace.relation import Context

I64: TypeAlias = "NDArray[np.int64]"

# Sample size of the other messages.
SAMPLE: Final = 20_000
LEAST_LIFT: Final = 2.0
MOST: Final = 0.5
CHANCE: Final = 1e-4
LEAST_MEMBERS: Final = 3
# Activity is counted in slices of this many ns (65 µs).
SLICE_NS: Final = 1 << 16


NUMBERED: Final = MESSAGE | columns(
    "total_ns way",
    total_ns="time from its first point to its last",
    way="columns of the points that it passed, in order",
)
SAMPLES: Final = ("compared_messages", "message_attributes", "activity_counts")


@relation(
    "compared_messages",
    "a message that is compared: the outliers, and a sample of the others",
    NUMBERED,
    needs=("numbered_messages", "slow_messages"),
    report="outliers",
)
def _compared_messages(context: Context) -> str:
    count = int(context.trace.rows("SELECT count(*) FROM numbered_messages")[0][0])
    step = max(count // SAMPLE, 1)
    every = "(SELECT count(*) FROM numbered_messages)"
    rare = f"SELECT way FROM numbered_messages GROUP BY way HAVING count(*) * 100 < {every}"
    slow = "SELECT message FROM slow_messages"
    return f"SELECT * FROM numbered_messages WHERE message % {step} = 0 OR message IN ({slow}) OR way IN ({rare})"


@relation(
    "message_attributes",
    "an attribute of one of `compared_messages`",
    columns(
        "message attribute",
        message="number of the message (`numbered_messages`)",
        attribute="attribute as shown in the report",
    ),
    needs=("compared_messages", "flow_names", "thread_names", "cpu_names", "device_names", "original_packets"),
    report="outliers",
)
def _message_attributes(context: Context) -> str:
    return " UNION ALL ".join(_attributes(points(context.trace)))


@relation(
    "activity_counts",
    "how often an activity occurred in a slice of time",
    columns(
        "point subject slice times",
        point="the probe point",
        subject="for interrupts and softirqs: the number; for tx.queue: the flow",
        slice=("ns", "beginning of the slice of time, 2^16 ns long"),
        times="number of occurrences",
    ),
    needs=("original_packets",),
    report="outliers",
)
def _activity_counts(context: Context) -> str:
    return _activity(points(context.trace))


def _attributes(numbers: dict[str, int]) -> Iterator[str]:
    """Iterate over queries for message and attribute, as shown in the report."""
    yield (
        "SELECT s.message, concat('flow ', coalesce(n.name, CAST(s.flow AS STRING))) AS attribute"
        " FROM compared_messages s"
        " LEFT JOIN flow_names n ON n.flow = s.flow"
    )
    for role in ("sender", "reader"):
        yield (
            f"SELECT s.message, concat('{role} ', n.comm, ' (thread ', s.{role}_tid, ')') FROM compared_messages s"
            f" JOIN thread_names n ON n.tid = s.{role}_tid"
        )
    yield (
        "SELECT message, concat(CAST(power(2, floor(log2(len_bytes))) AS BIGINT), ' to ',"
        " CAST(power(2, floor(log2(len_bytes)) + 1) AS BIGINT) - 1, ' bytes')"
        " FROM compared_messages WHERE len_bytes > 0"
    )
    for column in ("queue_ns", "core_ns"):
        name = BY_COLUMN[column].point
        yield (
            f"SELECT DISTINCT s.message, concat('CPU ', c.name, ' at {name}') FROM compared_messages s JOIN packets e"
            f" ON e.time_ns = s.{column} JOIN cpu_names c ON c.cpu = e.cpu WHERE e.point = {number(numbers, name)}"
        )
    yield (
        "SELECT DISTINCT s.message, concat('CPU ', c.name, ' at the reader') FROM compared_messages s JOIN sockets e"
        f" ON e.time_ns = s.received_ns AND e.tid = s.reader_tid JOIN cpu_names c ON c.cpu = e.cpu"
        f" WHERE e.point = {number(numbers, 'rx.received')}"
    )
    for column in ("queue_ns", "driver_ns"):
        name = BY_COLUMN[column].point
        yield (
            f"SELECT DISTINCT s.message, concat('interface ', d.name, ' at {name}') FROM compared_messages s"
            f" JOIN original_packets e ON e.time_ns = s.{column} AND e.flow = s.flow JOIN device_names d"
            f" ON d.ifindex = e.ifindex AND d.netns = e.netns WHERE e.point = {number(numbers, name)}"
        )


def _activity(numbers: dict[str, int]) -> str:
    """Return the query for the number of interrupts, softirqs and packets by flow in each time slice."""
    time_slice = f"time_ns - time_ns % {SLICE_NS}"
    irq, softirq, queue = (number(numbers, name) for name in ("irq.enter", "softirq.enter", "tx.queue"))
    return (
        f"SELECT point, subject, {time_slice} AS slice, count(*) AS times FROM cpu WHERE point IN ({irq}, {softirq})"
        f" GROUP BY 1, 2, 3 UNION ALL SELECT point, flow, {time_slice}, count(*) FROM original_packets"
        f" WHERE point = {queue} GROUP BY 1, 2, 3"
    )


def differences(trace: Trace, members: str, column: str) -> list[str]:
    """Return further differences of messages, the most striking first.

    Parameters
    ----------
    members
        Query for their numbers.
    column
        Column of the point at which the slow stage ends; empty: the whole message.
    """
    found = [*_frequent(trace, members), *_meanwhile(trace, members, column)]
    return [f"{name} {_times(lift)}" for lift, name in sorted(found, key=lambda each: (-each[0], each[1]))]


def _times(lift: float) -> str:
    return f"{lift:.0f}x" if lift < 1000 else ">999x"


def _frequent(trace: Trace, members: str) -> Iterator[tuple[float, str]]:
    """Iterate over lift and name of attributes that the messages have more often than the others."""
    inside, all_of_them = trace.rows(
        f"SELECT coalesce(sum(CASE WHEN message IN ({members}) THEN 1 ELSE 0 END), 0), count(*) FROM compared_messages"
    )[0]
    others = all_of_them - inside
    if inside < LEAST_MEMBERS or not others:
        return
    rows = trace.rows(
        f"SELECT attribute, sum(CASE WHEN message IN ({members}) THEN 1 ELSE 0 END), count(*) FROM message_attributes"
        " GROUP BY attribute"
    )
    for name, here, everywhere in rows:
        share = (everywhere - here + 0.5) / (others + 1)
        lift = here / inside / share
        if here >= MOST * inside and lift >= LEAST_LIFT and _chance(here, inside, share) * len(rows) < CHANCE:
            yield lift, name


def _chance(hits: int, tries: int, probability: float) -> float:
    """Return the probability of at least so many hits (binomial); for many trials, Chernoff's upper bound."""
    part = hits / tries
    if part <= probability:
        return 1.0
    if tries <= 100:
        return sum(exp(_log_binomial(tries, k, probability)) for k in range(hits, tries + 1))
    rest = (1 - part) * log((1 - part) / (1 - probability)) if part < 1 else 0.0
    return exp(max(-tries * (part * log(part / probability) + rest), -700.0))


def _log_binomial(tries: int, hits: int, probability: float) -> float:
    ways = lgamma(tries + 1) - lgamma(hits + 1) - lgamma(tries - hits + 1)
    return ways + hits * log(probability) + (tries - hits) * log(max(1 - probability, 1e-300))


def _meanwhile(trace: Trace, members: str, column: str) -> Iterator[tuple[float, str]]:
    """Iterate over lift and name of activities that are more frequent during the stages than on average.

    A long stage contains more of everything, whatever its cause: therefore rates are compared, not counts.
    """
    begin = latest(before(column)) if column else "begins_ns"
    spans = trace.rows(
        f"SELECT {begin}, {column or 'ends_ns'}, flow FROM compared_messages"
        f" WHERE message IN ({members}) LIMIT {SAMPLE}"
    )
    if len(spans) < LEAST_MEMBERS:
        return
    from_ns, until_ns, flows = (np.array(each, np.int64) for each in zip(*spans, strict=True))
    numbers = points(trace)
    for point, subject, slices, times in _series(trace):
        if point == number(numbers, "tx.queue"):
            continue
        lift = _rate_lift(slices, times, from_ns, until_ns, _length_ns(trace))
        if lift >= LEAST_LIFT:
            yield lift, _activity_name(trace, point, subject)
    yield from _load(trace, from_ns, until_ns, flows)


def _load(trace: Trace, from_ns: I64, until_ns: I64, flows: I64) -> Iterator[tuple[float, str]]:
    """Iterate over other flows with more packets during the stages than on average."""
    queue = number(points(trace), "tx.queue")
    for point, flow, slices, times in _series(trace):
        if point != queue or (flows == flow).mean() > MOST:
            continue
        lift = _rate_lift(slices, times, from_ns, until_ns, _length_ns(trace))
        if lift >= LEAST_LIFT:
            yield lift, f"packets of flow {_flow_name(trace, flow)} at the same time"


def _rate_lift(slices: I64, times: I64, from_ns: I64, until_ns: I64, length_ns: int) -> float:
    """Return the ratio of an activity's rate during spans to its average; 0 unless it occurs in most of them."""
    running = np.concatenate(([0], np.cumsum(times)))
    first = np.searchsorted(slices, from_ns - from_ns % SLICE_NS)
    last = np.searchsorted(slices, until_ns, side="right")
    happened = running[last] - running[first]
    spans_ns = until_ns - until_ns % SLICE_NS + SLICE_NS - (from_ns - from_ns % SLICE_NS)
    expected = running[-1] * spans_ns / max(length_ns, 1)
    more = (happened > LEAST_LIFT * expected) & (happened > 0)
    if more.mean() < MOST or not expected.sum():
        return 0.0
    # So many hits in spans of this length must not be explained by chance, for single spans or for all together.
    total, mean = int(happened.sum()), float(expected.sum())
    surprise = total * log(total / mean) - total + mean
    return total / mean if surprise > -log(CHANCE) else 0.0


def _series(trace: Trace) -> Iterator[tuple[int, int, I64, I64]]:
    """Iterate over activities: point, subject, the time slices in which they occurred, and how often in each."""
    rows = trace.columns(
        "SELECT point, subject, slice, times FROM activity_counts WHERE (point, subject) IN ("
        " SELECT point, subject FROM (SELECT point, subject, row_number() OVER (ORDER BY sum(times) DESC) AS place"
        " FROM activity_counts GROUP BY point, subject) ranked WHERE place <= 64) ORDER BY point, subject, slice"
    )
    if not len(rows["point"]):
        return
    keys = np.stack([np.asarray(rows[name], np.int64) for name in ("point", "subject")])
    cuts = np.flatnonzero(np.any(np.diff(keys, axis=1), axis=0)) + 1
    for part in np.split(np.arange(keys.shape[1]), cuts):
        times, slices = (np.asarray(rows[name], np.int64)[part] for name in ("times", "slice"))
        yield int(keys[0, part[0]]), int(keys[1, part[0]]), slices, times


def _length_ns(trace: Trace) -> int:
    begin, end = trace.rows("SELECT min(slice), max(slice) FROM activity_counts")[0]
    return int(end - begin + SLICE_NS)


def _activity_name(trace: Trace, point: int, subject: int) -> str:
    if point == number(points(trace), "irq.enter"):
        return f"interrupt {subject} at the same time"
    name = SOFTIRQS[subject] if subject < len(SOFTIRQS) else str(subject)
    return f"softirq {name} at the same time"


def _flow_name(trace: Trace, flow: int) -> str:
    found: list[tuple[Any, ...]] = trace.rows(f"SELECT name FROM flow_names WHERE flow = {flow}")
    return str(found[0][0]) if found else str(flow)
