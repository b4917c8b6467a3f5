# SPDX-License-Identifier: Apache-2.0
"""What users call things, turned into the numbers that the kernel calls them."""

from __future__ import annotations

import ipaddress
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from hopscope.errors import KernelError, UsageError
from hopscope.probes import netns
from hopscope.probes.attach import cgroup_root

if TYPE_CHECKING:
    from collections.abc import Iterable

_COMM_LENGTH = 15


def namespaces(names: Iterable[str]) -> list[int]:
    """Return the inodes of namespaces given by name, pid, inode or path.

    Raises
    ------
    UsageError
        There is no such namespace.
    """
    return [_namespace(name) for name in names]


def interfaces(names: Iterable[str]) -> list[tuple[int, int]]:
    """Return (ifindex, namespace inode) of interfaces given as ``NAME`` (in every namespace) or ``NAME@NETNS``.

    Raises
    ------
    UsageError
        No namespace has such an interface.
    """
    return [found for name in names for found in _interface(name)]


def cgroups(names: Iterable[str]) -> list[int]:
    """Return the ids of cgroups given by id or by path, absolute or below the root of the hierarchy.

    Raises
    ------
    UsageError
        There is no such cgroup.
    """
    return [_cgroup(name) for name in names]


def pids(numbers: Iterable[int]) -> list[int]:
    """Return the pids.

    Raises
    ------
    UsageError
        There is no such process.
    """
    numbers = list(numbers)
    for number in numbers:
        if not Path(f"/proc/{number}").exists():
            raise UsageError(f"There is no process {number}", "`pgrep -a NAME` finds the pid of a program")
    return numbers


def comms(names: Iterable[str]) -> list[str]:
    """Return the names, cut as the kernel cuts them."""
    return [name.encode()[:_COMM_LENGTH].decode(errors="ignore") for name in names]


def addresses(texts: Iterable[str]) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    """Return addresses or prefixes.

    Raises
    ------
    UsageError
        One is neither.
    """
    try:
        return [ipaddress.ip_network(text, strict=False) for text in texts]
    except ValueError as error:
        raise UsageError(str(error), "Give an address such as 10.0.0.1 or a prefix such as fd00::/8") from error


def ways(texts: Iterable[str]) -> dict[str, str]:
    """Return probe point → way from ``POINT=WAY``.

    Raises
    ------
    UsageError
        The sign of equality is missing.
    """
    parts = [text.partition("=") for text in texts]
    for point, sign, _ in parts:
        if not sign:
            raise UsageError(f"--way takes POINT=WAY, not {point}", "`hopscope probes` lists both")
    return {point: way for point, _, way in parts}


def _namespace(name: str) -> int:
    known = netns.namespaces()
    for each in known.values():
        if name in {each.name, str(each.inode)}:
            return each.inode
    paths = [Path(f"/proc/{name}/ns/net")] if name.isdigit() else [Path(name)] if "/" in name else []
    for path in paths:
        if path.exists():
            return path.stat().st_ino
    shown = ", ".join(sorted(each.name for each in known.values()))
    raise UsageError(
        f"There is no network namespace {name}", f"Those in use are {shown}; a pid or an inode will do, too"
    )


def _interface(name: str) -> list[tuple[int, int]]:
    device, _, namespace = name.partition("@")
    known = netns.namespaces()
    wanted = {_namespace(namespace)} if namespace else known.keys()
    found: list[tuple[int, int]] = []
    seen: set[str] = set()
    for inode in wanted & known.keys():
        devices = {text: index for index, text in netns.inside(known[inode].path, socket.if_nameindex)}
        seen |= devices.keys()
        if device in devices:
            found.append((devices[device], inode))
    if not found:
        raise UsageError(f"There is no interface {name}", f"Those in use are {', '.join(sorted(seen))}")
    return found


def _cgroup(name: str) -> int:
    try:
        root = cgroup_root()
    except KernelError as error:
        raise UsageError(f"cgroup {name} cannot be looked up: {error.what}", error.next_step) from error
    if name.isdigit():
        if any(path.stat().st_ino == int(name) for path in (root, *root.rglob("*/"))):
            return int(name)
        raise UsageError(f"There is no cgroup with id {name}", f"The id is the inode of its directory below {root}")
    path = Path(name)
    if not path.is_relative_to(root):
        path = root / name.lstrip("/")
    if not path.is_dir():
        raise UsageError(f"There is no cgroup {name}", f"Give its path below {root}, or its id")
    return path.stat().st_ino
