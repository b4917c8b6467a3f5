# SPDX-License-Identifier: Apache-2.0
"""Increases of counters during a recording, from reading to reading, in one table."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hopscope.model.counters.deltas import Begun, differences
from hopscope.model.counters.names import explained
from hopscope.model.counters.readings import HOST, Key, Unread
from hopscope.model.counters.rows import folded, is_background
from hopscope.model.counters.sources import LAYERS, SOURCES, kind_of, layer_of
from hopscope.model.report import Column, Report, of_rows
from hopscope.trace.each_host import each_host
from hopscope.trace.recorded_counters import key_of, times
from hopscope.trace.relation import build

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from hopscope.model.report import Value
    from hopscope.store.trace import Trace
    from hopscope.trace.selection import Selection

COLUMNS: Final = (
    Column("layer", "text", "layer of the network stack, from the wire to the application", "layer"),
    Column("name", "text", "name of the counter; `hopscope counters explain` describes it", "counter"),
    Column("subject", "text", "the interface, queue or the like to which the counter belongs", "of"),
    Column("netns", "text", "network namespace; missing for the host's own", "netns"),
    Column("sign", "text", "loss: packets or connections were lost or refused; bad: a sign of trouble", "sign", rank=2),
    Column("count", "count", "increase from the first reading to the last, except what `anew` hides", "count"),
    Column("per_s", "per_s", "average rate over that time", "per s", rank=1),
    Column("peak_per_s", "per_s", "highest rate between two consecutive readings", "peak/s", rank=3),
    Column("peak_at_ns", "at_ns", "time of the reading that ended this interval", "peak at", rank=3),
    Column(
        "anew",
        "count",
        "readings at which the value had decreased (counter reset): the increase there is unknown",
        "anew",
        rank=4,
    ),
)
_SIGNS: Final = ("loss", "bad")

_KEY: Final = ("netns", "source", "subject", "name")
# `fresh`: it did not exist at the previous reading.
_CHANGES: Final = """
    SELECT netns, source, subject, name, time_ns, value, present, coalesce(before, 0) AS before,
           CASE WHEN before IS NULL OR was_present = 0 THEN 1 ELSE 0 END AS fresh
    FROM (SELECT *, lag(value) OVER own AS before, lag(present) OVER own AS was_present FROM counters
          WINDOW own AS (PARTITION BY netns, source, subject, name ORDER BY time_ns)) c"""


def counter_history(trace: Trace, selection: Selection, *, limit: int | None = None) -> Report:
    """Return the increase of each counter, grouped by layer: losses first, then signs of trouble, then the others.

    CPUs and queues are added up. Counters that always increase on every host, such as timers, are omitted.

    Only the period of `selection` applies, to the readings.
    """
    every = (_at_host(row, host) for host in each_host(trace) for row in _moved(trace, selection))
    moved = sorted(every, key=lambda row: (LAYERS.index(str(row[0])), _grave(row[4])))
    shown = moved if limit is None else moved[:limit]
    return of_rows("counters", COLUMNS, shown, notes=notes(trace), left_out=len(moved) - len(shown))


def _at_host(row: list[Value], host: str) -> list[Value]:
    """Return a row of a host; in a joined trace, names of namespaces already include the host, except its own."""
    return [*row[:3], row[3] or (f"@{host}" if host else None), *row[4:]]


def _grave(sign: Value) -> int:
    return _SIGNS.index(str(sign)) if sign in _SIGNS else len(_SIGNS)


def steps(trace: Trace, selection: Selection) -> Iterator[tuple[Key, NDArray[np.int64], NDArray[np.int64], int]]:
    """Yield each counter that increased: its key, the readings, the increases, and the number of resets."""
    found = trace.columns(
        f"SELECT *, CASE WHEN {selection.window(trace)} THEN 1 ELSE 0 END AS wanted FROM ({_CHANGES}) c"
        " ORDER BY netns, source, subject, name, time_ns"
    )
    count = len(found["time_ns"])
    if not count:
        return
    known = _counts(trace, found) & (found["wanted"] == 1)
    firsts = np.flatnonzero(np.logical_or.reduce([_differs(found[column]) for column in _KEY]))
    for begins, ends in zip(firsts, [*firsts[1:], count], strict=True):
        rows = np.arange(begins, ends)[known[begins:ends]]
        key = _key(trace, found, int(begins))
        if kind_of(key) == "counter" and len(rows):
            # Fresh counters that began at 0.
            before = np.where(found["fresh"][rows] == 1, 0, found["before"][rows]).astype(np.int64)
            bits = np.full(len(rows), SOURCES[key.source].bits, np.int64)
            by, how = differences(before, found["value"][rows].astype(np.int64), bits)
            if by.any() or (how == 2).any():
                yield key, found["time_ns"][rows].astype(np.int64), by, int((how == 2).sum())


def _counts(trace: Trace, found: Mapping[str, NDArray[Any]]) -> NDArray[np.bool_]:
    """Return which rows are increases since the previous reading: not those of the first, nor of removed counters.

    Files of readings can be missing. What changed at one of these is of the next one, and of none behind the last.
    """
    ((first_ns, last_ns),) = trace.rows("SELECT coalesce(min(time_ns), 0), coalesce(max(time_ns), 0) FROM readings")
    counts: NDArray[np.bool_] = (found["present"] == 1) & (found["time_ns"] > first_ns) & (found["time_ns"] <= last_ns)
    begun = Begun(
        (
            key_of(trace, row)
            for row in trace.rows(f"SELECT {', '.join(_KEY)} FROM counters WHERE time_ns = {first_ns}")
        ),
        (Unread(netns, source, "") for netns, source in trace.rows("SELECT netns, source FROM unread")),
    )
    came_or_went = np.flatnonzero(((found["fresh"] == 1) | (found["present"] == 0)) & (found["time_ns"] > first_ns))
    times_ns = found["time_ns"][came_or_went]
    for time_ns in np.unique(times_ns):
        at_once = came_or_went[times_ns == time_ns]
        keys = [_key(trace, found, row) for row in at_once]
        for row, key in zip(at_once, keys, strict=True):
            counts[row] &= begun.counted_from_0(key)
        for row, key in zip(at_once, keys, strict=True):
            (begun.learn if found["present"][row] else begun.forget)(key)
    return counts


def _key(trace: Trace, found: Mapping[str, NDArray[Any]], row: int) -> Key:
    return key_of(trace, (int(found["netns"][row]), *(str(found[column][row]) for column in _KEY[1:])))


def notes(trace: Trace) -> list[str]:
    """Return sentences about counters that are missing from the trace."""
    ((readings,),) = trace.rows("SELECT count(*) FROM readings")
    if readings < 2:
        return ["counters were not recorded: `hopscope record` reads them unless --counters 0 is given"]
    unread = trace.rows("SELECT DISTINCT source, reason FROM unread WHERE reason <> '' ORDER BY source, reason")
    return [f"{source} not read: {reason}" for source, reason in unread]


def netns_names(trace: Trace) -> dict[int, str]:
    """Return inode → name of the network namespaces whose counters the trace has; the host's own is empty."""
    build(trace, "netns_names")
    return {HOST: "", **dict(trace.rows("SELECT netns, name FROM netns_names"))}


def _moved(trace: Trace, selection: Selection) -> Iterator[list[Value]]:
    began = np.array([began for began, _ in times(trace)], np.int64)
    wanted = [row[0] for row in trace.rows(f"SELECT time_ns FROM readings WHERE {selection.window(trace)}")]
    if len(began) < 2 or not wanted:
        return
    length_s = (max(wanted) - began[max(int(np.searchsorted(began, min(wanted))) - 1, 0)]) / 1e9
    namespaces = netns_names(trace)
    every: dict[Key, NDArray[np.int64]] = {}
    anew: Counter[Key] = Counter()
    for part, times_ns, by, fallen in steps(trace, selection):
        if not is_background(part):
            key, _ = folded(part)
            np.add.at(every.setdefault(key, np.zeros(len(began), np.int64)), np.searchsorted(began, times_ns), by)
            anew[key] += fallen
    for key, by in every.items():
        rates = by[1:] / np.diff(began / 1e9)
        peak = int(rates.argmax())
        known = explained(key)
        yield [
            layer_of(key),
            key.name,
            key.subject or None,
            namespaces.get(key.netns, str(key.netns)) or None,
            known.sign if known and known.sign in _SIGNS else None,
            int(by.sum()),
            by.sum() / length_s,
            float(rates[peak]),
            int(began[peak + 1]) - trace.metadata.started_ns,
            anew[key] or None,
        ]


def _differs(column: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether each value differs from the previous one; True for the first."""
    return np.concatenate([[True], column[1:] != column[:-1]])
