# SPDX-License-Identifier: Apache-2.0
"""Joining traces of several hosts into one, with one time axis and unique numbers."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

import numpy as np

from hopscope.errors import UsageError
from hopscope.progress import doing
from hopscope.store.hosts import JOINED
from hopscope.store.schema import TABLES
from hopscope.store.trace import Trace
from hopscope.store.writer import TraceWriter
from hopscope.trace.join.absences import absences
from hopscope.trace.join.clocks import axes
from hopscope.trace.join.flows import flows_of, own_numbers
from hopscope.trace.join.metadata import merged_metadata
from hopscope.trace.join.samples import changes, packets, probes, share_of, stamped_by_nics
from hopscope.trace.join.sources import sources
from hopscope.trace.join.trusted import contradiction_ns, trusted_axes

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from hopscope.store.meta import ComparedPair
    from hopscope.store.schema import Table
    from hopscope.trace.join.clocks import Axis, Compared
    from hopscope.trace.join.numbers import Numbers
    from hopscope.trace.join.sources import Source

Clock: TypeAlias = Literal["compared", "tai"]
_MB: Final = 10**6
_ROTATE_NEVER_S: Final = float("inf")
# Written from metadata of the hosts, not from their traces.
_MADE: Final = frozenset({"hosts", "clocks", "absences"})


@dataclass(frozen=True, slots=True)
class Joined:
    """The result of joining.

    Attributes
    ----------
    hosts
        Names, in the order of their numbers.
    compared
        The pairs of compared clocks.
    bounds_ns
        Host → median and maximum of the bounds of its half seconds.
    rows
        Number of written rows.
    notes
        Sentences about missing data.
    """

    hosts: list[str]
    compared: list[Compared]
    bounds_ns: list[tuple[int, int]]
    rows: int
    notes: list[str]


def join(folders: Sequence[Path], out: Path, *, without: Collection[str] = (), clock: Clock = "compared") -> Joined:
    """Join traces.

    Parameters
    ----------
    folders
        Traces, and recordings of several hosts. The axis is the clock of the first host.
    out
        Folder of the joined trace, new or empty.
    without
        Names of excluded hosts.
    clock
        What makes the axis: ``compared`` clocks, or CLOCK_TAI of all hosts, which is trusted to be the same (``tai``).

    Raises
    ------
    FormatError
        A trace cannot be read.
    UsageError
        The clocks cannot be compared, or not be trusted, or a folder cannot be used.
    DiskFullError
        The disk is full.
    """
    given = sources(folders, without=without)
    with ExitStack() as stack:
        doing("opening the traces of the hosts")
        traces = [[stack.enter_context(Trace(part.folder)) for part in source.parts] for source in given.hosts]
        seen = []
        for number, of_host in enumerate(traces):
            doing(f"looking for the flows of host {number + 1} of {len(traces)}", share=share_of(of_host))
            seen.append(flows_of(of_host))
        alone = own_numbers(seen)
        between = [each.keys.keys() - own.keys() for each, own in zip(seen, alone, strict=True)]
        trusted = trusted_axes(given.hosts, traces) if clock == "tai" else None
        try:
            found, compared = axes(
                given.hosts,
                probes(given.hosts, given.probed),
                packets(given.hosts, traces, between),
                changes(given.probed),
            )
        except UsageError:
            if not trusted:
                raise
            found, compared = [], []
        by_nics = stamped_by_nics(given.probed)
        notes = [*given.notes, *_warnings(given.hosts, traces)]
        if trusted:
            notes += _contradictions(given.hosts, trusted[0], found)
            found = trusted[0]
        else:
            notes += _without_probes(given.hosts, compared)
        metadata, numbers = merged_metadata(given.hosts, found)
        metadata.joined = {
            "from": [str(folder) for folder in folders],
            "files": fingerprint(folders),
            "pairs": [
                cast("ComparedPair", asdict(pair) | {"by_nics": by_nics.get((pair.first, pair.second))})
                for pair in compared
            ],
            "notes": notes,
            "alone": {host: sorted(own.values()) for host, own in enumerate(alone) if own},
        }
        if trusted:
            metadata.joined["trusted"] = trusted[1]
        for parts, own in zip(numbers, alone, strict=True):
            for part in parts:
                part.flows = own
        writer = stack.enter_context(TraceWriter(out, metadata, file_s=_ROTATE_NEVER_S))
        rows = _write(given.hosts, traces, found, numbers, writer)
        if columns := absences(given.hosts, found, metadata):
            writer.append("absences", columns)
        writer.close(ended_ns=metadata.ended_ns)
    bounds = [(int(np.median(axis.bound_ns)), int(axis.bound_ns.max())) for axis in found]
    return Joined([source.name for source in given.hosts], compared, bounds, rows, notes)


def _contradictions(hosts: Sequence[Source], trusted: Sequence[Axis], compared: Sequence[Axis]) -> list[str]:
    """Return a sentence for each host whose packets show that its clock is not what it is trusted to be."""
    found = []
    for host, axis, other in zip(hosts, trusted, compared, strict=False):
        if off_ns := contradiction_ns(axis, other):
            found.append(
                f"{host.name}: packets contradict the trusted clock by {off_ns:,} ns more than both bounds allow; join "
                "without --clock tai"
            )
    return found


def _without_probes(hosts: Sequence[Source], compared: Sequence[Compared]) -> list[str]:
    """Return a sentence for each pair of clocks that were compared by packets alone."""
    names = [(hosts[pair.first].name, hosts[pair.second].name) for pair in compared if not any(pair.probes)]
    return [
        f"clocks of {first} and {second}: compared without probes; `hopscope record --host {first} --host {second}` "
        "records them, which makes the error bound smaller"
        for first, second in names
    ]


def _warnings(hosts: Sequence[Source], traces: Sequence[Sequence[Trace]]) -> list[str]:
    return [
        f"{host.name}: {warning}"
        for host, parts in zip(hosts, traces, strict=True)
        for trace in parts
        for warning in trace.warnings
    ]


def _write(
    hosts: Sequence[Source],
    traces: Sequence[Sequence[Trace]],
    of_hosts: Sequence[Axis],
    numbers: Sequence[Sequence[Numbers]],
    writer: TraceWriter,
) -> int:
    """Move all rows, and return their number."""
    rows = stacks = 0
    everything = (trace.sizes_bytes(table) for parts in traces for trace in parts for table in _copied(trace))
    moved = _Moved(sum(map(sum, everything)))
    for host, parts, axis, of_host in zip(hosts, traces, of_hosts, numbers, strict=True):
        for trace, of_part in zip(parts, of_host, strict=True):
            of_part.first_stack = stacks
            stacks += trace.rows("SELECT coalesce(max(stack), -1) + 1 FROM stacks")[0][0]
            rows += _copy(trace, of_part, writer, moved)
        writer.append("clocks", axis.rows(host.number))
    _write_hosts(hosts, writer)
    return rows


def fingerprint(folders: Sequence[Path]) -> str:
    """Return a fingerprint of a recording's files (names and sizes), to detect changes since it was joined."""
    digest = blake2b(digest_size=16)
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            place = path.relative_to(folder)
            if not any(part.startswith(".") or part == JOINED for part in place.parts) and path.is_file():
                digest.update(f"{place} {path.stat().st_size}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()


class _Moved:
    """Says how many bytes of files have been moved."""

    def __init__(self, of_bytes: int) -> None:
        self._what = "joining the rows of all hosts" + (", MB" if of_bytes >= _MB else "")
        self._of_bytes = of_bytes
        self._bytes = 0
        self.add(0)

    def add(self, size_bytes: int) -> None:
        """Add a file."""
        self._bytes += size_bytes
        doing(self._what, self._bytes // _MB, self._of_bytes // _MB)


def _copied(trace: Trace) -> list[Table]:
    """Return the tables whose rows are moved."""
    return [*(table for table in TABLES if table.name not in _MADE), *trace.metadata.tables]


def _copy(trace: Trace, numbers: Numbers, writer: TraceWriter, moved: _Moved) -> int:
    """Move the rows of a trace, and return their number."""
    count = 0
    for table in _copied(trace):
        for size_bytes, columns in zip(trace.sizes_bytes(table), trace.by_file(table), strict=True):
            writer.append(numbers.tables.get(table.name, table.name), numbers.converted(table, columns))
            count += len(columns[table.columns[0].name])
            moved.add(size_bytes)
    return count


def _write_hosts(hosts: Sequence[Source], writer: TraceWriter) -> None:
    about = [source.parts[0].metadata.host for source in hosts]
    columns: dict[str, Any] = {"host": np.arange(len(hosts), dtype=np.int16)}
    columns["name"] = np.array([source.name for source in hosts], object)
    for name in ("boot", "release", "machine"):
        columns[name] = np.array([each.get(name, "") for each in about], object)
    writer.append("hosts", columns)
