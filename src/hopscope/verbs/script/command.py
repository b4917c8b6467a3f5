# SPDX-License-Identifier: Apache-2.0
"""``hopscope script``."""

from __future__ import annotations

from importlib.resources import files
from typing import Final

import click

from hopscope.live.help import Command

_TEMPLATES: Final = ("recording", "live")


@click.command(
    "script",
    cls=Command,
    short_help="Print a program as a start for your own analysis.",
    examples=(
        ("Start an analysis of a recording", "hopscope script --template > analysis.py"),
        ("Start a live measurement", "hopscope script --template live > watch.py"),
    ),
)
@click.option(
    "--template",
    type=click.Choice(_TEMPLATES),
    is_flag=False,
    flag_value=_TEMPLATES[0],
    help="Print this program; without a name, `recording`.",
)
@click.pass_context
def command(context: click.Context, *, template: str | None) -> None:
    """Print a short program that uses the Python API (docs/api.md): a start for an analysis of your own.

    \b
    recording  relations, a histogram of one hop, a query, the slowest messages
    live       percentiles of each hop on this host, every second (root)
    """  # noqa: D301 # the backspace tells click to leave the lines as they are
    if template is None:
        click.echo(context.get_help())
        return
    click.echo(program(template), nl=False)


def program(template: str) -> str:
    """Return the text of a program, without the line of its licence: what is made of it is its user's."""
    text = (files("hopscope.verbs.script") / "templates" / f"{template}.py").read_text(encoding="utf-8")
    return text.partition("\n")[2]
