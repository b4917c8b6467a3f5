# SPDX-License-Identifier: Apache-2.0
"""``hopscope cpu``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TextIO

import click

from hopscope.cli.hosts import several_hosts
from hopscope.cli.options import attach_options, report_options

if TYPE_CHECKING:
    from hopscope.cli.live import Drained
    from hopscope.collectors.cpu import CpuCollector

_GROUPS = ("cpu", "process", "cgroup", "interface")
_DEFAULT_HZ = 999
_MOST_HZ = 20_000
# Opened at once, so that a wrong name is told before the run.
_FILE = click.File("w", encoding="utf-8", lazy=False)


# The first word that is no option is the command, and what follows is the command's.
@click.command(
    "cpu",
    context_settings={"allow_interspersed_args": False},
    short_help="CPU time: what networking takes, and which part of the stack.",
)
@report_options("docs/cpu.md", histogram=False)
@click.option(
    "-g", "--group-by", type=click.Choice(_GROUPS), default="cpu", show_default=True, help="A line for each of these."
)
@click.option(
    "--max-groups",
    type=click.IntRange(1, 4096),
    metavar="N",
    default=256,
    show_default=True,
    help="So many groups are counted; the rest share the line `-`.",
)
@click.option(
    "--top", type=click.IntRange(1, 4096), metavar="N", default=20, show_default=True, help="Lines that are shown."
)
@click.option("--breakdown", is_flag=True, help="What the kernel was busy with in each part, by samples of its stack.")
@click.option(
    "--counters", is_flag=True, help="Cycles, instructions and cache misses of each part, by the processor's counters."
)
@click.option(
    "-F",
    "--frequency",
    "hz",
    type=click.IntRange(1, _MOST_HZ),
    metavar="HZ",
    help=f"Look at each CPU's stack so often a second ({_DEFAULT_HZ} where samples are asked for).",
)
@click.option("--folded", type=_FILE, metavar="FILE", help="Write the stacks, folded, at the end.")
@click.option("--flame", type=_FILE, metavar="FILE", help="Write a flame graph (SVG) at the end.")
@click.option("--speedscope", type=_FILE, metavar="FILE", help="Write a speedscope profile at the end.")
@several_hosts()
@attach_options()
def command(  # noqa: PLR0913 # one parameter an option
    *,
    as_json: bool,
    top: int,
    breakdown: bool,
    folded: TextIO | None,
    flame: TextIO | None,
    speedscope: TextIO | None,
    **given: Any,  # noqa: ANN401 # see `collector` and `run_verb`
) -> int:
    """Show what networking takes from the processors, and which part of the stack takes it.

    Without options: all CPUs, a table a second, until Ctrl-C. With a COMMAND for as long as it runs; the exit code is
    then the command's, and with --json its output goes to stderr. Times are exact and exclusive: a CPU is in one part
    at a time.

    \b
    irq          hard interrupts of network devices
    net_rx       NET_RX softirq: driver, GRO, IP, TCP, UDP, up to the socket
    net_tx       NET_TX softirq: what waited for a device
    ksoftirqd    both of them, run by ksoftirqd
    napi_thread  threaded NAPI
    busy_poll    system calls that poll a device
    send         socket calls that send, down to the driver
    receive      socket calls that receive
    io_uring     socket calls of io_uring's workers
    """  # noqa: D301 # the backspace tells click to leave the lines as they are
    from hopscope.cli.cpu_output import CpuOutput, Files  # noqa: PLC0415 # numpy and libbpf only when they are needed
    from hopscope.cli.verb import run_verb, style_of  # noqa: PLC0415

    style = style_of(as_json=as_json)
    files = Files(folded, flame, speedscope)
    if breakdown or files:
        given["hz"] = given["hz"] or _DEFAULT_HZ

    def output(found: Drained, host: str) -> CpuOutput:
        return CpuOutput(style, given["show_plan"], host, collector=found, top=top, breakdown=breakdown, files=files)

    return run_verb(collector, output, style, given)


def collector(*, group_by: str, max_groups: int, counters: bool, hz: int | None, ways: tuple[str, ...]) -> CpuCollector:
    """Return the collector that options ask for; these are the options that another host may give."""
    from hopscope.cli import selection  # noqa: PLC0415
    from hopscope.collectors.cpu import CpuCollector  # noqa: PLC0415
    from hopscope.collectors.cpu_options import CpuOptions  # noqa: PLC0415
    from hopscope.collectors.cpu_pmu import HARDWARE  # noqa: PLC0415
    from hopscope.probes.rights import require_rights  # noqa: PLC0415

    require_rights()
    return CpuCollector(
        CpuOptions(
            group_by=group_by,
            max_groups=max_groups,
            hz=hz or 0,
            counters=HARDWARE if counters else {},
            ways=selection.ways(ways),
        )
    )
