# SPDX-License-Identifier: Apache-2.0
"""Network namespaces of the host: which there are, what people call them, and how to act inside one."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, TypeVar

from hopscope.setns import CLONE_NEWNET, setns_net

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# include/uapi/linux/nsfs.h
_NS_GET_NSTYPE: Final = 0xB703
_NAMED: Final = Path("/run/netns")
# What the link of a process's namespace begins with; its inode and a bracket follow.
_LINK: Final = "net:["
_OWN: Final = Path("/proc/thread-self/ns/net")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Namespace:
    """A network namespace.

    Attributes
    ----------
    inode
        Its identity, ``ns.inum`` in the kernel.
    name
        ``host`` for that of process 1 or of the kernel's threads, the name in ``/run/netns``, or
        ``PID (comm)`` of its first process.
    path
        A file that stands for it.
    """

    inode: int
    name: str
    path: Path


def namespaces() -> dict[int, Namespace]:
    """Return the namespaces that have a process or a name, by inode."""
    return dict(_LOOK.found) if _LOOK.found is not None else _namespaces()


@contextlib.contextmanager
def looked_at_once() -> Iterator[None]:
    """Look for namespaces now, and not again in the block, whoever asks: it takes time for each process of the host."""
    _LOOK.found = _namespaces()
    try:
        yield
    finally:
        _LOOK.found = None


@dataclass(slots=True)
class _Look:
    found: dict[int, Namespace] | None = None


_LOOK: Final = _Look()


def _namespaces() -> dict[int, Namespace]:
    found: dict[int, Namespace] = {}
    for inode, name in _candidates():
        if inode not in found:
            path = Path(name)
            found[inode] = Namespace(inode, _name(path), path)
    return found


def at(path: Path) -> Namespace:
    """Return the namespace that a file stands for.

    Raises
    ------
    OSError
        There is no such file, it is closed to us, or (EINVAL) it is no network namespace.
    """
    status = path.stat()
    if status.st_dev == _device():  # anything else might block when it is opened
        with path.open("rb") as file:
            if fcntl.ioctl(file, _NS_GET_NSTYPE) == CLONE_NEWNET:
                return Namespace(status.st_ino, str(path), path)
    raise OSError(errno.EINVAL, "not a network namespace", str(path))


def inside(where: Namespace | Path, act: Callable[[], T]) -> T:
    """Return what `act` returns in a thread of its own that has entered the namespace.

    The namespace that we are in needs no entering, and no right. The file of a namespace may be that of a process which
    has ended meanwhile, and its number another's by now: then another file of the namespace is found.

    Raises
    ------
    OSError
        The namespace is gone, or cannot be entered. What `act` raises is passed on.
    """
    outcome: list[T] = []
    failure: list[BaseException] = []

    def enter_and_act() -> None:
        try:
            if (where.inode if isinstance(where, Namespace) else where.stat().st_ino) != _OWN.stat().st_ino:
                with opened(where) if isinstance(where, Namespace) else where.open("rb") as file:
                    _enter(file.fileno(), Path(file.name))
            outcome.append(act())
        except BaseException as error:  # noqa: BLE001 # handed to the caller's thread
            failure.append(error)

    thread = threading.Thread(target=enter_and_act, name="hopscope-netns")
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return outcome[0]


def opened(namespace: Namespace) -> BinaryIO:
    """Return an open file of a namespace, by way of another process in it where the one that it was found by has ended.

    Raises
    ------
    OSError
        It cannot be opened; FileNotFoundError: the namespace is gone.
    """
    found: Namespace | None = namespace
    path = None
    while found is not None and found.path != path:
        path = found.path
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            file = path.open("rb")
            if os.fstat(file.fileno()).st_ino == namespace.inode:
                return file
            file.close()
        found = _namespaces().get(namespace.inode)  # now, not as of the last look
    raise FileNotFoundError(errno.ENOENT, "the network namespace is gone", str(namespace.path))


def _enter(fd: int, path: Path) -> None:
    try:
        setns_net(fd)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


def _candidates() -> Iterator[tuple[int, str]]:
    """Yield namespaces, most of them again and again, each as its inode and a file that stands for it."""
    # Live views look for new ones every second: a link says as much as a stat, and no `Path` is made for a process.
    numbers = sorted(int(name) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208
    yield from _of_process(1)
    if _NAMED.is_dir():
        device = _device()
        for path in sorted(_NAMED.iterdir()):
            with contextlib.suppress(OSError):  # removed meanwhile, or not ours to look at
                status = path.stat()
                # A name stays behind as an empty file where the mount on it was lost.
                if status.st_dev == device:
                    yield status.st_ino, str(path)
    for number in numbers:
        yield from _of_process(number)


def _of_process(number: int) -> Iterator[tuple[int, str]]:
    path = f"/proc/{number}/ns/net"
    try:
        yield int(os.readlink(path)[len(_LINK) : -1]), path  # noqa: PTH115
    except OSError:
        return  # the process ended, or it is not ours to look at


def _device() -> int:
    """Return the device of the file system that all namespaces are files of."""
    return _OWN.stat().st_dev


def _name(path: Path) -> str:
    if path.parent == _NAMED:
        return path.name
    pid = path.parts[2]
    try:
        comm = Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        comm = "ended"
    # Kernel threads live in the first namespace; process 1 may be closed to us, or a container's.
    return "host" if pid == "1" or comm == "kthreadd" else f"{pid} ({comm})"
