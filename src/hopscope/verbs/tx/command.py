# SPDX-License-Identifier: Apache-2.0
"""``hopscope tx``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TextIO

import click

from hopscope.errors import UsageError
from hopscope.live.help import MEASURE, OUTPUT, CommandBeside, option, section
from hopscope.live.host_options import several_hosts
from hopscope.live.options import (
    attach_options,
    budget_option,
    check_budget,
    form_options,
    group_option,
    hop_option,
    max_groups_option,
    message_options,
    protocol_option,
    socket_options,
    timing_options,
)
from hopscope.live.paths import OUTPUT_FILE

if TYPE_CHECKING:
    from hopscope.verbs.tx.collector import TxCollector

_GROUPS = ("interface", "netns", "cgroup", "process", "port", "peer", "flow", "cpu")


# What follows the first word that is no option is not parsed: it is the command, which has options of its own.
@click.command(
    "tx",
    cls=CommandBeside,
    context_settings={"allow_interspersed_args": False},
    short_help="Sent messages: send call to ACK, hop by hop.",
    examples=(
        ("What delays the messages of one service?", "hopscope tx --port 5432 --slowest 5 -d 10"),
        ("One line per message while a command runs", "hopscope tx --events -- curl -s http://localhost:8080/"),
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
        help="Follow one message in N of each flow.",
    ),
    option("--rate", type=click.IntRange(1, 10**6), metavar="N", help="Follow at most N messages per second and flow."),
    option(
        "--hooks",
        type=click.Choice(("flow", "host")),
        metavar="flow|host",
        help="Attach to selected flows (TCP), or host-wide.",
    ),
)
@budget_option()
@socket_options("sends")
@protocol_option()
@group_option(_GROUPS)
@max_groups_option(64, "other")
@message_options()
@section(
    OUTPUT,
    option("--fields", metavar="FIELD[,...]", help="TCP's state at each stage of messages: cwnd, srtt_ns, …, or all."),
    option("--cdf", metavar="HOP[,HOP...]", help="Plot the distributions of these hops at the end."),
    option("--svg", type=OUTPUT_FILE, metavar="FILE", help="Write --cdf as a picture."),
)
@form_options("docs/tx.md", histogram=True)
@several_hosts()
@attach_options()
def command(*, histogram: bool, as_json: bool, svg: TextIO | None, **given: Any) -> int:  # noqa: ANN401 # see below
    """Show where sent messages spend their time, from the application's send call to the ACK.

    Without options, all flows of all network namespaces are measured, and a table is printed every second until
    Ctrl-C. With a COMMAND, the measurement lasts as long as the command runs; the exit code is the command's, and with
    --json its standard output goes to stderr. Options that select traffic can be repeated.

    A message is the data of one send call; its times are those of its last byte. With a filter, hopscope attaches to
    the selected flows only (--hooks flow), which covers TCP without the send call and the qdisc; --hooks host has all
    hops.

    \b
    tx.tcp         send call has the socket -> TCP has the bytes
     tx.tcp_sndbuf   part of tx.tcp: sleeping for room in the send buffer
    tx.sched       -> leaves TCP
     tx.sched_cwnd, _rwnd, _nagle, _pacing, _tsq, _other   what held it
    tx.qdisc       in queueing disciplines
    tx.driver      -> handed to the driver
    tx.nic         -> sent by the NIC (where the NIC takes time stamps)
    tx.host        send call -> handed to the driver
    tx.ack         handed to the driver -> acknowledged
    tx.total       send call -> acknowledged
    tx.udp, tx.udp_qdisc, tx.udp_driver, tx.udp_free, tx.udp_total
                   datagrams: send call -> IP is done, qdisc, driver, freed
    """  # noqa: D301 # the backspace tells click to leave the lines as they are
    from hopscope.live.messages.output import message_outputs, wanted_extras  # noqa: PLC0415 # numpy and libbpf only when needed
    from hopscope.live.verb import run_verb, style_of  # noqa: PLC0415
    from hopscope.verbs.tx.hops import cdf_hops  # noqa: PLC0415

    style = style_of(histogram=histogram, as_json=as_json)
    cdf = given["cdf"]
    if cdf and as_json:
        raise UsageError("--cdf and --json cannot be combined", "`hopscope cdf` reads the output of --json")
    if svg and not cdf:
        raise UsageError("--svg needs --cdf", "Specify the hops to plot: --cdf tx.sched,tx.ack")
    extras = wanted_extras(given, cdf=cdf_hops(cdf, given["hops"]), svg=svg)
    return run_verb(collector, message_outputs("tx", style, extras, show_plan=given["show_plan"]), style, given)


def collector(  # noqa: PLR0913 # one parameter an option
    *,
    events: bool,
    slowest: int | None,
    fields: str | None,
    cdf: str | None,
    hops: tuple[str, ...],
    group_by: str | None,
    max_groups: int,
    sample: int,
    rate: int | None,
    budget: float | None,
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
    from hopscope.kernel.capabilities import require_rights  # noqa: PLC0415
    from hopscope.live import lookup as selection  # noqa: PLC0415
    from hopscope.verbs.tx.collector import TxCollector  # noqa: PLC0415
    from hopscope.verbs.tx.hops import cdf_hops  # noqa: PLC0415
    from hopscope.verbs.tx.options import TxOptions, fields_of  # noqa: PLC0415

    check_budget(
        budget,
        others={"--sample": sample > 1, "--rate": bool(rate), "--events": events, "--slowest": bool(slowest)},
    )
    if fields and not (events or slowest):
        raise UsageError("--fields needs individual messages", "Add --events or --slowest N")
    wanted = fields_of(fields)
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
        budget=budget,
        events=events,
        slowest=slowest or 0,
        fields=wanted,
        group_by=group_by,
        max_groups=max_groups,
        hops=hops,
        compared=cdf_hops(cdf, hops),
        ways=selection.ways(ways),
    )
    return TxCollector(options)
