# SPDX-License-Identifier: Apache-2.0
"""The formats: how each is written, and how much its viewers can show.

The output is opened before the recording is: from then on, this process can open no other one.
"""

from __future__ import annotations

import contextlib
import os
import tarfile
import tempfile
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, NamedTuple, Protocol, cast

from hopscope.errors import UsageError
from hopscope.store.folder import OpenFolder
from hopscope.verbs.export.output import file_output, folder_output

if TYPE_CHECKING:
    from hopscope.recorded.options import Common
    from hopscope.store.trace import Trace
    from hopscope.trace.selection import Selection


class _Writer(Protocol):
    def __call__(self, trace: Trace, selection: Selection, out: BinaryIO, *, limit: int | None) -> list[str]:
        """Write a format, and return sentences on what is missing."""


class _Format(NamedTuple):
    """A format: the function that writes it, how many events its viewers can show, and whether it is not text."""

    module: str
    function: str
    most: int | None = None
    binary: bool = False


_CTF: Final = "ctf"
# Those of which each row is an event.
_OF_EVENTS: Final = (_CTF, "csv", "jsonl", "parquet")
_FORMATS: Final = {
    "perfetto": _Format("perfetto", "write_perfetto", 2_000_000, binary=True),
    "chrome": _Format("chrome", "write_chrome", 200_000),
    "speedscope": _Format("speedscope", "write_speedscope", 500_000),
    "folded": _Format("stacks", "write_folded"),
    "csv": _Format("rows", "write_csv"),
    "jsonl": _Format("rows", "write_jsonl"),
    "parquet": _Format("rows", "write_parquet", binary=True),
    "pcapng": _Format("pcapng", "write_pcapng", 100_000, binary=True),
}


def write(form: str, common: Common, output: Path, most: int | None) -> list[str]:
    """Write a recording in a format.

    Parameters
    ----------
    form
        Its name.
    common
        The recording, and the part of it.
    output
        Where to.
    most
        Maximum events; 0: all; None: what the format's viewers can show.

    Returns
    -------
    list of str
        Sentences on what is missing.

    Raises
    ------
    UsageError
        There is a file of that name, or none can be made, or the recording has nothing that the format could have.
    """
    if common.selection.where and form not in _OF_EVENTS:
        raise UsageError(f"--where selects events, which {form} does not have", f"Use {', '.join(_OF_EVENTS)}")
    if form == _CTF:
        with folder_output(output) as (folder, path), common.trace(writable=[path]) as trace:
            from hopscope.verbs.export.ctf import write_ctf  # noqa: PLC0415 # NumPy, after the other process is made

            return write_ctf(trace, common.selection, folder, limit=most or None)
    with file_output(output, binary=_FORMATS[form].binary) as out, common.trace() as trace:
        return write_to(out, form, trace, common.selection, most)


def file_name(form: str) -> str:
    """Return the name of the one file that :func:`write_to` writes."""
    return f"hopscope.{form}{'.tar' if form == _CTF else ''}"


def write_to(out: BinaryIO, form: str, trace: Trace, selection: Selection, most: int | None = None) -> list[str]:
    """Write an open recording in a format as one file; parameters and exceptions are as of :func:`write`.

    What is a folder otherwise is an archive of tar.
    """
    if form == _CTF:
        return _write_archive(out, trace, selection, most or None)
    chosen = _FORMATS[form]
    limit = chosen.most if most is None else most or None
    module = import_module(f"hopscope.verbs.export.{chosen.module}")
    return cast("_Writer", getattr(module, chosen.function))(trace, selection, out, limit=limit)


def _write_archive(out: BinaryIO, trace: Trace, selection: Selection, limit: int | None) -> list[str]:
    from hopscope.verbs.export.ctf import write_ctf  # noqa: PLC0415 # NumPy

    with tempfile.TemporaryDirectory() as name:
        path = Path(name)
        with contextlib.closing(OpenFolder(os.open(path, os.O_RDONLY | os.O_DIRECTORY), path)) as folder:
            notes = write_ctf(trace, selection, folder, limit=limit)
        with tarfile.open(fileobj=out, mode="w") as archive:
            for each in sorted(path.iterdir()):
                archive.add(each, f"{_CTF}/{each.name}")
    return notes
