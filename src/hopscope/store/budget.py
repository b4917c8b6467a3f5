# SPDX-License-Identifier: Apache-2.0
"""How much memory and how many files queries may take: a part of what this process can have, so that nothing breaks."""

from __future__ import annotations

import contextlib
import os
import resource
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hopscope.errors import HopscopeError

if TYPE_CHECKING:
    from collections.abc import Iterator

# A query that needs more goes to the disk, however much memory there is: the host has other work to do.
_MOST: Final = 3 << 30
# With less than that, the engine cannot even read a file.
_LEAST: Final = 32 << 20
# Python, NumPy and the engine before the first query, and what results and their text take.
_OWN: Final = 96 << 20
_SHARE: Final = 0.5
# Of address space: threads reserve much more than they use, and the engine crashes where they cannot.
_ADDRESSES: Final = 768 << 20
# What a thread of the engine needs, by its documentation.
_PER_THREAD: Final = 128 << 20
# Files that a thread of the engine has open at once, measured; where it can open none, the engine crashes.
_FILES_PER_THREAD: Final = 40
# Processes that do the same at once, each with its part of all that; see `shared_among`.
_processes = 1


def shared_among(processes: int) -> None:
    """Say that so many processes like this one run queries at once."""
    global _processes  # noqa: PLW0603 # one process is one of them
    _processes = processes


def memory_bytes(root: Path = Path("/")) -> int:
    """Return how much memory queries may take, before they go to the disk.

    Half of what is left by the smallest of the host's available memory, the limits of this process's cgroups (version 1
    or 2, and of those that contain them), and the limits of its address space and data; 3 GiB at most. Of several
    processes (:func:`shared_among`), each has its part of that.

    Parameters
    ----------
    root
        Of the file system with /proc and what is mounted.

    Raises
    ------
    HopscopeError
        The process may not have enough for any query.
    """
    of_process = list(_of_process(root))
    if min(of_process, default=_ADDRESSES) < _ADDRESSES:
        raise HopscopeError(
            "The limit of this process's memory is too low for queries",
            f"Raise `ulimit -v` or `ulimit -d`: queries need {_ADDRESSES >> 20} MiB besides what is in use",
        )
    least = min([*_of_host(root), *_of_cgroups(root), *of_process], default=_MOST)
    return min(_MOST, max(_LEAST, int((least - _OWN * _processes) * _SHARE / _processes)))


def threads(memory: int) -> int:
    """Return how many threads can work in so much memory, and with the files that this process can open.

    Raises
    ------
    HopscopeError
        It cannot open as many as one thread needs.
    """
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    by_files = (files - len(os.listdir("/proc/self/fd"))) // _FILES_PER_THREAD  # noqa: PTH208 # names alone
    if by_files < 1:
        raise HopscopeError(
            "The limit of this process's open files is too low for queries",
            f"Raise `ulimit -n`: queries need {_FILES_PER_THREAD} besides what is open",
        )
    cpus = min(max(len(os.sched_getaffinity(0)) // _processes, 1), by_files)
    return cpus if memory >= _MOST else max(1, min(cpus, memory // _PER_THREAD))


def _of_host(root: Path) -> Iterator[int]:
    for line in _lines(root / "proc/meminfo"):
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            yield int(value.split()[0]) << 10


def _of_process(root: Path) -> Iterator[int]:
    """Yield what is left of the limits that ``ulimit`` sets."""
    sizes = _lines(root / "proc/self/statm")
    pages = [int(each) for each in sizes[0].split()] if sizes else [0] * 7
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    for kind, taken in ((resource.RLIMIT_AS, pages[0]), (resource.RLIMIT_DATA, pages[5])):
        soft, _ = resource.getrlimit(kind)
        if soft != resource.RLIM_INFINITY:
            yield soft - taken * page_bytes


def _of_cgroups(root: Path) -> Iterator[int]:
    """Yield the limits of this process's cgroups, and of those that contain them."""
    of_process = [line.split(":", 2) for line in _lines(root / "proc/self/cgroup")]
    for line in _lines(root / "proc/self/mountinfo"):
        fields, _, about = (part.split(" ") for part in line.partition(" - "))
        if about[0] == "cgroup2":
            controllers, file = "", "memory.max"
        elif about[0] == "cgroup" and "memory" in about[-1].split(","):
            controllers, file = "memory", "memory.limit_in_bytes"
        else:
            continue
        mounted, mount = fields[3], root / fields[4].lstrip("/")
        for _, has, path in (each for each in of_process if len(each) == 3):
            if controllers in has.split(","):
                yield from _of_ancestors(mount, mount / os.path.relpath(path, mounted), file)


def _of_ancestors(mount: Path, folder: Path, file: str) -> Iterator[int]:
    folder = Path(os.path.normpath(folder))
    # What is mounted may not have this process's own cgroup, as in some containers, but an ancestor of it.
    while mount == folder or mount in folder.parents:
        for line in _lines(folder / file):
            if line.isdecimal():
                yield int(line)
        folder = folder.parent


def _lines(path: Path) -> list[str]:
    with contextlib.suppress(OSError):
        return path.read_text(errors="replace").splitlines()
    return []
