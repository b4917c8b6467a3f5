# SPDX-License-Identifier: Apache-2.0
"""``hopscope probes``."""

from __future__ import annotations

import os
import platform
import sys

import click

from hopscope.live.help import OUTPUT, Command, option, section
from hopscope.progress import progress


@click.command(
    "probes",
    cls=Command,
    short_help="Show which probe points this kernel supports.",
    examples=(
        ("What can hopscope measure on this kernel?", "hopscope probes"),
        ("Which events of TCP can be recorded, and which fields do they have?", "hopscope probes --events 'tcp:*'"),
    ),
)
@section(
    OUTPUT,
    option(
        "--events",
        "patterns",
        metavar="EVENT",
        multiple=True,
        help="Instead list tracepoints and their fields: 'tcp:*'.",
    ),
)
@section(OUTPUT, option("--json", "as_json", is_flag=True, help="One JSON object; with --events, one per line."))
def command(*, as_json: bool, patterns: tuple[str, ...]) -> int:
    """Show which probe points this kernel supports.

    Lists each probe point, what it marks, and its attach methods in order of preference. Every method is tried: its
    programs are loaded, attached and removed again. Where the kernel refuses, the reason and the next step are shown.
    """
    from hopscope.kernel.host import host_facts  # noqa: PLC0415 # numpy and libbpf only when they are needed
    from hopscope.probes.trial import try_everything  # noqa: PLC0415
    from hopscope.term.json_lines import line, probes_to_json  # noqa: PLC0415
    from hopscope.term.plan import render_probes  # noqa: PLC0415
    from hopscope.term.terminal import Terminal  # noqa: PLC0415

    if patterns:
        _list_events(patterns, as_json=as_json)
        return 0
    kernel = f"{platform.release()} {platform.machine()}"
    with progress():
        points, host = try_everything(), host_facts()
    if as_json:
        click.echo(line(probes_to_json(kernel, points, host)))
    else:
        click.echo(render_probes(kernel, points, host, Terminal.of(sys.stdout, os.environ)))
    return 0


def _list_events(patterns: tuple[str, ...], *, as_json: bool) -> None:
    from hopscope.term.json_lines import line  # noqa: PLC0415
    from hopscope.verbs.probes.events import lines, to_json, tracepoints  # noqa: PLC0415

    found = tracepoints(patterns)
    for each in map(line, map(to_json, found)) if as_json else lines(found):
        click.echo(each)
