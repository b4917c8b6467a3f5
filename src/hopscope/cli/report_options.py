# SPDX-License-Identifier: Apache-2.0
"""The options that all reports share, and how a report is printed."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

import click

from hopscope.cli.joined import one_trace
from hopscope.cli.options import together

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager

    from hopscope.analysis.report import Report
    from hopscope.analysis.selection import Selection
    from hopscope.store.trace import Trace
    from hopscope.views.terminal import Terminal

Decorated = TypeVar("Decorated", bound="Callable[..., Any]")
Form: TypeAlias = Literal["text", "json", "csv"]

# Rows that people are shown where they do not say how many; programs get all.
SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class Common:
    """What the shared options say.

    Attributes
    ----------
    folder
        The trace.
    form
        What to print.
    given_limit
        So many rows; 0: all; None: nothing was said.
    chosen
        The arguments of :class:`~hopscope.analysis.selection.Selection`.
    """

    folder: Path
    form: Form
    given_limit: int | None
    chosen: dict[str, Any]

    @property
    def limit(self) -> int | None:
        """How many rows to show, None for all: where nothing was said, people get few."""
        if self.given_limit is None:
            return SHOWN if self.form == "text" else None
        return self.given_limit or None

    @property
    def selection(self) -> Selection:
        """The part of the trace that is wanted."""
        from hopscope.analysis.selection import Selection  # noqa: PLC0415 # DuckDB and NumPy when they are needed

        return Selection(**self.chosen)

    def trace(self) -> AbstractContextManager[Trace]:
        """Open the trace."""
        return opened(self.folder)


@contextmanager
def opened(folder: Path) -> Iterator[Trace]:
    """Open a trace, or those of several hosts as one, and say on stderr what is missing from it."""
    from hopscope.store.trace import Trace  # noqa: PLC0415 # as above

    with one_trace(folder) as one, Trace(one) as trace:
        for warning in trace.warnings:
            click.echo(f"hopscope: {warning}", err=True)
        yield trace


def form_options() -> Callable[[Decorated], Decorated]:
    """Add in which form to print."""
    return together(
        click.option("--json", "as_json", is_flag=True, help="One JSON object a row (docs/report.md)."),
        click.option("--csv", "as_csv", is_flag=True, help="CSV, with a heading."),
    )


def report_options() -> Callable[[Decorated], Decorated]:
    """Add the shared options; the command's function takes them as one argument, `common`."""
    options = together(
        click.argument("folder", type=click.Path(path_type=Path), metavar="TRACE"),
        form_options(),
        click.option(
            "--limit",
            type=click.IntRange(0),
            metavar="N",
            help=f"So many rows; 0: all. Without it {SHOWN} of a table for people, all of JSON and CSV.",
        ),
        click.option(
            "--flow",
            "flows",
            multiple=True,
            metavar="FLOW",
            help="Only this flow: its number, or ADDRESS:PORT>ADDRESS:PORT (= for > : both directions).",
        ),
        click.option(
            "--port", "ports", type=click.IntRange(1, 65535), multiple=True, metavar="N", help="Only from or to it."
        ),
        click.option("--address", "addresses", multiple=True, metavar="ADDRESS[/LEN]", help="Only from or to it."),
        click.option(
            "--process", "processes", multiple=True, metavar="NAME|PID", help="Only flows of this process's sockets."
        ),
        click.option("--interface", "interfaces", multiple=True, metavar="NAME", help="Only what passes this device."),
        click.option("--from", "from_s", type=float, metavar="S", help="Only from so many seconds after the start on."),
        click.option("--until", "until_s", type=float, metavar="S", help="Only until so many seconds after the start."),
    )

    def decorate(function: Decorated) -> Decorated:
        def gathered(  # noqa: PLR0913 # one parameter an option
            *,
            folder: Path,
            as_json: bool,
            as_csv: bool,
            limit: int | None,
            flows: tuple[str, ...],
            ports: tuple[int, ...],
            addresses: tuple[str, ...],
            processes: tuple[str, ...],
            interfaces: tuple[str, ...],
            from_s: float | None,
            until_s: float | None,
            **own: Any,  # noqa: ANN401 # the command's own options
        ) -> object:
            chosen = {
                "flows": flows,
                "ports": ports,
                "addresses": addresses,
                "processes": processes,
                "interfaces": interfaces,
                "from_s": from_s,
                "until_s": until_s,
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
        raise click.UsageError("--json and --csv exclude each other")
    return "json" if as_json else "csv" if as_csv else "text"


def show(report: Report, form: Form, render: Callable[[Report, Terminal], str] | None = None) -> None:
    """Print a report; for people by `render`, where it has a form of its own. Notes of the other forms go to stderr."""
    from hopscope.views.report_lines import csv_lines, json_lines  # noqa: PLC0415
    from hopscope.views.report_table import render_report  # noqa: PLC0415

    if form == "text":
        print_blocks([(render or render_report)(report, terminal())])
        return
    print_blocks(json_lines(report) if form == "json" else csv_lines(report))
    left_out = [f"left out by --limit: {report.left_out:,}"] if report.left_out else []
    for note in [*report.notes, *left_out]:
        click.echo(f"hopscope: {note}", err=True)


def print_blocks(blocks: Iterable[str]) -> None:
    """Print texts, each with a line end after it."""
    sys.stdout.writelines(f"{block}\n" for block in blocks)
    sys.stdout.flush()


def terminal() -> Terminal:
    """Return what the standard output can show."""
    from hopscope.views.terminal import Terminal  # noqa: PLC0415

    return Terminal.of(sys.stdout, os.environ)
