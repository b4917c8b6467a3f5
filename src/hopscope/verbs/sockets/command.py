# SPDX-License-Identifier: Apache-2.0
"""``hopscope sockets``."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import click

from hopscope.live.help import MEASURE, OUTPUT, SOCKETS, Command, option, section
from hopscope.live.options import (
    address_option,
    cgroup_option,
    group_option,
    json_option,
    limit_option,
    netns_option,
    port_option,
    protocol_option,
    rows_shown,
)
from hopscope.live.seconds import Seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from hopscope.kernel.sockets.filter import Condition
    from hopscope.verbs.sockets.collector import SocketOptions

_DAY_S = 86_400
_GROUPS = ("process", "comm", "cgroup", "netns", "state", "peer", "peer-port", "local-port", "congestion")
_SORTS = (
    "trouble", "sent", "received", "retransmits", "retransmit-share", "rtt", "rtt-inflation", "receive-queue",
    "send-queue", "memory", "drops", "busy", "rwnd-limited", "sndbuf-limited", "delivery-rate", "cwnd",
)  # fmt: skip


@click.command(
    "sockets",
    cls=Command,
    short_help="Sockets: peers, performance, and what limits them.",
    examples=(
        (
            "Established connections to port 443, with all details",
            "hopscope sockets --details state established dport = :443",
        ),
        ("What throughput does each process achieve, every 5 s?", "hopscope sockets -t -i 5 --group-by process"),
    ),
)
@section(
    MEASURE,
    option("-i", "--interval", type=Seconds(0.1, _DAY_S), help="Show what happened in each interval."),
    option("-d", "--duration", type=Seconds(0.1, 365 * _DAY_S), help="Stop after this time; implies -i 1."),
    option("--no-processes", is_flag=True, help="Do not look up processes in /proc (faster)."),
)
@section(
    SOCKETS,
    option("-t", "--tcp", is_flag=True, help="Only TCP."),
    option("-u", "--udp", is_flag=True, help="Only UDP and UDP-Lite."),
    option("-l", "--listening", is_flag=True, help="Only sockets waiting for connections or datagrams."),
    option("-a", "--all", "all_states", is_flag=True, help="Also time-wait, and bound but inactive sockets."),
)
@protocol_option()
@port_option()
@address_option()
@cgroup_option()
@netns_option()
@group_option(_GROUPS, multiple=True)
@section(
    OUTPUT,
    option(
        "--sort",
        type=click.Choice(_SORTS),
        metavar="ORDER",
        default="trouble",
        show_default=True,
        help="Sort by this, largest first; see above.",
    ),
    limit_option(),
    option("--details", is_flag=True, help="All that the kernel reports, as ss -tinmpo."),
    json_option("line", "docs/sockets.md"),
)
@click.argument("filter_words", nargs=-1, metavar="[FILTER]")
def command(  # noqa: PLR0913 # one parameter an option
    *,
    tcp: bool,
    udp: bool,
    listening: bool,
    all_states: bool,
    protocol: str | None,
    ports: tuple[int, ...],
    addresses: tuple[str, ...],
    cgroups: tuple[str, ...],
    namespaces: tuple[str, ...],
    sort: str,
    group_by: tuple[str, ...],
    limit: int | None,
    details: bool,
    no_processes: bool,
    interval: float | None,
    duration: float | None,
    as_json: bool,
    filter_words: tuple[str, ...],
) -> int:
    """Show the sockets of all network namespaces, those in trouble first.

    Without options, all TCP and UDP sockets are shown once. With -i, the table shows what happened in each interval:
    throughput, retransmissions, and what held the sender up.

    FILTER is in the language of ss(8), such as

    \b
    state established dport = :443
    src 10.0.0.0/8 and not ( sport >= :1024 or dst [fd00::/8] )
    exclude listening dev eth0

    ORDER is trouble, sent, received, retransmits, retransmit-share, rtt, rtt-inflation, receive-queue, send-queue,
    memory, drops, busy, rwnd-limited, sndbuf-limited, delivery-rate or cwnd.
    """  # noqa: D301 # the backspace tells click to leave the lines as they are
    from hopscope.live.interval import run  # noqa: PLC0415 # numpy only when it is needed
    from hopscope.verbs.sockets.collector import SocketWatch  # noqa: PLC0415
    from hopscope.verbs.sockets.output import SocketOutput  # noqa: PLC0415

    chosen = {
        "tcp": tcp or protocol == "tcp",
        "udp": udp or protocol == "udp",
        "listening": listening,
        "all": all_states,
        "port": ports,
        "address": addresses,
        "cgroup": cgroups,
        "netns": namespaces,
        "filter": filter_words,
    }
    options = _options(chosen, sort, processes=not no_processes)
    style = "json" if as_json else "details" if details else "table"
    output = SocketOutput(style, group_by=group_by, limit=(limit or None) if as_json else rows_shown(limit))
    if interval is None and duration is None:
        output.show(SocketWatch(options, again=False).snapshot())
        return 0
    return run(SocketWatch(options), output, interval_s=interval or 1.0, duration_s=duration)


def _options(chosen: Mapping[str, Any], sort: str, *, processes: bool) -> SocketOptions:
    from hopscope.kernel.sockets.filter import Filter  # noqa: PLC0415
    from hopscope.kernel.sockets.filter_parse import ALL, USUAL, parse  # noqa: PLC0415
    from hopscope.kernel.sockets.table import TCP, UDP, UDPLITE, State  # noqa: PLC0415
    from hopscope.live import lookup as selection  # noqa: PLC0415
    from hopscope.verbs.sockets.collector import SocketOptions  # noqa: PLC0415

    words: Sequence[str] = chosen["filter"]
    namespaces: Sequence[str] = chosen["netns"]
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
    shown: dict[str, Sequence[object]] = {name: chosen[name] for name in ("port", "address", "cgroup", "netns")}
    shown["filter"] = [" ".join(words)] if words else []
    flags = {name: "yes" for name in ("tcp", "udp", "listening", "all") if chosen[name]}
    return SocketOptions(
        protocols=wanted or [TCP, UDP, UDPLITE],
        filter=Filter(states, _all_of([found.condition, *_conditions(chosen)])),
        sort=sort,
        namespaces=selection.namespaces(namespaces) if namespaces else None,
        processes=processes,
        shown=selection.shown(shown) | flags,
    )


def _conditions(chosen: Mapping[str, Any]) -> list[Condition]:
    """Return what the options select that the language of filters has, too."""
    from hopscope.kernel.sockets.filter import Cgroup  # noqa: PLC0415
    from hopscope.kernel.sockets.filter_parse import parse  # noqa: PLC0415
    from hopscope.live import lookup as selection  # noqa: PLC0415

    ends = [
        [f"sport = :{port} or dport = :{port}" for port in chosen["port"]],
        [f"src {network} or dst {network}" for network in selection.addresses(chosen["address"])],
    ]
    found = [parse([" or ".join(either)], _cgroup_id).condition for either in ends if either]
    cgroups = [Cgroup(each) for each in selection.cgroups(chosen["cgroup"])]
    return [each for each in (*found, _any_of(cgroups)) if each]


def _all_of(conditions: Iterable[Condition | None]) -> Condition | None:
    from hopscope.kernel.sockets.filter import And  # noqa: PLC0415

    wanted = [each for each in conditions if each]
    return functools.reduce(And, wanted) if wanted else None


def _any_of(conditions: Sequence[Condition]) -> Condition | None:
    from hopscope.kernel.sockets.filter import Or  # noqa: PLC0415

    return functools.reduce(Or, conditions) if conditions else None


def _cgroup_id(path: str) -> int:
    from hopscope.live.lookup import cgroups  # noqa: PLC0415

    (found,) = cgroups([path])
    return found
