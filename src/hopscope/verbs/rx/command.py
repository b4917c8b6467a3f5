# SPDX-License-Identifier: Apache-2.0
"""``hopscope rx``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from hopscope.live.help import MEASURE, TRAFFIC, CommandBeside, option, section
from hopscope.live.host_options import several_hosts
from hopscope.live.options import (
    attach_options,
    budget_option,
    check_budget,
    form_options,
    group_option,
    hop_option,
    interface_option,
    max_groups_option,
    message_options,
    protocol_option,
    socket_options,
    timing_options,
)

if TYPE_CHECKING:
    from hopscope.verbs.rx.collector import RxCollector

_GROUPS = ("interface", "netns", "cgroup", "process", "protocol", "port", "peer", "flow", "cpu")


# What follows the first word that is no option is not parsed: it is the command, which has options of its own.
@click.command(
    "rx",
    cls=CommandBeside,
    context_settings={"allow_interspersed_args": False},
    short_help="Received packets: driver to read, hop by hop.",
    examples=(
        ("Where do packets for port 443 wait, by process?", "hopscope rx --port 443 --group-by process -d 10"),
        ("What held the slowest messages that a service read?", "hopscope rx --port 5432 --slowest 5 -d 10"),
    ),
)
@timing_options()
@hop_option()
@section(
    MEASURE,
    option(
        "--sample",
        type=click.IntRange(1, 1 << 20),
        default=1,
        metavar="N",
        show_default=True,
        help="Follow one packet in N.",
    ),
    option(
        "--order",
        type=click.Choice(("apart", "include", "exclude")),
        default="apart",
        metavar="HOW",
        help="Head-of-line wait: apart, include or exclude.",
    ),
    option("--since-entry", is_flag=True, help="Measure from the driver, not from the hop before."),
    option("--nic-stamps", is_flag=True, help="Enable NIC time stamps meanwhile, for rx.nic."),
)
@budget_option()
@socket_options("reads")
@interface_option()
@protocol_option()
@section(
    TRAFFIC,
    option(
        "--min-queue",
        type=click.IntRange(0, 2**32 - 1),
        default=0,
        metavar="N",
        help="Only packets that find N others queued.",
    ),
)
@group_option(_GROUPS)
@max_groups_option(64, "other")
@message_options()
@form_options("docs/rx.md", histogram=True)
@several_hosts()
@attach_options()
def command(*, histogram: bool, as_json: bool, **given: Any) -> int:  # noqa: ANN401 # see `collector` and `run_verb`
    """Show where received packets spend their time, from the driver to the application's read.

    Without options, all packets of all network namespaces are measured, and a table is printed every second until
    Ctrl-C. With a COMMAND, the measurement lasts as long as the command runs; the exit code is the command's, and with
    --json its standard output goes to stderr. Options that select traffic can be repeated.

    A message is what a socket got as one, and a thread has read: a datagram, or a TCP segment as GRO left it.

    --order says how the wait of TCP segments for an earlier one counts: as a hop of its own (apart), as part of the
    read, or not at all.

    \b
    rx.softirq    NET_RX softirq raised -> entered          (one per softirq)
    rx.napi       one NAPI poll                             (one per poll)
    rx.nic        the NIC's time stamp -> handed to the stack (one per frame)
    rx.core       handed over by the driver -> core (GRO, backlog queue)
    rx.ip         -> IP
    rx.tcp        -> TCP (netfilter, routing)
    rx.tcp_queue  -> socket queue (socket lock, backlog)
    rx.tcp_order  arrived out of order -> the gap is filled
    rx.tcp_wake   -> read, while the reader is off the CPU: it sleeps
                  (rx.tcp_asleep), or waits for a CPU (rx.tcp_runnable)
    rx.tcp_read   -> read, while the reader is on a CPU
    rx.tcp_total  handed over by the driver -> read
    rx.udp, rx.udp_queue, rx.udp_wake, ..., rx.udp_total  likewise
    """  # noqa: D301 # the backspace tells click to leave the lines as they are
    from hopscope.live.messages.output import message_outputs, wanted_extras  # noqa: PLC0415 # numpy only when needed
    from hopscope.live.verb import run_verb, style_of  # noqa: PLC0415

    style = style_of(histogram=histogram, as_json=as_json)
    outputs = message_outputs("rx", style, wanted_extras(given), show_plan=given["show_plan"])
    return run_verb(collector, outputs, style, given)


def collector(  # noqa: PLR0913 # one parameter an option
    *,
    events: bool,
    slowest: int | None,
    hops: tuple[str, ...],
    group_by: str | None,
    max_groups: int,
    sample: int,
    budget: float | None,
    order: str,
    since_entry: bool,
    nic_stamps: bool,
    pids: tuple[int, ...],
    comms: tuple[str, ...],
    cgroups: tuple[str, ...],
    interfaces: tuple[str, ...],
    namespaces: tuple[str, ...],
    addresses: tuple[str, ...],
    ports: tuple[int, ...],
    protocol: str | None,
    min_queue: int,
    ways: tuple[str, ...],
) -> RxCollector:
    """Return the collector that options ask for; these are the options that another host may give."""
    from hopscope.kernel.capabilities import require_rights  # noqa: PLC0415
    from hopscope.live import lookup as selection  # noqa: PLC0415
    from hopscope.verbs.rx.collector import RxCollector  # noqa: PLC0415
    from hopscope.verbs.rx.options import RxOptions  # noqa: PLC0415

    check_budget(budget, others={"--sample": sample > 1, "--events": events, "--slowest": bool(slowest)})
    require_rights()
    shown = selection.shown(
        {
            "pid": pids,
            "comm": comms,
            "cgroup": cgroups,
            "interface": interfaces,
            "netns": namespaces,
            "address": addresses,
            "port": ports,
            "protocol": (protocol,) if protocol else (),
            "min-queue": (min_queue,) if min_queue else (),
        }
    )
    options = RxOptions(
        interfaces=selection.interfaces(interfaces),
        **selection.sockets(
            namespaces=namespaces, cgroups=cgroups, pids=pids, comms=comms, ports=ports, addresses=addresses
        ),
        protocol=protocol,
        min_queue=min_queue,
        sample=sample,
        budget=budget,
        events=events,
        slowest=slowest or 0,
        group_by=group_by,
        max_groups=max_groups,
        order=order,
        since_entry=since_entry,
        nic_stamps=nic_stamps,
        hops=hops,
        ways=selection.ways(ways),
        shown=shown,
    )
    return RxCollector(options)
