# SPDX-License-Identifier: Apache-2.0
"""``hopscope rx``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from hopscope.cli.hosts import several_hosts
from hopscope.cli.options import attach_options, hop_options, report_options, socket_options

if TYPE_CHECKING:
    from hopscope.collectors.rx import RxCollector

_GROUPS = ("interface", "netns", "cgroup", "process", "protocol", "cpu")


# The first word that is no option is the command, and what follows is the command's.
@click.command(
    "rx",
    context_settings={"allow_interspersed_args": False},
    short_help="Received packets: driver to read, hop by hop.",
)
@report_options("docs/rx.md")
@hop_options(_GROUPS)
@click.option("--sample", type=click.IntRange(1, 1 << 20), default=1, metavar="N", help="Follow 1 packet in N.")
@click.option(
    "--order",
    type=click.Choice(("apart", "include", "exclude")),
    default="apart",
    show_default=True,
    help="The wait of TCP segments for one before them: a hop of its own, part of the read, or left out.",
)
@click.option("--since-entry", is_flag=True, help="Hops count from the driver, not from the hop before.")
@click.option("--nic-stamps", is_flag=True, help="Let NICs stamp all that they receive meanwhile, for rx.nic.")
@socket_options("read", "packets")
@click.option("--interface", "interfaces", multiple=True, metavar="NAME[@NETNS]", help="Only what arrives there.")
@click.option("--protocol", type=click.Choice(("tcp", "udp")), help="Only this protocol.")
@click.option(
    "--min-queue", type=click.IntRange(0, 2**32 - 1), default=0, metavar="N", help="Only packets that find N waiting."
)
@several_hosts()
@attach_options()
def command(*, histogram: bool, as_json: bool, **given: Any) -> int:  # noqa: ANN401 # see `collector` and `run_verb`
    """Show where received packets spend their time, from the driver to the application's read.

    Without options: all packets of all network namespaces, a table a second, until Ctrl-C. With a COMMAND for as long
    as it runs; the exit code is then the command's, and with --json its output goes to stderr.

    \b
    rx.softirq    NET_RX softirq raised -> entered        (a line a softirq)
    rx.napi       one NAPI poll                           (a line a poll)
    rx.nic        the NIC's own stamp -> driver hands over  (a line a frame)
    rx.core       driver hands over -> core (GRO, backlog queue)
    rx.ip         -> IP
    rx.tcp        -> TCP (netfilter, routing)
    rx.tcp_queue  -> the socket has it (socket lock, backlog)
    rx.tcp_order  arrived out of order -> the hole is filled
    rx.tcp_wake   in the socket -> the reader is on a CPU
    rx.tcp_read   -> read
    rx.tcp_total  driver hands over -> read
    rx.udp, rx.udp_queue, rx.udp_wake, rx.udp_read, rx.udp_total likewise
    """  # noqa: D301 # the backspace tells click to leave the lines as they are
    from hopscope.cli.live import Output  # noqa: PLC0415 # numpy and libbpf only when they are needed
    from hopscope.cli.verb import run_verb, style_of  # noqa: PLC0415

    style = style_of(histogram=histogram, as_json=as_json)
    return run_verb(collector, lambda _, host: Output(style, given["show_plan"], host), style, given)


def collector(  # noqa: PLR0913 # one parameter an option
    *,
    hops: tuple[str, ...],
    group_by: str | None,
    max_groups: int,
    sample: int,
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
    from hopscope.cli import selection  # noqa: PLC0415
    from hopscope.collectors.rx import RxCollector  # noqa: PLC0415
    from hopscope.collectors.rx_options import RxOptions  # noqa: PLC0415
    from hopscope.probes.rights import require_rights  # noqa: PLC0415

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
