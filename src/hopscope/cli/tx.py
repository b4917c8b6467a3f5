# SPDX-License-Identifier: Apache-2.0
"""``hopscope tx``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TextIO

import click

from hopscope.cli.hosts import several_hosts
from hopscope.cli.options import attach_options, hop_options, report_options, socket_options
from hopscope.errors import UsageError

if TYPE_CHECKING:
    from hopscope.collectors.tx import TxCollector

_GROUPS = ("interface", "netns", "cgroup", "process", "cpu")


# The first word that is no option is the command, and what follows is the command's.
@click.command(
    "tx",
    context_settings={"allow_interspersed_args": False},
    short_help="Sent messages: send call to ACK, hop by hop.",
)
@report_options("docs/tx.md")
@click.option("--events", is_flag=True, help="A line a message, with all its hops; the table at the end.")
@click.option(
    "--slowest",
    type=click.IntRange(1, 1000),
    metavar="N",
    help="The N slowest messages, and the layers that held them, below each table.",
)
@click.option("--cdf", metavar="HOP[,HOP...]", help="Compare the distributions of these hops at the end.")
@click.option(
    "--svg", type=click.File("w", encoding="utf-8", lazy=False), metavar="FILE", help="Write --cdf as a picture, too."
)
@hop_options(_GROUPS)
@click.option(
    "--sample", type=click.IntRange(1, 1 << 20), default=1, metavar="N", help="Follow 1 message in N of each flow."
)
@click.option(
    "--rate", type=click.IntRange(1, 10**6), metavar="N", help="Follow at most N messages a second of each flow."
)
@socket_options("send", "flows")
@click.option("--protocol", type=click.Choice(("tcp", "udp")), help="Only TCP, or all but TCP.")
@click.option(
    "--hooks",
    type=click.Choice(("flow", "host")),
    help="`flow`: nothing of ours runs for flows that are not selected (the default with a filter): TCP alone, and not "
    "its send call and qdisc. `host`: all hops.",
)
@several_hosts()
@attach_options()
def command(*, histogram: bool, as_json: bool, svg: TextIO | None, **given: Any) -> int:  # noqa: ANN401 # see below
    """Show where sent messages spend their time, from the application's send call to the ACK.

    Without options: all flows of all network namespaces, a table a second, until Ctrl-C. With a COMMAND for as long
    as it runs; the exit code is then the command's, and with --json its output goes to stderr.

    A message is what one send call hands over; its times are those of its last byte.

    \b
    tx.tcp         send call has the socket -> TCP has the bytes
     tx.tcp_sndbuf   of these: slept for room in the send buffer
    tx.sched       -> leaves TCP
     tx.sched_cwnd, _rwnd, _nagle, _pacing, _tsq, _other   what held it
    tx.qdisc       in queueing disciplines
    tx.driver      -> the driver has it
    tx.nic         -> the NIC has sent it (where the NIC stamps)
    tx.ack         the driver has it -> acknowledged
    tx.total       send call -> acknowledged
    tx.udp, tx.udp_qdisc, tx.udp_driver, tx.udp_free, tx.udp_total
                   datagrams: send call -> IP is done, qdisc, driver, freed
    """  # noqa: D301 # the backspace tells click to leave the lines as they are
    from hopscope.cli.tx_output import Extras, cdf_hops, tx_outputs  # noqa: PLC0415 # numpy and libbpf only when needed
    from hopscope.cli.verb import run_verb, style_of  # noqa: PLC0415

    style = style_of(histogram=histogram, as_json=as_json)
    cdf = given["cdf"]
    if cdf and as_json:
        raise UsageError("--cdf and --json exclude each other", "`hopscope cdf` reads what --json prints")
    if svg and not cdf:
        raise UsageError("--svg is a picture of --cdf", "Name its hops: --cdf tx.sched,tx.ack")
    extras = Extras(given["events"], given["slowest"] or 0, cdf_hops(cdf, given["hops"]), svg)
    if given["together"] and (extras.events or extras.slowest):
        raise UsageError("--together has no single messages", "Leave it out, or --events and --slowest")
    return run_verb(collector, tx_outputs(style, extras, show_plan=given["show_plan"]), style, given)


def collector(  # noqa: PLR0913 # one parameter an option
    *,
    events: bool,
    slowest: int | None,
    cdf: str | None,
    hops: tuple[str, ...],
    group_by: str | None,
    max_groups: int,
    sample: int,
    rate: int | None,
    pids: tuple[int, ...],
    comms: tuple[str, ...],
    cgroups: tuple[str, ...],
    namespaces: tuple[str, ...],
    addresses: tuple[str, ...],
    ports: tuple[int, ...],
    protocol: str | None,
    hooks: str | None,
    ways: tuple[str, ...],
) -> TxCollector:
    """Return the collector that options ask for; these are the options that another host may give."""
    from hopscope.cli import selection  # noqa: PLC0415
    from hopscope.cli.tx_output import cdf_hops  # noqa: PLC0415
    from hopscope.collectors.tx import TxCollector  # noqa: PLC0415
    from hopscope.collectors.tx_options import TxOptions  # noqa: PLC0415
    from hopscope.probes.rights import require_rights  # noqa: PLC0415

    require_rights()
    shown = selection.shown(
        {
            "pid": pids,
            "comm": comms,
            "cgroup": cgroups,
            "netns": namespaces,
            "address": addresses,
            "port": ports,
            "protocol": (protocol,) if protocol else (),
        }
    )
    options = TxOptions(
        **selection.sockets(
            namespaces=namespaces, cgroups=cgroups, pids=pids, comms=comms, ports=ports, addresses=addresses
        ),
        shown=shown,
        protocol=protocol,
        flow_hooks=hooks == "flow" if hooks else None,
        sample=sample,
        rate=rate or 0,
        events=events,
        slowest=slowest or 0,
        group_by=group_by,
        max_groups=max_groups,
        hops=hops,
        compared=cdf_hops(cdf, hops),
        ways=selection.ways(ways),
    )
    return TxCollector(options)
