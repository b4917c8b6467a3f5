# SPDX-License-Identifier: Apache-2.0
"""``hopscope join``: several hosts' recordings become one, on one time axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hopscope.live.help import HOSTS, OUTPUT, Command, option, section
from hopscope.live.paths import PATH
from hopscope.progress import progress
from hopscope.recorded.options import limits_option

if TYPE_CHECKING:
    from pathlib import Path

    from hopscope.trace.join.traces import Clock


@click.command(
    "join",
    cls=Command,
    short_help="Join the recordings of several hosts on one time axis.",
    examples=(
        ("Join two recordings made separately", "hopscope join client-trace server-trace -o joined"),
        ("Join a recording of several hosts without one of them", "hopscope join --without db hopscope-recording"),
    ),
)
@click.argument("traces", nargs=-1, required=True, type=PATH, metavar="TRACE...")
@section(
    OUTPUT,
    option(
        "-o",
        "--output",
        type=PATH,
        metavar="DIR",
        help="Folder of the joined trace, new or empty.",
    ),
)
@section(
    HOSTS,
    option("--without", multiple=True, metavar="HOST", help="Exclude this host (repeatable)."),
    option(
        "--clock",
        type=click.Choice(("compared", "tai")),
        default="compared",
        show_default=True,
        help="Time axis: clocks as compared, or CLOCK_TAI.",
    ),
)
@limits_option()
def command(traces: tuple[Path, ...], output: Path | None, without: tuple[str, ...], clock: Clock) -> None:
    """Join recordings of several hosts into one trace, on which every report works.

    TRACE is a recording of one host, or one of several hosts (`hopscope record --host`), for which the joined trace is
    its subfolder `joined` unless -o is given. Times are converted to the first host's clock. The offsets of the other
    clocks are computed from the probes in the recordings and from packets that two hosts recorded; no clock is set.
    With `--clock tai`, CLOCK_TAI of all hosts is trusted to be one clock, with the bounds that their time daemons give.
    docs/join.md describes the method; `hopscope report summary` shows the error bound.
    """
    from hopscope.errors import UsageError  # noqa: PLC0415
    from hopscope.recorded.joined import make_joined  # noqa: PLC0415
    from hopscope.recorded.which import which_recording  # noqa: PLC0415
    from hopscope.store.hosts import JOINED, is_of_hosts  # noqa: PLC0415
    from hopscope.trace.join.traces import join  # noqa: PLC0415 # DuckDB and NumPy when they are needed
    from hopscope.verbs.join.table import render_joined  # noqa: PLC0415

    traces = tuple(map(which_recording, traces))
    with progress():
        if output is not None:
            made = join(traces, output, without=without, clock=clock)
        elif len(traces) == 1 and is_of_hosts(traces[0]):
            made, output = make_joined(traces[0], without=without, clock=clock), traces[0] / JOINED
        else:
            raise UsageError("No folder was given for the joined trace", "Specify a new one: -o DIR")
    click.echo(render_joined(made, output), err=True)
