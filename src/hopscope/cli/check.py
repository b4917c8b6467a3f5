# SPDX-License-Identifier: Apache-2.0
"""``hopscope check``."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from click.core import ParameterSource

from hopscope.cli.report_options import opened
from hopscope.cli.seconds import Seconds
from hopscope.errors import UsageError

if TYPE_CHECKING:
    from hopscope.analysis.findings import Check, Severity

_HOUR_S: Final = 3600

# Apart from those that every verb has (see hopscope.cli.main).
EXIT_CODES: Final = {"critical": 4, "warning": 3, "notice": 0, None: 0}


@click.command("check", short_help="What is wrong with this host's network stack, in sentences.")
@click.option(
    "-d",
    "--duration",
    "-i",
    "--interval",
    "duration",
    type=Seconds(0.1, _HOUR_S),
    default=5.0,
    show_default=True,
    help="Time between the two readings.",
)
@click.option("--netns", "namespaces", multiple=True, metavar="NAME|PID|INODE", help="Only this network namespace.")
@click.option(
    "--severity",
    type=click.Choice(("critical", "warning", "notice")),
    default="notice",
    show_default=True,
    help="Show, and count for the exit code, what is at least as grave.",
)
@click.option("--all", "everything", is_flag=True, help="Also what was found well, and what cannot be seen here.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line and finding (docs/check.md).")
@click.argument("trace", type=click.Path(path_type=Path), required=False)
@click.pass_context
def command(  # noqa: PLR0913 # one parameter an option
    context: click.Context,
    *,
    duration: float,
    namespaces: tuple[str, ...],
    severity: Severity,
    everything: bool,
    as_json: bool,
    trace: Path | None,
) -> int:
    """Say what is wrong with this host's network stack.

    Reads the kernel's counters, gauges and settings twice, in every network namespace and of the host, and says what
    is known to be wrong: the figures, why it matters, and which command to try. Ctrl-C ends the wait early. Root sees
    all namespaces, others their own. With a TRACE, what was wrong while `hopscope record` recorded it.

    \b
    Exit codes: 0 nothing, or notices only; 3 a warning; 4 something critical.
    """  # noqa: D301 # the backspace tells click to leave the lines as they are
    from hopscope.views.check import render_check, select  # noqa: PLC0415 # numpy only when it is needed
    from hopscope.views.check_json import check_lines  # noqa: PLC0415
    from hopscope.views.terminal import Terminal  # noqa: PLC0415

    if trace is None:
        check, now_ns = _check(duration, namespaces)
    elif namespaces or context.get_parameter_source("duration") is not ParameterSource.DEFAULT:
        raise UsageError("a TRACE is of the time and the namespaces that were recorded", "Leave out -d, -i and --netns")
    else:
        check, now_ns = _check_trace(trace)
    if as_json:
        for text in check_lines(check, now_ns, least=severity, everything=everything):
            click.echo(text)
    else:
        terminal = Terminal.of(sys.stdout, os.environ)
        click.echo(render_check(check, terminal, least=severity, everything=everything))
    shown = select(check, severity)
    return EXIT_CODES[shown[0].severity if shown else None]


def _check(duration_s: float, names: tuple[str, ...]) -> tuple[Check, int]:
    """Read twice; return what that says, and when it was."""
    from hopscope.analysis.findings import evaluate  # noqa: PLC0415 # as above
    from hopscope.cli.selection import namespaces  # noqa: PLC0415
    from hopscope.cli.stop import stop_on_signal  # noqa: PLC0415
    from hopscope.collectors.counters import CounterReader  # noqa: PLC0415

    with stop_on_signal() as stop, CounterReader(namespaces(names) if names else None) as reader:
        before = reader.read()
        end_s = time.monotonic() + duration_s
        while (left_s := end_s - time.monotonic()) > 0:
            _progress(f"looking for {left_s:.0f} s more; Ctrl-C ends it now")
            if stop.wait(min(left_s, 1.0)):
                break
        _progress("")
        now = reader.read()
    return evaluate(before, now), time.time_ns()


def _check_trace(folder: Path) -> tuple[Check, int]:
    """Return what the first and the last reading of a trace say, and when the last was."""
    from hopscope.analysis.each_host import each_host  # noqa: PLC0415 # as above
    from hopscope.analysis.findings import evaluate, together  # noqa: PLC0415
    from hopscope.analysis.recorded_counters import first_and_last  # noqa: PLC0415

    with opened(folder) as trace:
        checks = {}
        for host in each_host(trace):
            before, now = first_and_last(trace)
            checks[host] = evaluate(before, now)
        check = together(checks) if len(checks) > 1 else next(iter(checks.values()))
        return check, trace.metadata.realtime_ns + now.time_ns - trace.metadata.started_ns


def _progress(text: str) -> None:
    if sys.stderr is not None and sys.stderr.isatty():
        click.echo(f"\r\x1b[K{text}", nl=False, err=True)
