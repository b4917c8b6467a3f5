# SPDX-License-Identifier: Apache-2.0
"""Which recording is meant: a folder, the name of one in the state directory, or the last one there."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from hopscope.errors import UsageError
from hopscope.recorded.joined import complain
from hopscope.recorded.packet_file import missing_comments

if TYPE_CHECKING:
    from collections.abc import Callable


def which_recording(given: Path | None, say: Callable[[str], object] = complain) -> Path:
    """Return the folder of a recording; `say` which one where it is in the state directory.

    Parameters
    ----------
    given
        A path; or, where nothing has that path, the name of a recording in the state directory; None: the last one
        there that can be opened.

    Raises
    ------
    UsageError
        There is no last one, or it is a file of packets.
    """
    from hopscope.store.recordings import because, last_recording, recording_named  # noqa: PLC0415 # with NumPy

    if given is None:
        last, later = last_recording()
        say(f"reading {last.folder}" + (f"; {because(later)}" if later else ""))
        return last.folder
    if (missing := _of_packets(given)) is not None:
        raise UsageError(
            missing or f"{given} is a file of packets, and no recording",
            "Name the recording" if missing else f"Open it with `hopscope wireshark {given}`, or name the recording",
        )
    if not _exists(given) and (found := recording_named(str(given))):
        say(f"reading {found}")
        return found
    return given


def names_recording(word: str) -> bool:
    """Tell whether a word is the path of something, or the name of a recording in the state directory."""
    from hopscope.store.recordings import recording_named  # noqa: PLC0415 # as above

    return _exists(Path(word)) or recording_named(word) is not None


def _of_packets(path: Path) -> str | None:
    """Return what :func:`missing_comments` says; None where it is no file that can be read, which others tell of."""
    with contextlib.suppress(OSError, ValueError):
        return missing_comments(path) if path.is_file() else None
    return None


def _exists(path: Path) -> bool:
    with contextlib.suppress(OSError, ValueError):  # it is no path at all
        return path.exists()
    return False
