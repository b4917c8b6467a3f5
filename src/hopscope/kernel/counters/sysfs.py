# SPDX-License-Identifier: Apache-2.0
"""How packets are steered to CPUs, and where interfaces are: what only sysfs tells (``/sys/class/net``)."""

from __future__ import annotations

import contextlib
import errno
import os
from typing import TYPE_CHECKING, Final

from hopscope.errors import FormatError
from hopscope.kernel.netlink import printable
from hopscope.kernel.sysfs import sysfs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.kernel.counters.text import Said

_CLASS: Final = "class/net"
_QUEUES: Final = "queues"
_WORDS: Final = frozenset({"rps_cpus", "xps_cpus", "xps_rxqs"})
# Files of a queue by the beginning of its name, and of an interface.
_OF_QUEUE: Final = {"rx": ("rps_cpus", "rps_flow_cnt"), "tx": ("xps_cpus", "xps_rxqs", "tx_timeout")}
_OF_INTERFACE: Final = ("gro_flush_timeout", "napi_defer_hard_irqs", "threaded")
_NODE: Final = "device/numa_node"
_BYTES: Final = 1 << 16
# A driver that does not have it, a queue that is the only one (no XPS then), an interface that is gone.
_ABSENT: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EOPNOTSUPP, errno.EINVAL, errno.ENODEV})


def queues() -> Iterator[Said]:
    """Yield RPS, RFS and XPS of each queue (subject ``eth0 rx-0``), and how each interface polls (``eth0``)."""
    with sysfs() as root:
        for name in _listed(root, _CLASS):
            with _opened(root, f"{_CLASS}/{name}") as folder:
                yield from _of_interface(folder, printable(os.fsencode(name)))


def numa_nodes() -> Iterator[Said]:
    """Yield the NUMA node of the interfaces that have one."""
    with sysfs() as root:
        for name in _listed(root, _CLASS):
            text = _text(root, f"{_CLASS}/{name}/{_NODE}")
            node = None if text is None else decimal(text)
            if node is not None and node >= 0:
                yield printable(os.fsencode(name)), "numa_node", node


def decimal(text: str) -> int:
    """Return the number that a file of sysfs holds.

    Raises
    ------
    FormatError
        It is none.
    """
    if text.isascii() and text.removeprefix("-").isdigit():
        return int(text)
    raise FormatError(f"{text[:40]!r} is not a number")


def _of_interface(folder: int | None, subject: str) -> Iterator[Said]:
    if folder is None:
        return
    yield from _files(folder, "", subject, _OF_INTERFACE)
    for queue in _listed(folder, _QUEUES):
        files = _OF_QUEUE.get(queue.partition("-")[0], ())
        yield from _files(folder, f"{_QUEUES}/{queue}/", f"{subject} {queue}", files)


def _files(folder: int, path: str, subject: str, names: tuple[str, ...]) -> Iterator[Said]:
    for name in names:
        text = _text(folder, f"{path}{name}")
        if text is not None:
            yield subject, name, text if name in _WORDS else decimal(text)


@contextlib.contextmanager
def _opened(root: int, folder: str) -> Iterator[int | None]:
    """Lend a descriptor of a folder, None if it is gone."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=root)
    except OSError as error:
        if error.errno not in _ABSENT:
            raise
        yield None
        return
    try:
        yield fd
    finally:
        os.close(fd)


def _listed(root: int, folder: str) -> list[str]:
    """Return the names in a folder, sorted, nothing if it is gone."""
    with _opened(root, folder) as fd:
        return [] if fd is None else sorted(os.listdir(fd))  # noqa: PTH208 # by descriptor: the folder has no path


def _text(folder: int, path: str) -> str | None:
    """Return what a file says, None where there is nothing to say."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
        try:
            return os.read(fd, _BYTES).decode(errors="replace").strip()
        finally:
            os.close(fd)
    except OSError as error:
        if error.errno in _ABSENT:
            return None
        raise OSError(error.errno, error.strerror, path) from None
