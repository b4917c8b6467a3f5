# SPDX-License-Identifier: Apache-2.0
"""The conditions of ss's filter language, evaluated on all sockets at once.

They mean what the kernel's own filter means by them (``inet_diag_bc_run`` in net/ipv4/inet_diag.c): an IPv4 address
matches the sockets of IPv6 whose address is that one, mapped, and a condition that names no family matches both.
"""

from __future__ import annotations

import operator
import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import numpy as np

from hopscope.kernel.sockets.address import device_names, ports, words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray

    from hopscope.kernel.sockets.address import End
    from hopscope.kernel.sockets.table import Sockets

    Mask: TypeAlias = NDArray[np.bool_]

Comparison: TypeAlias = Literal["=", "!=", "<", ">", "<=", ">="]
_COMPARE: Final[Mapping[Comparison, Callable[[Any, int], Any]]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}
_MAPPED: Final = (0, 0, 0xFFFF)


@dataclass(frozen=True, slots=True)
class Network:
    """Addresses that begin alike: `bits` of `words`, four numbers of 32 bits, of which IPv4 has one."""

    family: int
    words: tuple[int, ...]
    bits: int


@dataclass(frozen=True, slots=True)
class Host:
    """``src`` or ``dst``: an address in one of the networks, and a port, of those that are given.

    `family` is 0, or the only one that sockets may have.
    """

    end: End
    networks: tuple[Network, ...] = ()
    port: int | None = None
    family: int = 0


@dataclass(frozen=True, slots=True)
class Port:
    """``sport`` or ``dport``."""

    end: End
    comparison: Comparison
    port: int


@dataclass(frozen=True, slots=True)
class Device:
    """``dev``: the interface that a socket is bound to, by name or by number."""

    device: str | int


@dataclass(frozen=True, slots=True)
class Mark:
    """``fwmark``."""

    mark: int
    mask: int


@dataclass(frozen=True, slots=True)
class Cgroup:
    """``cgroup``, by its number."""

    cgroup_id: int


@dataclass(frozen=True, slots=True)
class Autobound:
    """``autobound``: the kernel chose the port."""


@dataclass(frozen=True, slots=True)
class Not:
    """What the other is not true of."""

    of: Condition


@dataclass(frozen=True, slots=True)
class And:
    """What both are true of."""

    left: Condition
    right: Condition


@dataclass(frozen=True, slots=True)
class Or:
    """What one of them is true of."""

    left: Condition
    right: Condition


Condition: TypeAlias = Host | Port | Device | Mark | Cgroup | Autobound | Not | And | Or


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter: states, of which None stands for the usual ones, and a condition, if there is one.

    Attributes
    ----------
    states
        Bits ``1 << State``.
    """

    states: int | None = None
    condition: Condition | None = field(default=None)


def matching(condition: Condition, sockets: Sockets) -> Mask:
    """Return which of the sockets a condition is true of."""
    rows = sockets.rows
    found: Mask
    match condition:
        case Not():
            found = ~matching(condition.of, sockets)
        case And():
            found = matching(condition.left, sockets) & matching(condition.right, sockets)
        case Or():
            found = matching(condition.left, sockets) | matching(condition.right, sockets)
        case Port():
            found = _COMPARE[condition.comparison](ports(rows, condition.end), condition.port)
        case Host():
            found = _of_host(condition, sockets)
        case Device():
            found = _of_device(condition, sockets)
        case Mark():
            found = (rows["mark"] & np.uint32(condition.mask)) == np.uint32(condition.mark)
        case Cgroup():
            found = rows["cgroup_id"] == np.uint64(condition.cgroup_id)
        case Autobound():
            found = rows["autobound"] != 0
    return found


def parts(condition: Condition | None) -> Iterator[Condition]:
    """Yield a condition and all that it is made of."""
    if condition is None:
        return
    yield condition
    match condition:
        case Not():
            yield from parts(condition.of)
        case And() | Or():
            yield from parts(condition.left)
            yield from parts(condition.right)
        case _:
            pass


def _of_host(host: Host, sockets: Sockets) -> Mask:
    rows = sockets.rows
    families = rows["message"]["family"]
    found = np.ones(len(rows), np.bool_)
    if host.port is not None:
        found &= ports(rows, host.end) == host.port
    if host.family:
        found &= families == host.family
    if host.networks:
        address = words(rows, host.end)
        inside = np.zeros(len(rows), np.bool_)
        for network in host.networks:
            inside |= _in_network(network, families, address)
        found &= inside
    return found


def _in_network(network: Network, families: NDArray[np.uint8], address: NDArray[np.uint32]) -> Mask:
    found: Mask = (families == network.family) & _begins(address, network)
    if network.family == socket.AF_INET:
        mapped = (families == socket.AF_INET6) & (address[:, :3] == np.array(_MAPPED, np.uint32)).all(axis=1)
        found |= mapped & _begins(address[:, 3:], network)
    return found


def _begins(address: NDArray[np.uint32], network: Network) -> Mask:
    found: Mask = np.ones(len(address), np.bool_)
    for index, word in enumerate(network.words):
        bits = min(max(network.bits - 32 * index, 0), 32)
        mask = np.uint32(0xFFFFFFFF << (32 - bits) & 0xFFFFFFFF)
        found &= ((address[:, index] ^ np.uint32(word)) & mask) == 0
    return found


def _of_device(device: Device, sockets: Sockets) -> Mask:
    if isinstance(device.device, int):
        found: Mask = sockets.rows["message"]["ifindex"] == np.uint32(device.device)
        return found
    return np.array([name == device.device for name in device_names(sockets.rows, sockets.devices)], np.bool_)
