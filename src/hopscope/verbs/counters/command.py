# SPDX-License-Identifier: Apache-2.0
"""``hopscope counters`` and ``hopscope counters explain``."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from hopscope.errors import UsageError
from hopscope.live.help import MEASURE, OUTPUT, Command, CommandBeside, option, section
from hopscope.live.options import command_argument, form_options, json_option, netns_option, timing_options
from hopscope.model.counters.sources import LAYERS

if TYPE_CHECKING:
    from collections.abc import Sequence

# Of the clocks nothing moves.
_LAYERS: Final = tuple(layer for layer in LAYERS if layer != "clock")


@click.command(
    "explain",
    cls=Command,
    context_settings={"help_option_names": ["-h", "--help"]},
    examples=(
        ("What does a counter mean?", "hopscope counters explain TCPTimeouts"),
        ("Which counters count drops?", "hopscope counters explain '*Drop*'"),
    ),
)
@section(OUTPUT, json_option("counter", "docs/counters.md"))
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
def explain(*, as_json: bool, names: tuple[str, ...]) -> int:
    """Describe what counters count, when exactly, and what it means when they increase.

    A NAME is written as in nstat, ip, tc, ethtool and the files below /proc/net; case does not matter, and patterns
    such as '*Retrans*' are allowed. No privileges are needed.
    """
    from hopscope.model.counters.names import find, near  # noqa: PLC0415 # only when it is needed
    from hopscope.term.json_lines import line  # noqa: PLC0415
    from hopscope.term.terminal import Terminal  # noqa: PLC0415
    from hopscope.verbs.counters.explanation import explanation_to_json, render_explanation  # noqa: PLC0415

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
            f"No description of a counter named {', '.join(missing)}",
            f"Did you mean {', '.join(guesses)}?" if guesses else "Patterns such as '*Drop*' list all that are known",
        )
    return 0


class _Counters(CommandBeside):
    """Has one sub-command, in the place where other words would be the command to run."""

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

    def refusal(self, ctx: click.Context, words: Sequence[str]) -> str:
        """Return what to say of words that no ``--`` comes before."""
        if words[0] == explain.name:
            return f"{explain.name} must come before all options: {ctx.command_path} {explain.name} NAME --json"
        return super().refusal(ctx, words)


# What follows the first word that is no option is not parsed: it is the command, which has options of its own.
@click.command(
    "counters",
    cls=_Counters,
    context_settings={"allow_interspersed_args": False},
    short_help="Kernel counters that increase, from NIC to socket.",
    examples=(
        ("Which counters increase while a command runs?", "hopscope counters -- curl -s http://localhost:8080/"),
        ("Which TCP counters increase within ten seconds?", "hopscope counters --layer tcp -d 10"),
    ),
)
@timing_options()
@section(
    MEASURE,
    option("--all", "unmoved", is_flag=True, help="Also unchanged counters, and timers and memory."),
    option(
        "--layer",
        "layers",
        type=click.Choice(_LAYERS),
        multiple=True,
        metavar="LAYER",
        help="Only this layer (repeatable).",
    ),
    option("--name", "patterns", multiple=True, metavar="PATTERN", help="Only counters that match, as '*Retrans*'."),
)
@netns_option()
@form_options("docs/counters.md")
@command_argument()
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
    """Show which of the kernel's counters increase, layer by layer from the NIC to the socket.

    Without options, all counters of all network namespaces are read, and a table of those that increased is printed
    every second until Ctrl-C. With a COMMAND, one table shows what increased while it ran (with -i, also one per
    interval); the exit code is the command's. Counters include all traffic, not only the command's. CPUs and queues
    are added up, and the busiest is named.

    \b
    !  something was lost or refused
    ~  a bad sign, even if nothing was lost

    Layers are nic, interrupt, softnet, device, qdisc, neighbour, ip, icmp, conntrack, tcp, udp, socket, memory and cpu.

    `hopscope counters explain NAME` describes what a counter counts, and what it means when it increases.
    """  # noqa: D301 # the backspace tells click to leave the lines as they are
    from hopscope.live import lookup as selection  # noqa: PLC0415
    from hopscope.live.interval import run  # noqa: PLC0415
    from hopscope.model.counters.rows import Wanted  # noqa: PLC0415 # numpy only when it is needed
    from hopscope.verbs.counters.collector import CounterCollector  # noqa: PLC0415
    from hopscope.verbs.counters.output import CounterOutput  # noqa: PLC0415

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
