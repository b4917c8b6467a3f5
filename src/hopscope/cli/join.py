# SPDX-License-Identifier: Apache-2.0
"""``hopscope join``: several hosts' recordings become one, on one time axis."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("join", short_help="Put the recordings of several hosts on one time axis.")
@click.argument("traces", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="TRACE...")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The joined trace: a folder that is new or empty (for one recording of several hosts: `joined` in it).",
)
@click.option("--without", multiple=True, metavar="HOST", help="Leave this host out; may be repeated.")
def command(traces: tuple[Path, ...], output: Path | None, without: tuple[str, ...]) -> None:
    """Join recordings of several hosts into one trace, on which every report works.

    TRACE is a recording of one host, or one of several (`hopscope record --host`). Times become those of the first
    host's clock. How far the others' clocks were ahead is found by the probes that the recording has, and by the
    packets that two hosts recorded; no clock is set. docs/join.md says what is done, and `hopscope report summary`
    how far times may be off.
    """
    from hopscope.analysis.join import join  # noqa: PLC0415 # DuckDB and NumPy when they are needed
    from hopscope.cli.joined import make_joined  # noqa: PLC0415
    from hopscope.errors import UsageError  # noqa: PLC0415
    from hopscope.store.hosts import JOINED, is_of_hosts  # noqa: PLC0415
    from hopscope.views.joined import render_joined  # noqa: PLC0415

    if output is not None:
        made = join(traces, output, without=without)
    elif len(traces) == 1 and is_of_hosts(traces[0]):
        made, output = make_joined(traces[0], without=without), traces[0] / JOINED
    else:
        raise UsageError("Nothing says where the joined trace goes", "Give a new folder with -o")
    click.echo(render_joined(made, output), err=True)
