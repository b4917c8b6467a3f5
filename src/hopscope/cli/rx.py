# SPDX-License-Identifier: Apache-2.0
"""``hopscope rx``."""

from __future__ import annotations

import click

_GROUPS = ("interface", "netns", "cgroup", "process", "protocol", "cpu")


@click.command("rx", context_settings={"ignore_unknown_options": False})
@click.option("-i", "--interval", type=click.FloatRange(0.1), default=1.0, show_default=True, help="Seconds a report.")
@click.option("-d", "--duration", type=click.FloatRange(0.1), help="Stop after so many seconds.")
@click.option("--histogram", "style", flag_value="histogram", help="Full histograms instead of the table.")
@click.option("--json", "style", flag_value="json", help="One JSON object a report and line (docs/rx.md).")
@click.option("--hop", "hops", multiple=True, metavar="HOP", help="Only this hop; may be repeated.")
@click.option("-g", "--group-by", type=click.Choice(_GROUPS), help="A line for each.")
@click.option(
    "--max-groups", type=click.IntRange(1, 4096), default=64, show_default=True, help="Further ones: `other`."
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
@click.option("-p", "--pid", "pids", type=int, multiple=True, help="Only what this process reads.")
@click.option("-c", "--comm", "comms", multiple=True, help="Only what processes of this name read.")
@click.option(
    "--cgroup", "cgroups", multiple=True, metavar="PATH|ID", help="Only sockets of this cgroup and those below."
)
@click.option("--interface", "interfaces", multiple=True, metavar="NAME[@NETNS]", help="Only what arrives there.")
@click.option("--netns", "namespaces", multiple=True, metavar="NAME|PID|INODE", help="Only this network namespace.")
@click.option("--address", "addresses", multiple=True, metavar="ADDRESS[/LEN]", help="Only packets from or to it.")
@click.option("--port", "ports", type=click.IntRange(1, 65535), multiple=True, help="Only packets from or to it.")
@click.option("--protocol", type=click.Choice(("tcp", "udp")), help="Only this protocol.")
@click.option("--min-queue", type=click.IntRange(0), default=0, metavar="N", help="Only packets that find N waiting.")
@click.option("--way", "ways", multiple=True, metavar="POINT=WAY", help="Attach a point this way (hopscope probes).")
@click.option("--plan", "show_plan", is_flag=True, help="Show how each probe point is attached.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def command(  # noqa: PLR0913 # one parameter an option
    *,
    interval: float,
    duration: float | None,
    style: str | None,
    hops: tuple[str, ...],
    group_by: str | None,
    max_groups: int,
    sample: int,
    order: str,
    since_entry: bool,
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
    r"""Show where received packets spend their time, from the driver to the application's read.

    Without options: all packets of all network namespaces, a table a second, until Ctrl-C. With `-- COMMAND` for as
    long as the command runs.

    \b
    rx.softirq    NET_RX softirq raised -> entered        (a line a softirq)
    rx.napi       one NAPI poll                           (a line a poll)
    rx.core       driver hands over -> core (GRO, backlog queue)
    rx.ip         -> IP
    rx.tcp        -> TCP (netfilter, routing); rx.udp likewise
    rx.tcp_queue  -> the socket has it (socket lock, backlog)
    rx.tcp_order  arrived out of order -> the hole is filled
    rx.tcp_wake   in the socket -> the reader is on a CPU
    rx.tcp_read   -> read
    rx.tcp_total  driver hands over -> read
    """
    from hopscope.cli import selection  # noqa: PLC0415 # numpy and libbpf only when they are needed
    from hopscope.cli.live import Output, run  # noqa: PLC0415
    from hopscope.collectors.rx import RxCollector  # noqa: PLC0415
    from hopscope.collectors.rx_options import RxOptions  # noqa: PLC0415
    from hopscope.probes.rights import require_rights  # noqa: PLC0415

    require_rights()

    given = {
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
        hops=hops,
        ways=selection.ways(ways),
        shown={name: ", ".join(map(str, values)) for name, values in given.items() if values},
    )
    output = Output(style or "table", show_plan=show_plan)
    return run(RxCollector(options), output, interval_s=interval, duration_s=duration, command=command)
