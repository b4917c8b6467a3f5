# SPDX-License-Identifier: Apache-2.0
"""Conversion of counter readings to rows of a trace and back: a reading stores changes since the previous one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hopscope.errors import FormatError, UsageError
from hopscope.model.counters.readings import Key, Readings, Unread, signed
from hopscope.model.counters.sources import SOURCES, kind_of
from hopscope.store.schema import BY_NAME

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from hopscope.store.trace import Trace

Columns = dict[str, "NDArray[Any]"]

_NONE: Final = Readings(0, 0, {})
_READ_AGAIN: Final = ""
# Estimate, as the text columns hold references whose size says nothing about memory use.
ROW_BYTES: Final = 400


def rows(before: Readings | None, now: Readings) -> Iterator[tuple[str, Columns]]:
    """Yield the rows of a reading, table by table.

    Parameters
    ----------
    before
        The previously written reading, None for the first.
    now
        The reading.
    """
    old = before or _NONE
    yield "readings", _columns("readings", [(now.time_ns, now.until_ns, 0)])
    yield from _changes("counters", old.numbers, now.numbers, now.time_ns, 0)
    yield from _changes("settings", old.words, now.words, now.time_ns, "")
    fresh = [(netns, name) for netns, name in now.namespaces.items() if old.namespaces.get(netns) != name]
    if fresh:
        yield "namespaces", _columns("namespaces", fresh)
    reasons, known = _reasons(now), _reasons(old)
    news = [(now.time_ns, *place, reason) for place, reason in reasons.items() if known.get(place) != reason]
    news += [(now.time_ns, *place, _READ_AGAIN) for place in known.keys() - reasons.keys()]
    if news:
        yield "unread", _columns("unread", news)


def with_settings_of(before: Readings, now: Readings) -> Readings:
    """Return a reading completed by the settings of an earlier one that it does not contain."""
    settings = {key: value for key, value in before.numbers.items() if kind_of(key) == "setting"}
    return replace(now, numbers={**settings, **now.numbers}, words={**before.words, **now.words})


def times(trace: Trace) -> list[tuple[int, int]]:
    """Return begin and end of each reading, CLOCK_MONOTONIC in ns, in order; no two begin at once."""
    found = trace.rows("SELECT time_ns, max(until_ns) FROM readings GROUP BY time_ns ORDER BY time_ns")
    return [(int(began), int(ended)) for began, ended in found]


def reading_at(trace: Trace, time_ns: int) -> Readings:
    """Return the reading of a trace that began at this time.

    Raises
    ------
    UsageError
        There is no such reading.
    FormatError
        What was read has no name, or is from where no reading is.
    """
    found = dict(times(trace))
    if time_ns not in found:
        raise UsageError(
            "The trace has no reading of the counters at that time",
            "`hopscope record` reads the counters unless --counters 0 is given",
        )
    return Readings(
        time_ns,
        found[time_ns],
        {_key(trace, row): int(row[-1]) for row in trace.rows(_last("counters", time_ns))},
        {_key(trace, row): str(row[-1]) for row in trace.rows(_last("settings", time_ns))},
        {int(netns): str(name) for netns, name in trace.rows("SELECT netns, max(name) FROM namespaces GROUP BY netns")},
        [Unread(int(netns), source, reason) for netns, source, reason in trace.rows(_unread(time_ns))],
    )


def first_and_last(trace: Trace) -> tuple[Readings, Readings]:
    """Return the first and the last reading of a trace.

    Raises
    ------
    UsageError
        There are fewer than two.
    """
    found = times(trace)
    if len(found) < 2:
        raise UsageError(
            f"{trace.folder} has {'only one reading' if found else 'no readings'} of the counters, but two are needed",
            "`hopscope record` reads the counters every second unless --counters says otherwise",
        )
    return reading_at(trace, found[0][0]), reading_at(trace, found[-1][0])


def last_settings(trace: Trace) -> dict[Key, str]:
    """Return the settings at the last reading of a trace; none if it has no readings."""
    found = times(trace)
    if not found:
        return {}
    last = reading_at(trace, found[-1][0])
    numbers = {key: str(value) for key, value in last.numbers.items() if kind_of(key) == "setting"}
    return {**numbers, **last.words}


def _key(trace: Trace, row: Sequence[Any]) -> Key:
    """Return what a value, the last one of a row, is of."""
    return key_of(trace, row[:-1] if row[-1] is not None else (None,))


def key_of(trace: Trace, values: Sequence[Any]) -> Key:
    """Return the key of which these are the parts, in its order.

    Raises
    ------
    FormatError
        One is missing, or the source is none of those that hopscope reads.
    """
    if None in values or values[1] not in SOURCES:
        raise FormatError(
            f"{trace.folder} has counters or settings that this hopscope does not know",
            "Read it with the version that recorded it, or restore it from a backup",
        )
    return Key(*values)


def _last(table: str, time_ns: int) -> str:
    """Return the query for the last value of each key up to a time, without keys that no longer exist."""
    return f"""
        SELECT netns, source, subject, name, value FROM (
            SELECT *, row_number() OVER (PARTITION BY netns, source, subject, name ORDER BY time_ns DESC) AS age
            FROM {table} WHERE time_ns <= {time_ns}) found
        WHERE age = 1 AND present = 1 ORDER BY netns, source, subject, name"""


def _unread(time_ns: int) -> str:
    return f"""
        SELECT netns, source, reason FROM (
            SELECT *, row_number() OVER (PARTITION BY netns, source ORDER BY time_ns DESC) AS age
            FROM unread WHERE time_ns <= {time_ns}) found
        WHERE age = 1 AND reason <> '{_READ_AGAIN}' ORDER BY netns, source"""


def _reasons(readings: Readings) -> dict[tuple[int, str], str]:
    return {(each.netns, each.source): each.reason for each in readings.unread}


def _changes(
    table: str, old: Mapping[Key, Any], now: Mapping[Key, Any], time_ns: int, nothing: int | str
) -> Iterator[tuple[str, Columns]]:
    fresh = [(time_ns, *key, value, 1) for key, value in now.items() if old.get(key) != value]
    gone = [(time_ns, *key, nothing, 0) for key in old.keys() - now.keys()]
    if fresh or gone:
        yield table, _columns(table, [*fresh, *gone])


def _columns(table: str, found: Sequence[tuple[Any, ...]]) -> Columns:
    # An unsigned 64-bit counter may exceed a signed integer: its bit pattern is kept.
    return {
        column.name: np.array([signed(each) if isinstance(each, int) else each for each in values], column.dtype)
        for column, values in zip(BY_NAME[table].columns, zip(*found, strict=True), strict=True)
    }
