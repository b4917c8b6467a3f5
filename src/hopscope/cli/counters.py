# SPDX-License-Identifier: Apache-2.0
"""``hopscope counters`` and ``hopscope counters explain``."""

from __future__ import annotations

import os
import sys
from typing import Any, Final

import click
from click.core import ParameterSource

from hopscope.analysis.sources import LAYERS
from hopscope.cli.options import report_options
from hopscope.errors import UsageError

# Of the clocks nothing moves.
_LAYERS: Final = tuple(layer for layer in LAYERS if layer != "clock")


@click.command("explain", context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line and counter (docs/counters.md).")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
def explain(*, as_json: bool, names: tuple[str, ...]) -> int:
    """Say what counters count, when exactly, and what it means when they move.

    A NAME is as nstat, ip, tc, ethtool and the files below /proc/net have it; case does not matter, and a pattern such
    as '*Retrans*' will do. Needs no root and no kernel.
    """
    from hopscope.analysis.counter_names import find, near  # noqa: PLC0415 # only when it is needed
    from hopscope.views.counter_explanation import explanation_to_json, render_explanation  # noqa: PLC0415
    from hopscope.views.json_lines import line  # noqa: PLC0415
    from hopscope.views.terminal import Terminal  # noqa: PLC0415

    terminal = Terminal.of(sys.stdout, os.environ)
    found = {name: find(name) for name in names}
    texts = [
        line(explanation_to_json(*each)) if as_json else render_explanation(*each, terminal) + "\n"
        for each in dict.fromkeys(each for entries in found.values() for each in entries)
    ]
    if texts:
        click.echo("\n".join(texts).rstrip("\n"))
    missing = [name for name, entries in found.items() if not entries]
    if missing:
        guesses = list(dict.fromkeys(guess for name in missing for guess in near(name)))
        raise UsageError(
            f"Nothing is known of a counter called {', '.join(missing)}",
            f"Did you mean {', '.join(guesses)}?" if guesses else "Patterns such as '*Drop*' show which there are",
        )
    return 0


class _Counters(click.Command):
    """Has one verb below it, where the command to run has its place else."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,  # noqa: ANN401 # as click's
    ) -> click.Context:
        """Return the context of what is called."""
        if args[:1] == [explain.name]:
            return explain.make_context(f"{info_name} {explain.name}", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


# The first word that is no option is the command, and what follows is the command's.
@click.command(
    "counters",
    cls=_Counters,
    context_settings={"allow_interspersed_args": False},
    short_help="The kernel's counters that move, NIC to socket.",
)
@report_options("docs/counters.md", histogram=False)
@click.option("--all", "unmoved", is_flag=True, help="Also what did not move, and timers, memory and the like.")
@click.option(
    "--layer",
    "layers",
    type=click.Choice(_LAYERS),
    multiple=True,
    metavar="LAYER",
    help="Only this layer; may be repeated.",
)
@click.option("--name", "patterns", multiple=True, metavar="PATTERN", help="Only counters called so, as '*Retrans*'.")
@click.option(
    "--netns",
    "namespaces",
    multiple=True,
    metavar="NAME|PID|INODE",
    help="Only this network namespace, and the host's.",
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]")
@click.pass_context
def command(  # noqa: PLR0913 # one parameter an option
    context: click.Context,
    *,
    interval: float,
    duration: float | None,
    as_json: bool,
    unmoved: bool,
    layers: tuple[str, ...],
    patterns: tuple[str, ...],
    namespaces: tuple[str, ...],
    command: tuple[str, ...],
) -> int:
    """Show which of the kernel's counters move, layer by layer from the NIC to the socket.

    Without options: all counters of all network namespaces, a table a second of what moved, until Ctrl-C. With a
    COMMAND what moved while it ran, as one table (with -i, also one an interval); the exit code is then the command's.
    Counters count everybody, not only the command. CPUs and queues are put together, and the
    busiest is named.

    \b
    !  something was lost or refused
    ~  a bad sign, though nothing need be lost

    Layers are nic, interrupt, softnet, device, qdisc, neighbour, ip, icmp, conntrack, tcp, udp, socket, memory and cpu.

    `hopscope counters explain NAME` says what a counter counts, and what to think when it moves.
    """  # noqa: D301 # the backspace tells click to leave the lines as they are
    from hopscope.analysis.counter_rows import Wanted  # noqa: PLC0415 # numpy only when it is needed
    from hopscope.cli import selection  # noqa: PLC0415
    from hopscope.cli.counters_output import CounterOutput  # noqa: PLC0415
    from hopscope.cli.live import run  # noqa: PLC0415
    from hopscope.collectors.counter_rates import CounterCollector  # noqa: PLC0415

    if command[:1] == (explain.name,):
        raise UsageError("explain comes before all options", "Try: hopscope counters explain NAME --json")
    collector = CounterCollector(
        Wanted(layers, patterns, unmoved),
        selection.namespaces(namespaces) or None,
        selection.shown({"layer": layers, "name": patterns, "netns": namespaces}),
    )
    collector.check_names(patterns)
    asked_for_intervals = context.get_parameter_source("interval") is not ParameterSource.DEFAULT
    output = CounterOutput(
        "json" if as_json else "table", moved_by=command, only_total=bool(command) and not asked_for_intervals
    )
    return run(collector, output, interval_s=interval, duration_s=duration, command=command)
