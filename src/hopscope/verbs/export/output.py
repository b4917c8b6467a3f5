# SPDX-License-Identifier: Apache-2.0
"""Where an export goes: under a name that nobody looks for until it is complete, and nothing is overwritten.

The process that reads the recording confines itself (:mod:`hopscope.recorded.confine`), and can neither rename nor
remove files where the output goes. Another process does so, which is made before and knows nothing of the recording. It
removes what is not complete also if this one is killed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from hopscope.errors import HopscopeError, UsageError
from hopscope.gate import bytes_out
from hopscope.recorded.confine import is_own_process
from hopscope.store.folder import OpenFolder

if TYPE_CHECKING:
    from collections.abc import Iterator

STANDARD: Final = Path("-")
_DONE: Final = b"done"
_ANOTHER: Final = "Name another one with -o, or remove it"
# What the other process must not be ended by: the end of this one is what it waits for.
_SIGNALS: Final = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}


@contextlib.contextmanager
def file_output(path: Path, *, binary: bool) -> Iterator[BinaryIO]:
    """Open a new file, which has its name when the ``with`` ends without an exception.

    Parameters
    ----------
    path
        Its name. ``-`` is the standard output; a pipe or a device is written into as it is.
    binary
        Whether it is not text, which a terminal cannot show.

    Raises
    ------
    UsageError
        There is a file of that name, or none can be made.
    """
    if path == STANDARD:
        if binary and sys.stdout.isatty():
            raise UsageError("This format is not text, and the standard output is a terminal", "Name a file with -o")
        out = bytes_out(data=True)
        yield out
        out.flush()
    elif _is_special(path):
        with path.open("wb") as out:
            yield out
    else:
        with _published(path) as (parent, partial), os.fdopen(_made(path, parent, partial), "wb") as out:
            yield out


@contextlib.contextmanager
def folder_output(path: Path) -> Iterator[tuple[OpenFolder, str]]:
    """Make a new folder, as :func:`file_output` makes a file; yield it, and the path that it has meanwhile."""
    if path == STANDARD or _is_special(path):
        raise UsageError(f"This format is a folder of files, which {path} cannot be", "Name a new folder with -o")
    with _published(path) as (parent, partial):
        try:
            folder = parent.folder(partial)
        except OSError as error:
            raise _impossible(path, error) from error
        with contextlib.closing(folder):
            yield folder, str(path.parent / partial)


def _made(path: Path, parent: OpenFolder, partial: str) -> int:
    try:
        return parent.create(partial)
    except OSError as error:
        raise _impossible(path, error) from error


def _is_special(path: Path) -> bool:
    with contextlib.suppress(OSError, ValueError):
        mode = path.stat().st_mode
        return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))
    return False


@contextlib.contextmanager
def _published(path: Path) -> Iterator[tuple[OpenFolder, str]]:
    """Yield a folder and a name in it, of what is renamed at the end, or removed after an exception."""
    partial = f".{path.name}.{os.getpid()}.partial"
    try:
        if os.path.lexists(path) and not (path.is_dir() and not os.listdir(path)):  # noqa: PTH208 # no iterator is left open
            raise UsageError(f"{path} exists already", _ANOTHER)
        parent_fd = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise _impossible(path, error) from error
    with contextlib.closing(OpenFolder(parent_fd, path.parent)) as parent:
        last = _Last(parent, partial, path.name)
        try:
            yield parent, partial
        except BaseException:
            last.remove()
            raise
        last.publish(path)


def _impossible(path: Path, error: Exception) -> UsageError:
    said = error.strerror if isinstance(error, OSError) else str(error)
    return UsageError(f"{path} cannot be created: {said}", "Name another one with -o")


class _Last:
    """What is done last: by another process where this one will be confined."""

    def __init__(self, parent: OpenFolder, partial: str, name: str) -> None:
        self._parent, self._partial, self._name = parent, partial, name
        self._pid = 0
        if is_own_process():
            self._start()

    def publish(self, path: Path) -> None:
        """Give it its name.

        Raises
        ------
        HopscopeError
            Something has that name by now.
        """
        code = self._tell(_DONE) if self._pid else self._finish(done=True)
        if code:
            raise HopscopeError(f"{path} cannot get its name: {os.strerror(code)}", _ANOTHER)

    def remove(self) -> None:
        """Remove it."""
        if self._pid:
            self._tell(b"")
        else:
            self._finish(done=False)

    def _start(self) -> None:
        waiting_fd, self._fd = os.pipe()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        self._pid = os.fork()
        if not self._pid:
            os.close(self._fd)
            os._exit(self._finish(done=os.read(waiting_fd, len(_DONE)) == _DONE))
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(waiting_fd)

    def _tell(self, what: bytes) -> int:
        with contextlib.suppress(BrokenPipeError):  # it was killed
            os.write(self._fd, what)
        os.close(self._fd)
        code = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        return code if code >= 0 else errno.ECHILD

    def _finish(self, *, done: bool) -> int:
        """Do it, and return the number of the error."""
        try:
            if done:
                self._parent.publish(self._partial, self._name)
        except OSError as error:
            return error.errno or 1
        finally:
            self._parent.discard(self._partial)
        return 0
