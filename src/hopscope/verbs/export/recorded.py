# SPDX-License-Identifier: Apache-2.0
"""The timeline of a recording: CPUs, threads, counters and losses; messages are in their own module."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import numpy as np

from hopscope.live.recorder.marks import MARKS
from hopscope.term.format import plural
from hopscope.trace import events
from hopscope.trace.activity import interrupt_runs, softirq, thread_runs
from hopscope.trace.gaps import loss_notes
from hopscope.trace.host_numbers import CPUS, THREADS
from hopscope.trace.names import CLEAN
from hopscope.trace.relation import build
from hopscope.verbs.export.events import add_events
from hopscope.verbs.export.messages import add_messages
from hopscope.verbs.export.timeline import Timeline, Values, lanes, nested, together
from hopscope.verbs.export.tracks import Place, tracks_of, with_tracks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hopscope.store.trace import Trace
    from hopscope.trace.selection import Selection
    from hopscope.verbs.export.timeline import I64

# What a timeline consists of. "messages" have arrows, "activity" is what CPUs and threads did, "events" are those of
# packets, sockets and CPUs, and "marks" have other events, drops and losses. "tasks" are the threads that a CPU ran,
# which its interrupts are not nested in, as viewers demand.
Part: TypeAlias = Literal["messages", "activity", "tasks", "events", "marks", "counters"]
EXPORTED: Final[tuple[Part, ...]] = ("messages", "activity", "events", "marks", "counters")

_STATES: Final = ("running", "reading", "runnable", "throttled", "asleep", "stopped")
_MOST_COUNTERS: Final = 500


def timeline(trace: Trace, selection: Selection, *, limit: int | None, parts: Sequence[Part] = EXPORTED) -> Timeline:
    """Return the timeline of the selected part of a recording, of so many events at most.

    Parameters
    ----------
    parts
        What of it, in any order. Hosts, CPUs, processes and threads have the same track numbers whatever is chosen.
    """
    return placed(trace, selection, limit=limit, parts=parts).timeline


def placed(trace: Trace, selection: Selection, *, limit: int | None, parts: Sequence[Part]) -> Place:
    """Return a timeline, as :func:`timeline` does, with where everything is on it."""
    place = _begun(trace, selection, limit)
    for part, adders in _ADDERS.items():
        if part in parts:
            for add in adders:
                add(place)
    return place


def _begun(trace: Trace, selection: Selection, limit: int | None) -> Place:
    """Return a timeline with tracks, and sentences on what will be missing."""
    events.prepare(trace, selection)
    selection, cut = events.at_most(trace, selection, limit)
    events.prepare(trace, selection)
    meta = trace.metadata
    found = Timeline(trace.folder.name, meta.started_ns, meta.realtime_ns - meta.started_ns)
    found.notes += [*cut, *events.notes(trace, selection), *loss_notes(trace)]
    return with_tracks(trace, selection, found)


def _add_activity(place: Place) -> None:
    if not place.by_flow:
        _add_interrupts(place)
        _add_states(place)


def _add_interrupts(place: Place) -> None:
    """Add interrupts and softirqs, of which beginning and end are there, and nothing is lost in between."""
    trace, found = place.trace, place.timeline
    source = events.rows(trace, place.selection, "cpu", place.selection.window(trace))
    for kind in ("irq", "softirq"):
        rows = interrupt_runs(trace, kind, source)
        subject = np.asarray(rows["subject"])
        known = {number: _interrupt(kind, number) for number in np.unique(subject).tolist()}
        name = tracks_of({number: found.names.place(text) for number, text in known.items()}, subject, 0)
        track = place.of_cpus(rows["cpu"])
        begin_ns, end_ns = np.asarray(rows["begin_ns"]), np.asarray(rows["end_ns"])
        found.add_slices(kind, track, begin_ns, end_ns, name=name, depth=int(kind == "irq"))
    both = together([found.slices.pop(), found.slices.pop()])
    found.slices.append(nested(both))
    if left_out := len(both) - len(found.slices[-1]):
        found.notes.append(
            f"left out: {plural(left_out, 'interrupt or softirq', 'interrupts and softirqs')} that overlap"
        )


def _interrupt(kind: str, number: int) -> str:
    return softirq(number) if kind == "softirq" else f"interrupt {number}"


def _add_states(place: Place) -> None:
    """Add what threads did, from one change to the next."""
    found = place.timeline
    trace = place.trace
    build(trace, "thread_states")
    whens = " ".join(f"WHEN '{state}' THEN {number}" for number, state in enumerate(_STATES))
    rows = trace.columns(f"""
        SELECT subject, CASE state {whens} END AS state, begin_ns, end_ns FROM (
            SELECT subject, state, time_ns AS begin_ns,
                   lead(time_ns) OVER (PARTITION BY subject ORDER BY time_ns, place) AS end_ns FROM thread_states) s
        WHERE end_ns > begin_ns AND state IN ({", ".join(f"'{state}'" for state in _STATES)}) AND {_wanted(place)}""")
    track = tracks_of(place.threads, np.asarray(rows["subject"]), 0)
    name = found.names.places(_STATES)[np.ma.getdata(rows["state"])]
    begin_ns, end_ns = np.asarray(rows["begin_ns"]), np.asarray(rows["end_ns"])
    shown = track > 0
    found.add_slices("thread", track[shown], begin_ns[shown], end_ns[shown], name=name[shown])


def _add_tasks(place: Place) -> None:
    """Add which thread each CPU ran."""
    if place.by_flow:
        return
    found = place.timeline
    rows = thread_runs(place.trace, _wanted(place, "r."))
    names = {each.number: f"{each.name} {each.tid % THREADS}" for each in found.tracks if each.kind == "thread"}
    places = {tid: found.names.place(names[track]) for tid, track in place.threads.items()}
    name = tracks_of(places, np.asarray(rows["subject"]), found.names.place("?"))
    track = tracks_of(place.cpus, np.asarray(rows["cpu"]), 0)
    begin_ns, end_ns = np.asarray(rows["begin_ns"]), np.asarray(rows["end_ns"])
    shown = track > 0
    found.add_slices("task", track[shown], begin_ns[shown], end_ns[shown], name=name[shown])


def _wanted(place: Place, prefix: str = "") -> str:
    """Return the condition that what a thread did is selected."""
    chosen = place.selection
    whose = f"{prefix}subject IN ({chosen.threads(place.trace)})" if chosen.processes else "TRUE"
    return f"{whose} AND {chosen.window(place.trace, f'{prefix}begin_ns')}"


def _add_own_events(place: Place) -> None:
    """Add marks, and the events of tracepoints and functions that were asked for."""
    trace, found = place.trace, place.timeline
    for own in events.own_tables(trace):
        query = events.rows(trace, place.selection, own.name, place.selection.window(trace))
        is_mark = own.name == MARKS.name
        text = f", {CLEAN.format('text')} AS text" if is_mark else ""
        rows = trace.columns(f"SELECT time_ns, cpu{text} FROM ({query}) e")
        track = tracks_of(place.cpus, np.asarray(rows["cpu"]), place.root)
        name: I64 | int = found.names.place(own.name)
        if is_mark:
            name = found.names.places(f"mark: {each}" for each in np.ma.filled(rows["text"], "").tolist())
        found.add_marks("mark" if is_mark else "event", track, np.asarray(rows["time_ns"]), name=name)


def _add_drops(place: Place) -> None:
    """Add why packets were dropped, where the probe point says that they were."""
    trace, found, chosen = place.trace, place.timeline, place.selection
    wanted = f"{chosen.window(trace)} AND {chosen.flow(trace)} AND {chosen.place(trace)}"
    reasons = found.names.places(f"dropped: {name}" for name in trace.metadata.reasons.values())
    names = dict(zip(trace.metadata.reasons, reasons.tolist(), strict=True))
    rows = trace.columns(f"SELECT time_ns, cpu, reason FROM drops WHERE {wanted}")
    track = place.of_cpus(rows["cpu"])
    name = tracks_of(names, np.asarray(rows["reason"]), found.names.place("dropped"))
    found.add_marks("drop", track, np.asarray(rows["time_ns"]), name=name, number=np.asarray(rows["reason"]))


def _add_losses(place: Place) -> None:
    """Add when events were lost, and when a host was not recorded."""
    inside = f"{place.selection.window(place.trace, 'until_ns')} AND {place.selection.window(place.trace, 'from_ns')}"
    gaps = place.trace.rows(
        f"SELECT cpu, from_ns, until_ns, lost, 'lost events' FROM losses WHERE {inside} UNION ALL"
        f" SELECT host * {CPUS}, from_ns, until_ns, 0, concat('not recorded: ', {CLEAN.format('reason')})"
        f" FROM absences WHERE {inside} ORDER BY 1, 2, 3"
    )
    if not gaps:
        return
    cpu, from_ns, until_ns, lost = (np.array([row[at] for row in gaps], np.int64) for at in range(4))
    found = place.timeline
    name = found.names.places(row[4] for row in gaps)
    lane = lanes(cpu, from_ns, np.maximum(until_ns, from_ns + 1))
    track = _tracks_of_lanes(place, cpu, lane)
    long = until_ns > from_ns
    found.add_slices("loss", track[long], from_ns[long], until_ns[long], name=name[long], number=lost[long])
    found.add_marks("loss", track[~long], from_ns[~long], name=name[~long], number=lost[~long])


def _tracks_of_lanes(place: Place, cpu: I64, lane: I64) -> I64:
    """Return tracks for gaps, by CPU: of one name, as viewers show them together."""
    made = {
        key: place.timeline.track(f"CPU {key[0] % CPUS} gaps", parent=place.hosts.get(key[0] // CPUS, place.root))
        for key in sorted(set(zip(cpu.tolist(), lane.tolist(), strict=True)))
    }
    return np.array([made[key] for key in zip(cpu.tolist(), lane.tolist(), strict=True)], np.int64)


def _add_counters(place: Place) -> None:
    """Add the counters that changed, those that did most often."""
    trace, found = place.trace, place.timeline
    build(trace, "netns_names")
    key = "c.netns, c.source, c.subject, c.name"
    window = place.selection.window(trace, "c.time_ns")
    changed = trace.rows(f"""
        SELECT {key}, max(n.name), count(*) FROM counters c LEFT JOIN netns_names n ON n.netns = c.netns
        WHERE c.present = 1 AND {window} GROUP BY {key} HAVING count(*) > 1 ORDER BY count(*) DESC, {key}""")
    if len(changed) > _MOST_COUNTERS:
        found.notes.append(f"left out: {plural(len(changed) - _MOST_COUNTERS, 'counter')} that changed less often")
    if not changed:
        return
    above = found.track("counters", parent=place.root)
    wanted = {}
    for netns, source, subject, name, namespace, _ in changed[:_MOST_COUNTERS]:
        text = " ".join(each for each in (source, subject, name, namespace and f"({namespace})") if each)
        wanted[netns, source, subject, name] = found.track(text, "counter", above)
    rows = trace.columns(f"SELECT {key}, c.time_ns, c.value FROM counters c WHERE c.present = 1 AND {window}")
    keys = zip(*(np.ma.getdata(rows[name]).tolist() for name in ("netns", "source", "subject", "name")), strict=True)
    track = np.array([wanted.get(key, 0) for key in keys], np.int64)
    shown = track > 0
    found.values.append(Values(track[shown], np.asarray(rows["time_ns"])[shown], np.asarray(rows["value"])[shown]))


_ADDERS: Final[dict[Part, tuple[Callable[[Place], None], ...]]] = {
    "messages": (add_messages,),
    "activity": (_add_activity,),
    "tasks": (_add_tasks,),
    "events": (add_events,),
    "marks": (_add_own_events, _add_drops, _add_losses),
    "counters": (_add_counters,),
}
