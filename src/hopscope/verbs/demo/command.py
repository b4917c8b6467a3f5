# SPDX-License-Identifier: Apache-2.0
"""``hopscope demo``."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING

import click

from hopscope.live.help import MEASURE, Command, option, section
from hopscope.live.seconds import Seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.lab import Lab

_SLEEP_MS = 5
# Time to attach the programs, and after the last reading; the traffic is ended long before that in any case.
_GRACE_S = 120


@click.command(
    "demo",
    cls=Command,
    short_help="Measure generated traffic, and explain the result.",
    examples=(
        ("See what hopscope shows, without traffic of your own", "hopscope demo"),
        ("The same for 20 seconds", "hopscope demo -d 20"),
    ),
)
@section(
    MEASURE,
    option("-d", "--duration", type=Seconds(1, 60), default=5.0, show_default=True, help="Stop after this time."),
)
def command(*, duration: float) -> int:
    """Measure generated traffic, and explain the result.

    Creates two network namespaces connected by a veth pair, sends TCP requests and UDP datagrams between them, and
    measures both; the reader of the datagrams is slow on purpose. No packet leaves the host, and everything is removed
    again, however the command ends.
    """
    from hopscope.kernel.capabilities import require_held, require_rights  # noqa: PLC0415
    from hopscope.lab import Lab  # noqa: PLC0415
    from hopscope.live.interval import Output, run  # noqa: PLC0415 # numpy and libbpf only when they are needed
    from hopscope.term.format import plural  # noqa: PLC0415
    from hopscope.term.reading import explain  # noqa: PLC0415
    from hopscope.verbs.rx.collector import RxCollector  # noqa: PLC0415
    from hopscope.verbs.rx.options import RxOptions  # noqa: PLC0415

    require_held(("CAP_SYS_ADMIN", "CAP_NET_ADMIN"), "Making and measuring network namespaces")
    require_rights()
    _say(
        f"Two network namespaces, connected by a veth pair, for {plural(duration, 'second')}: TCP requests and "
        f"replies, and 100 UDP datagrams per second to a reader that sleeps {_SLEEP_MS} ms before reading "
        "each.\n"
    )
    with Lab() as lab, _traffic(lab, duration + _GRACE_S):
        collector = RxCollector(RxOptions(namespaces=[lab.client.inode, lab.server.inode]))
        code = run(collector, Output("table"), interval_s=duration, duration_s=duration)
        _say(explain(collector.total()), indent=4)
    return code


def _say(text: str, indent: int = 0) -> None:
    """Print paragraphs in lines that fit; what does not is continued after so many blanks."""
    from hopscope.term.terminal import Terminal  # noqa: PLC0415

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
