# SPDX-License-Identifier: Apache-2.0
"""Which recordings to delete, and deleting them: none that is being recorded, and nothing that is no recording."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hopscope.errors import HopscopeError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hopscope.verbs.recordings.listing import Listed

# What is being deleted has left the listing; an interrupted deletion leaves such a folder for the next one.
_PREFIX: Final = ".deleted-"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be deleted.

    Attributes
    ----------
    names
        These, and nothing else.
    older_than_s
        What ended longer ago; None: not asked for.
    keep_bytes
        Then the oldest ones, until the rest is at most so large; None: not asked for.
    """

    names: Sequence[str] = ()
    older_than_s: float | None = None
    keep_bytes: float | None = None


def selected(listed: Sequence[Listed], wanted: Wanted, now_ns: int) -> list[Listed]:
    """Return what is to be deleted of the recordings in a directory, in their order: the oldest first.

    Raises
    ------
    UsageError
        A recording that was named must not be deleted.
    """
    if wanted.names:
        return [_deletable(each) for each in listed if each.recording.name in wanted.names]
    candidates = [each for each in listed if not _why_not(each)]
    found: set[str] = set()
    if wanted.older_than_s is not None:
        before_ns = now_ns - wanted.older_than_s * 1e9
        found = {each.recording.name for each in candidates if each.written_ns < before_ns}
    if wanted.keep_bytes is not None:
        left_bytes = sum(each.size_bytes for each in listed if each.recording.name not in found)
        for each in candidates:
            if left_bytes > wanted.keep_bytes and each.recording.name not in found:
                found.add(each.recording.name)
                left_bytes -= each.size_bytes
    return [each for each in candidates if each.recording.name in found]


def delete(folder: Path) -> None:
    """Delete a recording's folder. Links in it are deleted, and what they point to is not.

    Raises
    ------
    HopscopeError
        It cannot be deleted.
    """
    try:
        taken = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=folder.parent))
        try:
            folder.rename(taken / folder.name)
        finally:
            shutil.rmtree(taken)
    except OSError as error:
        raise HopscopeError(
            f"{folder} cannot be deleted: {error.strerror}", "Delete it as its owner, or as root"
        ) from error


def delete_leftovers(directory: Path) -> None:
    """Delete what an interrupted deletion left."""
    for folder in directory.glob(f"{_PREFIX}*"):
        if folder.is_dir() and not folder.is_symlink():
            shutil.rmtree(folder, ignore_errors=True)


def _deletable(listed: Listed) -> Listed:
    if reason := _why_not(listed):
        raise UsageError(f"{listed.recording.name} is not deleted: {reason}", "Nothing was deleted")
    return listed


def _why_not(listed: Listed) -> str:
    """Return why a recording must not be deleted; empty: it may be."""
    if listed.recording.state == "being recorded":
        return "it is being recorded"
    return "" if listed.recording.known else "its metadata are damaged, so that it may be something else"
