# SPDX-License-Identifier: Apache-2.0
"""What ``recordings`` does and prints."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hopscope.errors import UsageError
from hopscope.store.recordings import read_directories, recordings_in, state_directory
from hopscope.term.format import plural
from hopscope.term.json_lines import line
from hopscope.term.recording import size
from hopscope.term.terminal import Terminal
from hopscope.verbs.recordings.deletion import delete, delete_leftovers, selected
from hopscope.verbs.recordings.json import recording_to_json
from hopscope.verbs.recordings.listing import counted, sized
from hopscope.verbs.recordings.table import amount, render_recordings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hopscope.store.recordings import StoredRecording
    from hopscope.verbs.recordings.deletion import Wanted
    from hopscope.verbs.recordings.listing import Listed


def run_list(names: Sequence[str], *, as_json: bool) -> None:
    """List all recordings, or those named.

    Raises
    ------
    UsageError
        There is none of that name.
    HopscopeError
        The directory cannot be read.
    """
    found = {directory: recordings_in(directory) for directory in read_directories()}
    if names:
        wanted = _names(names, found)
        found = {
            directory: [each for each in recordings if each.name in wanted] for directory, recordings in found.items()
        }
    listed = {directory: [counted(sized(each)) for each in recordings] for directory, recordings in found.items()}
    if as_json:
        for recordings in listed.values():
            for each in recordings:
                click.echo(line(recording_to_json(each, deleted=False)))
        return
    click.echo(render_recordings(listed, Terminal.of(sys.stdout, os.environ)))


def run_delete(wanted: Wanted, *, as_json: bool, dry_run: bool) -> None:
    """Delete what is wanted of the user's own recordings, or show what that would be.

    Raises
    ------
    UsageError
        A recording that was named is not there, or must not be deleted.
    HopscopeError
        One cannot be deleted; those that were printed are.
    """
    directory = state_directory()
    found = recordings_in(directory)
    wanted = replace(wanted, names=_names(wanted.names, {directory: found}))
    listed = [sized(each) for each in found]
    doomed = selected(listed, wanted, time.time_ns())
    if not dry_run:
        delete_leftovers(directory)
    terminal = Terminal.of(sys.stdout, os.environ)
    for each in doomed:
        shown = counted(each) if as_json else each
        if not dry_run:
            delete(each.recording.folder)
        if as_json:
            click.echo(line(recording_to_json(shown, deleted=not dry_run)))
        else:
            verb = "would delete" if dry_run else "deleted"
            click.echo(f"{verb} {terminal.text(each.recording.name)}, {size(each.size_bytes)}")
    left = [each for each in listed if each not in doomed]
    if not as_json:
        click.echo(_summary(doomed, left, directory, dry_run=dry_run))
    _complain_of_size(left, wanted)


def _summary(doomed: Sequence[Listed], left: Sequence[Listed], directory: Path, *, dry_run: bool) -> str:
    would = ("would be deleted", "would be left") if dry_run else ("deleted", "left")
    return f"{amount(doomed)} {would[0]}; {amount(left)} {would[1]} in {directory}"


def _complain_of_size(left: Sequence[Listed], wanted: Wanted) -> None:
    if wanted.keep_bytes is not None and (size_bytes := sum(each.size_bytes for each in left)) > wanted.keep_bytes:
        click.echo(
            f"hopscope: {size(size_bytes)} are left, more than --keep-size: {plural(len(left), 'recording')} cannot be "
            "deleted while being recorded, or because their metadata are damaged",
            err=True,
        )


def _names(given: Sequence[str], found: Mapping[Path, Sequence[StoredRecording]]) -> list[str]:
    """Return the names of recordings that may be given with their paths, as `record` printed them.

    Raises
    ------
    UsageError
        There is no such recording in the directories.
    """
    there = {each.name for recordings in found.values() for each in recordings}
    paths = {text: Path(text) for text in given}
    for text, path in paths.items():
        if path.name not in there or (str(path) != path.name and path.absolute().parent not in found):
            where = " or ".join(map(str, found))
            raise UsageError(f"There is no recording {text} in {where}", "`hopscope recordings` lists what is there")
    return [path.name for path in paths.values()]
