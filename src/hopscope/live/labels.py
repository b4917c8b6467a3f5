# SPDX-License-Identifier: Apache-2.0
"""Names for the groups that the kernel side knows by number."""

from __future__ import annotations

import ipaddress
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hopscope.errors import KernelError
from hopscope.kernel import netns
from hopscope.model.cgroup import shorten
from hopscope.model.message import endpoint
from hopscope.probes.attach import cgroup_root

if TYPE_CHECKING:
    import numpy as np

OTHER: Final = "other"
# For hops at which nobody knows the group yet.
NOT_KNOWN: Final = "-"
# Groups that are named by the ends of packets' flows.
GROUPS_OF_FLOWS: Final = frozenset({"port", "peer", "flow"})
_PROTOCOLS: Final = {socket.IPPROTO_TCP: "tcp", socket.IPPROTO_UDP: "udp"}


class NamespaceNames:
    """Names of network namespaces; what it has learned stays, also when the namespace is gone."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}

    def name(self, inode: int) -> str:
        """Return the name of a namespace by its inode, or what it is called where nobody knows it."""
        if inode not in self._names:
            self._names |= {each.inode: each.name for each in netns.namespaces().values()}
        return self._names.setdefault(inode, f"netns {inode}")


class CgroupNames:
    """Names of cgroups; what it has learned stays, also when the cgroup is gone."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}

    def name(self, number: int) -> str:
        """Return the path of a cgroup below the root by its number, or what it is called where there is none."""
        if number not in self._names:
            self._names |= _cgroup_names()
        return self._names.setdefault(number, f"cgroup {number} (gone)")


class Labels:
    """Turns group keys into names; what it has learned stays, also when the thing itself is gone.

    Parameters
    ----------
    group_by
        Key of the grouping, such as ``interface``.
    """

    def __init__(self, group_by: str) -> None:
        self._group_by = group_by
        self._namespaces = NamespaceNames()
        self._cgroups = CgroupNames()

    def name(self, group: np.void) -> str:
        """Return the name of a group.

        Parameters
        ----------
        group
            A record of ``struct hop_group``.
        """
        key = group["key"]
        label = bytes(group["name"]).split(b"\0")[0].decode(errors="replace")
        if self._group_by == "interface":
            if not key["netns"]:
                return label  # the backlog, which all namespaces share
            namespace = self._namespaces.name(int(key["netns"]))
            return label if namespace == "host" else f"{label}@{namespace}"
        if self._group_by == "netns":
            return self._namespaces.name(int(key["netns"]))
        if self._group_by == "cgroup":
            return self._cgroups.name(int(key["id"]))
        if self._group_by in GROUPS_OF_FLOWS:
            return self._of_flow(group)
        return label if self._group_by == "comm" else f"{label} ({int(key['id'])})"

    def _of_flow(self, group: np.void) -> str:
        protocol = protocol_name(int(group["protocol"]))
        if self._group_by == "port":
            return f"{protocol} {int(group['local_port'])}"
        peer = address_of(group["peer"])
        if self._group_by == "peer":
            return peer
        local = endpoint(address_of(group["local"]), int(group["local_port"]))
        flow = f"{protocol} {local} {endpoint(peer, socket.ntohs(int(group['peer_port'])))}"
        namespace = self._namespaces.name(int(group["key"]["netns"]))
        return flow if namespace == "host" else f"{flow} @{namespace}"


def protocol_name(number: int) -> str:
    """Return the name of a protocol of IP."""
    return _PROTOCOLS.get(number, f"protocol {number}")


def address_of(words: np.ndarray[Any, np.dtype[Any]]) -> str:
    """Return an address as text; uint32 in network order, shape (4,), IPv4 as mapped to IPv6."""
    address = ipaddress.IPv6Address(words.tobytes())
    return str(address.ipv4_mapped or address)


def _cgroup_names() -> dict[int, str]:
    """Return path below the root by id, which is the inode of the directory."""
    try:
        root = cgroup_root()
    except KernelError:
        return {}
    found = {}
    for directory, _, _ in os.walk(root):
        try:
            inode = Path(directory).stat().st_ino
        except OSError:
            continue  # removed meanwhile
        found[inode] = shorten(directory.removeprefix(str(root)) or "/")
    return found
