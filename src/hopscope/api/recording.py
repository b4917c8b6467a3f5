# SPDX-License-Identifier: Apache-2.0
"""What `hopscope record` recorded, for programs."""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, Self

from hopscope.api.relation import Relation
from hopscope.errors import UsageError
from hopscope.live.arguments import check_names, invoke
from hopscope.live.handover import handed_over
from hopscope.recorded.joined import one_trace
from hopscope.recorded.which import which_recording
from hopscope.store.limits import raised
from hopscope.store.trace import Trace
from hopscope.trace.catalogue import catalogue
from hopscope.trace.gaps import lost_events

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator
    from types import TracebackType

    from hopscope.model.report import Report

_LOG: Final = logging.getLogger("hopscope")
_NS_PER_US: Final = 1000


def open(  # noqa: A001 # as tarfile.open
    path: str | os.PathLike[str] | None = None, *, limits: float = 1.0
) -> Recording:
    """Open a recording.

    Parameters
    ----------
    path
        A folder that `hopscope record` wrote, of one host or several, or that `hopscope join` made. Hosts that were
        recorded together are joined first, into the folder if it can be written; that takes time once. Or the name of
        a recording that `hopscope recordings` lists; None: the last of them.
    limits
        A factor that raises the limits on a recording's size (docs/trace.md), for one that you trust.

    Returns
    -------
    Recording
        A context manager, to be closed at the end.

    Raises
    ------
    FormatError
        The path is not a recording, or of a version that cannot be read.
    UsageError
        There is no last recording.

    Examples
    --------
    >>> with hopscope.open("trace") as recording:
    ...     print(len(recording["packets"]))
    """
    return Recording(path, limits=limits)


@dataclass(frozen=True, slots=True)
class Host:
    """A host that was recorded.

    Attributes
    ----------
    name
        Of the host.
    kernel
        Its release, such as ``6.12.0``; empty where the recording does not have it.
    machine
        The architecture, such as ``x86_64``; empty likewise.
    """

    name: str
    kernel: str
    machine: str


class Recording:
    """An open recording; made by :func:`hopscope.open`.

    It is a context manager, and behaves like a mapping from the names of relations to :class:`~hopscope.Relation`.

    Attributes
    ----------
    path : Path
        The folder.
    hosts : list of Host
        Those that were recorded.
    started : datetime
        When the recording began, UTC by the wall clock of the (first) host.
    duration : timedelta or None
        How long it took; None if the recorder was killed, or is still at work.
    started_ns : int
        CLOCK_MONOTONIC at the beginning, ns: subtract it from a relation's times for times since then.
    lost : int
        Events that are missing, because a buffer was full, the disk too slow, or the kernel suppressed a BPF run.
    warnings : list of str
        Sentences on what is missing from the recording, such as files that are cut off.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        limits: float = 1.0,
    ) -> None:
        self.path = which_recording(None if path is None else Path(path), _LOG.info)
        with contextlib.ExitStack() as stack, raised(limits):
            folder = stack.enter_context(one_trace(self.path, _LOG.info))
            self._trace: Trace = stack.enter_context(Trace(folder))
            metadata = self._trace.metadata
            self.hosts = _hosts(self._trace)
            self.started = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=metadata.realtime_ns // _NS_PER_US)
            self.started_ns = metadata.started_ns
            self.duration = _duration(metadata.started_ns, metadata.ended_ns)
            self.lost = lost_events(self._trace) + metadata.missed
            self.warnings = list(self._trace.warnings)
            self._stack = stack.pop_all()
        self._closed = False

    def close(self) -> None:
        """Close it; relations that came from it can no longer be read. Again is allowed."""
        self._closed = True
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<hopscope.Recording {self.path}>"

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the relations."""
        return iter(self.relations())

    def __contains__(self, name: object) -> bool:
        """Return whether there is a relation of this name."""
        return name in self.relations()

    def __getitem__(self, name: str) -> Relation:
        """Return a relation, as :meth:`relation` does."""
        return self.relation(name)

    def relations(self) -> dict[str, str]:
        """Return the relations: the recording's tables, and what can be made of them.

        Returns
        -------
        dict of str to str
            Name → what a row is.
        """
        return {each.name: each.row for each in catalogue(self._opened()).values() if not each.report}

    def relation(self, name: str) -> Relation:
        """Return a relation by its name.

        One that is not a table of the recording, such as ``messages``, is made of these when it is first asked for,
        which takes about as long as the report of the same name.

        Raises
        ------
        UsageError
            There is no relation of this name; the sentence suggests similar ones.
        """
        known = self.relations()
        check_names("relation", name, known, hint="Recording.relations() lists them")
        return Relation(self._opened, f'SELECT * FROM "{name}"', name=name, row=known[name])

    def sql(self, query: str) -> Relation:
        """Return what a query gives.

        Parameters
        ----------
        query
            In DuckDB's SQL, over any of :meth:`relations`.

        Raises
        ------
        UsageError
            The query is wrong.
        """
        return Relation(self._opened, query)

    def report(self, name: str, **options: object) -> Report:
        """Return a report: what `hopscope report NAME` shows.

        Parameters
        ----------
        name
            Such as ``hops`` or ``messages``; docs/report.md describes them all, with their columns.
        options
            Those of the command line, without dashes before and with underscores within: ``port=[443]``,
            ``from_=2.5`` (``from`` is a word of Python), ``slowest=True``. Without ``limit`` all rows are given; only
            ``packets`` gives those of 20 packets then. The second recording of ``compare`` is ``other``, a path or a
            :class:`Recording`.

        Returns
        -------
        Report
            With ``columns`` (name, unit, meaning), ``values`` (arrays of shape (rows,), masked where a value is
            missing), ``rows()``, ``column(name)`` and ``notes``.

        Raises
        ------
        UsageError
            There is no such report or option, or a value is wrong.

        Examples
        --------
        >>> hops = recording.report("hops", port=[443])
        >>> slow = [row for row in hops.rows() if row[1] > 1000]
        """
        from hopscope.verbs.report.command import command  # noqa: PLC0415 # relations need none of it

        trace = self._opened()
        check_names("report", name, command.commands, hint=f"There are {', '.join(command.commands)}")
        with contextlib.ExitStack() as stack:
            traces = {self.path: trace}
            arguments: list[object] = [self.path]
            if name == "after":
                arguments.insert(0, options.pop("event", None) or _no_event())
            if name == "compare":
                other = _other(stack, options.pop("other", None))
                traces[other.path] = other._opened()  # noqa: SLF001 # of this class
                arguments.append(other.path)
            left = stack.enter_context(handed_over(traces))
            # As what is printed for programs: all rows, where people get few.
            invoke(command.commands[name], f"hopscope report {name}", options, ["--json"], arguments)
        if len(left.reports) > 1:
            names = " and ".join(report.name for report in left.reports)
            raise UsageError(f"{name} gives two reports: {names}", "Ask for one, with rx=True or tx=True")
        return left.reports[0]

    def _opened(self) -> Trace:
        if self._closed:
            raise UsageError(f"The recording {self.path} is closed", "Use it inside of its `with`, or open it again")
        return self._trace


def _no_event() -> NoReturn:
    raise UsageError("The report after needs an event", 'Name one: recording.report("after", event="tcp.retransmit")')


def _hosts(trace: Trace) -> list[Host]:
    found = trace.rows("SELECT name, release, machine FROM hosts ORDER BY host")
    own = trace.metadata.host
    return [Host(*each) for each in found] or [
        Host(own.get("name", ""), own.get("release", ""), own.get("machine", ""))
    ]


def _duration(started_ns: int, ended_ns: int | None) -> timedelta | None:
    return None if ended_ns is None else timedelta(microseconds=(ended_ns - started_ns) // _NS_PER_US)


def _other(stack: contextlib.ExitStack, other: object) -> Recording:
    if isinstance(other, Recording):
        return other
    if not isinstance(other, str | Path):
        raise UsageError("compare needs a second recording", 'Give it: report("compare", other="trace2")')
    return stack.enter_context(open(other))
