# SPDX-License-Identifier: Apache-2.0
"""``hopscope report``: one command an analysis."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hopscope.cli.report_options import SHOWN, report_options, show

if TYPE_CHECKING:
    from hopscope.cli.report_options import Common


_BY = ("flow", "interface", "cpu", "process", "netns", "host")


@click.group("report", short_help="Analyse a recording.")
def command() -> None:
    """Analyse what `hopscope record` recorded.

    Needs no rights and no kernel support: a trace can be copied and analysed on another machine. docs/report.md
    describes each report and its columns.
    """


@command.command("summary", short_help="What the trace has, and what it lacks.")
@report_options()
def summary(*, common: Common) -> None:
    """Show when and where it was recorded, the events of each probe point, and what is missing, with the reason."""
    from hopscope.analysis import summary as analysis  # noqa: PLC0415 # DuckDB and NumPy when they are needed

    with common.trace() as trace:
        show(analysis.summary(trace, common.selection, limit=common.limit), common.form)


@command.command("flows", short_help="Packets, bytes, retransmissions and drops of each flow.")
@report_options()
def flows(*, common: Common) -> None:
    """Show what each flow sent and received on this host, those with most bytes first."""
    from hopscope.analysis import flows as analysis  # noqa: PLC0415

    with common.trace() as trace:
        show(analysis.flows(trace, common.selection, limit=common.limit), common.form)


@command.command("hops", short_help="How long packets took from point to point.")
@click.option("--by", type=click.Choice(_BY), help="Lines for each of these.")
@report_options()
def hops(*, common: Common, by: str | None) -> None:
    """Show the time between consecutive points of packets' lives: how many took each hop, and how long.

    Hops that cross CPUs are whole; `moved` is the part of them. A stage that was not seen is no hop: the lines below
    the table say what is missing, and why.
    """
    from hopscope.analysis.hop_times import hop_times  # noqa: PLC0415

    with common.trace() as trace:
        show(hop_times(trace, common.selection, by=by, limit=common.limit), common.form)


@command.command("packets", short_help="Single packets: their ways through the kernel, with times.")
@click.option("--slowest", is_flag=True, help="Those that were longest on the way first, instead of in order of time.")
@report_options()
def packets(*, common: Common, slowest: bool) -> None:
    """Show what happened to single packets on this host, and what ran around them.

    Each packet is a tree: time since it was seen first, time since the line before, CPU, point, device, thread. Points
    of stacked devices stand within those of the device above; clones and segments below their packet. JSON and CSV have
    a row an event. There are 20 packets, unless --limit says otherwise.
    """
    from hopscope.analysis.gaps import loss_notes  # noqa: PLC0415
    from hopscope.analysis.names import cpu_names  # noqa: PLC0415
    from hopscope.analysis.packet_rows import packet_rows  # noqa: PLC0415
    from hopscope.analysis.packet_trees import packet_trees  # noqa: PLC0415
    from hopscope.views.packet_trees import render_trees  # noqa: PLC0415
    from hopscope.views.report_table import NOTHING, footer  # noqa: PLC0415

    limit = SHOWN if common.given_limit is None else common.given_limit or None
    with common.trace() as trace:
        trees, left_out = packet_trees(trace, common.selection, limit=limit, slowest=slowest)
        report = packet_rows(trees, left_out=left_out, notes=loss_notes(trace))
        started_ns = trace.metadata.started_ns
        cpus = cpu_names(trace)
    show(
        report,
        common.form,
        lambda report, terminal: "\n".join(
            [*(render_trees(trees, started_ns, terminal, cpus) or [NOTHING]), *footer(report, terminal)]
        ),
    )


@command.command("drops", short_help="Dropped packets: why, where, of which flow.")
@click.option("--stacks", is_flag=True, help="Tell them apart by the kernel's stack, too, and show it.")
@report_options()
def drops(*, common: Common, stacks: bool) -> None:
    """Count the packets that the kernel dropped, by reason, function, flow and device, the most first."""
    from hopscope.analysis.drop_reasons import drop_reasons  # noqa: PLC0415
    from hopscope.views.drop_stacks import render_drops  # noqa: PLC0415

    with common.trace() as trace:
        show(drop_reasons(trace, common.selection, limit=common.limit, stacks=stacks), common.form, render_drops)


@command.command("counters", short_help="The kernel's counters that moved meanwhile, layer by layer.")
@report_options()
def counters(*, common: Common) -> None:
    """Show what the kernel's counters counted while it was recorded, from the wire to the application.

    `hopscope counters explain NAME` says what a counter counts, `hopscope check TRACE` what is wrong by them.
    """
    from hopscope.analysis.counter_history import counter_history  # noqa: PLC0415

    with common.trace() as trace:
        show(counter_history(trace, common.selection, limit=common.given_limit or None), common.form)


@command.command("moments", short_help="When a hop was slow, and which counters moved meanwhile.")
@report_options()
def moments(*, common: Common) -> None:
    """Show the intervals in which a hop was slower than else, or a counter of trouble moved: both side by side.

    Intervals are those between two readings of counters (`hopscope record --counters`). --limit: of intervals.
    """
    from hopscope.analysis import moments as analysis  # noqa: PLC0415

    with common.trace() as trace:
        show(analysis.moments(trace, common.selection, limit=common.limit), common.form)


@command.command("netdev-times", short_help="The figures of perf's netdev-times, a line a packet.")
@click.option("--rx", is_flag=True, help="Only what was received.")
@click.option("--tx", is_flag=True, help="Only what was sent.")
@report_options()
def netdev_times(*, common: Common, rx: bool, tx: bool) -> None:
    """Show for each packet its times from the interrupt to the copy, and from the queue to its release.

    They are those of `perf script netdev-times`, but a packet is told from the next one at its address, and a drop from
    a copy. Recorded are they by `hopscope record -P all`.
    """
    from hopscope.analysis.netdev_times import received, sent  # noqa: PLC0415

    wanted = [analysis for analysis, only in ((received, rx), (sent, tx)) if only or rx == tx]
    with common.trace() as trace:
        for analysis in wanted:
            show(analysis(trace, common.selection, limit=common.limit), common.form)


@command.command("events", short_help="Every event, in the order of time.")
@report_options()
def events(*, common: Common) -> None:
    """List the events in the order of time, a line each; all of them, where --limit does not say how many."""
    from hopscope.analysis import events as analysis  # noqa: PLC0415

    with common.trace() as trace:
        limit = common.given_limit or None
        notes = analysis.write_events(trace, common.selection, common.form, sys.stdout.buffer, limit=limit)
        sys.stdout.buffer.flush()
    for note in notes:
        click.echo(f"hopscope: {note}", err=True)


@command.command("messages", short_help="Where each message's time went, the slowest first.")
@report_options()
@click.option("--waterfall", is_flag=True, help="Every stage of each message as a bar; so they are up to 10 messages.")
def messages(*, common: Common, waterfall: bool) -> None:
    """Follow what each send call wrote to the call that read it, and say who held it: the slowest first.

    A message is what one send call wrote to a TCP connection, or a datagram of UDP.
    """
    from hopscope.analysis import messages as analysis  # noqa: PLC0415
    from hopscope.views.waterfall import FEW, render_messages  # noqa: PLC0415

    limit = FEW if waterfall and common.given_limit is None and common.form == "text" else common.limit
    with common.trace() as trace:
        report = analysis.messages(trace, common.selection, limit=limit)
        few = waterfall or (limit is not None and limit <= FEW)
        show(report, common.form, lambda report, terminal: render_messages(report, terminal, waterfall=few))


@command.command("requests", short_help="How long answers took, and who held them, the slowest first.")
@report_options()
def requests(*, common: Common) -> None:
    """Pair what clients asked with what servers answered: the way there, the server's time, the way back.

    A request is what a client sent up to where the server answered. What cannot be paired is counted below the table.
    """
    from hopscope.analysis import requests as analysis  # noqa: PLC0415

    with common.trace() as trace:
        show(analysis.requests(trace, common.selection, limit=common.limit), common.form)


@command.command("network", short_help="Between hosts: what was lost on the way, and how long the way took.")
@report_options()
def network(*, common: Common) -> None:
    """Show what left one host and never came to the next one, and the one-way latencies with the clocks' bound.

    For recordings of several hosts. Each pair of hosts has a line for each direction, then come the flows, those with
    most losses first (--limit: of flows).
    """
    from hopscope.analysis import network as analysis  # noqa: PLC0415

    with common.trace() as trace:
        show(analysis.network(trace, common.selection, limit=common.limit), common.form)


@command.command("compare", short_help="Which hop takes another time in a second recording.")
@report_options()
@click.argument("other", type=click.Path(path_type=Path), metavar="TRACE2")
def compare(*, common: Common, other: Path) -> None:
    """Compare two recordings hop by hop: what got slower or faster, by how much, and how sure that is.

    Differences that chance makes, or that are too small to matter, are no differences.
    """
    from hopscope.analysis import compare as analysis  # noqa: PLC0415

    with common.trace() as before, replace(common, folder=other).trace() as after:
        show(analysis.compare(before, after, common.selection, limit=common.limit), common.form)


@command.command("outliers", short_help="Messages that are not like the others, and in what.")
@report_options()
def outliers(*, common: Common) -> None:
    """Find messages that took far longer than usual somewhere or went another way, and say what else is different.

    What is usual is taken from the recording itself.
    """
    from hopscope.analysis import outliers as analysis  # noqa: PLC0415
    from hopscope.views.odd_messages import render_outliers  # noqa: PLC0415

    with common.trace() as trace:
        show(analysis.outliers(trace, common.selection, limit=common.limit), common.form, render_outliers)
