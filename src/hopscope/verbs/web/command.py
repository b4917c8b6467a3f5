# SPDX-License-Identifier: Apache-2.0
"""``hopscope web``."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

from hopscope.errors import UsageError
from hopscope.live.help import MEASURE, OTHER, OUTPUT, Command, option, section
from hopscope.live.host_options import listening_options
from hopscope.live.options import interval_option
from hopscope.live.paths import PATH
from hopscope.recorded.options import limits_option

if TYPE_CHECKING:
    from pathlib import Path

    from hopscope.agent.tls import Tls


@click.command(
    "web",
    cls=Command,
    short_help="The same in a browser, live or of a recording.",
    examples=(
        ("Look at this host in a browser", "hopscope web"),
        ("Look at a recording, and compare it with an earlier one", "hopscope web trace --compare before"),
    ),
)
@section(
    OUTPUT,
    option("--port", type=click.IntRange(0, 65535), default=0, metavar="N", help="Port of 127.0.0.1. [any free one]"),
    option("--no-browser", is_flag=True, help="Print the address alone."),
    option("--compare", "other", type=PATH, metavar="TRACE2", help="A recording to compare TRACE with."),
)
@section(MEASURE, option("--live", is_flag=True, help="Also measure this host, beside a TRACE."), interval_option())
@listening_options("Wait here for other machines, over mutual TLS 1.3.", "The page's certificate", "the browsers")
@section(OTHER, limits_option())
@click.argument("trace", type=PATH, required=False)
def command(  # noqa: PLR0913 # one parameter an option
    *,
    trace: Path | None,
    other: Path | None,
    live: bool,
    interval: float,
    port: int,
    no_browser: bool,
    listen: str | None,
    allowed: tuple[str, ...],
    allow_file: Path | None,
    tls: Tls,
) -> int:
    """Show this host now, or a TRACE, as a page in a browser on this machine.

    The page has heat maps of hops, findings, drops, messages and requests with what held them, connections, CPU time,
    and SQL. Only a browser on this machine can open it, with the address that is printed. Ctrl-C ends it.

    With --listen, browsers on other machines can open it that have the certificate of an allowed client; the other
    options of that section are needed, too. The address is that of the server's certificate. See docs/web.md.
    """
    if other and trace is None:
        raise UsageError("--compare needs a TRACE to compare with", "Name both")
    if (allowed or allow_file) and listen is None:
        raise UsageError("--allow and --allow-file need --listen", "Give --listen ADDRESS:PORT as well")
    if listen is not None and port:
        raise UsageError("--port is of this machine's own address", "Give the port with --listen alone")
    if not all(map(find_spec, ("starlette", "uvicorn"))):
        raise UsageError("hopscope web needs Starlette and uvicorn", "Install them: pip install 'hopscope[web]'")
    from hopscope.recorded.which import which_recording  # noqa: PLC0415 # NumPy
    from hopscope.verbs.web.serve import serve  # noqa: PLC0415

    folder, other_folder = (which_recording(each) if each else None for each in (trace, other))
    clients = None
    if listen is not None:
        from hopscope.agent.allow import AllowList  # noqa: PLC0415
        from hopscope.live.clients import Clients  # noqa: PLC0415

        clients = Clients.of(listen, tls.files("--listen"), AllowList.of(allowed, allow_file))
    interval_s = interval if live or folder is None else None
    return serve(folder, other_folder, interval_s=interval_s, port=port, browser=not no_browser, clients=clients)
