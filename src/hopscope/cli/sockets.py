# SPDX-License-Identifier: Apache-2.0
"""``hopscope sockets``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hopscope.cli.seconds import Seconds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hopscope.collectors.socket_watch import SocketOptions

_DAY_S = 86_400
_GROUPS = ("process", "comm", "cgroup", "netns", "state", "peer", "peer-port", "local-port", "congestion")
_SORTS = (
    "trouble", "sent", "received", "retransmits", "retransmit-share", "rtt", "rtt-inflation", "receive-queue",
    "send-queue", "memory", "drops", "busy", "rwnd-limited", "sndbuf-limited", "delivery-rate", "cwnd",
)  # fmt: skip


@click.command("sockets", short_help="Sockets: who talks to whom, how well, and what holds them up.")
@click.option("-t", "--tcp", is_flag=True, help="TCP only.")
@click.option("-u", "--udp", is_flag=True, help="UDP and UDP-Lite only.")
@click.option("-l", "--listening", is_flag=True, help="Only sockets that wait for connections or datagrams.")
@click.option("-a", "--all", "all_states", is_flag=True, help="Also those in time-wait, and bound but not in use.")
@click.option(
    "--netns",
    "namespaces",
    multiple=True,
    metavar="NAME|PID|INODE",
    help="Only this network namespace; may be repeated.",
)
@click.option(
    "--sort",
    type=click.Choice(_SORTS),
    metavar="ORDER",
    default="trouble",
    show_default=True,
    help=f"What comes first, the most of this: {', '.join(_SORTS)}.",
)
@click.option(
    "-g",
    "--group-by",
    type=click.Choice(_GROUPS),
    metavar="KEY",
    multiple=True,
    help=f"A line for each of these, may be repeated: {', '.join(_GROUPS)}.",
)
@click.option(
    "--top", type=click.IntRange(0), metavar="N", help="Lines that are shown, 0: all.  [default: 20; all with --json]"
)
@click.option("--details", is_flag=True, help="All that the kernel tells of each socket, as ss -tinmpo does.")
@click.option("--no-processes", is_flag=True, help="Do not look for the processes in /proc, which takes time.")
@click.option("-i", "--interval", type=Seconds(0.1, _DAY_S), help="Show again and again what happened in this time.")
@click.option("-d", "--duration", type=Seconds(0.1, 365 * _DAY_S), help="Stop after this time.  [--interval is 1 then]")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line (docs/sockets.md).")
@click.argument("filter_words", nargs=-1, metavar="[FILTER]")
def command(  # noqa: PLR0913 # one parameter an option
    *,
    tcp: bool,
    udp: bool,
    listening: bool,
    all_states: bool,
    namespaces: tuple[str, ...],
    sort: str,
    group_by: tuple[str, ...],
    top: int | None,
    details: bool,
    no_processes: bool,
    interval: float | None,
    duration: float | None,
    as_json: bool,
    filter_words: tuple[str, ...],
) -> int:
    """Show the sockets of all network namespaces, those in trouble first.

    Without options: TCP and UDP, a table once. With -i what happened in each interval: throughput, retransmissions, and
    what held the sender up.

    FILTER is that of ss(8), such as

    \b
    state established dport = :443
    src 10.0.0.0/8 and not ( sport >= :1024 or dst [fd00::/8] )
    exclude listening dev eth0
    """  # noqa: D301 # the backspace tells click to leave the lines as they are
    from hopscope.cli.live import run  # noqa: PLC0415 # numpy only when it is needed
    from hopscope.cli.socket_output import SocketOutput  # noqa: PLC0415
    from hopscope.collectors.socket_watch import SocketWatch  # noqa: PLC0415

    chosen = {
        "tcp": tcp,
        "udp": udp,
        "listening": listening,
        "all": all_states,
        "netns": namespaces,
        "filter": filter_words,
    }
    options = _options(chosen, sort, processes=not no_processes)
    style = "json" if as_json else "details" if details else "table"
    shown = (0 if as_json else 20) if top is None else top
    output = SocketOutput(style, group_by=group_by, top=shown)
    if interval is None and duration is None:
        output.show(SocketWatch(options, again=False).snapshot())
        return 0
    return run(SocketWatch(options), output, interval_s=interval or 1.0, duration_s=duration)


def _options(chosen: Mapping[str, object], sort: str, *, processes: bool) -> SocketOptions:
    from hopscope.analysis.socket_filter import Filter  # noqa: PLC0415
    from hopscope.analysis.socket_filter_parse import ALL, USUAL, parse  # noqa: PLC0415
    from hopscope.analysis.socket_table import TCP, UDP, UDPLITE, State  # noqa: PLC0415
    from hopscope.cli import selection  # noqa: PLC0415
    from hopscope.collectors.socket_watch import SocketOptions  # noqa: PLC0415

    words: Sequence[str] = chosen["filter"]  # type: ignore[assignment] # a tuple of the command line
    namespaces: Sequence[str] = chosen["netns"]  # type: ignore[assignment]
    found = parse(words, _cgroup_id)
    states = found.states
    if states is None:
        if chosen["listening"]:
            states = 1 << State.LISTEN | 1 << State.CLOSE
        elif chosen["all"]:
            states = ALL
        else:
            states = USUAL
    wanted = [TCP] * bool(chosen["tcp"]) + [UDP, UDPLITE] * bool(chosen["udp"])
    shown = {"netns": namespaces, "filter": [" ".join(words)] if words else []}
    flags = {name: "yes" for name in ("tcp", "udp", "listening", "all") if chosen[name]}
    return SocketOptions(
        protocols=wanted or [TCP, UDP, UDPLITE],
        filter=Filter(states, found.condition),
        sort=sort,
        namespaces=selection.namespaces(namespaces) if namespaces else None,
        processes=processes,
        shown=selection.shown(shown) | flags,
    )


def _cgroup_id(path: str) -> int:
    from hopscope.cli.selection import cgroups  # noqa: PLC0415

    (found,) = cgroups([path])
    return found
