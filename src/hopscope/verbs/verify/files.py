# SPDX-License-Identifier: Apache-2.0
"""Which files of a recording are damaged."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hopscope.errors import FormatError
from hopscope.store import checksums
from hopscope.store.document import has_checksum
from hopscope.store.hosts import CHANGES, JOINED, PROBES, Hosts, is_of_hosts
from hopscope.store.hosts import FILE as HOSTS
from hopscope.store.meta import FILE as METADATA
from hopscope.store.meta import Metadata
from hopscope.store.parts import parts_of
from hopscope.store.schema import TABLES
from hopscope.store.trace import Trace
from hopscope.term.format import plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_CUT_OFF: Final = "is cut off"
_MISSING: Final = "is missing"
_DIFFERS: Final = "does not match its checksum"
_UNREADABLE: Final = "cannot be decoded"


@dataclass(frozen=True, slots=True)
class Checked:
    """A file of a recording.

    Attributes
    ----------
    path
        Of the file.
    size_bytes
        Its size.
    by_checksum
        It has a checksum, to which it was compared.
    problem
        What is wrong with it; empty: nothing was found.
    """

    path: Path
    size_bytes: int
    by_checksum: bool
    problem: str = ""


def checked(folder: Path) -> Iterator[Checked]:
    """Check the files of a recording: of several hosts, also those of each host's traces, and of the joined one.

    Raises
    ------
    FormatError
        It is no recording.
    """
    if not is_of_hosts(folder):
        Metadata.read(folder)
        yield from _of_trace(folder)
        return
    hosts = Hosts.read(folder)
    yield _document(folder / HOSTS)
    yield from _by_checksum(folder, (PROBES.name, CHANGES.name))
    for name in (*(part for host in hosts.hosts for part in host.parts), JOINED):
        if (folder / name / METADATA).exists():
            yield from _of_trace(folder / name)


def summary(files: Sequence[Checked]) -> list[str]:
    """Return what was checked, and how."""
    damaged = sum(bool(file.problem) for file in files)
    size_bytes = sum(file.size_bytes for file in files)
    compared = sum(file.by_checksum for file in files)
    lines = [
        f"checked {plural(len(files), 'file')}, {size_bytes:,} bytes: "
        + (f"{plural(damaged, 'file')} damaged" if damaged else "no damage found")
    ]
    if compared < len(files):
        without = "the recording has no checksums" if not compared else "those without a checksum"
        lines.append(
            f"compared to checksums: {compared:,}; decoded only, which finds some damage alone: "
            f"{len(files) - compared:,} ({without})"
        )
    return lines


def _of_trace(folder: Path) -> Iterator[Checked]:
    """Check the files of one trace: by their checksums, and those that have none by decoding them."""
    try:
        metadata = Metadata.read(folder)
        yield _document(folder / METADATA)
    except FormatError as error:
        yield Checked(folder / METADATA, 0, by_checksum=True, problem=error.what.removeprefix(f"{folder / METADATA} "))
        return
    tables = [table.name for table in (*TABLES, *metadata.tables)]
    known = checksums.read(folder)
    yield from _by_checksum(folder, tables)
    without = [file for name in tables for file in parts_of(folder, name).whole if _name(folder, file) not in known]
    if without:
        yield from _decoded(folder, set(without))


def _by_checksum(folder: Path, tables: Sequence[str]) -> Iterator[Checked]:
    """Check the files that have a checksum, and find those that are cut off."""
    known = checksums.read(folder)
    for name in sorted(known):
        yield _compared(folder / name, known[name])
    for table in tables:
        for file in parts_of(folder, table).cut:
            if _name(folder, file) not in known:
                yield Checked(file, file.stat().st_size, by_checksum=False, problem=_CUT_OFF)


def _compared(path: Path, checksum: str) -> Checked:
    try:
        size_bytes, found = path.lstat().st_size, checksums.digest_of(path)
    except FileNotFoundError:
        return Checked(path, 0, by_checksum=True, problem=_MISSING)
    except FormatError as error:
        return Checked(path, 0, by_checksum=True, problem=error.what.removeprefix(f"{path} "))
    except OSError as error:
        return Checked(path, 0, by_checksum=True, problem=f"cannot be read: {error.strerror}")
    return Checked(path, size_bytes, by_checksum=True, problem="" if found == checksum else _DIFFERS)


def _decoded(folder: Path, files: set[Path]) -> Iterator[Checked]:
    with Trace(folder) as trace:
        for table, file in trace.files():
            if file in files:
                problem = "" if trace.can_decode(table, file) else _UNREADABLE
                yield Checked(file, file.stat().st_size, by_checksum=False, problem=problem)


def _document(path: Path) -> Checked:
    """Return the check of a JSON file, which was read: that alone compares its checksum."""
    return Checked(path, path.stat().st_size, by_checksum=has_checksum(path))


def _name(folder: Path, file: Path) -> str:
    return os.path.relpath(file, folder)
