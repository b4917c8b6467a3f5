# SPDX-License-Identifier: Apache-2.0
"""``hopscope mark``."""

from __future__ import annotations

import click

from hopscope.gate import tell
from hopscope.live.help import Command


@click.command(
    "mark",
    cls=Command,
    short_help="Write a mark into running recordings.",
    examples=(
        ("Mark where a test begins", "hopscope mark 'test 7 begins'"),
        ("Mark both ends of a test", "hopscope mark begin && ./test && hopscope mark end"),
    ),
)
@click.argument("text", metavar="TEXT")
def command(*, text: str) -> int:
    """Write TEXT, with the time of this call, into each recording that is running on this host.

    The mark is an event of the trace, in the table e_mark. It is written by the time the command ends. Recordings are
    those that the same user or root has started, in the same network namespace.
    """
    from hopscope.live.recorder.marks import mark  # noqa: PLC0415 # numpy when it is needed

    for pid in mark(text):
        tell(f"hopscope: marked the recording of process {pid}")
    return 0
