# SPDX-License-Identifier: Apache-2.0
"""What users call things, turned into the numbers that the kernel calls them."""

from __future__ import annotations

import ipaddress
import itertools
import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hopscope.errors import KernelError, UsageError
from hopscope.kernel import netns
from hopscope.kernel.host import in_initial_namespace
from hopscope.live.recorder.options import RecordOptions
from hopscope.probes.attach import cgroup_root

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from hopscope.kernel.netns import Namespace

_COMM_LENGTH = 15
_SELF = "self"


def shown(given: Mapping[str, Iterable[object]]) -> dict[str, str]:
    """Return filter → its values as the user wrote them, without filters that have none.

    Raises
    ------
    UsageError
        A value is empty.
    """
    texts = {name: [str(value) for value in values] for name, values in given.items()}
    for name, values in texts.items():
        if "" in values:
            raise UsageError(f"--{name} is empty", "Give a value, or omit the option")
    return {name: ", ".join(values) for name, values in texts.items() if values}


def sockets(**chosen: Iterable[Any]) -> dict[str, Any]:
    """Return the filters of :class:`~hopscope.live.filters.Selection`, by its names, looked up.

    Raises
    ------
    UsageError
        There is no such thing, or it cannot be looked up.
    """
    resolvers: dict[str, Callable[[Iterable[Any]], Sequence[Any]]] = {
        "namespaces": namespaces,
        "cgroups": cgroups,
        "pids": pids,
        "comms": comms,
        "ports": list,
        "addresses": addresses,
    }
    return {name: resolvers[name](values) for name, values in chosen.items()}


def record_options(  # noqa: PLR0913 # one parameter an option
    *,
    interfaces: Iterable[str],
    pids: Iterable[int],
    comms: Iterable[str],
    cgroups: Iterable[str],
    namespaces: Iterable[str],
    addresses: Iterable[str],
    ports: Iterable[int],
    ways: Iterable[str],
    protocol: str | None = None,
    pcap: str = "",
    **others: Any,  # noqa: ANN401 # whatever RecordOptions takes
) -> RecordOptions:
    """Return what ``record`` and ``drops`` are asked for, with names looked up.

    Raises
    ------
    UsageError
        There is no such thing, or it cannot be looked up.
    """
    filters: dict[str, Iterable[object]] = {
        "interface": interfaces,
        "pid": pids,
        "comm": comms,
        "cgroup": cgroups,
        "netns": namespaces,
        "address": addresses,
        "port": ports,
        "protocol": [protocol] if protocol else [],
        "pcap": [pcap] if pcap else [],
    }
    return RecordOptions(
        **sockets(namespaces=namespaces, cgroups=cgroups, pids=pids, comms=comms, ports=ports, addresses=addresses),
        shown=shown(filters),
        interfaces=[found for name in interfaces for found in _interface(name)],
        ways=dict(_way(text) for text in ways),
        pcap=" and ".join(f"({each})" for each in (protocol, pcap) if each) if protocol else pcap,
        **others,
    )


def namespaces(names: Iterable[str]) -> list[int]:
    """Return the inodes of namespaces given by name, pid, inode or path, or as ``self``: that of this process.

    Raises
    ------
    UsageError
        There is no such namespace.
    """
    return [_namespace(name).inode for name in names]


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
        There is no such process, it is a thread of one, or the numbers that we see are not the host's.
    """
    numbers = list(numbers)
    if numbers and not in_initial_namespace("pid"):
        raise UsageError(
            "--pid expects PIDs of the host, which are not visible in this container",
            "Use --comm or --cgroup, or run hopscope outside the container",
        )
    for number in numbers:
        _check_process(number)
    return numbers


def comms(names: Iterable[str]) -> list[str]:
    """Return the names, cut as the kernel cuts them.

    Raises
    ------
    UsageError
        One is not text.
    """
    try:
        return [name.encode()[:_COMM_LENGTH].decode(errors="ignore") for name in names]
    except UnicodeEncodeError as error:
        raise UsageError(f"{error.object!r} is not text in UTF-8", "Select the process by --pid") from error


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
    """Return probe point → attach method from ``POINT=METHOD``.

    Raises
    ------
    UsageError
        The equals sign is missing.
    """
    return dict(_way(text) for text in texts)


def _way(text: str) -> tuple[str, str]:
    point, sign, way = text.partition("=")
    if not sign:
        raise UsageError(f"--attach expects POINT=METHOD, not {point}", "`hopscope probes` lists both")
    return point, way


def _check_process(number: int) -> None:
    try:
        status = Path(f"/proc/{number}/status").read_text(errors="replace")
    except OSError as error:
        raise UsageError(
            f"There is no process with PID {number}", "`pgrep -a NAME` finds the PID of a program"
        ) from error
    found = re.search(r"^Tgid:\s*(\d+)$", status, re.MULTILINE)
    if found and int(found[1]) != number:
        raise UsageError(f"{number} is a thread of process {found[1]}", f"Give --pid {found[1]}")


def _namespace(name: str) -> Namespace:
    known = netns.namespaces()
    for each in known.values():
        if name in {each.name, str(each.inode)}:
            return each
    of_process = name.isdecimal() or name == _SELF
    path = Path(f"/proc/{name}/ns/net") if of_process else Path(name)
    if of_process or "/" in name:
        try:
            return netns.at(path)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError as error:
            raise UsageError(
                f"The network namespace {name} cannot be opened: {error.strerror}",
                "Give its name, a PID or an inode number",
            ) from error
    names = ", ".join(sorted(each.name for each in known.values()))
    raise UsageError(
        f"No network namespace is named {name}",
        f"The namespaces are {names}; a PID, an inode number or self is also accepted",
    )


def _interface(name: str) -> list[tuple[int, int]]:
    device, _, namespace = name.partition("@")
    wanted = [_namespace(namespace)] if namespace else list(netns.namespaces().values())
    found: list[tuple[int, int]] = []
    seen: set[str] = set()
    closed: list[str] = []
    for each in wanted:
        try:
            devices = {text: index for index, text in netns.inside(each, socket.if_nameindex)}
        except FileNotFoundError:
            continue  # it went away between the look and the step inside
        except OSError:
            closed.append(each.name)
            continue
        seen |= devices.keys()
        if device in devices:
            found.append((devices[device], each.inode))
    if not found:
        hint = f"; {', '.join(closed)} cannot be entered without CAP_SYS_ADMIN" if closed else ""
        raise UsageError(f"No interface is named {name}", f"The interfaces are {', '.join(sorted(seen))}{hint}")
    return found


def _cgroup(name: str) -> int:
    try:
        root = cgroup_root()
    except KernelError as error:
        raise UsageError(f"cgroup {name} cannot be looked up: {error.what}", error.next_step) from error
    if name.isdecimal():
        if any(_inode(path) == int(name) for path in itertools.chain([root], root.rglob("*/"))):
            return int(name)
        raise UsageError(
            f"There is no cgroup with ID {name}", f"The ID is the inode number of its directory below {root}"
        )
    path = Path(name)
    if not path.is_relative_to(root):
        path = root / name.lstrip("/")
    if not path.is_dir() or path.stat().st_dev != root.stat().st_dev:
        raise UsageError(f"No cgroup is named {name}", f"Give its path below {root}, or its ID")
    return path.stat().st_ino


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:
        return None  # removed meanwhile
