# SPDX-License-Identifier: Apache-2.0
"""Interrupts, softirqs and polls of a trace: how often each ran, for how long, and how long softirqs were pending."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from hopscope.model.histogram import SLOTS, Histogram
from hopscope.model.report import Column, Report, of_rows
from hopscope.trace.gaps import loss_notes, unattached_notes
from hopscope.trace.histogram_sql import slot
from hopscope.trace.host_numbers import host_of_cpu, host_of_netns, hosts
from hopscope.trace.names import CLEAN, points
from hopscope.trace.relation import build

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hopscope.model.report import Value
    from hopscope.store.trace import Trace
    from hopscope.trace.selection import Selection

COLUMNS: Final = (
    Column("kind", "text", "irq: an interrupt of a device; softirq; poll: of a device, by NAPI", "kind"),
    Column("number", "number", "number of the interrupt or softirq", "number"),
    Column(
        "name",
        "text",
        "the devices, as in /proc/interrupts; the softirq; the polled device, or backlog: the CPUs' own queues",
        "name",
    ),
    Column(
        "handler", "text", "function that handles the interrupt: a shared one has a row for each", "handler", rank=1
    ),
    Column("cpus", "count", "number of CPUs on which it ran", "CPUs", rank=3),
    Column("count", "count", "how often it ran", "count"),
    Column("sum_ns", "ns", "total duration, with the interrupts that came meanwhile", "total", rank=2),
    Column("mean_ns", "ns", "mean duration", "mean", rank=3),
    Column("p50_ns", "ns", "median duration", "p50"),
    Column("p99_ns", "ns", "99th percentile", "p99"),
    Column("max_ns", "ns", "maximum", "max"),
    Column("handled", "part", "share of interrupts that this handler found to be of its device", "handled"),
    Column("delay_p50_ns", "ns", "median time from the raise of the softirq to its beginning", "delay p50"),
    Column("delay_p99_ns", "ns", "99th percentile", "delay p99"),
    Column("delay_max_ns", "ns", "maximum", "delay max", rank=2),
    Column("packets", "count", "packets that were polled", "packets", rank=2),
    Column("packets_per_poll", "ratio", "mean number of packets per poll", "per poll"),
    Column("full", "count", "polls that used up their budget: there were more packets", "full", rank=2),
)
# include/linux/interrupt.h
_SOFTIRQS: Final = ("HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU")
_BACKLOG: Final = "backlog"
_OFFSET: Final = re.compile(r"\+0x0$")

# Whatever was lost between two events may have been what belongs to them.
_WHOLE: Final = """NOT EXISTS (SELECT 1 FROM losses l
                    WHERE l.cpu = e.cpu AND l.from_ns <= e.{last} AND l.until_ns >= e.{first})"""
# An interrupt or softirq ends with the next event of its kind and number on its CPU, if that is an end.
_RUNS: Final = f"""
    SELECT {{kind}} AS kind, {host_of_cpu("e.cpu")} AS host, e.subject, e.value AS handler, e.cpu,
           CASE WHEN e.next_point = {{exit}} AND {_WHOLE.format(first="time_ns", last="next_ns")}
                THEN e.next_ns - e.time_ns END AS took_ns,
           CASE WHEN e.next_point = {{exit}} THEN e.next_value END AS result
    FROM (SELECT *, lead(point) OVER own AS next_point, lead(time_ns) OVER own AS next_ns,
                 lead(value) OVER own AS next_value
          FROM cpu WHERE point IN ({{enter}}, {{exit}})
          WINDOW own AS (PARTITION BY cpu, subject ORDER BY time_ns, point)) e
    WHERE e.point = {{enter}} AND {{window}}"""
_COUNTS: Final = """
    SELECT kind, host, subject, handler, count(*), count(DISTINCT cpu), count(result),
           CAST(sum(CASE WHEN result <> 0 THEN 1 ELSE 0 END) AS BIGINT)
    FROM ({runs}) r GROUP BY kind, host, subject, handler"""
_TIMES: Final = f"""
    SELECT kind, host, subject, handler, {slot("took_ns")} AS slot, count(*), CAST(sum(took_ns) AS BIGINT), max(took_ns)
    FROM ({{runs}}) r WHERE took_ns IS NOT NULL GROUP BY kind, host, subject, handler, slot"""
# From the first raise since the softirq began the last time: further ones change nothing until it begins. Before the
# first beginning that was recorded, the first raise may not have been.
_DELAYS: Final = f"""
    SELECT {{kind}} AS kind, {host_of_cpu("e.cpu")} AS host, e.subject, 0 AS handler, e.time_ns - e.raised_ns AS took_ns
    FROM (SELECT *, lag(point) OVER own AS last_point, lag(time_ns) OVER own AS raised_ns
          FROM (SELECT *, lag(point) OVER own AS before FROM cpu WHERE point IN ({{raised}}, {{enter}})
                WINDOW own AS (PARTITION BY cpu, subject ORDER BY time_ns, point)) f
          WHERE point = {{enter}} OR before = {{enter}}
          WINDOW own AS (PARTITION BY cpu, subject ORDER BY time_ns, point)) e
    WHERE e.point = {{enter}} AND e.last_point = {{raised}} AND {{window}}
          AND {_WHOLE.format(first="raised_ns", last="time_ns")}"""
_POLLS: Final = f"""
    SELECT CASE WHEN e.ifindex <> 0 THEN coalesce(d.label, concat('device ', e.ifindex))
                WHEN h.name IS NULL THEN '{_BACKLOG}' ELSE concat('{_BACKLOG}@', h.name) END AS polled,
           count(DISTINCT e.cpu), count(*), CAST(sum(e.value) AS BIGINT),
           CAST(sum(CASE WHEN e.value >= e.extra THEN 1 ELSE 0 END) AS BIGINT)
    FROM cpu e LEFT JOIN hosts h ON h.host = {host_of_cpu("e.cpu")}
    LEFT JOIN device_names d ON d.netns = e.netns AND d.ifindex = e.ifindex
    WHERE e.point = {{poll}} AND {{window}} AND {{device}}
    GROUP BY polled ORDER BY count(*) DESC, polled"""
_NAMES: Final = f"""
    SELECT DISTINCT {host_of_netns("netns")}, {CLEAN.format("subject")} FROM counters WHERE source = 'interrupt'
    ORDER BY 1, 2"""

_IRQ, _SOFTIRQ = 0, 1
# As their points are called.
_KINDS: Final = ("irq", "softirq")


class _Key(NamedTuple):
    """What has a row of its own; the numbers of softirqs are followed by no handler."""

    kind: int
    host: int
    number: int
    handler: int


def interrupts(trace: Trace, selection: Selection, *, limit: int | None = None) -> Report:
    """Return a row per handler of an interrupt, per softirq and per polled device, each kind by total duration.

    Only the period of `selection` applies, and to polls its devices.
    """
    build(trace, "device_names")
    names = _Names(trace)
    queries = [_runs(trace, selection, kind) for kind in _KINDS]
    times = _histograms(trace, " UNION ALL ".join(queries))
    delays = _histograms(trace, _delays(trace, selection))
    counted = trace.rows(_COUNTS.format(runs=" UNION ALL ".join(queries)))
    rows = [_row(_Key(*key), counts, times, delays, names) for *key, counts in _split(counted)]
    rows.sort(key=lambda row: (_KINDS.index(str(row[0])), -float(row[6] or 0), row[1], str(row[2]), str(row[3])))
    rows += _polls(trace, selection)
    left_out = 0 if limit is None else max(len(rows) - limit, 0)
    return of_rows("interrupts", COLUMNS, rows[:limit], notes=_notes(trace, rows), left_out=left_out)


def _split(rows: Sequence[Sequence[int]]) -> list[tuple[int, int, int, int, Sequence[int]]]:
    return [(row[0], row[1], row[2], row[3], row[4:]) for row in rows]


def _runs(trace: Trace, selection: Selection, kind: str) -> str:
    numbers = points(trace)
    return _RUNS.format(
        kind=_KINDS.index(kind),
        enter=numbers.get(f"{kind}.enter", -1),
        exit=numbers.get(f"{kind}.exit", -1),
        window=selection.window(trace, "e.time_ns"),
    )


def _delays(trace: Trace, selection: Selection) -> str:
    numbers = points(trace)
    return _DELAYS.format(
        kind=_SOFTIRQ,
        raised=numbers.get("softirq.raise", -1),
        enter=numbers.get("softirq.enter", -1),
        window=selection.window(trace, "e.time_ns"),
    )


def _histograms(trace: Trace, runs: str) -> dict[_Key, Histogram]:
    """Return the durations of each row."""
    parts: dict[_Key, list[Sequence[int]]] = {}
    for *key, place, count, sum_ns, max_ns in trace.rows(_TIMES.format(runs=runs)):
        parts.setdefault(_Key(*key), []).append((place, count, sum_ns, max_ns))
    found = {}
    for each, counts in parts.items():
        slots = np.zeros(SLOTS, np.int64)
        for place, count, *_ in counts:
            slots[place] = count
        found[each] = Histogram(slots, sum(part[2] for part in counts), max(part[3] for part in counts))
    return found


def _row(
    key: _Key,
    counts: Sequence[int],
    times: Mapping[_Key, Histogram],
    delays: Mapping[_Key, Histogram],
    names: _Names,
) -> list[Value]:
    count, cpus, ended, handled = counts
    took, delay = times.get(key), delays.get(key)
    of_interrupt = key.kind == _IRQ
    return [
        _KINDS[key.kind],
        key.number,
        names.interrupt(key) if of_interrupt else names.softirq(key),
        names.handler(key) if of_interrupt else None,
        cpus,
        count,
        *(
            [took.sum_ns, took.mean_ns, took.percentile(50.0), took.percentile(99.0), took.max_ns]
            if took
            else [None] * 5
        ),
        handled / ended if of_interrupt and ended else None,
        *([delay.percentile(50.0), delay.percentile(99.0), delay.max_ns] if delay else [None] * 3),
        *[None] * 3,
    ]


def _polls(trace: Trace, selection: Selection) -> list[list[Value]]:
    query = _POLLS.format(
        poll=points(trace).get("napi.poll", -1),
        window=selection.window(trace, "e.time_ns"),
        device=selection.place(trace, "e."),
    )
    return [
        ["poll", None, name, None, cpus, count, *[None] * 9, packets, packets / count, full]
        for name, cpus, count, packets, full in trace.rows(query)
    ]


class _Names:
    """The names of interrupts as the recorded counters have them, of their handlers, and of softirqs."""

    def __init__(self, trace: Trace) -> None:
        self._hosts = hosts(trace)
        self._handlers = dict(trace.rows(f"SELECT address, {CLEAN.format('name')} FROM symbols"))
        self._interrupts: dict[tuple[int, int], str] = {}
        for host, subject in trace.rows(_NAMES):
            number, _, name = subject.partition(" ")
            if number.isdigit() and name:
                self._interrupts[host, int(number)] = name

    @property
    def has_interrupts(self) -> bool:
        """Whether any interrupt has a name."""
        return bool(self._interrupts)

    def interrupt(self, key: _Key) -> str | None:
        """Return the names of the devices of an interrupt, None if they are not known."""
        name = self._interrupts.get((key.host, key.number))
        return f"{name or ''}{self._at(key)}" or None

    def softirq(self, key: _Key) -> str:
        """Return the name of a softirq, as in /proc/softirqs."""
        known = 0 <= key.number < len(_SOFTIRQS)
        return f"{_SOFTIRQS[key.number] if known else f'softirq {key.number}'}{self._at(key)}"

    def handler(self, key: _Key) -> str | None:
        """Return the function of a handler, None if it is not known."""
        name = self._handlers.get(key.handler)
        return _OFFSET.sub("", name) if name else None

    def _at(self, key: _Key) -> str:
        return f"@{self._hosts[key.host]}" if key.host in self._hosts else ""


def _notes(trace: Trace, rows: Sequence[Sequence[Value]]) -> list[str]:
    notes = []
    kinds = {row[0] for row in rows}
    if not kinds & {*_KINDS}:
        notes.append("the trace has no interrupts and softirqs: record with `-P cpu`")
    if "irq" in kinds and not _Names(trace).has_interrupts:
        notes.append("interrupts have no names, because the trace has no counters: record without `--counters 0`")
    wanted = ("irq.enter", "irq.exit", "softirq.raise", "softirq.enter", "softirq.exit", "napi.poll")
    return [*notes, *loss_notes(trace), *unattached_notes(trace, wanted)]
