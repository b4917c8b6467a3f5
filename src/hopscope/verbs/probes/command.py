# SPDX-License-Identifier: Apache-2.0
"""``hopscope probes``."""

from __future__ import annotations

import os
import platform
import sys

import click

from hopscope.live.help import OUTPUT, Command, option, section


@click.command(
    "probes",
    cls=Command,
    short_help="Show which probe points this kernel supports.",
    examples=(
        ("What can hopscope measure on this kernel?", "hopscope probes"),
        (
            "The points that cannot be attached",
            "hopscope probes --json | jq '.points[] | select(.chosen == null)'",
        ),
    ),
)
@section(OUTPUT, option("--json", "as_json", is_flag=True, help="One JSON object."))
def command(*, as_json: bool) -> int:
    """Show which probe points this kernel supports.

    Lists each probe point, what it marks, and its attach methods in order of preference. Every method is tried: its
    programs are loaded, attached and removed again. Where the kernel refuses, the reason and the next step are shown.
    """
    from hopscope.kernel.host import host_facts  # noqa: PLC0415 # numpy and libbpf only when they are needed
    from hopscope.probes.trial import try_everything  # noqa: PLC0415
    from hopscope.term.json_lines import line, probes_to_json  # noqa: PLC0415
    from hopscope.term.plan import render_probes  # noqa: PLC0415
    from hopscope.term.terminal import Terminal  # noqa: PLC0415

    kernel = f"{platform.release()} {platform.machine()}"
    points, host = try_everything(), host_facts()
    if as_json:
        click.echo(line(probes_to_json(kernel, points, host)))
    else:
        click.echo(render_probes(kernel, points, host, Terminal.of(sys.stdout, os.environ)))
    return 0
