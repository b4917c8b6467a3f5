# SPDX-License-Identifier: Apache-2.0
"""``hopscope drops``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from hopscope.live.help import OUTPUT, CommandBeside, section
from hopscope.live.host_options import several_hosts
from hopscope.live.options import (
    attach_options,
    form_options,
    group_option,
    interface_option,
    limit_option,
    protocol_option,
    rows_shown,
    socket_options,
    timing_options,
)

if TYPE_CHECKING:
    from hopscope.verbs.drops.collector import DropCollector

_GROUPS = ("reason", "location", "function", "flow", "process", "interface", "netns", "cpu")
_DEFAULT_GROUPS = ("reason", "location", "flow")


# What follows the first word that is no option is not parsed: it is the command, which has options of its own.
@click.command(
    "drops",
    cls=CommandBeside,
    context_settings={"allow_interspersed_args": False},
    short_help="Dropped packets: why, where, and whose.",
    examples=(
        ("Which packets are dropped, and by which function?", "hopscope drops -d 10"),
        ("Drops of one interface by reason alone", "hopscope drops --interface eth0 --group-by reason"),
    ),
)
@timing_options()
@socket_options("uses")
@interface_option()
@protocol_option()
@group_option(_GROUPS, multiple=True, default=_DEFAULT_GROUPS)
@section(OUTPUT, limit_option())
@form_options("docs/drops.md")
@several_hosts()
@attach_options()
def command(*, as_json: bool, limit: int | None, **given: Any) -> int:  # noqa: ANN401 # see `collector` and `run_verb`
    """Show which packets the kernel drops: why, where, and whose.

    Without options, all network namespaces are observed, and a table is printed every second until Ctrl-C. With a
    COMMAND, the measurement lasts as long as the command runs; the exit code is the command's, and with --json its
    standard output goes to stderr. Counts are exact; records lost because a ring was full are reported. Options that
    select traffic can be repeated.

    \b
    reason     as the kernel names it (Linux 5.17 or newer; else `-`)
    location   the function that dropped the packet
    flow       its addresses and ports, sender to receiver
    process    the running thread, which need not own the packet
    interface  where the packet was, if it was at one
    """  # noqa: D301 # the backspace tells click to leave the lines as they are
    from hopscope.live.verb import run_verb, style_of  # noqa: PLC0415
    from hopscope.verbs.drops.output import DropOutput  # noqa: PLC0415 # numpy and libbpf only when they are needed

    style = style_of(as_json=as_json)
    return run_verb(
        collector,
        lambda found, host: DropOutput(style, given["show_plan"], host, collector=found, limit=rows_shown(limit)),
        style,
        given,
    )


def collector(  # noqa: PLR0913 # one parameter an option
    *,
    group_by: tuple[str, ...],
    interfaces: tuple[str, ...],
    protocol: str | None,
    pids: tuple[int, ...],
    comms: tuple[str, ...],
    cgroups: tuple[str, ...],
    namespaces: tuple[str, ...],
    addresses: tuple[str, ...],
    ports: tuple[int, ...],
    ways: tuple[str, ...],
) -> DropCollector:
    """Return the collector that options ask for; these are the options that another host may give."""
    from hopscope.kernel.capabilities import require_rights  # noqa: PLC0415
    from hopscope.live.lookup import record_options  # noqa: PLC0415
    from hopscope.verbs.drops.collector import DropCollector  # noqa: PLC0415

    require_rights()
    options = record_options(
        interfaces=interfaces,
        protocol=protocol,
        pids=pids,
        comms=comms,
        cgroups=cgroups,
        namespaces=namespaces,
        addresses=addresses,
        ports=ports,
        profiles=(),
        points=("skb.drop",),
        ways=ways,
    )
    return DropCollector(options, group_by)
