# SPDX-License-Identifier: Apache-2.0
"""The options that all reports share, and how a report is printed."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

import click

from hopscope.gate import tell, write_data
from hopscope.live.handover import handover
from hopscope.live.help import OTHER, OUTPUT, TRAFFIC, option, section, together
from hopscope.live.options import (
    SHOWN,
    address_option,
    json_option,
    limit_option,
    netns_option,
    port_option,
    process_options,
    protocol_option,
)
from hopscope.live.paths import PATH
from hopscope.live.seconds import Factor, Seconds
from hopscope.progress import progress
from hopscope.recorded.confine import confine, is_own_process
from hopscope.recorded.joined import one_trace
from hopscope.recorded.which import which_recording

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from hopscope.model.report import Report
    from hopscope.store.trace import Trace
    from hopscope.term.terminal import Terminal
    from hopscope.trace.selection import Selection

Decorated = TypeVar("Decorated", bound="Callable[..., Any]")
# Further from a recording's start than any recorded time.
SINCE_START: Final = Seconds(-1e9, 1e9)
Form: TypeAlias = Literal["text", "json", "csv"]


@dataclass(frozen=True, slots=True)
class Common:
    """What the shared options say.

    Attributes
    ----------
    folder
        The trace; None: the last one.
    form
        What to print.
    given_limit
        Maximum rows; 0: all; None: not given.
    chosen
        The arguments of :class:`~hopscope.trace.selection.Selection`.
    """

    folder: Path | None
    form: Form
    given_limit: int | None
    chosen: dict[str, Any]

    @property
    def limit(self) -> int | None:
        """Maximum rows, None for all: people get few unless they ask for more."""
        if self.given_limit is None:
            return SHOWN if self.form == "text" else None
        return self.given_limit or None

    @property
    def selection(self) -> Selection:
        """The part of the trace that is wanted."""
        from hopscope.trace.selection import Selection  # noqa: PLC0415 # DuckDB and NumPy when they are needed

        return Selection(**self.chosen)

    def trace(
        self, *, unrestricted: bool = False, writable: Sequence[str] = (), beside: Sequence[Path | None] = ()
    ) -> AbstractContextManager[Trace]:
        """Open the trace."""
        return opened(self.folder, unrestricted=unrestricted, writable=writable, beside=beside)


@contextmanager
def opened(
    folder: Path | None,
    *,
    unrestricted: bool = False,
    writable: Sequence[str] = (),
    beside: Sequence[Path | None] = (),
) -> Iterator[Trace]:
    """Open a trace, or those of several hosts as one, and say on stderr what is missing from it.

    `folder` is as of :func:`~hopscope.recorded.which.which_recording`, `unrestricted` of the engine. The command line's
    own process is confined to what reading needs, and to writing in these folders and in a recording of several hosts,
    where they are joined, unless it is unrestricted. It stays confined: so the first of several recordings is opened
    with those that come after it `beside` it.
    """
    from hopscope.store.hosts import is_of_hosts  # noqa: PLC0415 # as above
    from hopscope.store.trace import Trace  # noqa: PLC0415

    if (taken := handover()) and folder and folder in taken.traces:
        yield taken.traces[folder]
        return
    which = which_recording(folder)
    if not unrestricted and is_own_process():
        others = [which_recording(each, lambda _: None) for each in beside]  # they say so when they are opened
        joined = [str(each) for each in (which, *others) if is_of_hosts(each)]
        confine((*writable, *joined))
    with one_trace(which) as one, Trace(one, unrestricted=unrestricted) as trace:
        for warning in trace.warnings:
            tell(f"hopscope: {warning}")
        with progress():
            yield trace


def form_options() -> Callable[[Decorated], Decorated]:
    """Add in which form to print."""
    return section(
        OUTPUT,
        json_option("row", "docs/report.md"),
        option("--csv", "as_csv", is_flag=True, help="CSV with a header line."),
    )


def trace_argument(name: str = "folder", *, metavar: str = "TRACE", required: bool = False) -> Callable[[Any], Any]:
    """Add which recording; None: the last one, unless it is required."""
    shown = metavar if required else f"[{metavar}]"
    return click.argument(name, required=required, type=PATH, metavar=shown)


def limits_option() -> Callable[[Any], Any]:
    """Add the option that raises the limits on recordings, while the command runs."""

    def raise_limits(context: click.Context, _option: click.Parameter, factor: float) -> None:
        from hopscope.store.limits import raised  # noqa: PLC0415 # it is quick to import, but others need it not

        context.with_resource(raised(factor))

    return section(
        OTHER,
        option(
            "--limits",
            type=Factor(1, 1e9),
            default=1.0,
            metavar="FACTOR",
            callback=raise_limits,
            expose_value=False,
            help="Read a recording that exceeds the limits on size (docs/trace.md).",
        ),
    )


def where_option() -> Callable[[Any], Any]:
    """Add a condition on events, which becomes part of the selection."""
    return section(
        TRAFFIC,
        option(
            "--where",
            default="",
            metavar="CONDITION",
            help="Only such events: 'rx.tcp_queue > 1ms' (docs/conditions.md).",
        ),
    )


def report_options(
    *, trace_required: bool = False, output: Callable[[Any], Any] | None = None
) -> Callable[[Decorated], Decorated]:
    """Add the shared options; the command's function takes them as one argument, `common`.

    `output`: what can be printed, if it is not a table with rows that can be limited and printed as CSV.
    """
    options = together(
        trace_argument(required=trace_required),
        section(
            TRAFFIC,
            option(
                "--flow",
                "flows",
                multiple=True,
                metavar="FLOW",
                help="Only this flow: number or A:PORT>B:PORT.",
            ),
        ),
        protocol_option(),
        port_option(),
        address_option(),
        process_options("uses"),
        netns_option("name or inode"),
        section(
            TRAFFIC,
            option("--process", "processes", multiple=True, metavar="NAME|PID", hidden=True),
            option("--interface", "interfaces", multiple=True, metavar="NAME", help="Only this interface."),
            option("--from", "from_s", type=SINCE_START, help="Only from this time after the start."),
            option("--until", "until_s", type=SINCE_START, help="Only until this time after the start."),
        ),
        output or together(section(OUTPUT, limit_option()), form_options()),
        limits_option(),
    )

    def decorate(function: Decorated) -> Decorated:
        def gathered(  # noqa: PLR0913 # one parameter an option
            *,
            folder: Path | None,
            as_json: bool = False,
            as_csv: bool = False,
            limit: int | None = None,
            flows: tuple[str, ...],
            protocol: str | None,
            ports: tuple[int, ...],
            addresses: tuple[str, ...],
            pids: tuple[int, ...],
            comms: tuple[str, ...],
            processes: tuple[str, ...],
            interfaces: tuple[str, ...],
            namespaces: tuple[str, ...],
            from_s: float | None,
            until_s: float | None,
            where: str = "",
            **own: Any,  # noqa: ANN401 # the command's own options
        ) -> object:
            chosen = {
                "flows": flows,
                "protocol": protocol,
                "ports": ports,
                "addresses": addresses,
                "processes": (*map(str, pids), *comms, *processes),
                "interfaces": interfaces,
                "namespaces": namespaces,
                "from_s": from_s,
                "until_s": until_s,
                "where": where,
            }
            form = chosen_form(as_json=as_json, as_csv=as_csv)
            return function(common=Common(folder, form, limit, chosen), **own)

        gathered.__doc__ = function.__doc__
        gathered.__name__ = function.__name__
        gathered.__dict__.update(function.__dict__)  # options that were added below this decorator
        return options(gathered)  # type: ignore[return-value] # as click's decorators, it changes what is called

    return decorate


def chosen_form(*, as_json: bool, as_csv: bool) -> Form:
    """Return what to print.

    Raises
    ------
    click.UsageError
        Both are wanted.
    """
    if as_json and as_csv:
        raise click.UsageError("--json and --csv cannot be combined")
    return "json" if as_json else "csv" if as_csv else "text"


def show(report: Report, form: Form, render: Callable[[Report, Terminal], str] | None = None) -> None:
    """Print a report; for people by `render`, where it has a form of its own. Notes of the other forms go to stderr.

    A program that asked for the report gets it, and nothing is printed.
    """
    if taken := handover():
        taken.reports.append(report)
        return
    from hopscope.term.format import plural  # noqa: PLC0415
    from hopscope.term.report_lines import csv_lines, json_lines  # noqa: PLC0415
    from hopscope.term.report_table import render_report  # noqa: PLC0415

    if form == "text":
        print_blocks([(render or render_report)(report, terminal())])
        return
    write_data(json_lines(report) if form == "json" else csv_lines(report))
    left_out = [f"{plural(report.left_out, 'row')} not shown (--limit)"] if report.left_out else []
    for note in [*report.notes, *left_out]:
        tell(f"hopscope: {note}")


def print_blocks(blocks: Iterable[str]) -> None:
    """Print texts, each with a line end after it."""
    sys.stdout.writelines(f"{block}\n" for block in blocks)
    sys.stdout.flush()


def terminal() -> Terminal:
    """Return what the standard output can show."""
    from hopscope.term.terminal import Terminal  # noqa: PLC0415

    return Terminal.of(sys.stdout, os.environ)
