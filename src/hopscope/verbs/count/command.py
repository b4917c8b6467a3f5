# SPDX-License-Identifier: Apache-2.0
"""``hopscope count``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hopscope.live.help import OUTPUT, CommandBesideArguments, section
from hopscope.live.options import (
    form_options,
    group_option,
    limit_option,
    max_groups_option,
    rows_shown,
    timing_options,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

_GROUPS = ("comm", "pid", "tid", "cgroup", "cpu")


@click.command(
    "count",
    cls=CommandBesideArguments,
    short_help="Count tracepoints and function calls in the kernel.",
    examples=(
        ("Which processes send packets, and how many?", "hopscope count net:net_dev_queue -g pid -d 10"),
        ("Count the retransmissions of a test", "hopscope count tcp:tcp_retransmit_skb -- ./test"),
    ),
)
@click.argument("events", metavar="EVENT...", nargs=-1, required=True)
@timing_options()
@group_option(_GROUPS, aliases=["--by"])
@max_groups_option(1024, "other")
@section(OUTPUT, limit_option())
@form_options("docs/count.md")
def command(  # noqa: PLR0913 # one parameter an option
    *,
    events: tuple[str, ...],
    group_by: str | None,
    max_groups: int,
    interval: float,
    duration: float | None,
    limit: int | None,
    as_json: bool,
    command: Sequence[str],
) -> int:
    """Count how often the kernel passes EVENTs, exactly: it adds them up itself.

    An EVENT is a tracepoint as `record -e` takes it, subsystem:event[:filter], of which the first two can be patterns,
    or function:NAME or return:NAME. Everything that runs on this host is counted, hopscope included. A table is printed
    every second until Ctrl-C. With a COMMAND, the measurement lasts as long as the command runs; the exit code is the
    command's, and with --json its standard output goes to stderr.

    An event in an interrupt is counted for the thread that was interrupted.
    """
    from hopscope.live.interval import run  # noqa: PLC0415 # numpy and libbpf only when they are needed
    from hopscope.live.verb import style_of  # noqa: PLC0415
    from hopscope.verbs.count.collector import CountCollector  # noqa: PLC0415
    from hopscope.verbs.count.output import CountOutput  # noqa: PLC0415

    return run(
        CountCollector(events, group_by, max_groups),
        CountOutput(style_of(as_json=as_json), limit=rows_shown(limit)),
        interval_s=interval,
        duration_s=duration,
        command=command,
    )
