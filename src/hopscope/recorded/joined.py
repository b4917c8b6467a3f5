# SPDX-License-Identifier: Apache-2.0
"""Which trace to open for a folder: itself, or what a recording of several hosts is joined to."""

from __future__ import annotations

import errno
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hopscope.gate import tell
from hopscope.progress import progress

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from hopscope.trace.join.traces import Clock, Joined

_NOT_WRITABLE: Final = {errno.EACCES, errno.EPERM, errno.EROFS}


def complain(sentence: str) -> None:
    """Write a sentence to the standard error."""
    tell(f"hopscope: {sentence}")


@contextmanager
def one_trace(folder: Path, say: Callable[[str], object] = complain) -> Iterator[Path]:
    """Give the folder of one trace; `say` what takes time.

    Of a recording of several hosts it is ``joined`` in it, which is made if it is not there, or is not of what is
    there now; where it cannot be written, in a temporary folder that is removed.
    """
    from hopscope.store.hosts import JOINED, is_of_hosts  # noqa: PLC0415 # DuckDB and NumPy when they are needed

    if not is_of_hosts(folder):
        yield folder
    elif _is_current(folder):
        yield folder / JOINED
    elif _can_be_written(folder):
        say(f"joining the hosts of {folder} to {folder / JOINED}")
        with progress():
            make_joined(folder)
        yield folder / JOINED
    else:
        from hopscope.trace.join.traces import join  # noqa: PLC0415

        say(f"joining the hosts of {folder} in a temporary folder, because {folder} is not writable")
        with tempfile.TemporaryDirectory(prefix="hopscope-joined-") as temporary:
            with progress():
                join([folder], Path(temporary) / JOINED)
            yield Path(temporary) / JOINED


def make_joined(folder: Path, *, without: Collection[str] = (), clock: Clock = "compared") -> Joined:
    """Join a recording of several hosts in its own folder, in one step: a reader finds the old one or the new one."""
    from hopscope.store.hosts import JOINED  # noqa: PLC0415
    from hopscope.trace.join.traces import join  # noqa: PLC0415

    fresh = Path(tempfile.mkdtemp(prefix=f".{JOINED}-", dir=folder))
    try:
        made = join([folder], fresh, without=without, clock=clock)
        shutil.rmtree(folder / JOINED, ignore_errors=True)
        fresh.chmod(folder.stat().st_mode & 0o777)
        fresh.rename(folder / JOINED)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return made


def _can_be_written(folder: Path) -> bool:
    """Try it: access(2) knows nothing of what Landlock denies to this process."""
    from hopscope.store.hosts import JOINED  # noqa: PLC0415 # as above

    try:
        Path(tempfile.mkdtemp(prefix=f".{JOINED}-", dir=folder)).rmdir()
    except OSError as error:
        return error.errno not in _NOT_WRITABLE
    return True


def _is_current(folder: Path) -> bool:
    from hopscope.errors import FormatError  # noqa: PLC0415
    from hopscope.store.hosts import JOINED  # noqa: PLC0415
    from hopscope.store.meta import Metadata  # noqa: PLC0415
    from hopscope.trace.join.traces import fingerprint  # noqa: PLC0415

    try:
        metadata = Metadata.read(folder / JOINED)
    except FormatError:
        return False
    return metadata.state == "complete" and metadata.joined.get("files") == fingerprint([folder])
