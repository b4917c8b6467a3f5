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
# Of the device that an interface is. A device of PCI Express has what was negotiated with its slot, and what it can do
# (drivers/pci/pci-sysfs.c): "8.0 GT/s PCIe" (before 5.7 "8 GT/s"), "16"; "Unknown", or 0 or 255 lanes, is not known.
_SPEEDS: Final = {"pcie_mt_per_s": "device/current_link_speed", "pcie_max_mt_per_s": "device/max_link_speed"}
_LANES: Final = {"pcie_lanes": "device/current_link_width", "pcie_max_lanes": "device/max_link_width"}
_MOST_LANES: Final = 32
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


def devices() -> Iterator[Said]:
    """Yield where the interfaces that are devices are: their NUMA node, and their link of PCI Express."""
    with sysfs() as root:
        yield from devices_of(root)


def devices_of(root: int) -> Iterator[Said]:
    """Yield the same, of the sysfs whose root this descriptor is."""
    for name in _listed(root, _CLASS):
        folder, subject = f"{_CLASS}/{name}", printable(os.fsencode(name))
        text = _text(root, f"{folder}/{_NODE}")
        node = None if text is None else decimal(text)
        if node is not None and node >= 0:
            yield subject, "numa_node", node
        for reading, file in _SPEEDS.items():
            if speed := megatransfers(_text(root, f"{folder}/{file}") or ""):
                yield subject, reading, speed
        for reading, file in _LANES.items():
            if 0 < (lanes := decimal(_text(root, f"{folder}/{file}") or "0")) <= _MOST_LANES:
                yield subject, reading, lanes


def megatransfers(text: str) -> int:
    """Return the speed of a lane of PCI Express in MT/s; 0 where it is not known."""
    number, _, unit = text.partition(" ")
    whole, _, tenths = number.partition(".")
    if not unit.startswith("GT/s") or not number.isascii() or not whole.isdigit() or len(tenths) > 1:
        return 0
    return int(whole) * 1000 + (int(tenths) * 100 if tenths.isdigit() else 0)


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
