# SPDX-License-Identifier: Apache-2.0
"""``hopscope rx``."""

from __future__ import annotations

import click

from hopscope.cli.seconds import Seconds
from hopscope.errors import UsageError

_GROUPS = ("interface", "netns", "cgroup", "process", "protocol", "cpu")
_DAY_S = 86_400


# The first word that is no option is the command, and what follows is the command's.
@click.command(
    "rx",
    context_settings={"allow_interspersed_args": False},
    short_help="Received packets: driver to read, hop by hop.",
)
@click.option(
    "-i", "--interval", type=Seconds(0.1, _DAY_S), default=1.0, show_default=True, help="Time between reports."
)
@click.option("-d", "--duration", type=Seconds(0.1, 365 * _DAY_S), help="Stop after this time.")
@click.option("--histogram", is_flag=True, help="Full histograms instead of the table.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line and report (docs/rx.md).")
@click.option("--hop", "hops", multiple=True, metavar="HOP", help="Only this hop; may be repeated, as all filters.")
@click.option("-g", "--group-by", type=click.Choice(_GROUPS), help="A line for each of these.")
@click.option(
    "--max-groups",
    type=click.IntRange(1, 4096),
    metavar="N",
    default=64,
    show_default=True,
    help="So many groups have a line of their own; the rest share the line `other`.",
)
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
@click.option("-p", "--pid", "pids", type=int, metavar="PID", multiple=True, help="Only what this process reads.")
@click.option("-c", "--comm", "comms", metavar="NAME", multiple=True, help="Only what processes of this name read.")
@click.option(
    "--cgroup", "cgroups", multiple=True, metavar="PATH|ID", help="Only sockets of this cgroup and those below."
)
@click.option("--interface", "interfaces", multiple=True, metavar="NAME[@NETNS]", help="Only what arrives there.")
@click.option("--netns", "namespaces", multiple=True, metavar="NAME|PID|INODE", help="Only this network namespace.")
@click.option("--address", "addresses", multiple=True, metavar="ADDRESS[/LEN]", help="Only packets from or to it.")
@click.option(
    "--port", "ports", type=click.IntRange(1, 65535), metavar="N", multiple=True, help="Only packets from or to it."
)
@click.option("--protocol", type=click.Choice(("tcp", "udp")), help="Only this protocol.")
@click.option(
    "--min-queue", type=click.IntRange(0, 2**32 - 1), default=0, metavar="N", help="Only packets that find N waiting."
)
@click.option("--way", "ways", multiple=True, metavar="POINT=WAY", help="Attach a point this way (hopscope probes).")
@click.option("--plan", "show_plan", is_flag=True, help="Show how each probe point is attached.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]")
def command(  # noqa: PLR0913 # one parameter an option
    *,
    interval: float,
    duration: float | None,
    histogram: bool,
    as_json: bool,
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
    show_plan: bool,
    command: tuple[str, ...],
) -> int:
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
    from hopscope.cli import selection  # noqa: PLC0415 # numpy and libbpf only when they are needed
    from hopscope.cli.live import Output, run  # noqa: PLC0415
    from hopscope.collectors.rx import RxCollector  # noqa: PLC0415
    from hopscope.collectors.rx_options import RxOptions  # noqa: PLC0415
    from hopscope.probes.rights import require_rights  # noqa: PLC0415

    require_rights()
    if histogram and as_json:
        raise UsageError("--histogram and --json exclude each other", "The JSON has the full histograms")
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
        namespaces=selection.namespaces(namespaces),
        cgroups=selection.cgroups(cgroups),
        pids=selection.pids(pids),
        comms=selection.comms(comms),
        ports=ports,
        addresses=selection.addresses(addresses),
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
    output = Output("histogram" if histogram else "json" if as_json else "table", show_plan=show_plan)
    return run(RxCollector(options), output, interval_s=interval, duration_s=duration, command=command)
