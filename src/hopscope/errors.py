# SPDX-License-Identifier: Apache-2.0
"""Every exception that hopscope raises on purpose.

::

    HopscopeError               base: a sentence, the next step, an exit code
    ├── UsageError              a wrong option or value; exit 2
    ├── PrivilegeError          a right is missing; exit 77
    ├── KernelError             the kernel refuses or lacks something
    │   └── LoadError           libbpf could not open, load or attach; carries errno and libbpf's log
    ├── DiskFullError           there is no room for more of a recording
    ├── RemoteError             what another host could not do; with the exit code that it would have had there
    ├── HostsError              several hosts have failed; has the error of each
    ├── ConnectionLostError     the connection to another host is gone; carries how
    ├── VersionError            the other side is another hopscope
    ├── StreamClosedError       the other side wants no more of a stream
    └── FormatError             bytes that are not laid out as they say (BTF, ring, record, trace)
"""

from __future__ import annotations

import errno
import os
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence


class HopscopeError(Exception):
    """Base of all: what happened, and what to do next.

    Parameters
    ----------
    what
        One sentence without a full stop.
    next_step
        What the user can do about it, one sentence, may be empty.
    """

    exit_code = 1

    def __init__(self, what: str, next_step: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.next_step = next_step

    def __str__(self) -> str:
        """Return the sentence and the next step, as shown to the user."""
        return f"{self.what}. {self.next_step}" if self.next_step else self.what


class UsageError(HopscopeError):
    """An option or a value that cannot be used."""

    exit_code = 2


class PrivilegeError(HopscopeError):
    """A right is missing."""

    exit_code = 77


class KernelError(HopscopeError):
    """The running kernel refuses or lacks what is asked for."""


class LoadError(KernelError):
    """Opening, loading or attaching a BPF object failed.

    Parameters
    ----------
    what, next_step
        As in the base class.
    errno
        Positive errno, 0 where there is none.
    program
        The program that was refused, if libbpf told.
    log
        The end of libbpf's own log, the verifier's included.
    """

    def __init__(
        self, what: str, next_step: str = "", *, errno: int = 0, program: str | None = None, log: str = ""
    ) -> None:
        super().__init__(what, next_step)
        self.errno = errno
        self.program = program
        self.log = log

    @property
    def reason(self) -> str:
        """The errno's name and meaning, for a table cell."""
        if not self.errno:
            return self.what
        name = os.strerror(self.errno)
        return f"errno {self.errno} ({name})"


class DiskFullError(HopscopeError):
    """There is no room for more of a recording, or the disk fails; what was written before is complete."""


class RemoteError(HopscopeError):
    """What another host could not do.

    Parameters
    ----------
    what, next_step
        As in the base class; what came from there must have been made printable.
    exit_code
        The one that it would have had there.
    """

    def __init__(self, what: str, next_step: str = "", *, exit_code: int = 1) -> None:
        super().__init__(what, next_step)
        self.exit_code = exit_code


class HostsError(HopscopeError):
    """Several hosts have failed.

    Parameters
    ----------
    errors
        One of each.
    """

    def __init__(self, errors: Sequence[HopscopeError]) -> None:
        super().__init__("; ".join(str(error) for error in errors))
        self.errors = errors
        self.exit_code = errors[0].exit_code

    @staticmethod
    def of(errors: Sequence[HopscopeError]) -> HopscopeError:
        """Return the error of one host as it is, and what all say once."""
        found = {str(error): error for error in errors}
        return HostsError(list(found.values())) if len(found) > 1 else errors[0]


class ConnectionLostError(HopscopeError):
    """The connection to another host is gone.

    Parameters
    ----------
    what, next_step
        As in the base class.
    how
        ``ended``, ``silent``, ``garbled``, or ``closed`` by ourselves.
    """

    def __init__(self, what: str, next_step: str = "", *, how: str) -> None:
        super().__init__(what, next_step)
        self.how = how


class VersionError(HopscopeError):
    """The other side is another version of hopscope; both notice."""


class StreamClosedError(HopscopeError):
    """The other side wants no more of a stream; who serves it has nothing left to do."""


class FormatError(HopscopeError):
    """Bytes are not laid out as they claim to be."""


_MEMORY: Final = "There is not enough memory", "Raise the limit: `ulimit -v`, or that of the cgroup"
_FILES: Final = "Too many files are open", "Raise the limit of open files: `ulimit -n`"
# What the system refuses, by the error's number, and by what its message says where it has none.
_LIMITS: Final = {errno.ENOMEM: _MEMORY, errno.EMFILE: _FILES, errno.ENFILE: _FILES}
_LIMITS_SAID: Final = (
    (re.compile("failed to map segment|cannot allocate memory", re.IGNORECASE), _MEMORY),  # by the dynamic linker
    (re.compile("too many open files", re.IGNORECASE), _FILES),
    (
        re.compile("can't start new thread"),
        ("No more threads can be started", "Raise the limit of processes: `ulimit -u`, or that of the cgroup"),
    ),
    (
        re.compile("No usable temporary directory"),
        ("There is no folder in which temporary files can be written", "Free some space, or set TMPDIR to a folder"),
    ),
)


def limit_reached(error: Exception) -> HopscopeError | None:
    """Return the limit that one of Python's exceptions is about; None: it is about something else."""
    if isinstance(error, MemoryError):
        return HopscopeError(*_MEMORY)
    if isinstance(error, OSError) and error.errno in _LIMITS:
        return HopscopeError(*_LIMITS[error.errno])
    return next((HopscopeError(*said) for pattern, said in _LIMITS_SAID if pattern.search(str(error))), None)
