# SPDX-License-Identifier: Apache-2.0
"""``hopscope serve``."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

import click

from hopscope.errors import UsageError
from hopscope.live.help import CLIENTS, MEASURE, OTHER, RECEIVER, SUBSCRIBERS, Command, option, section
from hopscope.live.host_options import listening_options
from hopscope.live.options import (
    budget_option,
    buffer_option,
    group_option,
    interface_option,
    max_groups_option,
    protocol_option,
    socket_options,
)
from hopscope.live.paths import PATH
from hopscope.live.seconds import Seconds
from hopscope.verbs.serve.config import take_defaults

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hopscope.agent.tls import Tls
    from hopscope.verbs.serve.run import Service

_COLLECTED: Final = ("rx", "tx", "cpu", "drops", "sockets", "check")
_GROUPS: Final = ("interface", "netns", "cgroup")
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
    option("-i", "--interval", type=Seconds(0.1, _DAY_S), default=5.0, show_default=True, help="Time between reports."),
)
@budget_option()
@socket_options("uses")
@interface_option()
@protocol_option()
@group_option(_GROUPS)
@max_groups_option(8, "other")
@listening_options("Serve metrics at this address.", "The server's certificate", "the clients")
@section(CLIENTS, option("--token-file", type=PATH, metavar="FILE", help="Clients must send the token in FILE."))
@section(
    RECEIVER,
    option("--otlp", metavar="URL", help="Push metrics to this OpenTelemetry receiver (OTLP over HTTP)."),
    option("--otlp-token-file", type=PATH, metavar="FILE", help="Send it the token in FILE."),
)
@section(
    SUBSCRIBERS,
    option("--socket", type=PATH, metavar="PATH", help="Serve events to those who connect to this unix socket."),
    option("--socket-group", metavar="GROUP", help="Group that may connect. [default: hopscope, if it exists]"),
    option("--keep", type=Seconds(0, _DAY_S), default=0.0, help="Keep the last seconds for who comes later."),
    buffer_option(),
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
    budget: float | None,
    group_by: str | None,
    max_groups: int,
    listen: str | None,
    allowed: tuple[str, ...],
    allow_file: Path | None,
    token_file: Path | None,
    otlp: str | None,
    otlp_token_file: Path | None,
    tls: Tls,
    socket: Path | None,
    socket_group: str | None,
    keep: float,
    buffer: str,
    **chosen: Any,  # noqa: ANN401 # filters
) -> int | Sequence[Service]:
    """Measure this host all the time, and serve the results to other programs.

    With --listen, Prometheus reads metrics from /metrics: histograms of all hops, native or classic, drops, CPU time,
    sockets, findings, and what measuring costs. /healthz and /readyz say whether there is something to read.

    On an address of this machine alone, such as 127.0.0.1, anybody on it can read them. Any other address takes
    --tls-cert and --tls-key, and either --token-file or --tls-ca with --allow. SIGHUP reads --config again and starts
    anew, unless a terminal controls the command. See docs/serve.md.

    With --otlp, the same metrics are pushed each interval to a receiver of OpenTelemetry. Its URL is https, or
    http on this machine alone.

    With --socket, other programs subscribe to events, as Arrow or JSON lines, by hopscope.subscribe() in Python or by
    one line of JSON. What nobody subscribes to is not attached. See docs/subscribe.md.
    """
    del config
    if listen is None and socket is None and otlp is None:
        raise UsageError("There is nothing to serve", "Give --listen 127.0.0.1:9764, or --socket /run/hopscope.sock")
    if otlp_token_file and otlp is None:
        raise UsageError("--otlp-token-file is for --otlp", "Give --otlp URL as well")
    from hopscope.verbs.serve.run import serve  # noqa: PLC0415

    services: list[Service] = []
    if listen is not None or otlp is not None:
        if listen is not None and not all(map(find_spec, ("starlette", "uvicorn"))):
            raise UsageError("Metrics need Starlette and uvicorn", "Install them: pip install 'hopscope[serve]'")
        from hopscope.verbs.serve.access import Access  # noqa: PLC0415 # ssl
        from hopscope.verbs.serve.metrics import Metrics  # noqa: PLC0415
        from hopscope.verbs.serve.push import Receiver  # noqa: PLC0415
        from hopscope.verbs.serve.wanted import Wanted  # noqa: PLC0415

        access = Access.of(listen, tls, allowed, allow_file, token_file) if listen is not None else None
        receiver = Receiver.of(otlp, otlp_token_file) if otlp is not None else None
        wanted = Wanted(tuple(dict.fromkeys(collected)), interval, group_by, max_groups, budget, chosen)
        services.append(Metrics(access, receiver, wanted))
    if socket is not None:
        from hopscope.verbs.serve.subscriptions import Subscriptions  # noqa: PLC0415

        services.append(Subscriptions(socket, socket_group, keep, chosen, int(buffer) * _MIB))
    if check:
        click.echo("The options are valid.")
        return 0
    if _SERVICES in context.meta:
        return services
    return serve(services, lambda: _again(context.meta[_WORDS]))


def _again(words: Sequence[str]) -> Sequence[Service]:
    """Return what the same words ask for now."""
    try:
        with command.make_context("serve", [*words]) as context:
            context.meta[_SERVICES] = True
            found: Sequence[Service] = command.invoke(context)
    except click.ClickException as error:
        raise UsageError(error.format_message().replace("\n", " ").rstrip(".")) from error
    return found
