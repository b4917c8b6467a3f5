# SPDX-License-Identifier: Apache-2.0
"""Checksums of a recording's files, by which damage is noticed that still looks like values.

They are in the file ``checksums`` beside the tables, a line for each file as soon as it is complete, as ``b2sum --tag``
writes them: ``b2sum -c checksums`` compares them without hopscope. The JSON files have theirs within.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import re
from typing import TYPE_CHECKING, Final

from hopscope.errors import FormatError
from hopscope.store.limits import limits
from hopscope.store.regular import open_regular

if TYPE_CHECKING:
    from pathlib import Path
    from typing import IO

    from typing_extensions import Buffer

    from hopscope.store.folder import OpenFolder

FILE: Final = "checksums"
_DIGEST_BYTES: Final = 32
# A line that was being written when the recorder was killed.
_BEGUN: Final = re.compile(r"BLAKE2b-256 \([A-Za-z0-9_./-]*(\)( (=( [0-9a-f]{0,64})?)?)?)?", re.ASCII)
# Files of the recording, and of its tables: no name leads elsewhere.
_LINE: Final = re.compile(
    r"BLAKE2b-256 \(((?:[A-Za-z0-9_-][A-Za-z0-9_.-]*/)?[A-Za-z0-9_-][A-Za-z0-9_.-]*)\) = ([0-9a-f]{64})", re.ASCII
)


def append(folder: OpenFolder, name: str, digest: str) -> None:
    """Write down the checksum of a file of a recording, which is complete.

    Raises
    ------
    OSError
        There is no room.
    """
    folder.append(FILE, f"BLAKE2b-256 ({name}) = {digest}\n".encode())


def digest_of(file: Path) -> str:
    """Return the checksum of a file.

    Raises
    ------
    FormatError
        It is not a regular file.
    OSError
        It cannot be read.
    """
    with open_regular(file) as opened:
        return _digest(opened)


def digest_of_own(file: Path) -> str:
    """Return the checksum of a file that this process has just written, by whatever path it was written.

    Raises
    ------
    OSError
        It cannot be read.
    """
    with file.open("rb") as opened:
        return _digest(opened)


def read(folder: Path) -> dict[str, str]:
    """Return path in the folder → checksum; empty of a recording that was made before there were any.

    Raises
    ------
    FormatError
        The file is damaged.
    """
    path = folder / FILE
    try:
        with open_regular(path) as opened:
            limits().document(path, os.fstat(opened.fileno()).st_size)
            *lines, rest = opened.read().decode(errors="replace").split("\n")
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise FormatError(f"{path} cannot be read: {error.strerror}") from error
    found = [_LINE.fullmatch(line) for line in lines]
    if not all(found) or (rest and not _BEGUN.fullmatch(rest)):
        raise FormatError(f"{path} is damaged", "Restore it from a backup, or remove it: the recording opens without")
    return {match[1]: match[2] for match in found if match}


class Summed(io.FileIO):
    """A new file to write whose checksum is written down when it is closed.

    Parameters
    ----------
    folder
        Of the recording.
    name
        Of the file, in it.
    """

    def __init__(self, folder: OpenFolder, name: str) -> None:
        super().__init__(folder.path / name, "w", opener=lambda *_: folder.create(name))
        self._folder, self._name, self._digest = folder, name, _new()

    def write(self, data: Buffer, /) -> int:
        """Write bytes, and return how many were taken."""
        written = super().write(data)
        self._digest.update(memoryview(data).cast("B")[:written])
        return written

    def close(self) -> None:
        """Close it; again is allowed."""
        if not self.closed:
            super().close()
            with contextlib.suppress(OSError):  # there is no room: what is in the file is complete without
                append(self._folder, self._name, self._digest.hexdigest())


def _digest(opened: IO[bytes]) -> str:
    return hashlib.file_digest(opened, _new).hexdigest()  # type: ignore[arg-type] # it is a BufferedReader


def _new() -> hashlib.blake2b:
    return hashlib.blake2b(digest_size=_DIGEST_BYTES)
