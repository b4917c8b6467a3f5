# SPDX-License-Identifier: Apache-2.0
"""Attach a loaded program by the kind of its way. Everything lives in file descriptors: nothing is pinned."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hopscope.errors import KernelError, LoadError
from hopscope.kernel import netns
from hopscope.kernel.host import read_mounts
from hopscope.libbpf import online_cpus

if TYPE_CHECKING:
    from hopscope.libbpf import Link, Program

# include/uapi/linux/bpf.h
_PROG_TYPE_NETFILTER: Final = 32
_ATTACH_NETFILTER: Final = 45
# include/uapi/linux/netfilter.h: NFPROTO_IPV4, NFPROTO_IPV6; NF_INET_PRE_ROUTING
_FAMILIES: Final = (2, 10)
_PRE_ROUTING: Final = 0
# Before everything else; the very first value is reserved (net/netfilter/nf_bpf_link.c).
_FIRST_PRIORITY: Final = -(2**31) + 1
# A hook's place can be taken by another run of hopscope: then the next free one.
_PLACES: Final = 16
_EBUSY: Final = 16


def prepare(program: Program, kind: str) -> None:
    """Tell libbpf before the load what it may not know of a kind (netfilter: unknown before libbpf 1.3)."""
    if kind == "netfilter":
        program.set_type(_PROG_TYPE_NETFILTER, _ATTACH_NETFILTER)


def attach(program: Program, kind: str) -> list[Link]:
    """Attach a program everywhere that its kind reaches.

    A netfilter program is attached in the calling process's network namespace alone; see :class:`EveryNamespace`.

    Raises
    ------
    LoadError
        The kernel refuses, or there is nothing to attach it to.
    """
    if kind in {"cgroup_skb", "sockops"}:
        fd = _open_cgroup_root(program)
        try:
            return [program.attach_cgroup(fd)]
        finally:
            os.close(fd)
    if kind == "netfilter":
        return [_attach_first(program, family) for family in _FAMILIES]
    if kind == "perf_event":
        return attach_clock(program, hz=1)
    return [program.attach()]


def cgroup_root(root: Path = Path("/")) -> Path:
    """Return where the cgroup version 2 hierarchy is mounted, all of it rather than a part.

    Parameters
    ----------
    root
        The folder that has ``proc``.

    Raises
    ------
    KernelError
        It is not.
    """
    found = [mount for mount in read_mounts(root) if mount.kind == "cgroup2"]
    if not found:
        raise KernelError(
            "cgroup version 2 is not mounted",
            "Mount it: mkdir -p /run/cgroup2 && mount -t cgroup2 cgroup2 /run/cgroup2",
        )
    return Path(next((mount for mount in found if mount.root == "/"), found[0]).point)


def attach_clock(program: Program, hz: int) -> list[Link]:
    """Run a program so often a second on each CPU that is online, by the kernel's clock (``cpu-clock``).

    Raises
    ------
    LoadError
        The kernel refuses.
    """
    return [program.attach_clock(cpu, hz) for cpu in online_cpus()]


class EveryNamespace:
    """A netfilter program in every network namespace of the host, those that come later included."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._links: dict[int, list[Link]] = {}

    def refresh(self) -> None:
        """Attach in namespaces that are new, forget those that are gone.

        Raises
        ------
        LoadError
            The kernel refuses in the first namespace; later ones are left out if they vanish meanwhile.
        """
        found = netns.namespaces()
        for inode in self._links.keys() - found.keys():
            for link in self._links.pop(inode):
                link.close()
        for inode in found.keys() - self._links.keys():
            try:
                self._links[inode] = netns.inside(found[inode], lambda: attach(self._program, "netfilter"))
            except OSError:
                continue  # the namespace went away between the look and the step inside
            except LoadError:
                if not self._links:
                    raise


def _open_cgroup_root(program: Program) -> int:
    try:
        return os.open(cgroup_root(), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except KernelError as error:
        raise LoadError(error.what, error.next_step, program=program.name) from error
    except OSError as error:
        what = f"{error.filename} cannot be opened: {error.strerror}"
        raise LoadError(what, errno=error.errno or 0, program=program.name) from error


def _attach_first(program: Program, family: int) -> Link:
    for place in range(_PLACES):
        try:
            return program.attach_netfilter(family, _PRE_ROUTING, _FIRST_PRIORITY + place)
        except LoadError as error:
            if error.errno != _EBUSY or place == _PLACES - 1:
                raise
    raise AssertionError
