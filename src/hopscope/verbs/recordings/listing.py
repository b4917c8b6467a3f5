# SPDX-License-Identifier: Apache-2.0
"""What there is to say of recordings: their sizes on disk, and their events."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hopscope.errors import HopscopeError
from hopscope.store.counts import event_counts
from hopscope.store.unrecorded import CLASSES_OPTION, RULES

if TYPE_CHECKING:
    from pathlib import Path

    from hopscope.store.recordings import StoredRecording


@dataclass(frozen=True, slots=True)
class Listed:
    """A recording with what its files say.

    Attributes
    ----------
    recording
        As its metadata describe it.
    size_bytes
        Of all of its files.
    written_ns
        CLOCK_REALTIME when it ended; where it does not say that, when the last of its files was written.
    events, lost
        Events that it has, and that are missing; None: not known.
    """

    recording: StoredRecording
    size_bytes: int
    written_ns: int
    events: int | None = None
    lost: int | None = None

    @property
    def duration_ns(self) -> int | None:
        """From its beginning to its end; None: not known."""
        started_ns, ended_ns = self.recording.started_ns, self.recording.ended_ns
        return None if started_ns is None or ended_ns is None else ended_ns - started_ns


def sized(recording: StoredRecording) -> Listed:
    """Look at the files of a recording; links are not followed."""
    size_bytes, newest_ns = _files(recording.folder)
    ended_ns = recording.ended_ns
    written_ns = max(newest_ns, recording.modified_ns) if ended_ns is None else ended_ns
    return Listed(recording, size_bytes, written_ns)


def counted(listed: Listed) -> Listed:
    """Count its events, if it can be read."""
    if listed.recording.state == "unreadable":
        return listed
    with contextlib.suppress(HopscopeError):
        events, lost = event_counts(listed.recording.traces)
        return replace(listed, events=events, lost=lost + listed.recording.missed)
    return listed


def options_text(recording: StoredRecording) -> str:
    """Return what was asked for in a few words: profiles, points, filters."""
    options = recording.options or {}
    words = [str(each) for name in ("profiles", "points", "tracepoints") for each in _list(options.get(name))]
    filters = options.get("filters")
    words += [f"{name}={_text(value)}" for name, value in filters.items()] if isinstance(filters, dict) else []
    if options.get("sampling_1_in", 1) != 1:
        words.append(f"sample={options['sampling_1_in']}")
    words += [f"{name}={options[name]}" for name in RULES if name in options]
    classes = options.get(CLASSES_OPTION)
    words += [f"class {name}={_text(value)}" for name, value in classes.items()] if isinstance(classes, dict) else []
    if trigger := options.get("trigger"):
        words.append(f"trigger={trigger}")
    return " ".join(words)


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _text(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _files(folder: Path) -> tuple[int, int]:
    """Return the size of all files, and when the last one was written."""
    size_bytes = newest_ns = 0
    for parent, _, files in os.walk(folder):
        for file in files:
            with contextlib.suppress(FileNotFoundError):  # it got its final name meanwhile
                status = os.lstat(os.path.join(parent, file))  # noqa: PTH118 # there may be many
                size_bytes += status.st_size
                newest_ns = max(newest_ns, status.st_mtime_ns)
    return size_bytes, newest_ns
