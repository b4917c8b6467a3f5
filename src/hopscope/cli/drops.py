# SPDX-License-Identifier: Apache-2.0
"""``hopscope drops``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from hopscope.cli.hosts import several_hosts
from hopscope.cli.options import attach_options, report_options, socket_options

if TYPE_CHECKING:
    from hopscope.collectors.drops import DropCollector

_GROUPS = ("reason", "location", "flow", "process", "interface", "netns", "cpu")
_DEFAULT_GROUPS = ("reason", "location", "flow")


# The first word that is no option is the command, and what follows is the command's.
@click.command(
    "drops",
    context_settings={"allow_interspersed_args": False},
    short_help="Dropped packets: why, where, and whose.",
)
@report_options("docs/drops.md", histogram=False)
@click.option(
    "-g",
    "--group-by",
    type=click.Choice(_GROUPS),
    multiple=True,
    default=_DEFAULT_GROUPS,
    show_default=True,
    help="What drops are told apart by; may be repeated.",
)
@click.option(
    "--top", type=click.IntRange(1, 4096), metavar="N", default=20, show_default=True, help="Lines that are shown."
)
@click.option(
    "--interface", "interfaces", metavar="NAME[@NETNS]", multiple=True, help="Only packets on this interface."
)
@socket_options("use", "packets")
@several_hosts()
@attach_options()
def command(*, as_json: bool, top: int, **given: Any) -> int:  # noqa: ANN401 # see `collector` and `run_verb`
    """Show which packets the kernel drops: why, where, and whose.

    Without options: all namespaces, a table a second, until Ctrl-C. With a COMMAND for as long as it runs; the exit
    code is then the command's, and with --json its output goes to stderr. Counts are exact; what a full ring lost is
    said.

    \b
    reason     as the kernel names it (Linux 5.17; `-` before)
    location   the function that dropped the packet
    flow       its addresses and ports, sender to receiver
    process    the thread that ran, whose packet it need not be
    interface  where it was, if it was at one
    """  # noqa: D301 # the backspace tells click to leave the lines as they are
    from hopscope.cli.drops_output import DropOutput  # noqa: PLC0415 # numpy and libbpf only when they are needed
    from hopscope.cli.verb import run_verb, style_of  # noqa: PLC0415

    style = style_of(as_json=as_json)
    return run_verb(
        collector,
        lambda found, host: DropOutput(style, given["show_plan"], host, collector=found, top=top),
        style,
        given,
    )


def collector(  # noqa: PLR0913 # one parameter an option
    *,
    group_by: tuple[str, ...],
    interfaces: tuple[str, ...],
    pids: tuple[int, ...],
    comms: tuple[str, ...],
    cgroups: tuple[str, ...],
    namespaces: tuple[str, ...],
    addresses: tuple[str, ...],
    ports: tuple[int, ...],
    ways: tuple[str, ...],
) -> DropCollector:
    """Return the collector that options ask for; these are the options that another host may give."""
    from hopscope.cli.selection import record_options  # noqa: PLC0415
    from hopscope.collectors.drops import DropCollector  # noqa: PLC0415
    from hopscope.probes.rights import require_rights  # noqa: PLC0415

    require_rights()
    options = record_options(
        interfaces=interfaces,
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
