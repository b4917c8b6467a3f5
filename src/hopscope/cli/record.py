# SPDX-License-Identifier: Apache-2.0
"""``hopscope record``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hopscope.cli.hosts import host_options
from hopscope.cli.options import socket_options
from hopscope.cli.seconds import Seconds

if TYPE_CHECKING:
    from hopscope.agent.tls import Tls

_PROFILES = ("messages", "packets", "rx", "tx", "cpu", "drops", "all")
_DAY_S = 86_400
_YEAR_S = 365 * _DAY_S
_MIB = 1 << 20


# The first word that is no option is the command, and what follows is the command's.
@click.command(
    "record",
    context_settings={"allow_interspersed_args": False},
    short_help="Record every packet and message into a trace, for `report`.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The trace: a folder that is new or empty (hopscope-trace-DATE-TIME).",
)
@click.option("-d", "--duration", type=Seconds(0.1, _YEAR_S), help="Stop after this time.")
@click.option("--max-size", type=click.IntRange(1), metavar="MIB", help="Stop when the trace has this size.")
@click.option(
    "-P",
    "--profile",
    "profiles",
    type=click.Choice(_PROFILES),
    multiple=True,
    help="Which probe points; may be repeated (messages, unless points or events are named).",
)
@click.option("--point", "points", metavar="POINT", multiple=True, help="A probe point more, such as call.enter.")
@click.option(
    "-e",
    "--event",
    "events",
    metavar="SUBSYSTEM:EVENT[:FILTER]",
    multiple=True,
    help="A tracepoint of the kernel with all its fields; patterns such as 'tcp:*' will do. "
    "function:NAME and return:NAME: the calls and returns of a kernel function (docs/record-events.md).",
)
@click.option("--pcap", metavar="EXPRESSION", default="", help="Only packets that tcpdump would show for it.")
@click.option("--stacks", is_flag=True, help="Take the kernel's stack at each drop.")
@click.option(
    "--sample",
    type=click.IntRange(1, 1 << 20),
    default=1,
    metavar="N",
    help="Follow 1 flow in N, both of its directions, at every point.",
)
@click.option(
    "--snap",
    type=click.IntRange(14, 8192),
    metavar="BYTES",
    help="Write the first bytes of each frame, too, as capture.pcapng in the trace (Wireshark, tcpdump).",
)
@click.option(
    "--counters",
    type=Seconds(0, _DAY_S),
    default=1.0,
    show_default=True,
    help="Read the kernel's counters so often, and at the start and the end (0: never).",
)
@click.option(
    "--interface", "interfaces", metavar="NAME[@NETNS]", multiple=True, help="Only packets on this interface."
)
@socket_options("use", "packets")
@click.option(
    "--buffer",
    type=click.Choice(("1", "2", "4", "8", "16", "32", "64", "128", "256")),
    default="16",
    show_default=True,
    metavar="MIB",
    help="Memory of each CPU's ring.",
)
@click.option(
    "--flight",
    type=Seconds(0.1, _DAY_S),
    help="Keep the last so many seconds in memory, and write them at the end: at a trigger, Ctrl-\\ or any other.",
)
@click.option(
    "--trigger",
    "triggers",
    metavar="TRIGGER",
    multiple=True,
    help="End at a drop (`drop`), or when a packet comes so late from its point before ('rx.tcp_queue>1ms').",
)
@click.option(
    "--flight-memory",
    type=click.IntRange(1, 1 << 20),
    metavar="MIB",
    default=1024,
    show_default=True,
    help="Most memory for --flight.",
)
@click.option(
    "--way", "ways", multiple=True, metavar="POINT=WAY", help="Attach a point this way (hopscope probes, record.*)."
)
@host_options()
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]")
def command(  # noqa: PLR0913 # one parameter an option
    *,
    output: Path | None,
    duration: float | None,
    max_size: int | None,
    hosts: tuple[str, ...],
    ssh: str | None,
    remote_command: str | None,
    tls: Tls,
    command: tuple[str, ...],
    **what: Any,  # noqa: ANN401 # what to record, here or there
) -> int:
    """Record what packets, messages and CPUs do, each event, into a trace.

    Without options: all namespaces, until Ctrl-C. With a COMMAND for as long as it runs; the exit code is then the
    command's. `hopscope report` and `hopscope sql` read the trace, on any machine. With --host, other hosts are
    recorded, on one time axis.

    \b
    messages  from the send call to the read: packets, sockets, wake-ups
    packets   packets alone: driver, core, queues, copy, free
    rx, tx    one direction, with its sockets
    cpu       interrupts, softirqs, NAPI, the scheduler
    drops     drops with their reasons, full sockets, retransmissions
    all       every probe point (`hopscope probes` lists them: record.*)
    """  # noqa: D301 # the backspace tells click to leave the lines as they are
    import time  # noqa: PLC0415 # numpy and libbpf only when they are needed

    from hopscope.cli.record_pipeline import Limits  # noqa: PLC0415

    limits = Limits(duration, max_size * _MIB if max_size else None)
    kind = "recording" if hosts else "trace"
    folder = output or Path(time.strftime(f"hopscope-{kind}-%Y%m%d-%H%M%S"))
    if hosts:
        from hopscope.agent.ssh import Ssh  # noqa: PLC0415
        from hopscope.agent.target import parse_all  # noqa: PLC0415
        from hopscope.cli.record_host import Ways  # noqa: PLC0415
        from hopscope.cli.record_hosts import record_hosts  # noqa: PLC0415
        from hopscope.cli.words import words_of  # noqa: PLC0415

        words = words_of(click.get_current_context().command, what)
        ways = Ways(Ssh.of(ssh, remote_command), tls)
        return record_hosts(parse_all(hosts), ways, words, folder, limits, command=command)
    from hopscope.cli.record_asked import asked  # noqa: PLC0415
    from hopscope.cli.record_run import record  # noqa: PLC0415
    from hopscope.collectors.record import Recorder  # noqa: PLC0415
    from hopscope.probes.rights import require_rights  # noqa: PLC0415

    require_rights()
    options, flight, counters_s = asked(what)
    return record(Recorder(options), folder, limits, counters_s=counters_s, flight=flight, command=command)
