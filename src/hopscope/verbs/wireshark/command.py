# SPDX-License-Identifier: Apache-2.0
"""``hopscope wireshark``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hopscope.live.help import OUTPUT, Command, option, section, together
from hopscope.recorded.options import report_options

if TYPE_CHECKING:
    from hopscope.recorded.options import Common


@click.command(
    "wireshark",
    cls=Command,
    short_help="Show packets with their hops in Wireshark or tshark.",
    examples=(
        ("The packets of one port of a recording", "hopscope wireshark --port 443 trace"),
        (
            "Packets that took 1 ms or more to their socket's queue, in this terminal",
            "hopscope wireshark --text trace -- -Y 'hopscope.rx_tcp_queue>=0.001'",
        ),
    ),
)
@report_options(
    output=together(
        section(
            OUTPUT,
            option("--live", is_flag=True, help="Show packets as they come from `hopscope serve --socket`."),
            option(
                "--where",
                "condition",
                metavar="CONDITION",
                default="",
                help="With --live: of these events (docs/conditions.md).",
            ),
            option("--socket", metavar="PATH", help="With --live: where it serves.", default_text="/run/hopscope.sock"),
            option("--install", is_flag=True, help="Let Wireshark capture from `hopscope serve`, and show events."),
            option("--uninstall", is_flag=True, help="Remove what --install has put there."),
            option("--text", is_flag=True, help="Print rows with tshark in place of opening a window."),
            option(
                "--limit",
                "most",
                type=click.IntRange(0, 1 << 40),
                metavar="N",
                help="Maximum packets (0: unlimited). [100,000]",
            ),
        )
    )
)
@click.argument("more", nargs=-1, type=click.UNPROCESSED, metavar="[-- ARGUMENTS]")
def command(  # noqa: PLR0913 # one parameter an option
    *,
    common: Common,
    more: tuple[str, ...],
    text: bool,
    most: int | None,
    live: bool,
    condition: str,
    socket: str | None,
    install: bool,
    uninstall: bool,
) -> int:
    """Show the packets of a recording with a column or field for each hop.

    TRACE is a recording, or a file that `hopscope export pcapng` wrote. ARGUMENTS after TRACE and `--` are passed on to
    Wireshark or tshark. The fields, such as `hopscope.rx_tcp_queue`, are times since the point before, in seconds.
    docs/wireshark.md describes them and the file.

    A file with frames of `hopscope wire`, such as one of tcpdump on hop0, is shown with a field for all that an event
    has (docs/wire.md).

    With --live, packets come from `hopscope serve --socket`, to which the user subscribes without further rights. After
    --install, Wireshark itself lists interfaces of hopscope for packets and for events, and shows events in any file.

    Otherwise nothing is installed, and Wireshark's own settings stay as they are: script and profile are in a temporary
    folder.
    """
    # They are quick to import, but --help is quicker without.
    if install or uninstall:
        from hopscope.verbs.wireshark.install import change  # noqa: PLC0415

        return change(install=install, uninstall=uninstall)
    if live:
        from hopscope.verbs.wireshark.live import show_live  # noqa: PLC0415

        return show_live(common, more, text=text, where=condition, socket=socket)
    if condition or socket:
        raise click.UsageError("--where and --socket need --live")
    from hopscope.verbs.wireshark.show import show  # noqa: PLC0415

    return show(common, more, text=text, most=most)
