# SPDX-License-Identifier: Apache-2.0
"""Which Parquet files a recording's tables have, as far as they are what a recorder makes."""

from __future__ import annotations

import os
import re
import stat
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hopscope.errors import FormatError
from hopscope.store.limits import limits
from hopscope.store.regular import irregular, open_regular

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_MAGIC: Final = b"PAR1"
_FOOTER: Final = struct.Struct("<I4s")
# Names beginning with a dot are of files that are not complete.
_PARQUET: Final = re.compile(r"[^.].*\.parquet", re.DOTALL)
# No engine takes any of these characters for a pattern, an address or the value of a column.
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Parts:
    """The Parquet files of a table.

    Attributes
    ----------
    whole
        Those that are whole, in order.
    cut
        Those that are cut off.
    size_bytes
        Of those that are whole, all together.
    """

    whole: list[Path]
    cut: list[Path]
    size_bytes: int

    @property
    def files(self) -> list[Path]:
        """All of them."""
        return [*self.whole, *self.cut]


def parts_of(folder: Path, table: str) -> Parts:
    """Find a table's files.

    Raises
    ------
    FormatError
        One is not a regular file, or has a name that a recorder gives none; or they are too many.
    """
    found = sorted(_listed(folder / table))
    limits().parts(folder, len(found))
    sizes = {file: _whole_bytes(file) for file in found}
    whole = [file for file in found if sizes[file] is not None]
    cut = [file for file in found if sizes[file] is None]
    return Parts(whole, cut, sum(size for size in sizes.values() if size))


def tables_of(folder: Path, names: Iterable[str]) -> dict[str, Parts]:
    """Find the files of several tables, as :func:`parts_of` those of one."""
    found = {name: parts_of(folder, name) for name in names}
    limits().parts(folder, sum(len(each.files) for each in found.values()))
    return found


def _listed(folder: Path) -> list[Path]:
    """Return the Parquet files in a table's folder."""
    try:
        if not stat.S_ISDIR(folder.lstat().st_mode):
            raise FormatError(f"{folder} is not a folder", "Restore the recording from a backup")
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if _PARQUET.fullmatch(entry.name)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise FormatError(f"{folder} cannot be read: {error.strerror}") from error
    for name in names:
        if not _NAME.fullmatch(name):
            raise FormatError(
                f"{folder / name} has a name that no recorder gives",
                "Rename it with letters, digits, '_', '-' and '.' alone, or remove it",
            )
    return [folder / name for name in names]


def _whole_bytes(file: Path) -> int | None:
    """Return the size of a Parquet file that has its footer, without which nothing of it can be read."""
    try:
        with open_regular(file) as opened:
            size = os.fstat(opened.fileno()).st_size
            if size < 2 * len(_MAGIC) + _FOOTER.size:
                return None
            starts = opened.read(len(_MAGIC))
            opened.seek(-_FOOTER.size, os.SEEK_END)
            length, ends = _FOOTER.unpack(opened.read(_FOOTER.size))
    except IsADirectoryError:
        raise irregular(file) from None
    except OSError as error:
        raise FormatError(f"{file} cannot be read: {error.strerror}") from error
    return size if starts == ends == _MAGIC and length <= size else None
