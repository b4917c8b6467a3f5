# SPDX-License-Identifier: Apache-2.0
"""The tracks of a recording: its hosts, their CPUs, processes and threads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hopscope.trace.host_numbers import CPUS, THREADS, hosts
from hopscope.trace.relation import build

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hopscope.store.trace import Trace
    from hopscope.trace.selection import Selection
    from hopscope.verbs.export.timeline import I64, Timeline

_INT32: Final = 1 << 31
_FEW: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Place:
    """What is being put on a timeline, and its tracks.

    Attributes
    ----------
    hosts, cpus, processes, threads
        Number → track.
    """

    trace: Trace
    selection: Selection
    timeline: Timeline
    hosts: dict[int, int]
    cpus: dict[int, int]
    processes: dict[int, int]
    threads: dict[int, int]

    @property
    def by_flow(self) -> bool:
        """Whether only packets and sockets are selected."""
        chosen = self.selection
        return bool(chosen.flows or chosen.ports or chosen.addresses or chosen.protocol or chosen.interfaces)

    @property
    def root(self) -> int:
        """The track of the first host, for what has no other."""
        return next(iter(self.hosts.values()))

    def of_cpus(self, cpus: NDArray[Any]) -> I64:
        """Return the tracks of CPUs."""
        return tracks_of(self.cpus, np.asarray(cpus), self.root)


def tracks_of(tracks: dict[int, int], numbers: NDArray[Any], otherwise: I64 | int) -> I64:
    """Return the tracks of numbers, and another one for those that have none."""
    if not tracks:
        return np.broadcast_to(np.asarray(otherwise, np.int64), len(numbers))
    if min(tracks) >= 0 and (last := max(tracks)) < _FEW:
        # A table is several times faster than a search. As unsigned, numbers below 0 are above the last one, too.
        table = np.full(last + 2, otherwise if isinstance(otherwise, int) else -1, np.int64)
        table[list(tracks)] = list(tracks.values())
        wide = numbers.astype(np.int64 if numbers.itemsize == np.int64().itemsize else np.int32, copy=False)
        found = table[np.minimum(wide.view(f"u{wide.itemsize}"), np.uint32(last + 1))]
        return found if isinstance(otherwise, int) else np.where(found >= 0, found, otherwise)
    known = np.array(sorted(tracks), np.int64)
    track = np.array([tracks[each] for each in known.tolist()], np.int64)
    at = np.minimum(np.searchsorted(known, numbers), len(known) - 1)
    return np.where(known[at] == numbers, track[at], otherwise)


def with_tracks(trace: Trace, selection: Selection, found: Timeline) -> Place:
    """Add the tracks of a recording to a timeline."""
    build(trace, "cpu_names", "thread_names")
    names = hosts(trace) or {0: trace.metadata.host.get("name", "") or "host"}
    place = Place(trace, selection, found, {}, {}, {}, {})
    for host, name in names.items():
        place.hosts[host] = found.track(str(name))
    for cpu, name in trace.rows("SELECT cpu, name FROM cpu_names ORDER BY cpu"):
        place.cpus[cpu] = found.track(f"CPU {name}", parent=place.hosts.get(cpu // CPUS, place.root))
    own = "max(CASE WHEN tid = pid THEN comm END)"
    for pid, name in trace.rows(
        f"SELECT pid, coalesce({own}, min(comm)) FROM thread_names WHERE {_numbered('pid')} GROUP BY pid ORDER BY pid"
    ):
        place.processes[pid] = found.track(f"{name}{_at(names, pid)}", "process", pid=pid)
    for tid, pid, name in trace.rows(
        f"SELECT tid, pid, comm FROM thread_names WHERE {_numbered('pid')} AND {_numbered('tid')} ORDER BY tid"
    ):
        place.threads[tid] = found.track(f"{name}{_at(names, tid)}", "thread", place.processes[pid], pid, tid)
    return place


def _at(names: dict[int, str], tid: int) -> str:
    """Return what is added to the name of a thread where there are several hosts."""
    return f"@{names.get(tid // THREADS, '?')}" if len(names) > 1 else ""


def _numbered(column: str) -> str:
    return f"{column} > 0 AND {column} < {_INT32}"
