# SPDX-License-Identifier: Apache-2.0
"""``hopscope clock``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hopscope.errors import UsageError
from hopscope.live.help import MEASURE, Command, option, section
from hopscope.live.host_options import host_options
from hopscope.live.options import form_options, timing_options

if TYPE_CHECKING:
    from hopscope.agent.tls import Tls

_LEAST: int = 2


@click.command(
    "clock",
    cls=Command,
    short_help="Offsets between the clocks of several hosts, with bounds.",
    examples=(
        ("Compare the clocks of two hosts for a minute", "hopscope clock --host a --host b -d 60"),
        (
            "Compare this host with another, which reaches it at 10.0.0.9",
            "hopscope clock --host root@db,name=db --host local,address=10.0.0.9",
        ),
    ),
)
@timing_options()
@section(
    MEASURE,
    option("--nic-stamps", is_flag=True, help="Enable NIC time stamps, for a smaller bound."),
    option(
        "--probe-port",
        "port",
        aliases=["--port"],
        type=click.IntRange(1, 65_000),
        metavar="N",
        help="First UDP port for probes; one per peer host.",
        default_text="any",
    ),
)
@form_options("docs/clocks.md")
@host_options()
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

    The hosts send each other up to 60 small UDP packets per second and pair, which their kernels time-stamp. Each pair
    has a line: how far the second host's CLOCK_MONOTONIC (the clock of recordings) is ahead, the maximum error of that,
    and the drift. The end of the run adds the result over the whole time, how well the wall clocks agree, the closure
    error around each three hosts, and plots.
    """
    from hopscope.agent.ssh import Ssh  # noqa: PLC0415 # numpy only when it is needed
    from hopscope.agent.target import parse_all  # noqa: PLC0415
    from hopscope.verbs.clock.output import ClockOutput, run  # noqa: PLC0415

    targets = parse_all(hosts)
    if len(targets) < _LEAST:
        raise UsageError("At least two hosts are needed to compare clocks", "Give --host once for each of them")
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
