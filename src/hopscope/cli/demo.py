# SPDX-License-Identifier: Apache-2.0
"""``hopscope demo``."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING

import click

from hopscope.cli.seconds import Seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.lab import Lab

_SLEEP_MS = 5
# Until programs are attached and after the last look; the traffic is ended long before, whatever ends us.
_GRACE_S = 120


@click.command("demo", short_help="Measure traffic of its own, and explain the result.")
@click.option("-d", "--duration", type=Seconds(1, 60), default=5.0, show_default=True, help="Measure for so long.")
def command(*, duration: float) -> int:
    """Measure traffic of hopscope's own, and explain what is seen.

    Two network namespaces, a veth pair between them, requests over TCP and datagrams over UDP whose reader is slow on
    purpose. Nothing leaves the host, and nothing stays behind, whatever ends the command.
    """
    from hopscope.cli.live import Output, run  # noqa: PLC0415 # numpy and libbpf only when they are needed
    from hopscope.collectors.rx import RxCollector  # noqa: PLC0415
    from hopscope.collectors.rx_options import RxOptions  # noqa: PLC0415
    from hopscope.lab import Lab  # noqa: PLC0415
    from hopscope.probes.rights import require_rights  # noqa: PLC0415
    from hopscope.views.reading import explain  # noqa: PLC0415

    require_rights()
    _say(
        f"Two namespaces, joined by a veth pair, for {duration:g} seconds: requests and replies over TCP, and 100 "
        f"datagrams a second over UDP to a reader that sleeps {_SLEEP_MS} ms before it reads each.\n"
    )
    with Lab() as lab, _traffic(lab, duration + _GRACE_S):
        collector = RxCollector(RxOptions(namespaces=[lab.client.inode, lab.server.inode]))
        code = run(collector, Output("table"), interval_s=duration, duration_s=duration)
        _say(explain(collector.total()), indent=4)
    return code


def _say(text: str, indent: int = 0) -> None:
    """Print paragraphs in lines that fit; what does not is continued after so many blanks."""
    from hopscope.views.terminal import Terminal  # noqa: PLC0415

    terminal = Terminal.of(sys.stdout, os.environ)
    for line in text.split("\n"):
        click.echo("\n".join(terminal.fold(line, indent=indent)))


@contextlib.contextmanager
def _traffic(lab: Lab, limit_s: float) -> Iterator[None]:
    from hopscope.lab import Workload  # noqa: PLC0415
    from hopscope.lab.veth import SERVER_IPV4  # noqa: PLC0415

    limit = ("--limit", limit_s)
    with contextlib.ExitStack() as stack:
        echo = stack.enter_context(Workload(lab.server, "tcp-echo", "--bind", SERVER_IPV4, *limit))
        sink = stack.enter_context(
            Workload(lab.server, "udp-sink", "--bind", SERVER_IPV4, "--sleep-ms", _SLEEP_MS, *limit)
        )
        stack.enter_context(Workload(lab.client, "tcp-rr", SERVER_IPV4, echo.port, "--rate", 2000, *limit))
        stack.enter_context(Workload(lab.client, "udp-send", SERVER_IPV4, sink.port, "--rate", 100, *limit))
        yield
