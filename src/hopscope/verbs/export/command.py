# SPDX-License-Identifier: Apache-2.0
"""``hopscope export``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from hopscope.gate import tell
from hopscope.live.help import OUTPUT, Command, option, section, together
from hopscope.live.paths import PATH
from hopscope.recorded.options import report_options, where_option

if TYPE_CHECKING:
    from pathlib import Path

    from hopscope.recorded.options import Common

FORMATS: Final = ("perfetto", "ctf", "chrome", "speedscope", "folded", "csv", "parquet", "jsonl", "pcapng")
_MOST: Final = 1 << 40


@click.command(
    "export",
    cls=Command,
    short_help="Write a recording in the format of another tool.",
    examples=(
        ("A timeline for https://ui.perfetto.dev", "hopscope export perfetto trace -o trace.pftrace"),
        ("All events of one port for babeltrace2", "hopscope export ctf --port 443 trace -o trace.ctf"),
    ),
)
@click.argument("form", type=click.Choice(FORMATS), metavar="FORMAT")
@where_option()
@report_options(
    output=together(
        section(
            OUTPUT,
            option(
                "-o",
                "--output",
                type=PATH,
                required=True,
                metavar="FILE",
                help="New file (ctf: folder) to write; -: standard output.",
            ),
            option(
                "--limit",
                "most",
                type=click.IntRange(0, _MOST),
                metavar="N",
                help="Maximum events (0: unlimited). [what the format's viewers can show]",
            ),
        )
    )
)
def command(*, common: Common, form: str, output: Path, most: int | None) -> None:
    """Write a recording in the FORMAT of another tool, to a new file.

    \b
    perfetto    timeline for https://ui.perfetto.dev: CPUs, threads, messages
                with arrows from send to read, counters, losses
    ctf         every event in the Common Trace Format: babeltrace2, Trace Compass
    chrome      the timeline as Chrome's trace events, for small parts
    speedscope  CPUs and threads over time, and stacks, for speedscope.app
    folded      kernel stacks of drops, as the FlameGraph scripts read them
    csv, jsonl, parquet
                every event as a row, with the columns of `report events`;
                --where selects events in these, and in ctf
    pcapng      a row for each packet, with its hops in the comment: Wireshark

    The output has its name when it is complete, and nothing is overwritten. What a format or its viewers cannot take is
    left out, and a sentence on standard error says what. docs/export.md describes each format.
    """  # noqa: D301 # what click takes for a paragraph that is not to be filled
    from hopscope.verbs.export.formats import write  # noqa: PLC0415 # it is quick to import, but --help is quicker without

    for note in write(form, common, output, most):
        tell(f"hopscope: {note}")
