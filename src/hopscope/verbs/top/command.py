# SPDX-License-Identifier: Apache-2.0
"""``hopscope top``."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from hopscope.errors import UsageError
from hopscope.live.help import MEASURE, Command, section
from hopscope.live.options import interface_option, interval_option, protocol_option, socket_options
from hopscope.live.paths import PATH
from hopscope.recorded.options import limits_option, opened

if TYPE_CHECKING:
    from pathlib import Path


@click.command(
    "top",
    cls=Command,
    short_help="A screen of everything, live or of a recording.",
    examples=(
        ("What is worst on this host now, of the traffic of one port?", "hopscope top --port 443"),
        ("Look through a recording, interval by interval", "hopscope top trace"),
    ),
)
@section(MEASURE, interval_option())
@socket_options("uses")
@interface_option()
@protocol_option()
@limits_option()
@click.argument("trace", type=PATH, required=False)
@click.pass_context
def command(context: click.Context, /, *, interval: float, trace: Path | None, **chosen: Any) -> int:  # noqa: ANN401 # filters
    """Show the worst of everything on one screen, live or of a TRACE.

    Receive and transmit hops, CPU time, drops, sockets and findings have a line each, the most harmful first. Enter
    opens what the cursor is on: hops, their groups, the slowest messages, one message with what held it. What measuring
    costs, and what was lost, is always shown; `?` lists the keys. Options that select traffic can be repeated.
    """
    _check_terminal()
    try:
        import textual  # noqa: F401, PLC0415 # it takes a third of a second
    except ImportError as error:
        raise UsageError("hopscope top needs Textual", "Install it: pip install 'hopscope[top]'") from error
    from hopscope.term.terminal import Terminal  # noqa: PLC0415 # NumPy, libbpf and DuckDB when they are needed
    from hopscope.verbs.top.screen import show  # noqa: PLC0415

    terminal = Terminal.of(sys.stdout, os.environ)
    if trace is None:
        from hopscope.verbs.frames.live import LiveSource  # noqa: PLC0415

        return show(LiveSource(chosen, interval, terminal), context.command, chosen, terminal, interval)
    from hopscope.verbs.top.replay import ReplaySource  # noqa: PLC0415

    with opened(trace) as recording:
        return show(ReplaySource(recording, chosen, interval, terminal), context.command, chosen, terminal, interval)


def _check_terminal() -> None:
    if not (sys.stdin and sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(
            "hopscope top needs a terminal", "For programs, each verb has --json, such as `hopscope rx --json`"
        )
