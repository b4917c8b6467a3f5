# SPDX-License-Identifier: Apache-2.0
"""``hopscope verify``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hopscope.live.help import Command
from hopscope.recorded.options import limits_option, trace_argument

if TYPE_CHECKING:
    from pathlib import Path


@click.command(
    "verify",
    cls=Command,
    short_help="Check whether the files of a recording are damaged.",
    examples=(
        ("Is the last recording intact?", "hopscope verify"),
        ("Is a copy, before the original is deleted?", "hopscope verify /backup/trace"),
    ),
)
@limits_option()
@trace_argument()
def command(*, folder: Path | None) -> int:
    """Compare the files of a recording to their checksums. Prints a line for each damaged file, then what was checked.

    TRACE is a recording of one host or several, or a joined trace; without it, the last recording is checked. Files
    without a checksum, as older recordings have them, are decoded instead, which finds only some damage.

    The exit code is 0 if no damage was found, otherwise 1.
    """
    from hopscope.recorded.which import which_recording  # noqa: PLC0415 # DuckDB and NumPy when they are needed
    from hopscope.verbs.verify.files import checked, summary  # noqa: PLC0415

    found = []
    for file in checked(which_recording(folder)):
        found.append(file)
        if file.problem:
            click.echo(f"{file.path}: {file.problem}")
    for line in summary(found):
        click.echo(line)
    return int(any(file.problem for file in found))
