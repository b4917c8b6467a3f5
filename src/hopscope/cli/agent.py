# SPDX-License-Identifier: Apache-2.0
"""``hopscope agent``."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from hopscope.cli.hosts import tls_options
from hopscope.errors import UsageError, VersionError

if TYPE_CHECKING:
    from hopscope.agent.tls import Tls
    from hopscope.agent.transport import Pipes

# The module of each service: it has `serve(stream, request)`.
SERVICES: Final[dict[str, str]] = {
    "clock": "hopscope.agent.clock",
    "live": "hopscope.cli.live_served",
    "record": "hopscope.cli.record_served",
}
_HOUR_S: Final = 3600.0


@click.command("agent", short_help="What hopscope runs on the hosts of --host.")
@click.option(
    "--listen",
    metavar="ADDRESS:PORT",
    help="Wait here for clients, over mutual TLS 1.3 only. Needs the options below.",
)
@tls_options("The agent's certificate", "a client's")
@click.option(
    "--allow",
    "allowed",
    metavar="NAME|sha256:DIGEST",
    multiple=True,
    help="A client that may connect: by its certificate's name or fingerprint.",
)
@click.option(
    "--allow-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Those in this file, one a line; read anew for each client.",
)
def command(*, listen: str | None, tls: Tls, allowed: tuple[str, ...], allow_file: Path | None) -> int:
    """Serve hopscope on another host.

    Without options over standard input and output, and nobody runs that by hand: `hopscope record --host HOST` and
    others run it there, through ssh. It ends with the connection.

    With --listen it waits for clients until SIGTERM or Ctrl-C: docs/remote.md.
    """
    if listen is not None:
        from hopscope.cli.agent_listen import wait_for_clients  # noqa: PLC0415

        return wait_for_clients(listen, tls.files("--listen"), allowed, allow_file)
    if allowed or allow_file:
        raise UsageError("--allow is about clients of an agent that listens", "Give --listen ADDRESS:PORT as well")
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError(
            "hopscope agent speaks to hopscope on another host, which starts it",
            "Run there: hopscope record --host THIS_HOST",
        )
    from hopscope.agent.handshake import ssh_connection  # noqa: PLC0415
    from hopscope.agent.serve import Agent  # noqa: PLC0415
    from hopscope.cli.stop import stop_on_signal  # noqa: PLC0415

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's is for the client, who ends us in order
    pipes = _take_pipes()
    try:
        agent = Agent(pipes, SERVICES, ssh_connection())
    except VersionError:
        return 1  # the client has noticed, too, and says so
    with stop_on_signal(signal.SIGHUP) as stop:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        agent.channel.when_lost(stop.set)
        while not stop.wait(_HOUR_S):
            pass
        lost = agent.channel.lost
        if agent.close():
            os._exit(0)  # a service that does not end: what it has in the kernel ends with us
    if lost and lost.how != "ended":
        raise lost
    return 0


def _take_pipes() -> Pipes:
    # Only frames go out there: whatever else prints, does so to where ssh shows it.
    from hopscope.agent.transport import Pipes  # noqa: PLC0415

    pipes = Pipes(os.dup(sys.stdin.fileno()), os.dup(sys.stdout.fileno()))
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), sys.stdin.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return pipes
