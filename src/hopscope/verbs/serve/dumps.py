# SPDX-License-Identifier: Apache-2.0
"""The recordings that the flight recorder writes: each an ordinary one, and all together within a size."""

from __future__ import annotations

import contextlib
import os
import shutil
from typing import TYPE_CHECKING, Final

from hopscope.errors import HopscopeError, UsageError
from hopscope.store.destination import Folder
from hopscope.store.folder import PRIVATE
from hopscope.store.recordings import dated_folder, recordings_in, state_directory
from hopscope.store.writer import TraceWriter
from hopscope.verbs.recordings.deletion import Wanted, delete, delete_leftovers, selected
from hopscope.verbs.recordings.listing import sized

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from hopscope.store.meta import Metadata
    from hopscope.verbs.record.flight import Columns
    from hopscope.verbs.recordings.listing import Listed

# An option of a recording, by which those are known that may be deleted for room: how many seconds were kept.
MARK: Final = "flight_recorder_s"


class Dumps:
    """Writes recordings into a directory.

    Parameters
    ----------
    directory
        Where; None: the state directory.
    most_bytes
        Of all that were written there by a flight recorder; the oldest make room. Recordings of others are left alone.
    """

    def __init__(self, directory: Path | None, most_bytes: int) -> None:
        self.directory = directory or state_directory()
        self._most_bytes = most_bytes

    def check(self) -> None:
        """Look whether the directory can be written.

        Raises
        ------
        UsageError
            It cannot be.
        """
        place = self.directory.absolute()
        while not os.path.lexists(place):
            place = place.parent
        if not place.is_dir():
            raise UsageError(f"{place} is no directory, and recordings cannot be written there", "Name another one")
        if not os.access(place, os.W_OK | os.X_OK):
            raise UsageError(f"{place} cannot be written by this user", "Name another directory with --dumps")

    def write(self, metadata: Metadata, rows: Iterable[tuple[str, Columns]], ended_ns: int, need_bytes: int) -> Path:
        """Write a recording, and return its folder.

        Parameters
        ----------
        need_bytes
            It takes no more; room is made before, so that there is never more than allowed.

        Raises
        ------
        HopscopeError
            It cannot be written, and nothing of it is left; or there is no room, as others cannot be deleted.
        """
        self._make_room(need_bytes)
        with dated_folder(PRIVATE, self.directory) as folder:
            try:
                with TraceWriter(Folder(folder), metadata) as writer:
                    for table, columns in rows:
                        writer.append(table, columns)
                    writer.close("complete", ended_ns)
            except BaseException:
                shutil.rmtree(folder.path, ignore_errors=True)
                raise
            return folder.path

    def stored_bytes(self) -> int:
        """Return what all recordings of flight recorders there take."""
        with contextlib.suppress(HopscopeError):
            return sum(each.size_bytes for each in self._own())
        return 0

    def _make_room(self, need_bytes: int) -> None:
        delete_leftovers(self.directory)
        for each in selected(self._own(), Wanted(keep_bytes=max(self._most_bytes - need_bytes, 0)), 0):
            delete(each.recording.folder)

    def _own(self) -> list[Listed]:
        found = recordings_in(self.directory)
        return [sized(each) for each in found if each.options and MARK in each.options]
