# SPDX-License-Identifier: Apache-2.0
"""Where a fleet's recordings are: a trace for each host, boot and hour, which opens as any other.

::

    FLEET/raw/host=web-1/boot=ca85476d-62d2-4632-83b6-b5df29acd2f7/hour=2026-11-26T19/hopscope.json, packets/, …
                                                                   hour=2026-11-26T19.2/    another one of that hour

Names of hosts and IDs of boots are what a recording says, whoever made it: each byte of them but letters, digits and
``._-~`` is written as ``%`` and two hexadecimal digits. Names that begin with a dot are of what is not complete yet.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote_to_bytes

from hopscope.errors import UsageError
from hopscope.store.lock import is_locked
from hopscope.store.unwritable import unwritable_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

RAW: Final = "raw"
HOUR_NS: Final = 3600 * 10**9
# Of a boot whose recording does not say which it was.
UNKNOWN_BOOT: Final = "unknown"

_COMING: Final = ".coming-"
_HOST: Final = "host="
_BOOT: Final = "boot="
_HOUR: Final = re.compile(r"hour=(\d{4}-\d{2}-\d{2}T\d{2})(?:\.([1-9]\d{0,5}))?")
_HOUR_FORM: Final = "%Y-%m-%dT%H"
# Of a name on all file systems that matter.
_MOST_BYTES: Final = 255
_THERE: Final = {errno.EEXIST, errno.ENOTEMPTY}


@dataclass(frozen=True, slots=True, order=True)
class Leaf:
    """A trace of a fleet.

    Attributes
    ----------
    host, boot
        Of which it is.
    hour
        When it began, as ``2026-11-26T19``, UTC by the host's wall clock.
    number
        1 for the first one of this hour that was stored.
    folder
        The trace.
    """

    host: str
    boot: str
    hour: str
    number: int
    folder: Path

    @property
    def name(self) -> str:
        """Its folder below ``raw``."""
        return "/".join(self.folder.parts[-3:])


@dataclass(frozen=True, slots=True)
class Raw:
    """The recordings of a fleet.

    Parameters
    ----------
    fleet
        Its directory.
    """

    fleet: Path

    def leaves(self) -> tuple[list[Leaf], list[str]]:
        """Return the traces, in order, and the names below ``raw`` of what cannot be one.

        Raises
        ------
        UsageError
            The directory cannot be read, or has no recordings.
        """
        foreign: list[str] = []
        found = []
        top = self.fleet / RAW
        if not top.is_dir():
            raise UsageError(f"{self.fleet} has no recordings of a fleet", "`hopscope fleet add --raw` puts them there")
        for host in _folders(top, foreign, _HOST):
            for boot in _folders(host, foreign, _BOOT):
                for folder in _folders(boot, foreign, "hour="):
                    parsed = _HOUR.fullmatch(folder.name)
                    names = _decoded(host.name, _HOST), _decoded(boot.name, _BOOT)
                    if parsed is None or None in names or not _is_hour(parsed[1]):
                        foreign.append(_below(folder))
                        continue
                    found.append(Leaf(str(names[0]), str(names[1]), parsed[1], int(parsed[2] or 1), folder))
        return sorted(found), sorted(foreign)

    def of_boot(self, host: str, boot: str) -> list[Leaf]:
        """Return the traces of a boot of a host."""
        folder = self._boot(host, boot)
        found = [_HOUR.fullmatch(each.name) for each in (folder.iterdir() if folder.is_dir() else ())]
        return sorted(Leaf(host, boot, each[1], int(each[2] or 1), folder / each[0]) for each in found if each)

    def add(self, host: str, boot: str, hour: str, write: Callable[[Path], None]) -> Leaf:
        """Have a trace written, which is there whole afterwards, or not at all.

        Parameters
        ----------
        host, boot, hour
            As of :class:`Leaf`.
        write
            Writes it into a folder, which is new and empty.

        Raises
        ------
        UsageError
            The host's or the boot's name cannot be a folder's.
        DiskFullError
            It cannot be written.
        """
        folder = self._boot(host, boot)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for left in folder.glob(f"{_COMING}*"):
                if not is_locked(left):  # whoever wrote it was killed
                    shutil.rmtree(left, ignore_errors=True)
            coming = Path(tempfile.mkdtemp(prefix=_COMING, dir=folder))
        except OSError as error:
            raise unwritable_file(folder, error) from error
        try:
            write(coming)
            number = len([each for each in self.of_boot(host, boot) if each.hour == hour]) + 1
            while not (named := _renamed(coming, folder / f"hour={hour}{f'.{number}' if number > 1 else ''}")):
                number += 1
        except OSError as error:
            raise unwritable_file(folder, error) from error
        finally:
            shutil.rmtree(coming, ignore_errors=True)
        return Leaf(host, boot, hour, number, named)

    def _boot(self, host: str, boot: str) -> Path:
        return self.fleet / RAW / _encoded(_HOST, host) / _encoded(_BOOT, boot)


def hour_of(time_ns: int) -> str:
    """Return the hour of a time, CLOCK_REALTIME."""
    return datetime.fromtimestamp(time_ns // HOUR_NS * 3600, UTC).strftime(_HOUR_FORM)


def hour_ns(hour: str) -> int:
    """Return when an hour begins, CLOCK_REALTIME."""
    return int(datetime.strptime(hour, _HOUR_FORM).replace(tzinfo=UTC).timestamp()) * 10**9


def _is_hour(text: str) -> bool:
    try:
        hour_ns(text)
    except ValueError:
        return False
    return True


def _encoded(key: str, name: str) -> str:
    encoded = f"{key}{quote(name, safe='', errors='replace')}"
    if not name or len(encoded) > _MOST_BYTES or unquote_to_bytes(encoded) != f"{key}{name}".encode(errors="ignore"):
        said = name[:_MOST_BYTES].encode(errors="backslashreplace").decode()
        raise UsageError(
            f"'{said}' cannot be the name of a {key[:-1]} in a fleet", "Leave it out: no recorder writes that"
        )
    return encoded


def _decoded(name: str, key: str) -> str | None:
    """Return what :func:`_encoded` was given; None: it was none of its results."""
    try:
        found = unquote_to_bytes(name.removeprefix(key)).decode()
        return found if _encoded(key, found) == name else None
    except (UnicodeDecodeError, UsageError):
        return None


def _folders(folder: Path, foreign: list[str], begins: str) -> Iterator[Path]:
    """Yield the folders in one whose names begin like that; links are none."""
    try:
        with os.scandir(folder) as entries:
            found = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
    except OSError as error:
        raise UsageError(f"{folder} cannot be read: {error.strerror}", "Run it as its owner") from error
    for name, is_folder in found:
        if name.startswith(begins) and is_folder:
            yield folder / name
        elif not name.startswith("."):
            foreign.append(_below(folder / name))


def _below(path: Path) -> str:
    parts = path.parts
    return "/".join(parts[len(parts) - parts[::-1].index(RAW) :])


def _renamed(folder: Path, name: Path) -> Path | None:
    """Give a folder a name; None: something has it."""
    try:
        folder.rename(name)
    except OSError as error:
        if error.errno in _THERE:
            return None
        raise
    return name
