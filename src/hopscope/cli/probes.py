# SPDX-License-Identifier: Apache-2.0
"""``hopscope probes``."""

from __future__ import annotations

import os
import platform
import sys

import click


@click.command("probes")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(*, as_json: bool) -> int:
    """Show what this kernel grants.

    Each probe point with what it marks and its ways to attach in order of preference. Every way is tried: its
    programs are loaded, attached and taken away again. Where the kernel refuses, its reason and the next step.
    """
    from hopscope.probes.host import host_facts  # noqa: PLC0415 # numpy and libbpf only when they are needed
    from hopscope.probes.trial import try_everything  # noqa: PLC0415
    from hopscope.views.json_lines import line, probes_to_json  # noqa: PLC0415
    from hopscope.views.plan import render_probes  # noqa: PLC0415
    from hopscope.views.terminal import Terminal  # noqa: PLC0415

    kernel = f"{platform.release()} {platform.machine()}"
    points, host = try_everything(), host_facts()
    if as_json:
        click.echo(line(probes_to_json(kernel, points, host)))
    else:
        click.echo(render_probes(kernel, points, host, Terminal.of(sys.stdout, os.environ)))
    return 0
