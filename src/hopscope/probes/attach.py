# SPDX-License-Identifier: Apache-2.0
"""Attach a loaded program by the kind of its way. Everything lives in file descriptors: nothing is pinned."""

from __future__ import annotations

import contextlib
import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hopscope.errors import KernelError, LoadError
from hopscope.kernel import netns
from hopscope.kernel.host import read_mounts
from hopscope.kernel.nft import Hook, hooks_with_rules
from hopscope.libbpf import online_cpus
from hopscope.probes.libraries import attach_to_ourselves
from hopscope.probes.point import LIBRARY_KINDS, RETURN_KINDS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    from hopscope.libbpf import Link, Program

# include/uapi/linux/bpf.h
_PROG_TYPE_NETFILTER: Final = 32
_ATTACH_NETFILTER: Final = 45
_FORWARD: Final = 2
# include/uapi/linux/netfilter.h: NFPROTO_IPV4, NFPROTO_IPV6; NF_INET_PRE_ROUTING, NF_INET_FORWARD
_FIXED_HOOKS: Final = {
    "netfilter": frozenset({Hook(2, 0), Hook(10, 0)}),
    "netfilter_forward": frozenset({Hook(2, _FORWARD), Hook(10, _FORWARD)}),
}
# Before and after everything else; the very first and last values are reserved (net/netfilter/nf_bpf_link.c).
_FIRST_PRIORITY: Final = -(2**31) + 1
_LAST_PRIORITY: Final = 2**31 - 2
# A hook's place can be taken by another run of hopscope: then the next free one.
_PLACES: Final = 16
_EBUSY: Final = 16
# Before and after the rules of every hook that has any, whose packets a host sends or receives.
BEFORE_RULES: Final = "netfilter_rules"
AFTER_RULES: Final = RETURN_KINDS[BEFORE_RULES]
NETFILTER_KINDS: Final = frozenset({*_FIXED_HOOKS, BEFORE_RULES, AFTER_RULES})


def prepare(program: Program, kind: str) -> None:
    """Tell libbpf before the load what it may not know of a kind (netfilter: unknown before libbpf 1.3)."""
    if kind in NETFILTER_KINDS:
        program.set_type(_PROG_TYPE_NETFILTER, _ATTACH_NETFILTER)


def attach(program: Program, kind: str) -> list[Link]:
    """Attach a program everywhere that its kind reaches.

    A netfilter program is attached in the calling process's network namespace alone; see :class:`EveryNamespace`. One
    for libraries is tried on a function of this process; see :mod:`hopscope.probes.libraries`.

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
    if kind in NETFILTER_KINDS:
        hooks = _FIXED_HOOKS[kind] if kind in _FIXED_HOOKS else _with_rules()
        return [_attach_netfilter(program, kind, hook) for hook in sorted(hooks)]
    if kind == "perf_event":
        return attach_clock(program, hz=1)
    if kind in LIBRARY_KINDS:
        return attach_to_ourselves(program, kind)
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
    """Netfilter programs in every network namespace of the host, those that come later included.

    Parameters
    ----------
    programs
        With the kind of each, in the order in which they are attached.
    """

    def __init__(self, programs: Sequence[tuple[Program, str]]) -> None:
        self._programs = programs
        self._links: dict[int, dict[tuple[str, Hook], Link]] = {}
        self._namespaces: dict[int, netns.Namespace] = {}

    def refresh(self) -> None:
        """Attach in namespaces, and at hooks with rules, that are new; forget namespaces that are gone.

        Raises
        ------
        LoadError
            The kernel refuses in the first namespace; later ones are left out if they vanish meanwhile.
        """
        found = self._namespaces = netns.namespaces()
        for inode in self._links.keys() - found.keys():
            for link in self._links.pop(inode).values():
                link.close()
        for inode, namespace in found.items():
            if inode in self._links and self._are_fixed:
                continue
            links = self._links.get(inode, {})
            try:
                netns.inside(namespace, functools.partial(self._attach, links))
            except OSError:
                continue  # the namespace went away between the look and the step inside
            except LoadError:
                if not self._links:
                    raise
            if links:
                self._links[inode] = links

    def pause(self) -> None:
        """Detach everywhere."""
        for links in self._links.values():
            for link in links.values():
                link.close()
            links.clear()

    def resume(self) -> None:
        """Attach again where it was; namespaces that are gone are left out.

        Raises
        ------
        LoadError
            The kernel refuses.
        """
        for inode in [*self._links]:
            with contextlib.suppress(OSError):
                netns.inside(self._namespaces[inode], functools.partial(self._attach, self._links[inode]))

    @property
    def _are_fixed(self) -> bool:
        """Whether all hooks are known from the start."""
        return all(kind in _FIXED_HOOKS for _, kind in self._programs)

    def _attach(self, links: dict[tuple[str, Hook], Link]) -> None:
        """Attach the programs that are not among these in the namespace that the calling thread is in."""
        with_rules: AbstractSet[Hook] = frozenset() if self._are_fixed else _with_rules()
        for program, kind in self._programs:
            for hook in sorted(_FIXED_HOOKS.get(kind, with_rules)):
                if (program.name, hook) not in links:
                    links[program.name, hook] = _attach_netfilter(program, kind, hook)


def _open_cgroup_root(program: Program) -> int:
    try:
        return os.open(cgroup_root(), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except KernelError as error:
        raise LoadError(error.what, error.next_step, program=program.name) from error
    except OSError as error:
        what = f"{error.filename} cannot be opened: {error.strerror}"
        raise LoadError(what, errno=error.errno or 0, program=program.name) from error


def _with_rules() -> AbstractSet[Hook]:
    """Return the hooks of what is sent and received that have rules where the calling thread is."""
    return {hook for hook in hooks_with_rules() if hook.number != _FORWARD}


def _attach_netfilter(program: Program, kind: str, hook: Hook) -> Link:
    first, step = (_LAST_PRIORITY, -1) if kind == AFTER_RULES else (_FIRST_PRIORITY, 1)
    for place in range(_PLACES):
        try:
            return program.attach_netfilter(*hook, first + step * place)
        except LoadError as error:
            if error.errno != _EBUSY or place == _PLACES - 1:
                raise
    raise AssertionError
