# SPDX-License-Identifier: Apache-2.0
"""``hopscope cpu``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TextIO

import click

from hopscope.live.help import MEASURE, OUTPUT, CommandBeside, option, section
from hopscope.live.host_options import several_hosts
from hopscope.live.options import (
    attach_options,
    budget_option,
    check_budget,
    form_options,
    group_option,
    limit_option,
    max_groups_option,
    rows_shown,
    timing_options,
)
from hopscope.live.paths import OUTPUT_FILE

if TYPE_CHECKING:
    from hopscope.live.interval import Drained
    from hopscope.verbs.cpu.collector import CpuCollector
    from hopscope.verbs.cpu.sampled import SampledCollector

_GROUPS = ("cpu", "process", "cgroup", "interface")
_DEFAULT_HZ = 999
_DEFAULT_SAMPLED_HZ = 199
_MOST_HZ = 20_000


# What follows the first word that is no option is not parsed: it is the command, which has options of its own.
@click.command(
    "cpu",
    cls=CommandBeside,
    context_settings={"allow_interspersed_args": False},
    short_help="CPU time spent on networking, by part of the stack.",
    examples=(
        ("Which processes cause the network work?", "hopscope cpu --group-by process -d 10"),
        (
            "A flame graph of the network stack while a command runs",
            "hopscope cpu --flame net.svg -- iperf3 -c 10.0.0.2",
        ),
    ),
)
@timing_options()
@section(
    MEASURE,
    option("--breakdown", is_flag=True, help="Categories of work in each part, by sampling."),
    option(
        "--sampled",
        is_flag=True,
        help="Estimate all times from samples, at a fraction of the cost.",
    ),
    option(
        "--counters",
        is_flag=True,
        help="Cycles, instructions, cache misses of each part.",
    ),
    option(
        "-F",
        "--frequency",
        "hz",
        type=click.IntRange(1, _MOST_HZ),
        metavar="HZ",
        help="Sampling frequency in Hz.",
        default_text=f"{_DEFAULT_HZ}, with --sampled {_DEFAULT_SAMPLED_HZ}",
    ),
)
@budget_option()
@group_option(_GROUPS, default="cpu")
@max_groups_option(256, "-")
@section(
    OUTPUT,
    limit_option(),
    option("--folded", type=OUTPUT_FILE, metavar="FILE", help="Write folded stacks at the end."),
    option("--flame", type=OUTPUT_FILE, metavar="FILE", help="Write a flame graph (SVG) at the end."),
    option("--speedscope", type=OUTPUT_FILE, metavar="FILE", help="Write a speedscope profile at the end."),
)
@form_options("docs/cpu.md")
@several_hosts()
@attach_options()
def command(  # noqa: PLR0913 # one parameter an option
    *,
    as_json: bool,
    limit: int | None,
    breakdown: bool,
    folded: TextIO | None,
    flame: TextIO | None,
    speedscope: TextIO | None,
    **given: Any,  # noqa: ANN401 # see `collector` and `run_verb`
) -> int:
    """Show how much CPU time networking takes, and which part of the stack takes it.

    Without options, all CPUs are measured, and a table is printed every second until Ctrl-C. With a COMMAND, the
    measurement lasts as long as the command runs; the exit code is the command's, and with --json its standard output
    goes to stderr. Times are exact (with --sampled: estimates with 95 % intervals) and exclusive: a CPU is in one part
    at a time.

    \b
    irq          hard interrupts of network devices
    net_rx       NET_RX softirq: driver, GRO, IP, TCP, UDP, up to the socket
    net_tx       NET_TX softirq: transmission that was deferred
    timer        timers of the stack: pacing, retransmission, delayed ACKs
    tasklet      tasklets of the stack: what TCP sends after its queue was full
    ksoftirqd    NET_RX and NET_TX, run by ksoftirqd
    napi_thread  threaded NAPI
    workqueue    work items of the stack: WireGuard, IPsec, conntrack
    busy_poll    system calls that poll a device
    send         socket calls that send, down to the driver
    receive      socket calls that receive
    control      socket calls that do neither: connect, accept, close
    io_uring     socket calls of io_uring's workers
    """  # noqa: D301 # the backspace tells click to leave the lines as they are
    from hopscope.live.verb import run_verb, style_of  # noqa: PLC0415
    from hopscope.verbs.cpu.output import CpuOutput, Files  # noqa: PLC0415 # numpy and libbpf only when they are needed

    style = style_of(as_json=as_json)
    files = Files(folded, flame, speedscope)
    if (breakdown or files) and not given["sampled"] and given["budget"] is None:
        given["hz"] = given["hz"] or _DEFAULT_HZ

    def output(found: Drained, host: str) -> CpuOutput:
        return CpuOutput(
            style, given["show_plan"], host, collector=found, limit=rows_shown(limit), breakdown=breakdown, files=files
        )

    return run_verb(collector, output, style, given)


def collector(  # noqa: PLR0913 # one parameter an option
    *,
    group_by: str,
    max_groups: int,
    counters: bool,
    hz: int | None,
    sampled: bool,
    budget: float | None,
    ways: tuple[str, ...],
) -> CpuCollector | SampledCollector:
    """Return the collector that options ask for; these are the options that another host may give."""
    from hopscope.kernel.capabilities import TO_TRACE, require_rights  # noqa: PLC0415
    from hopscope.live import lookup as selection  # noqa: PLC0415
    from hopscope.verbs.cpu.collector import CpuCollector  # noqa: PLC0415
    from hopscope.verbs.cpu.options import CpuOptions, affordable_hz  # noqa: PLC0415
    from hopscope.verbs.cpu.pmu import HARDWARE  # noqa: PLC0415
    from hopscope.verbs.cpu.sampled import SampledCollector  # noqa: PLC0415

    check_budget(budget, others={"--frequency": hz is not None, "--counters": counters})
    if budget is not None:
        sampled, hz = True, affordable_hz(budget, _DEFAULT_SAMPLED_HZ)
    require_rights(TO_TRACE)
    options = CpuOptions(
        group_by=group_by,
        max_groups=max_groups,
        hz=hz or (_DEFAULT_SAMPLED_HZ if sampled else 0),
        sampled=sampled,
        counters=HARDWARE if counters else {},
        ways=selection.ways(ways),
        budget=budget,
    )
    return SampledCollector(options) if sampled else CpuCollector(options)
