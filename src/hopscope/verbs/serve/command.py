# SPDX-License-Identifier: Apache-2.0
"""``hopscope serve``."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

import click

from hopscope.errors import UsageError
from hopscope.live.help import CLIENTS, FLEET, FLIGHT, MEASURE, OTHER, RECEIVER, SUBSCRIBERS, Command, option, section
from hopscope.live.host_options import listening_options
from hopscope.live.options import (
    budget_option,
    buffer_option,
    check_budget,
    flight_memory_option,
    group_option,
    interface_option,
    max_groups_option,
    point_option,
    profile_option,
    protocol_option,
    socket_options,
)
from hopscope.live.paths import FLEET as FLEET_PLACE
from hopscope.live.paths import PATH
from hopscope.live.seconds import Seconds
from hopscope.verbs.serve.config import take_defaults
from hopscope.verbs.serve.wanted import AUTO

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from hopscope.agent.tls import Tls
    from hopscope.verbs.serve.flight import FlightRecorder
    from hopscope.verbs.serve.run import Service

_COLLECTED: Final = ("rx", "tx", "cpu", "drops", "sockets", "check")
_GROUPS: Final = ("interface", "netns", "cgroup")
# What the flight recorder keeps where nothing is said, and its options.
_PROFILES: Final = ("messages",)
_OF_FLIGHT: Final = (
    "flight",
    "triggers",
    "profiles",
    "points",
    "flight_memory",
    "dumps",
    "dump_every",
    "dump_size",
    "dump_socket",
)
_DAY_S: Final = 86_400
_MIB: Final = 1 << 20
# In a context's meta: the words of the command line, and that its services alone are wanted.
_WORDS, _SERVICES = "hopscope.serve.words", "hopscope.serve.services"


class _Rereadable(Command):
    """A command whose words are kept, so that they can be read again."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[_WORDS] = list(args)
        return super().parse_args(ctx, args)


@click.command(
    "serve",
    cls=_Rereadable,
    short_help="Metrics for Prometheus, events for subscribers.",
    examples=(
        ("Let a Prometheus on this host read all metrics", "hopscope serve --listen 127.0.0.1:9764"),
        ("Let members of the group hopscope subscribe to events", "hopscope serve --socket /run/hopscope.sock"),
    ),
)
@section(
    MEASURE,
    option(
        "--collect",
        "collected",
        type=click.Choice(_COLLECTED),
        metavar="WHAT",
        multiple=True,
        default=_COLLECTED,
        help=f"{', '.join(_COLLECTED[:-1])} or {_COLLECTED[-1]} (repeatable). [default: all]",
    ),
    option("--exemplars", is_flag=True, help="Metrics name the slowest message of each interval (--flight)."),
    option("-i", "--interval", type=Seconds(0.1, _DAY_S), default=15.0, help="Time between reports."),
)
@budget_option("0.5")
@socket_options("uses")
@interface_option()
@protocol_option()
@group_option(_GROUPS)
@max_groups_option(8, "other")
@section(
    MEASURE,
    option(
        "--kubernetes",
        metavar="[SOCKET]",
        is_flag=False,
        flag_value=AUTO,
        help="Name pods, as the container runtime does (--group-by cgroup).",
    ),
)
@listening_options("Serve metrics at this address.", "The server's certificate", "the clients")
@section(CLIENTS, option("--token-file", type=PATH, metavar="FILE", help="Clients must send the token in FILE."))
@section(
    RECEIVER,
    option("--otlp", metavar="URL", help="Push metrics to this OpenTelemetry receiver (OTLP over HTTP)."),
    option("--otlp-token-file", type=PATH, metavar="FILE", help="Send it the token in FILE."),
)
@section(
    FLEET,
    option("--fleet", type=FLEET_PLACE, metavar="DIR", help="Keep histograms of each minute in this directory."),
)
@section(
    SUBSCRIBERS,
    option("--socket", type=PATH, metavar="PATH", help="Serve events to those who connect to this unix socket."),
    option("--socket-group", metavar="GROUP", help="Group that may connect. [default: hopscope, if it exists]"),
    option("--keep", type=Seconds(0, _DAY_S), default=0.0, help="Keep the last seconds for who comes later."),
    buffer_option(),
)
@section(
    FLIGHT,
    option("--flight", type=Seconds(1, _DAY_S), help="Keep the last seconds of events in memory."),
    option(
        "--trigger",
        "triggers",
        metavar="TRIGGER",
        multiple=True,
        help="Write them at `drop`, `drop:REASON`, 'rx.copy>10ms' or `finding:SEVERITY`.",
    ),
    profile_option("Probe points, as of `record`."),
    point_option(),
    flight_memory_option(256, "Maximum memory for events."),
    option("--dumps", type=PATH, metavar="DIR", help="Where to write.", default_text="state directory"),
    option(
        "--dump-every",
        type=Seconds(0, _DAY_S),
        default=300.0,
        show_default=True,
        help="Seconds between two recordings, at least.",
    ),
    option(
        "--dump-size",
        type=click.IntRange(1, 1 << 30),
        metavar="MIB",
        default=1024,
        show_default=True,
        help="Maximum size of all of them; the oldest are deleted.",
    ),
    option("--dump-socket", type=PATH, metavar="PATH", help="Unix socket at which POST /dump writes one."),
)
@section(
    OTHER,
    option(
        "--config", type=PATH, metavar="FILE", is_eager=True, callback=take_defaults, help="Options from a TOML file."
    ),
    option("--check", is_flag=True, is_eager=True, help="Check options and files, then end."),
)
@click.pass_context
def command(  # noqa: PLR0913 # one parameter an option
    context: click.Context,
    /,
    *,
    config: Path | None,
    check: bool,
    collected: tuple[str, ...],
    interval: float,
    exemplars: bool,
    budget: float | None,
    group_by: str | None,
    max_groups: int,
    kubernetes: str | None,
    listen: str | None,
    allowed: tuple[str, ...],
    allow_file: Path | None,
    token_file: Path | None,
    otlp: str | None,
    otlp_token_file: Path | None,
    fleet: Path | str | None,
    tls: Tls,
    socket: Path | None,
    socket_group: str | None,
    keep: float,
    buffer: str,
    **chosen: Any,  # noqa: ANN401 # filters, and options of the flight recorder
) -> int | Sequence[Service]:
    """Measure this host all the time, and serve the results to other programs.

    With --listen, Prometheus reads metrics from /metrics: histograms of all hops, native or classic, drops, CPU time,
    sockets, findings, and what measuring costs. /healthz and /readyz say whether there is something to read.

    On an address of this machine alone, such as 127.0.0.1, anybody on it can read them. Any other address takes
    --tls-cert and --tls-key, and either --token-file or --tls-ca with --allow. SIGHUP reads --config again and starts
    anew, unless a terminal controls the command. See docs/serve.md.

    With --otlp, the same metrics are pushed each interval to a receiver of OpenTelemetry. Its URL is https, or
    http on this machine alone.

    With --fleet, the histograms of each minute, drops and settings are kept in a directory, of which `hopscope fleet`
    asks questions, together with those of other hosts. See docs/fleet.md.

    With --socket, other programs subscribe to events, as Arrow or JSON lines, by hopscope.subscribe() in Python or by
    one line of JSON. What nobody subscribes to is not attached. See docs/subscribe.md.

    With --flight, the last seconds of events are kept in memory, and written as a recording at a trigger, at SIGUSR1,
    or at POST /dump on --dump-socket. `hopscope report`, `explain` and `web` open it.
    """
    del config
    of_flight = {name: chosen.pop(name) for name in _OF_FLIGHT}
    _require_something(context, listen, socket, otlp, fleet, of_flight["flight"])
    if otlp_token_file and otlp is None:
        raise UsageError("--otlp-token-file is for --otlp", "Give --otlp URL as well")
    _check_kubernetes(kubernetes, group_by)
    is_default = not _given(context, ["budget"])
    if exemplars:
        budget = None if is_default else budget
        hops = {"rx", "tx"}.intersection(collected) or None
        needed = {"--flight": of_flight["flight"], "--listen": listen or otlp, "--collect rx": hops}
        _check_exemplars(needed, budget, group_by)
    from hopscope.verbs.serve.run import serve  # noqa: PLC0415

    services: list[Service] = []
    recorder = _flight_recorder(of_flight, chosen, int(buffer) * _MIB) if of_flight["flight"] else None
    if listen is not None or otlp is not None or fleet is not None:
        if listen is not None and not all(map(find_spec, ("starlette", "uvicorn"))):
            raise UsageError("Metrics need Starlette and uvicorn", "Install them: pip install 'hopscope[serve]'")
        from hopscope.verbs.serve.access import Access  # noqa: PLC0415 # ssl
        from hopscope.verbs.serve.metrics import Metrics  # noqa: PLC0415
        from hopscope.verbs.serve.push import Receiver  # noqa: PLC0415
        from hopscope.verbs.serve.tally import PUSHED, Tally  # noqa: PLC0415
        from hopscope.verbs.serve.wanted import Budget, Wanted  # noqa: PLC0415

        access = Access.of(listen, tls, allowed, allow_file, token_file) if listen is not None else None
        receiver = Receiver.of(otlp, otlp_token_file) if otlp is not None else None
        tally, pushes = recorder.tally if recorder else None, Tally(PUSHED) if receiver else None
        kept = Budget(budget, must_hold=not is_default) if budget is not None else None
        wanted = Wanted(
            tuple(dict.fromkeys(collected)),
            interval,
            group_by,
            max_groups,
            kept,
            chosen,
            exemplars,
            tally,
            pushes,
            kubernetes,
        )
        fleet = _prepared(fleet, collected) if fleet is not None else None
        services.append(Metrics(access, receiver, wanted, fleet))
    if socket is not None:
        from hopscope.verbs.serve.subscriptions import Subscriptions  # noqa: PLC0415

        services.append(Subscriptions(socket, socket_group, keep, chosen, int(buffer) * _MIB))
    if recorder:
        services.append(recorder)
    if check:
        click.echo("The options are valid.")
        return 0
    if _SERVICES in context.meta:
        return services
    return serve(services, lambda: _again(context.meta[_WORDS]))


def _flight_recorder(given: Mapping[str, Any], chosen: Mapping[str, Any], ring_bytes: int) -> FlightRecorder:
    """Return the flight recorder: the options in :data:`_OF_FLIGHT`, filters, and the size of a ring.

    Raises
    ------
    UsageError
        Something of it cannot be.
    """
    from hopscope.verbs.serve.flight import FlightRecorder  # noqa: PLC0415
    from hopscope.verbs.serve.flight_keeper import Flight  # noqa: PLC0415 # NumPy and libbpf
    from hopscope.verbs.serve.tally import FLIGHT, Tally  # noqa: PLC0415

    memory, stored = given["flight_memory"], given["dump_size"]
    if given["dump_socket"] and not all(map(find_spec, ("starlette", "uvicorn"))):
        raise UsageError("--dump-socket needs Starlette and uvicorn", "Install them: pip install 'hopscope[serve]'")
    if stored < memory:
        raise UsageError(
            f"--dump-size {stored} may have no room for what --flight-memory {memory} keeps", "Give at least as much"
        )
    flight = Flight(
        last_s=given["flight"],
        memory_bytes=memory * _MIB,
        triggers=given["triggers"],
        profiles=given["profiles"] or (() if given["points"] else _PROFILES),
        points=given["points"],
        chosen=chosen,
        ring_bytes=ring_bytes,
        directory=given["dumps"],
        most_bytes=stored * _MIB,
        every_s=given["dump_every"],
    )
    flight.check()
    return FlightRecorder(flight, Tally(FLIGHT), given["dump_socket"])


def _require_something(context: click.Context, *services: object) -> None:
    """Refuse to serve nothing, and options of what is not served; the last service is the flight recorder.

    Raises
    ------
    UsageError
        So it is.
    """
    if all(each is None for each in services):
        raise UsageError("There is nothing to serve", "Give --listen 127.0.0.1:9764, or --socket /run/hopscope.sock")
    if services[-1] is None and (given := _given(context, _OF_FLIGHT)):
        raise UsageError(f"{given} is for --flight", "Give --flight and how many seconds to keep, e.g. 30")


def _prepared(fleet: Path | str, collected: Sequence[str]) -> Path | str:
    """Return where a fleet's histograms are written, once it is there.

    Raises
    ------
    UsageError
        It cannot be, or nothing is collected of what it keeps.
    """
    from hopscope.verbs.serve.fleet_minutes import prepared  # noqa: PLC0415 # DuckDB

    if {"rx", "tx", "drops"}.isdisjoint(collected):
        raise UsageError("--fleet keeps hops and drops, and neither is collected", "Add --collect rx, tx or drops")
    return prepared(fleet)


def _check_exemplars(needed: Mapping[str, object], budget: float | None, group_by: str | None) -> None:
    """Refuse exemplars that nobody could open, or that there are none of.

    Raises
    ------
    UsageError
        So it is.
    """
    for name, value in needed.items():
        if value is None:
            raise UsageError(f"--exemplars needs {name}", f"Give {name} as well")
    check_budget(budget, others={"--exemplars": True})
    if group_by is not None:
        raise UsageError("--exemplars are of hops of the whole host, which --group-by divides", "Give one of the two")


def _check_kubernetes(kubernetes: str | None, group_by: str | None) -> None:
    """Refuse names of pods where nothing is told apart by container.

    Raises
    ------
    UsageError
        So it is, or a library is missing.
    """
    if kubernetes is None:
        return
    if group_by != "cgroup":
        raise UsageError("--kubernetes names what --group-by cgroup tells apart", "Give --group-by cgroup as well")
    if find_spec("h2") is None:
        raise UsageError("--kubernetes needs h2", "Install it: pip install 'hopscope[kubernetes]'")


def _given(context: click.Context, names: Sequence[str]) -> str:
    """Return the first of these options that was given, as it is written; empty: none was."""
    options = {each.name: max(each.opts, key=len) for each in context.command.params}
    default = click.core.ParameterSource.DEFAULT
    return next((options[name] for name in names if context.get_parameter_source(name) is not default), "")


def _again(words: Sequence[str]) -> Sequence[Service]:
    """Return what the same words ask for now."""
    try:
        with command.make_context("serve", [*words]) as context:
            context.meta[_SERVICES] = True
            found: Sequence[Service] = command.invoke(context)
    except click.ClickException as error:
        raise UsageError(error.format_message().replace("\n", " ").rstrip(".")) from error
    return found
