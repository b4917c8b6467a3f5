# SPDX-License-Identifier: Apache-2.0
"""``hopscope clock``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hopscope.cli.hosts import host_options
from hopscope.cli.options import report_options
from hopscope.errors import UsageError

if TYPE_CHECKING:
    from hopscope.agent.tls import Tls

_LEAST: int = 2


@click.command("clock", short_help="Clocks of several hosts: how far apart, and how sure.")
@host_options()
@report_options("docs/clocks.md", histogram=False)
@click.option(
    "--port",
    type=click.IntRange(1, 65_000),
    metavar="N",
    help="The first UDP port of each host for probes, one for each other host: for firewalls.  [default: any]",
)
@click.option("--nic-stamps", is_flag=True, help="Let NICs stamp all packets meanwhile, for a smaller bound.")
def command(  # noqa: PLR0913 # one parameter an option
    *,
    hosts: tuple[str, ...],
    ssh: str | None,
    remote_command: str | None,
    tls: Tls | None,
    interval: float,
    duration: float | None,
    as_json: bool,
    port: int | None,
    nic_stamps: bool,
) -> int:
    """Compare the clocks of two or more hosts, without setting any.

    The hosts probe each other, up to 60 small UDP packets a second for each pair, which their kernels stamp. A line a
    pair says by how much the second one's CLOCK_MONOTONIC is ahead (the clock of recordings), how far that may be off
    at most, and how fast it drifts. At the end: the whole, how well the wall clocks agree, what is left around each
    three hosts, and plots.

    \b
    hopscope clock --host a --host b
    hopscope clock --host root@db,name=db --host local,address=10.0.0.9 -d 60
    """  # noqa: D301 # the backspace tells click to leave the lines as they are
    from hopscope.agent.ssh import Ssh  # noqa: PLC0415 # numpy only when it is needed
    from hopscope.agent.target import parse_all  # noqa: PLC0415
    from hopscope.cli.clock_output import ClockOutput, run  # noqa: PLC0415

    targets = parse_all(hosts)
    if len(targets) < _LEAST:
        raise UsageError("Clocks are compared between two hosts or more", "Give --host for each of them")
    output = ClockOutput("json" if as_json else "table")
    return run(
        targets,
        Ssh.of(ssh, remote_command),
        tls,
        output,
        port=port or 0,
        nic_stamps=nic_stamps,
        interval_s=interval,
        duration_s=duration,
    )
