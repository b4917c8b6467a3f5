# SPDX-License-Identifier: Apache-2.0
"""``hopscope record``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from hopscope.live.help import FLIGHT, RECORD, TRAFFIC, CommandBeside, option, section
from hopscope.live.host_options import host_options
from hopscope.live.options import (
    attach_options,
    budget_option,
    buffer_option,
    check_budget,
    duration_option,
    event_option,
    flight_memory_option,
    interface_option,
    point_option,
    profile_option,
    protocol_option,
    socket_options,
)
from hopscope.live.paths import PATH, FileMode
from hopscope.live.seconds import Seconds

if TYPE_CHECKING:
    from pathlib import Path

    from hopscope.agent.tls import Tls
    from hopscope.verbs.record.pipeline import Limits

_DAY_S = 86_400
# What is not detached between two recordings, or is of one alone: option → its name in Python.
_WHOLE = {"event": "events", "library": "libraries", "flight": "flight", "snap": "snap"}
_MIB = 1 << 20


# What follows the first word that is no option is not parsed: it is the command, which has options of its own.
@click.command(
    "record",
    cls=CommandBeside,
    context_settings={"allow_interspersed_args": False},
    short_help="Record every packet and message into a trace, for `report`.",
    examples=(
        (
            "Record ten seconds of one service, and see what delayed its messages",
            "hopscope record --port 443 -d 10 -o trace && hopscope report messages trace",
        ),
        (
            "Keep the last 5 s in memory, and write them when a packet is dropped",
            "hopscope record --flight 5 --trigger drop -o trace",
        ),
    ),
)
@section(
    RECORD,
    option(
        "-o",
        "--output",
        type=PATH,
        metavar="DIR",
        help="Trace folder, new or empty.",
        default_text="by date; see `recordings`",
    ),
    option(
        "--mode",
        type=FileMode(),
        metavar="MODE",
        default="600",
        show_default=True,
        help="Who may read the trace, as for chmod.",
    ),
    duration_option(),
    option("--max-size", type=click.IntRange(1), metavar="MIB", help="Stop when the trace has this size."),
    profile_option("Probe points, as above."),
    point_option(),
    event_option("Tracepoint, or function with arguments (docs/record-events.md)."),
    option(
        "--library",
        "libraries",
        metavar="LIBRARY",
        multiple=True,
        help="Calls of a TLS library: auto, a name or a path (docs/tls.md).",
    ),
    option(
        "--tls-bytes",
        type=click.IntRange(1, 4096),
        metavar="BYTES",
        help="Also record the first bytes of each such call's contents.",
    ),
    option("--stacks", is_flag=True, help="Record the kernel's stack at each drop."),
    option(
        "--snap",
        type=click.IntRange(14, 8192),
        metavar="BYTES",
        help="Also write each frame's first bytes (pcapng).",
    ),
    option(
        "--bytes",
        type=click.IntRange(1, 4096),
        metavar="N",
        help="Record the first N bytes that each packet carries.",
    ),
    option(
        "--counters",
        type=Seconds(0, _DAY_S),
        default=1.0,
        show_default=True,
        help="Read counters this often, 0: never.",
    ),
    buffer_option(),
    option(
        "--class-buffer",
        "class_buffers",
        metavar="NAME=MIB",
        multiple=True,
        help="Size of each CPU's ring for a class.",
        default_text="as --buffer",
    ),
    option("--wire", metavar="INTERFACE", help="Record what `hopscope wire` sends there, and nothing else."),
)
@section(
    FLIGHT,
    option("--flight", type=Seconds(0.1, _DAY_S), help="Keep the last seconds in memory; write at the end."),
    option(
        "--trigger",
        "triggers",
        metavar="TRIGGER",
        multiple=True,
        help="Stop at `drop`, `drop:REASON`, or 'rx.tcp_queue>1ms'.",
    ),
    flight_memory_option(1024, "Maximum memory for --flight."),
)
@socket_options("uses")
@interface_option()
@protocol_option()
@section(
    TRAFFIC,
    option("--pcap", metavar="EXPRESSION", default="", help="Only what tcpdump would show for this filter."),
    option("--keep", metavar="CONDITION", default="", help="Only events for which it holds (docs/conditions.md)."),
    option("--drop", metavar="CONDITION", default="", help="No events for which it holds."),
    option(
        "--class",
        "classes",
        metavar="NAME=CONDITION",
        multiple=True,
        help="Events with rings of their own: a flood of others costs none.",
    ),
    option(
        "--sample",
        type=click.IntRange(1, 1 << 20),
        default=1,
        metavar="N",
        show_default=True,
        help="Follow one flow in N, both directions.",
    ),
)
@budget_option(what="Record", title=RECORD)
@host_options()
@attach_options(plan=False, title=RECORD)
def command(  # noqa: PLR0913 # one parameter an option
    *,
    output: Path | None,
    mode: int,
    duration: float | None,
    max_size: int | None,
    hosts: tuple[str, ...],
    ssh: str | None,
    remote_command: str | None,
    tls: Tls,
    wire: str | None,
    budget: float | None,
    command: tuple[str, ...],
    **what: Any,  # noqa: ANN401 # what to record, here or there
) -> int:
    """Record every event of packets, messages and CPUs into a trace.

    Without options, all network namespaces are recorded until Ctrl-C. With a COMMAND, the recording lasts as long as
    the command runs; the exit code is the command's. `hopscope report` and `hopscope sql` read the trace on any
    machine, and by default the last one that was recorded without -o. With --host, other hosts are recorded, on one
    time axis. Options that select traffic can be repeated.

    \b
    messages  from the send call to the read: packets, sockets, wake-ups
    packets   packets only: driver, core, queues, copy, free
    rx, tx    one direction, with its sockets
    tcp       TCP connections: windows, round-trip time, what limits them
    calls     system calls on sockets, with their results
    cpu       interrupts, softirqs, NAPI, the scheduler
    drops     drops with their reasons, full sockets, retransmissions
    all       every probe point of the kernel (`hopscope probes`: record.*)

    With --wire, events are recorded that `hopscope wire` of another host sends to an interface of this one.

    With --flight, a trigger, Ctrl-\\ or any other end writes what is kept. EVENT is
    SUBSYSTEM:EVENT[:FILTER], where patterns such as 'tcp:*' are allowed, function:NAME or return:NAME.
    """  # noqa: D301 # the backspace tells click to leave the lines as they are
    from hopscope.store.folder import given_folder  # noqa: PLC0415
    from hopscope.store.recordings import dated_folder  # noqa: PLC0415 # numpy and libbpf only when they are needed
    from hopscope.verbs.record.pipeline import Limits  # noqa: PLC0415

    limits = Limits(duration, max_size * _MIB if max_size else None)
    if budget is not None:
        check_budget(budget, others={"--wire": bool(wire), "--host": bool(hosts)})
        return _within(budget, output, mode, limits, what, command)
    if wire:
        from hopscope.errors import UsageError  # noqa: PLC0415
        from hopscope.live.words import words_of  # noqa: PLC0415
        from hopscope.verbs.record.wire import record_wire  # noqa: PLC0415

        if hosts or (others := words_of(click.get_current_context().command, what)):
            raise UsageError(
                f"--wire records what comes, and {'--host' if hosts else others[0]} is about what this host does",
                "Omit it; the sender selects: hopscope wire --where",
            )
        return record_wire(wire, given_folder(output, mode) if output else dated_folder(mode), limits, command)
    if hosts:
        from hopscope.agent.ssh import Ssh  # noqa: PLC0415
        from hopscope.agent.target import parse_all  # noqa: PLC0415
        from hopscope.live.words import words_of  # noqa: PLC0415
        from hopscope.verbs.record.host import Transports  # noqa: PLC0415
        from hopscope.verbs.record.hosts import record_hosts  # noqa: PLC0415

        words = words_of(click.get_current_context().command, what)
        transports = Transports(Ssh.of(ssh, remote_command), tls)
        targets = parse_all(hosts)
        with given_folder(output, mode) if output else dated_folder(mode) as folder:
            return record_hosts(targets, transports, words, folder, limits, command=command)
    from hopscope.kernel.capabilities import require_rights  # noqa: PLC0415
    from hopscope.live.recorder.collector import Recorder, rights  # noqa: PLC0415
    from hopscope.verbs.record.asked import asked  # noqa: PLC0415
    from hopscope.verbs.record.run import record  # noqa: PLC0415

    require_rights(rights(what["libraries"]))
    options, flight, counters_s = asked(what)
    with given_folder(output, mode) if output else dated_folder(mode) as folder:
        return record(Recorder(options), folder, limits, counters_s=counters_s, flight=flight, command=command)


def _within(  # noqa: PLR0913, PLR0917 # one parameter an option
    budget: float,
    output: Path | None,
    mode: int,
    limits: Limits,
    what: dict[str, Any],
    command: tuple[str, ...],
) -> int:
    """Record what a budget allows."""
    from hopscope.errors import UsageError  # noqa: PLC0415
    from hopscope.kernel.capabilities import require_rights  # noqa: PLC0415 # numpy and libbpf only when they are needed
    from hopscope.live.recorder.collector import Recorder, rights  # noqa: PLC0415
    from hopscope.store.fleet.raw import Raw  # noqa: PLC0415
    from hopscope.store.folder import own_folder  # noqa: PLC0415
    from hopscope.verbs.record.asked import asked  # noqa: PLC0415
    from hopscope.verbs.record.slices import record_slices  # noqa: PLC0415

    others = {f"--{name}": bool(what[field]) for name, field in _WHOLE.items()}
    check_budget(budget, others=others)
    if output is None:
        raise UsageError(
            "--budget makes many recordings, and needs a directory for them",
            "Give one: -o DIR (docs/fleet-recordings.md)",
        )
    require_rights(rights(()))
    options, _, counters_s = asked(what)
    own_folder(output, mode)
    return record_slices(
        Recorder(options), Raw(output), budget, limits, mode=mode, with_counters=bool(counters_s), command=command
    )
