# SPDX-License-Identifier: Apache-2.0
"""``hopscope recordings``."""

from __future__ import annotations

import click

from hopscope.errors import UsageError
from hopscope.live.help import OUTPUT, RECORDINGS, Command, option, section
from hopscope.live.options import json_option
from hopscope.live.units import Age, Size


@click.command(
    "recordings",
    cls=Command,
    short_help="List and delete the recordings in the state directory.",
    examples=(
        ("Which recordings are there?", "hopscope recordings"),
        (
            "Delete those older than a week, then the oldest until 10 GiB are left",
            "hopscope recordings --delete --older-than 7d --keep-size 10G",
        ),
    ),
)
@section(
    RECORDINGS,
    option("--delete", is_flag=True, help="Delete those that are named, or that these options select."),
    option("--older-than", type=Age(), help="Those that ended longer ago, e.g. 12h or 7d."),
    option("--keep-size", type=Size(), help="The oldest, until the rest fits, e.g. 500M or 10G."),
    option("--dry-run", is_flag=True, help="Show what would be deleted, and delete nothing."),
)
@section(OUTPUT, json_option("recording", "docs/recordings.md"))
@click.argument("names", nargs=-1, metavar="[NAME...]")
def command(  # noqa: PLR0913 # one parameter an option
    *,
    delete: bool,
    older_than: float | None,
    keep_size: float | None,
    dry_run: bool,
    as_json: bool,
    names: tuple[str, ...],
) -> None:
    """List the recordings that `hopscope record` made without -o, the last one last, or those named.

    They are in $HOPSCOPE_RECORDINGS, or else in /var/lib/hopscope/recordings for root, and in
    ~/.local/state/hopscope/recordings for other users. Every verb that reads a recording takes NAME as its TRACE, and
    the last one without a TRACE. A recording that is being made is never deleted.
    """
    from hopscope.verbs.recordings.deletion import Wanted  # noqa: PLC0415 # DuckDB and NumPy when they are needed
    from hopscope.verbs.recordings.output import run_delete, run_list  # noqa: PLC0415

    selects = older_than is not None or keep_size is not None
    if not delete:
        if selects or dry_run:
            raise UsageError("--older-than, --keep-size and --dry-run are for --delete", "Add it, or omit them")
        run_list(names, as_json=as_json)
        return
    if names and selects:
        raise UsageError("Names cannot be combined with --older-than and --keep-size", "Give the one or the other")
    if not names and not selects:
        raise UsageError("--delete does not say what to delete", "Give names, --older-than or --keep-size")
    run_delete(Wanted(names, older_than, keep_size), as_json=as_json, dry_run=dry_run)
