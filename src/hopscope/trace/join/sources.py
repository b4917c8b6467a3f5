# SPDX-License-Identifier: Apache-2.0
"""The traces to be joined: the host, the boot and the period of each.

A reboot changes the clock of a host and all numbers of its kernel: it then counts as another host of the joined trace.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hopscope.clock.domain import ClockDomain
from hopscope.errors import FormatError, UsageError
from hopscope.store.hosts import MOST_HOSTS, Hosts, is_of_hosts
from hopscope.store.meta import Metadata
from hopscope.store.schema import EVENT_TABLES
from hopscope.store.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from hopscope.store.hosts import RecordedHost


@dataclass(slots=True)
class Part:
    """One trace.

    Attributes
    ----------
    folder, metadata
        Of the trace.
    started_ns, ended_ns
        By the host's clock.
    after
        Why it ended, if known.
    """

    folder: Path
    metadata: Metadata
    started_ns: int
    ended_ns: int
    after: str = ""


@dataclass(slots=True)
class Source:
    """A host, during one boot.

    Attributes
    ----------
    number
        Of the host in the joined trace.
    name
        As it is shown.
    parts
        In chronological order; at least one.
    """

    number: int
    name: str
    parts: list[Part] = field(default_factory=list)

    @property
    def domain(self) -> ClockDomain:
        """Its clock."""
        return ClockDomain(self.name)

    @property
    def span_ns(self) -> tuple[int, int]:
        """Its first and last time, by its own clock."""
        return min(part.started_ns for part in self.parts), max(part.ended_ns for part in self.parts)


@dataclass(frozen=True, slots=True)
class Probed:
    """The pairs of hosts of one recording.

    Attributes
    ----------
    folder
        Of the recording of several hosts.
    pairs
        Number of the pair → numbers of its first and second host.
    """

    folder: Path
    pairs: dict[int, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Sources:
    """Everything that is joined.

    Attributes
    ----------
    hosts
        In the order of their numbers.
    probed
        Of each recording of several hosts.
    notes
        Sentences about missing data.
    """

    hosts: list[Source]
    probed: list[Probed]
    notes: list[str]


def sources(folders: Sequence[Path], *, without: Collection[str] = ()) -> Sources:
    """Return the hosts to be joined.

    Parameters
    ----------
    folders
        Traces, and recordings of several hosts.
    without
        Names of excluded hosts.

    Raises
    ------
    FormatError
        A folder is neither, or cannot be read.
    UsageError
        There are too many hosts, or an excluded host is not among them.
    """
    found = Sources([], [], [])
    taken: set[str] = set()
    alone = _recorded_in_turn([_part(folder) for folder in folders if not is_of_hosts(folder)])
    names = _names(alone)
    for folder in folders:
        if is_of_hosts(folder):
            taken |= _add_recording(found, folder, without)
        for name, parts in zip(names, alone, strict=True):
            if folder == parts[0].folder:
                taken.add(name)
                if name not in without:
                    _add(found, name, parts)
    if missing := set(without) - taken:
        raise UsageError(f"No host is named {min(missing)}", f"The hosts are {', '.join(sorted(taken))}")
    if not found.hosts:
        raise UsageError("No hosts are left to join", "Exclude fewer hosts")
    if len(found.hosts) > MOST_HOSTS:
        raise UsageError(f"{len(found.hosts)} hosts are too many to join", f"The maximum is {MOST_HOSTS}")
    return found


def _add_recording(found: Sources, folder: Path, without: Collection[str]) -> set[str]:
    recording = Hosts.read(folder)
    if recording.state != "complete":
        found.notes.append(f"{folder} is incomplete: {recording.state}")
    numbers: dict[tuple[int, int], int] = {}  # number of the part's host in the joined trace
    for place, host in enumerate(recording.hosts):
        if host.name in without:
            continue
        boots = _boots(found, folder, host)
        for boot in boots:
            numbers |= dict.fromkeys(((place, index) for index in boot), len(found.hosts))
            _add(found, host.name, list(boot.values()))
        if not boots:
            found.notes.append(f"{host.name}: nothing was recorded")
    pairs = {}
    for number, pair in enumerate(recording.pairs):
        first, second = (numbers.get(end, -1) for end in zip(pair.hosts, pair.parts, strict=True))
        if min(first, second) >= 0 and first != second:
            pairs[number] = first, second
    found.probed.append(Probed(folder, pairs))
    return {host.name for host in recording.hosts}


def _boots(found: Sources, folder: Path, host: RecordedHost) -> list[dict[int, Part]]:
    """Return the readable parts of a host by index, grouped by boot."""
    boots: list[dict[int, Part]] = []
    boot = None
    for index, name in enumerate(host.parts):
        try:
            part = _part(folder / name)
        except FormatError as error:
            found.notes.append(f"{host.name}: {error.what}")
            continue
        if index < len(host.absences):
            part.after = host.absences[index].reason
            part.ended_ns = max(part.ended_ns, host.absences[index].from_ns)
        if not boots or boot != part.metadata.host.get("boot"):
            boots.append({})
        boot = part.metadata.host.get("boot")
        boots[-1][index] = part
    return boots


def _add(found: Sources, name: str, parts: list[Part]) -> None:
    taken = {host.name for host in found.hosts}
    unique, count = name, 1
    while unique in taken:
        count += 1
        unique = f"{name}.{count}"
    found.hosts.append(Source(len(found.hosts), unique, parts))


def _part(folder: Path) -> Part:
    metadata = Metadata.read(folder)
    if metadata.joined:
        raise UsageError(f"{folder} is already a joined trace", "Give the traces from which it was made")
    ended_ns = metadata.ended_ns
    if ended_ns is None:  # the recorder was killed
        with Trace(folder) as trace:
            last = " UNION ALL ".join(f"SELECT max(time_ns) AS time_ns FROM {table}" for table in EVENT_TABLES)
            ((found,),) = trace.rows(f"SELECT max(time_ns) FROM ({last}) l")
        ended_ns = found or metadata.started_ns
    return Part(folder, metadata, metadata.started_ns, max(ended_ns, metadata.started_ns))


def _recorded_in_turn(traces: Sequence[Part]) -> list[list[Part]]:
    """Return the traces by host: those of one boot belong to one host, unless they overlap in time."""
    hosts: list[list[Part]] = []
    for part in sorted(traces, key=lambda part: part.started_ns):
        for parts in hosts:
            last = parts[-1]
            same = all(last.metadata.host.get(name) == part.metadata.host.get(name) for name in ("name", "boot"))
            if same and part.metadata.host.get("boot") and last.ended_ns <= part.started_ns:
                parts.append(part)
                break
        else:
            hosts.append([part])
    return hosts


def _names(hosts: Sequence[Sequence[Part]]) -> list[str]:
    """Return the names of hosts of single traces: their own if all differ, otherwise those of their folders."""
    own = [parts[0].metadata.host.get("name", "") for parts in hosts]
    of_folders = [parts[0].folder.resolve().name for parts in hosts]
    for names in (own, of_folders):
        if all(names) and max(Counter(names).values(), default=1) == 1:
            return names
    return of_folders
