# SPDX-License-Identifier: Apache-2.0
"""``hopscope report``: one command an analysis."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from hopscope.errors import UsageError
from hopscope.gate import bytes_out, tell
from hopscope.live.handover import handover
from hopscope.live.help import OUTPUT, TRAFFIC, Command, option, section
from hopscope.live.options import SHOWN, group_option
from hopscope.live.seconds import Seconds
from hopscope.recorded.options import SINCE_START, report_options, show, trace_argument, where_option
from hopscope.recorded.plot import plot_option

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hopscope.live.help import Decorated
    from hopscope.model.report import Report
    from hopscope.recorded.options import Common
    from hopscope.recorded.plot import Picture


# Of a heat map.
_COLUMNS = 120
_CPU_BY = ("cpu", "process", "cgroup")
_REQUESTS_BY = ("protocol", "operation", "status")
_BY = ("flow", "interface", "cpu", "process", "netns", "host")


def _call_options(group: str) -> Callable[[Decorated], Decorated]:
    """Return the decorator that adds the options of the reports on calls; a summary has a row per `group`."""
    return section(
        OUTPUT,
        option("--slowest", is_flag=True, help="Sort by duration, longest first, not by time."),
        option("--summary", is_flag=True, help=f"One row per {group}."),
    )


def _show_calls(
    common: Common, each: Callable[..., Report], summed: Callable[..., Report], *, slowest: bool, summary: bool
) -> None:
    if slowest and summary:
        raise UsageError("--slowest and --summary exclude each other", "A summary has no single calls")
    with common.trace() as trace:
        if summary:
            show(summed(trace, common.selection, limit=common.limit), common.form)
        else:
            show(each(trace, common.selection, limit=common.limit, slowest=slowest), common.form)


@click.group("report", short_help="Analyse a recording.")
def command() -> None:
    """Analyse what `hopscope record` recorded.

    No privileges and no kernel support are needed: a trace can be copied and analysed on another machine. TRACE is a
    folder, or the name of a recording that `hopscope recordings` lists; without it, the last of these is read.
    docs/report.md describes each report and its columns.
    """


@command.command(
    "summary",
    cls=Command,
    short_help="What the trace contains, and what is missing from it.",
    examples=(
        ("What does a trace contain?", "hopscope report summary trace"),
        ("The events of each point as CSV", "hopscope report summary --csv trace"),
    ),
)
@report_options()
def summary(*, common: Common) -> None:
    """Show when and where the trace was recorded, the events of each probe point, and what is missing and why."""
    from hopscope.verbs.report import summary as analysis  # noqa: PLC0415 # DuckDB and NumPy when they are needed

    with common.trace() as trace:
        show(analysis.summary(trace, common.selection, limit=common.limit), common.form)


@command.command(
    "flows",
    cls=Command,
    short_help="Packets, bytes, retransmissions and drops of each flow.",
    examples=(
        ("Which flows carried the most data?", "hopscope report flows trace"),
        ("The flows of one process", "hopscope report flows --comm nginx trace"),
    ),
)
@report_options()
def flows(*, common: Common) -> None:
    """Show what each flow sent and received on this host, those with the most bytes first."""
    from hopscope.verbs.report import flows as analysis  # noqa: PLC0415

    with common.trace() as trace:
        show(analysis.flows(trace, common.selection, limit=common.limit), common.form)


@command.command(
    "tcp",
    cls=Command,
    short_help="Windows, round-trip times and limits of TCP connections.",
    examples=(
        ("Which connections were limited, and by what?", "hopscope report tcp trace"),
        (
            "The congestion window of one connection, segment by segment",
            "hopscope report tcp --history --flow '10.0.0.1:4000>10.0.0.2:80' trace",
        ),
    ),
)
@section(
    OUTPUT,
    option("--history", is_flag=True, help="One row per segment that came, in order of time."),
)
@plot_option("Also draw the connection with most bytes over time.")
@report_options()
def tcp(*, common: Common, history: bool, plot: Picture | None) -> None:
    """Show the windows, round-trip times and retransmissions of TCP connections, and what kept them from sending.

    Each end of a connection that was recorded has a row. The trace must be recorded with `-P tcp`, or `--point
    tcp.probe`.
    """
    from hopscope.verbs.report import tcp as analysis  # noqa: PLC0415

    wanted = analysis.history if history else analysis.connections
    with common.trace() as trace:
        if plot and (connection := analysis.picture(trace, common.selection)):
            from hopscope.term.tcp_svg import render_connection  # noqa: PLC0415

            plot.write(render_connection(connection))
        show(wanted(trace, common.selection, limit=common.limit), common.form)


@command.command(
    "calls",
    cls=Command,
    short_help="System calls on sockets: results and durations.",
    examples=(
        ("Which calls of a process took longest, and what did they return?", "hopscope report calls --slowest trace"),
        ("How many calls of each kind failed, as in `strace -c`?", "hopscope report calls --summary trace"),
    ),
)
@_call_options("kind of call")
@report_options()
def calls(*, common: Common, slowest: bool, summary: bool) -> None:
    """List system calls on sockets, and those that wait for sockets, with their results and durations, as strace does.

    The trace must be recorded with `-P calls`.
    """
    from hopscope.verbs.report import calls as analysis  # noqa: PLC0415

    _show_calls(common, analysis.calls, analysis.summary, slowest=slowest, summary=summary)


@command.command(
    "tls",
    cls=Command,
    short_help="Calls in TLS libraries: plaintext, encryption, sockets.",
    examples=(
        ("How long does a server encrypt, and how much?", "hopscope report tls --summary --process nginx trace"),
        ("Which calls took longest, and how much of that was the library?", "hopscope report tls --slowest trace"),
    ),
)
@_call_options("process and kind of call")
@report_options()
def tls(*, common: Common, slowest: bool, summary: bool) -> None:
    """List the calls by which programs write and read plaintext in TLS libraries, and the sockets that they used.

    The trace must be recorded with `--library`.
    """
    from hopscope.verbs.report import tls as analysis  # noqa: PLC0415

    _show_calls(common, analysis.tls, analysis.summary, slowest=slowest, summary=summary)


@command.command(
    "interrupts",
    cls=Command,
    short_help="Interrupts, softirqs and polls: counts, durations, delays.",
    examples=(
        (
            "Which interrupts and softirqs took most time, and did softirqs have to wait?",
            "hopscope report interrupts trace",
        ),
        ("The same of one tenth of a second", "hopscope report interrupts --from 1.2 --until 1.3 trace"),
    ),
)
@report_options()
def interrupts(*, common: Common) -> None:
    """Show how often each interrupt, softirq and poll ran, and how long it took; of softirqs, how long they waited.

    A shared interrupt has a row for each of its handlers. The trace must be recorded with `-P cpu`. Of the options that
    select, --from and --until apply, and --interface to polls.
    """
    from hopscope.verbs.report import interrupts as analysis  # noqa: PLC0415

    with common.trace() as trace:
        show(analysis.interrupts(trace, common.selection, limit=common.limit), common.form)


@command.command(
    "cpu",
    cls=Command,
    short_help="CPU time of interrupts, softirqs and threads that use sockets.",
    examples=(
        ("What did each container take?", "hopscope report cpu --group-by cgroup trace"),
        ("A flame graph of one tenth of a second", "hopscope report cpu --from 1.2 --until 1.3 --plot cpu.svg trace"),
    ),
)
@group_option(_CPU_BY)
@plot_option("Also draw a flame graph.")
@report_options()
def cpu(*, common: Common, group_by: str | None, plot: Picture | None) -> None:
    """Show for how long CPUs were in each interrupt, softirq and process, without what interrupted it.

    The trace must be recorded with `-P cpu`. Processes are those of threads that use sockets, from the first use on;
    other threads are not recorded. Of the options that select, --from and --until apply.
    """
    from hopscope.verbs.report.cpu import report_cpu  # noqa: PLC0415

    with common.trace() as trace:
        if plot:
            from hopscope.verbs.report.pictures import draw_cpu  # noqa: PLC0415

            plot.write(draw_cpu(trace, common.selection))
        show(report_cpu(trace, common.selection, by=group_by, limit=common.limit), common.form)


@command.command(
    "hops",
    cls=Command,
    short_help="Time that packets took from point to point.",
    examples=(
        ("Where do packets spend their time, by interface?", "hopscope report hops --group-by interface trace"),
        ("When did the hops of one service take long?", "hopscope report hops --port 443 --plot hops.svg trace"),
    ),
)
@group_option(_BY, aliases=["--by"])
@plot_option("Also draw heat maps.")
@report_options()
def hops(*, common: Common, group_by: str | None, plot: Picture | None) -> None:
    """Show the time between consecutive probe points of each packet: how many packets took each hop, and how long.

    Hops that cross CPUs are complete; `moved` is their share. A stage that was not observed is not a hop: the lines
    below the table report what is missing and why.
    """
    from hopscope.term.heatmap import render_heatmap  # noqa: PLC0415
    from hopscope.verbs.report.hops import hop_heats, hop_times  # noqa: PLC0415

    with common.trace() as trace:
        if plot:
            bounds_s, heats = hop_heats(trace, common.selection, _COLUMNS)
            plot.write(render_heatmap(f"hops of {trace.folder.name} over time", bounds_s, heats))
        show(hop_times(trace, common.selection, by=group_by, limit=common.limit), common.form)


@command.command(
    "packets",
    cls=Command,
    short_help="Individual packets, event by event.",
    examples=(
        ("The packets that took longest", "hopscope report packets --slowest --limit 3 trace"),
        (
            "The packets of one flow in order of time",
            "hopscope report packets --flow '10.0.0.1:4000>10.0.0.2:80' trace",
        ),
    ),
)
@section(OUTPUT, option("--slowest", is_flag=True, help="Sort by time, longest first, not by start."))
@report_options()
def packets(*, common: Common, slowest: bool) -> None:
    """Show individual packets on this host, event by event, with the CPU activity around them.

    Each packet is a tree: time since its first event, time since the previous line, CPU, point, device, thread. Points
    of stacked devices are indented below those of the upper device; clones and segments below their packet. JSON and
    CSV have one row per event. Without --limit, 20 packets are shown.
    """
    from hopscope.term.report_table import NOTHING, footer  # noqa: PLC0415
    from hopscope.trace.gaps import loss_notes  # noqa: PLC0415
    from hopscope.trace.names import cpu_names  # noqa: PLC0415
    from hopscope.verbs.report.packet_rows import packet_rows  # noqa: PLC0415
    from hopscope.verbs.report.packets import packet_trees  # noqa: PLC0415
    from hopscope.verbs.report.packets_text import render_trees  # noqa: PLC0415

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


@command.command(
    "drops",
    cls=Command,
    short_help="Dropped packets: why, where, and of which flow.",
    examples=(
        ("Why were packets dropped?", "hopscope report drops trace"),
        ("Which code paths led to the drops (recorded with --stacks)?", "hopscope report drops --stacks trace"),
    ),
)
@section(OUTPUT, option("--stacks", is_flag=True, help="Also group by kernel stack, and show it."))
@plot_option("Also draw a flame graph of kernel stacks.")
@report_options()
def drops(*, common: Common, stacks: bool, plot: Picture | None) -> None:
    """Count the packets that the kernel dropped, by reason, function, flow and device, the most frequent first."""
    from hopscope.verbs.report.drops import drop_reasons  # noqa: PLC0415
    from hopscope.verbs.report.drops_text import render_drops  # noqa: PLC0415

    with common.trace() as trace:
        if plot:
            from hopscope.verbs.report.pictures import draw_drops  # noqa: PLC0415

            plot.write(draw_drops(trace, common.selection))
        show(drop_reasons(trace, common.selection, limit=common.limit, stacks=stacks), common.form, render_drops)


@command.command(
    "counters",
    cls=Command,
    short_help="Kernel counters that increased, layer by layer.",
    examples=(
        ("Which counters increased?", "hopscope report counters trace"),
        ("The first ten of them as JSON", "hopscope report counters --limit 10 --json trace"),
    ),
)
@report_options()
def counters(*, common: Common) -> None:
    """Show the kernel counters that increased during the recording, from the wire to the application.

    `hopscope counters explain NAME` describes a counter, `hopscope check TRACE` reports known problems.
    """
    from hopscope.verbs.report.counters import counter_history  # noqa: PLC0415

    with common.trace() as trace:
        show(counter_history(trace, common.selection, limit=common.given_limit or None), common.form)


@command.command(
    "moments",
    cls=Command,
    short_help="When a hop was slow, and which counters increased then.",
    examples=(
        ("When did something unusual happen?", "hopscope report moments trace"),
        ("The same for one port", "hopscope report moments --port 443 trace"),
    ),
)
@report_options()
def moments(*, common: Common) -> None:
    """Show the intervals in which a hop was slower than usual, or a counter of losses increased, side by side.

    An interval is the time between two readings of the counters (`hopscope record --counters`). --limit applies to
    intervals.
    """
    from hopscope.verbs.report import moments as analysis  # noqa: PLC0415

    with common.trace() as trace:
        show(analysis.moments(trace, common.selection, limit=common.limit), common.form)


@command.command(
    "netdev-times",
    cls=Command,
    short_help="The times of perf's netdev-times, one row per packet.",
    examples=(
        ("Received packets only", "hopscope report netdev-times --rx trace"),
        ("All sent packets as CSV", "hopscope report netdev-times --tx --csv trace"),
    ),
)
@section(
    TRAFFIC,
    option("--rx", is_flag=True, help="Only received packets."),
    option("--tx", is_flag=True, help="Only sent packets."),
)
@report_options()
def netdev_times(*, common: Common, rx: bool, tx: bool) -> None:
    """Show for each packet the times from the interrupt to the copy, and from the queue to its release.

    The times are those of `perf script netdev-times`, but packets that reuse an address, and drops and copies, are
    distinguished. They need a trace of `hopscope record -P all`.
    """
    from hopscope.verbs.report.netdev_times import received, sent  # noqa: PLC0415

    wanted = [analysis for analysis, only in ((received, rx), (sent, tx)) if only or rx == tx]
    with common.trace() as trace:
        for analysis in wanted:
            show(analysis(trace, common.selection, limit=common.limit), common.form)


@command.command(
    "events",
    cls=Command,
    short_help="Every event, in order of time.",
    examples=(
        ("The first events of a trace", "hopscope report events --limit 50 trace"),
        ("Packets that waited a millisecond for TCP", "hopscope report events --where 'rx.tcp_queue>1ms' trace"),
    ),
)
@where_option()
@report_options()
def events(*, common: Common) -> None:
    """List the events in chronological order, one per line; all of them unless --limit is given."""
    from hopscope.verbs.report import events as analysis  # noqa: PLC0415

    with common.trace() as trace:
        limit = common.given_limit or None
        if handover():
            show(analysis.event_report(trace, common.selection, limit=limit), common.form)
            return
        out = bytes_out(data=common.form != "text")
        notes = analysis.write_events(trace, common.selection, common.form, out, limit=limit)
        out.flush()
    for note in notes:
        tell(f"hopscope: {note}")


@command.command(
    "after",
    cls=Command,
    short_help="What followed an event, for certain or possibly.",
    examples=(
        ("What follows a retransmission?", "hopscope report after tcp.retransmit trace"),
        ("What followed a mark, within a second", "hopscope report after mark --within 1 trace"),
    ),
)
@click.argument("event", metavar="EVENT")
@section(
    TRAFFIC,
    option("--within", type=Seconds(1e-9, 1e6), default=0.01, show_default=True, help="How long after it."),
)
@report_options()
def after(*, common: Common, event: str, within: float) -> None:
    """Show which events came after EVENT, how often, and how soon: for certain, or possibly.

    EVENT is a probe point as `report events` shows it, or an event of `record -e`. Of each kind, the first one after
    each EVENT counts. The clocks of several hosts differ by up to a bound: what is closer may have come before.
    """
    from hopscope.verbs.report import after as analysis  # noqa: PLC0415

    with common.trace() as trace:
        show(analysis.after(trace, common.selection, event, within, limit=common.limit), common.form)


@command.command(
    "messages",
    cls=Command,
    short_help="Where messages spent their time, slowest first.",
    examples=(
        ("The slowest messages, stage by stage", "hopscope report messages --waterfall trace"),
        ("The ten slowest messages of one port", "hopscope report messages --port 5432 --limit 10 trace"),
    ),
)
@report_options()
@section(
    TRAFFIC,
    option("--message", "numbers", type=int, multiple=True, metavar="N", help="With --packets: only this message."),
)
@section(
    OUTPUT,
    option("--waterfall", is_flag=True, help="Each stage as a bar, of up to 10 messages."),
    option("--packets", is_flag=True, help="Each packet that carried bytes of the messages."),
)
@plot_option("Also draw the messages that are shown as waterfalls.")
def messages(*, common: Common, waterfall: bool, packets: bool, numbers: tuple[int, ...], plot: Picture | None) -> None:
    """Follow the data of each send call to the call that read it, and show what delayed it, slowest first.

    A message is the data of one send call on a TCP connection, or one UDP datagram.
    """
    from hopscope.verbs.report import messages as analysis  # noqa: PLC0415
    from hopscope.verbs.report.message_packets import message_packets  # noqa: PLC0415
    from hopscope.verbs.report.message_packets_text import render_message_packets  # noqa: PLC0415
    from hopscope.verbs.report.messages_text import FEW, render_messages  # noqa: PLC0415

    if packets:
        if plot:
            raise click.UsageError("--plot and --packets cannot be combined", click.get_current_context())
        most = FEW if common.given_limit is None and common.form == "text" else common.limit
        with common.trace() as trace:
            found = message_packets(trace, common.selection, numbers=numbers, limit=None if numbers else most)
            show(found, common.form, render_message_packets)
        return
    if numbers:
        raise click.UsageError("--message needs --packets", click.get_current_context())
    limit = FEW if waterfall and common.given_limit is None and common.form == "text" else common.limit
    with common.trace() as trace:
        report = analysis.messages(trace, common.selection, limit=limit)
        if plot:
            from hopscope.verbs.report.pictures import draw_messages  # noqa: PLC0415

            plot.write(draw_messages(report, trace.folder.name))
        few = waterfall or (limit is not None and limit <= FEW)
        show(report, common.form, lambda report, terminal: render_messages(report, terminal, waterfall=few))


@command.command(
    "requests",
    cls=Command,
    short_help="Response times and their causes, slowest first.",
    examples=(
        ("Which requests took longest, and where?", "hopscope report requests trace"),
        ("Which operations of a server take long?", "hopscope report requests -g operation --port 80 trace"),
    ),
)
@group_option(_REQUESTS_BY)
@report_options()
def requests(*, common: Common, group_by: str | None) -> None:
    """Match the requests of clients with the answers of servers: the time to the server, in the server, and back.

    A request is the data that a client sent before the server answered. Unmatched requests are counted below the table.
    Protocols, operations and statuses are known if the trace was recorded with `--bytes 512`.
    """
    from hopscope.verbs.report import requests as analysis  # noqa: PLC0415

    with common.trace() as trace:
        show(analysis.requests(trace, common.selection, by=group_by, limit=common.limit), common.form)


@command.command(
    "network",
    cls=Command,
    short_help="Losses and one-way latencies between hosts.",
    examples=(
        ("Losses and latencies between the recorded hosts", "hopscope report network joined"),
        ("The same for one service", "hopscope report network --port 443 joined"),
    ),
)
@report_options()
def network(*, common: Common) -> None:
    """Show what left one host and did not reach the next, and one-way latencies with the error bound of the clocks.

    For recordings of several hosts. Each pair of hosts has a row per direction, followed by the flows, those with
    the most losses first. --limit applies to flows.
    """
    from hopscope.verbs.report import network as analysis  # noqa: PLC0415

    with common.trace() as trace:
        show(analysis.network(trace, common.selection, limit=common.limit), common.form)


@command.command(
    "compare",
    cls=Command,
    short_help="Hops whose duration differs in a second recording.",
    examples=(
        ("What did a change do?", "hopscope report compare before after"),
        (
            "The first two seconds of a recording with the rest of it",
            "hopscope report compare --until 2 --second-from 2 trace trace",
        ),
    ),
)
@section(
    TRAFFIC,
    option("--second-from", "second_from_s", type=SINCE_START, help="Of TRACE2, only from this time on."),
    option("--second-until", "second_until_s", type=SINCE_START, help="Of TRACE2, only until this time."),
)
@report_options(trace_required=True)
@trace_argument("other", metavar="TRACE2")
@plot_option("Also draw the median and the 99th percentile of each hop in both.")
def compare(
    *,
    common: Common,
    other: Path | None,
    second_from_s: float | None,
    second_until_s: float | None,
    plot: Picture | None,
) -> None:
    """Compare two recordings hop by hop: what became slower or faster, by how much, and how certain that is.

    Without TRACE2, TRACE is compared with the last recording. With --second-from or --second-until, --from and --until
    select the period of TRACE alone, so that TRACE2 may be the same recording.

    Differences that may be due to chance, or that are too small to matter, are not reported.
    """
    from hopscope.verbs.report import compare as analysis  # noqa: PLC0415

    with common.trace(beside=[other]) as before, replace(common, folder=other).trace() as after:
        if other is None and before.folder.samefile(after.folder):
            raise UsageError("TRACE is the last recording itself", "Name what to compare it with, as TRACE2")
        second = None
        if second_from_s is not None or second_until_s is not None:
            second = replace(common.selection, from_s=second_from_s, until_s=second_until_s)
        report = analysis.compare(before, after, common.selection, second=second, limit=common.limit)
        if plot:
            from hopscope.verbs.report.pictures import draw_changes  # noqa: PLC0415

            plot.write(draw_changes(report, before.folder.name, after.folder.name))
        show(report, common.form)


@command.command(
    "outliers",
    cls=Command,
    short_help="Unusual messages, and how they differ.",
    examples=(
        ("Which messages are unusual?", "hopscope report outliers trace"),
        ("Those of one process", "hopscope report outliers --comm postgres trace"),
    ),
)
@report_options()
def outliers(*, common: Common) -> None:
    """Find messages that took far longer than usual at a stage or took a different path, and what else differs.

    What is usual is derived from the recording itself.
    """
    from hopscope.verbs.report import outliers as analysis  # noqa: PLC0415
    from hopscope.verbs.report.outliers_text import render_outliers  # noqa: PLC0415

    with common.trace() as trace:
        show(analysis.outliers(trace, common.selection, limit=common.limit), common.form, render_outliers)
