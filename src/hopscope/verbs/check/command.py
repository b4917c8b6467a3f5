# SPDX-License-Identifier: Apache-2.0
"""``hopscope check``."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import click
from click.core import ParameterSource

from hopscope.errors import UsageError
from hopscope.gate import rewrite
from hopscope.live.help import MEASURE, OUTPUT, Command, option, section
from hopscope.live.options import json_option, netns_option
from hopscope.live.paths import PATH
from hopscope.live.seconds import Seconds
from hopscope.recorded.options import limits_option, opened

if TYPE_CHECKING:
    from pathlib import Path

    from hopscope.verbs.check.findings import Check, Severity

_HOUR_S: Final = 3600

# Apart from those that every verb has (see hopscope.main).
EXIT_CODES: Final = {"critical": 4, "warning": 3, "notice": 0, None: 0}


@click.command(
    "check",
    cls=Command,
    short_help="Known problems of this host's network stack, explained.",
    examples=(
        ("Watch for 30 seconds, and show warnings and worse", "hopscope check -d 30 --severity warning"),
        ("What was wrong during a recording?", "hopscope check trace"),
    ),
)
@section(
    MEASURE,
    option(
        "-d",
        "--duration",
        aliases=["-i", "--interval"],
        type=Seconds(0.1, _HOUR_S),
        default=5.0,
        show_default=True,
        help="Time between the two readings.",
    ),
)
@netns_option()
@section(
    OUTPUT,
    option(
        "--severity",
        type=click.Choice(("critical", "warning", "notice")),
        metavar="LEVEL",
        default="notice",
        show_default=True,
        help="Minimum severity: critical, warning or notice.",
    ),
    option("--all", "everything", is_flag=True, help="Also list what is in order or cannot be checked."),
    json_option("finding", "docs/check.md"),
)
@limits_option()
@click.argument("trace", type=PATH, required=False)
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
    """Report what is wrong with this host's network stack.

    Reads the kernel's counters, gauges and settings twice, of the host and of every network namespace, and reports
    known problems: the figures, why they matter, and which command to try. Ctrl-C ends the wait early. Root sees all
    namespaces, other users their own. With a TRACE, reports what was wrong while `hopscope record` recorded it.

    \b
    Exit codes: 0 nothing, or notices only; 3 a warning; 4 something critical.
    --severity applies to the exit code, too.
    """  # noqa: D301 # the backspace tells click to leave the lines as they are
    from hopscope.term.terminal import Terminal  # noqa: PLC0415
    from hopscope.verbs.check.json import check_lines  # noqa: PLC0415
    from hopscope.verbs.check.table import render_check, select  # noqa: PLC0415 # numpy only when it is needed

    if trace is None:
        check, now_ns = _check(duration, namespaces)
    elif namespaces or context.get_parameter_source("duration") is not ParameterSource.DEFAULT:
        raise UsageError("-d and --netns cannot be combined with a TRACE, which covers what was recorded", "Omit them")
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
    from hopscope.kernel.capabilities import unseen_namespaces  # noqa: PLC0415
    from hopscope.kernel.counters.reader import CounterReader  # noqa: PLC0415
    from hopscope.live.lookup import namespaces  # noqa: PLC0415
    from hopscope.live.stop import stop_on_signal  # noqa: PLC0415
    from hopscope.verbs.check.findings import evaluate  # noqa: PLC0415 # as above

    with stop_on_signal() as stop, CounterReader(namespaces(names) if names else None) as reader:
        before = reader.read()
        end_s = time.monotonic() + duration_s
        while (left_s := end_s - time.monotonic()) > 0:
            _progress(f"watching for another {left_s:.0f} s; Ctrl-C ends the wait")
            if stop.wait(min(left_s, 1.0)):
                break
        _progress("")
        now = reader.read()
    check = evaluate(before, now)
    unseen = "" if names else unseen_namespaces()
    unread = [*check.unread, *([f"other network namespaces: {unseen}"] if unseen else [])]
    return replace(check, unread=unread), time.time_ns()


def _check_trace(folder: Path) -> tuple[Check, int]:
    """Return what the first and the last reading of a trace say, and when the last was."""
    from hopscope.verbs.check.recorded import check_of  # noqa: PLC0415 # as above

    with opened(folder) as trace:
        return check_of(trace)


def _progress(text: str) -> None:
    if sys.stderr is not None and sys.stderr.isatty():
        rewrite(text)
