# SPDX-License-Identifier: Apache-2.0
"""``hopscope agent``."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from hopscope.errors import UsageError, VersionError
from hopscope.live.help import Command
from hopscope.live.host_options import listening_options

if TYPE_CHECKING:
    from hopscope.agent.tls import Tls
    from hopscope.agent.transport import Pipes

# The module of each service: it has `serve(stream, request)`.
SERVICES: Final[dict[str, str]] = {
    "clock": "hopscope.live.remote.clock",
    "live": "hopscope.live.remote.served",
    "record": "hopscope.verbs.record.served",
    "subscribe": "hopscope.verbs.serve.relayed",
}
_HOUR_S: Final = 3600.0


@click.command(
    "agent",
    cls=Command,
    short_help="Serve other hosts' `--host` (started through ssh, or listening).",
    examples=(
        (
            "Wait for one client, with the certificates that the environment names",
            "hopscope agent --listen 0.0.0.0:7443 --allow laptop",
        ),
        ("Let clients change while it runs", "hopscope agent --listen '[::]:7443' --allow-file clients.txt"),
    ),
)
@listening_options("Wait here for clients, over mutual TLS 1.3.", "The agent's certificate", "the clients")
def command(*, listen: str | None, tls: Tls, allowed: tuple[str, ...], allow_file: Path | None) -> int:
    """Serve hopscope on another host.

    Without options, the agent uses standard input and output: `hopscope record --host HOST` and other commands start
    it through ssh, and it ends with the connection. There is no need to start it by hand.

    With --listen, it waits for clients until SIGTERM or Ctrl-C, and needs the other options. The file of --allow-file
    is read again for each client. See docs/remote.md.
    """
    if listen is not None:
        from hopscope.verbs.agent.listen import wait_for_clients  # noqa: PLC0415

        return wait_for_clients(listen, tls.files("--listen"), allowed, allow_file)
    if allowed or allow_file:
        raise UsageError("--allow and --allow-file need --listen", "Give --listen ADDRESS:PORT as well")
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError(
            "hopscope agent is started by hopscope on another host, not from a terminal",
            "Run on the other host: hopscope record --host THIS_HOST",
        )
    from hopscope.agent.handshake import ssh_connection  # noqa: PLC0415
    from hopscope.agent.serve import Agent  # noqa: PLC0415
    from hopscope.live.stop import stop_on_signal  # noqa: PLC0415

    pipes = _take_pipes()
    with stop_on_signal() as stop:  # before anybody can see that we are here
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's is for the client, who ends us in order
        try:
            agent = Agent(pipes, SERVICES, ssh_connection())
        except VersionError:
            return 1  # the client has noticed, too, and says so
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
