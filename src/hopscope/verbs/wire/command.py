# SPDX-License-Identifier: Apache-2.0
"""``hopscope wire`` and ``hopscope wire match``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

import click

from hopscope.live.help import OUTPUT, RECORD, REPLAY, TRAFFIC, Command, option, section
from hopscope.live.options import (
    duration_option,
    event_option,
    point_option,
    profile_option,
    protocol_option,
    socket_options,
)
from hopscope.live.paths import PATH
from hopscope.live.seconds import Factor, Seconds

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hopscope.live.help import Decorated

_DAY_S: Final = 86_400
_DEFAULT: Final = ("messages",)
_INTERFACE: Final = "hop0"
# To make the interface, the namespace of its other end, and the socket that sends.
_TO_SEND: Final = ("CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_SYS_ADMIN")
_MATCHERS: Final = ("tcpdump", "bpf", "u32", "nft")


def _interface_option(text: str) -> Callable[[Decorated], Decorated]:
    return section(OUTPUT, option("--interface", metavar="NAME", default=_INTERFACE, show_default=True, help=text))


@click.command(
    "match",
    cls=Command,
    context_settings={"help_option_names": ["-h", "--help"]},
    examples=(
        ("How do tc and nft select slow events?", "hopscope wire match 'hop>1ms'"),
        ("The bytecode for tc alone", "hopscope wire match --matcher bpf 'point == skb.drop and port == 443'"),
    ),
)
@section(RECORD, event_option("What `hopscope wire` was given, all of it, to compare fields."))
@section(
    OUTPUT,
    option(
        "--matcher",
        "matchers",
        type=click.Choice(_MATCHERS),
        metavar="MATCHER",
        multiple=True,
        help="tcpdump, bpf, u32 or nft (repeatable).",
        default_text="all",
    ),
    option(
        "--action",
        metavar="ACTION",
        default="count",
        show_default=True,
        help="count, drop, 'mark N', 'redirect DEV', 'mirror DEV'.",
    ),
    option("--apply", "applied", is_flag=True, help="Run the commands (one --matcher; nft if none is named)."),
    option("--clear", is_flag=True, help="Remove such rules from the interface."),
)
@_interface_option("Where the frames arrive.")
@click.argument("condition", metavar="CONDITION", default="")
def match(  # noqa: PLR0913 # one parameter an option
    *,
    events: tuple[str, ...],
    matchers: tuple[str, ...],
    interface: str,
    action: str,
    applied: bool,
    clear: bool,
    condition: str,
) -> int:
    """Print commands by which the kernel selects the frames of `hopscope wire` that a condition selects.

    A comment says whether a matcher selects exactly these frames. To print them, no privileges are needed. --apply runs
    the commands; the rules vanish with the interface, or by --clear, for which no CONDITION is needed. Fields of -e are
    read from tracefs.

    \b
    tcpdump  also for every other program that takes libpcap's filters
    bpf      tc with the same as bytecode
    u32      tc without a program; hops as powers of two
    nft      nftables, family netdev
    """  # noqa: D301 # the backspace tells click to leave the lines as they are
    from hopscope.errors import UsageError  # noqa: PLC0415
    from hopscope.kernel.tracepoints import Spec, wanted_events  # noqa: PLC0415
    from hopscope.verbs.wire import action as actions  # noqa: PLC0415
    from hopscope.verbs.wire.match import rendered  # noqa: PLC0415 # NumPy only when it is needed
    from hopscope.verbs.wire.offload import offload_remark, offload_state  # noqa: PLC0415

    if clear:
        if condition or applied:
            raise UsageError("--clear removes all rules of the interface", "Omit the condition and --apply")
        if not (removed := list(actions.clear(interface))):
            raise UsageError(f"{interface} has no such rules, or they cannot be removed", "Run it as root")
        click.echo("\n".join(removed))
        return 0
    if not condition:
        raise UsageError("There is no condition", "Write, for example, hopscope wire match 'hop > 1ms'")
    wanted = actions.Action.parse(action)
    tables = [event.columns.table for event in wanted_events([Spec.parse(text) for text in events])]
    if not applied:
        click.echo(rendered(condition, matchers or _MATCHERS, interface, wanted, tables))
        if remark := offload_remark(interface, offload_state(interface)):
            click.echo(f"\n{remark}")
        return 0
    if len(matchers) > 1 or "tcpdump" in matchers:
        raise UsageError("--apply takes one matcher", "Name bpf, u32 or nft")
    lines = rendered(condition, matchers or ("nft",), interface, wanted, tables).splitlines()
    click.echo("\n".join([lines[0], *actions.apply(lines, interface)]))
    return 0


class _Wire(Command):
    """Has one sub-command, in the place of the first word."""

    commands: ClassVar = {match.name: match}

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,  # noqa: ANN401 # as click's
    ) -> click.Context:
        """Return the context of what is called."""
        if args and (command := self.commands.get(args[0])):
            return command.make_context(f"{info_name} {command.name}", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


@click.command(
    "wire",
    cls=_Wire,
    short_help="Events as frames on an interface, for tcpdump, tc and nft.",
    examples=(
        (
            "Have drops, and packets that waited for 1 ms, arrive on hop0",
            "hopscope wire --where 'point == skb.drop or hop>1ms'",
        ),
        ("Play a recording, ten times faster", "hopscope wire trace --speed 10"),
    ),
)
@section(
    RECORD,
    option("--where", metavar="CONDITION", help="Only events that it selects (docs/conditions.md)."),
    duration_option(),
    profile_option("Probe points, as for record."),
    point_option(),
    event_option("Also this tracepoint or function, with its fields (docs/record-events.md)."),
    option("--full", is_flag=True, help="All columns of a recording, for `record --wire`."),
)
@socket_options("uses")
@protocol_option()
@section(
    TRAFFIC, option("--pcap", metavar="EXPRESSION", default="", help="Only what tcpdump would show for this filter.")
)
@_interface_option("Name of the interface that is made.")
@section(
    REPLAY,
    option("--speed", type=Factor(0.001, 50), metavar="N", help="N times faster than it was.", default_text="1"),
    option("--wait", type=Seconds(0, _DAY_S), help="Begin after this time.", default_text="1"),
)
@click.argument("folder", type=PATH, metavar="[TRACE]", required=False)
def command(  # noqa: PLR0913 # one parameter an option
    *,
    where: str | None,
    duration: float | None,
    profiles: tuple[str, ...],
    points: tuple[str, ...],
    events: tuple[str, ...],
    full: bool,
    interface: str,
    folder: Path | None,
    speed: float | None,
    wait: float | None,
    **filters: Any,  # noqa: ANN401 # which traffic
) -> int:
    """Send each event as an Ethernet frame to an interface of its own.

    With TRACE, events of a recording are sent in their own time, or faster; --where selects.

    What takes packets takes events then: tcpdump shows and counts them, tc and nftables filter, mark, drop, mirror and
    redirect them in the kernel, also to other hosts. The interface and all that belongs to it vanish with this command.
    docs/wire.md describes the frames; their EtherType is 0x88b5. EVENT is as for `hopscope record -e`.

    `hopscope wire match CONDITION` prints commands for tc and nft that select events by a condition.
    """
    from hopscope.errors import UsageError  # noqa: PLC0415
    from hopscope.kernel.capabilities import require_held, require_rights  # noqa: PLC0415
    from hopscope.live.lookup import record_options  # noqa: PLC0415
    from hopscope.live.recorder.collector import Recorder, rights  # noqa: PLC0415 # numpy and libbpf only when needed
    from hopscope.live.wire.layout import ETHERTYPE  # noqa: PLC0415
    from hopscope.live.words import words_of  # noqa: PLC0415
    from hopscope.verbs.wire.run import Wanted, run  # noqa: PLC0415

    require_held(_TO_SEND, "Sending events to an interface")
    if folder:
        from hopscope.verbs.wire.replay import Replay  # noqa: PLC0415

        what = {**filters, "profiles": profiles, "points": points, "events": events}
        if others := words_of(click.get_current_context().command, what):
            raise UsageError(f"{others[0]} is about what is recorded, and {folder} is a recording", "Use --where")
        replay = Replay(folder, 1.0 if speed is None else speed, 1.0 if wait is None else wait)
        return run(replay, interface, Wanted(where, full, duration, live=False))
    if speed is not None or wait is not None:
        raise UsageError("--speed and --wait are about a recording", "Name one: hopscope wire TRACE")
    require_rights(rights(()))
    options = record_options(
        **filters,
        interfaces=(),
        ways=(),
        profiles=profiles or (() if points or events else _DEFAULT),
        points=points,
        tracepoints=events,
        own_ethertype=ETHERTYPE,
    )
    return run(Recorder(options), interface, Wanted(where, full, duration))
