# SPDX-License-Identifier: Apache-2.0
"""What the user asks of ``rx``, and the constants that this makes for the kernel side."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hopscope.bpf.layout import (
    HOP_COMM_DTYPE,
    HOP_INTERFACE_DTYPE,
    HOP_PREFIX_DTYPE,
    HopLimits,
    HopRxGroupBy,
    HopRxOrder,
)
from hopscope.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hopscope.libbpf import BpfObject

GROUP_BY: Final = {
    "interface": HopRxGroupBy.HOP_GROUP_INTERFACE,
    "netns": HopRxGroupBy.HOP_GROUP_NETNS,
    "cgroup": HopRxGroupBy.HOP_GROUP_CGROUP,
    "process": HopRxGroupBy.HOP_GROUP_PROCESS,
    "protocol": HopRxGroupBy.HOP_GROUP_PROTOCOL,
    # Every CPU has its own rows anyway.
    "cpu": HopRxGroupBy.HOP_GROUP_NONE,
}
ORDER: Final = {
    "apart": HopRxOrder.HOP_ORDER_APART,
    "include": HopRxOrder.HOP_ORDER_INCLUDE,
    "exclude": HopRxOrder.HOP_ORDER_EXCLUDE,
}
PROTOCOLS: Final = ("tcp", "udp")

Array = np.ndarray[Any, np.dtype[Any]]
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class RxOptions:
    """Everything that ``rx`` can be asked for; names are resolved to numbers already.

    Attributes
    ----------
    interfaces
        Pairs of ifindex and the inode of its network namespace.
    namespaces
        Inodes.
    cgroups
        Ids; cgroups below them count, too.
    pids, comms
        Of the process that reads.
    ports, addresses
        Either end of the packet.
    protocol
        ``tcp`` or ``udp`` alone.
    min_queue
        Packets that must wait in the socket's queue when a packet joins it; of UDP this one included, of TCP, which
        may merge it with another, not.
    sample
        Follow one packet in so many.
    group_by
        A key of :data:`GROUP_BY`, or None.
    max_groups
        Groups that get a row of their own.
    order
        A key of :data:`ORDER`: what becomes of the wait for segments that arrive out of order.
    since_entry
        Hops count from the driver instead of from the hop before.
    nic_stamps
        Let NICs that can stamp all that they receive do so.
    hops
        Names of the hops that are wanted; all if empty.
    ways
        Probe point → the only way to use.
    shown
        The filters in the user's words.
    """

    interfaces: Sequence[tuple[int, int]] = ()
    namespaces: Sequence[int] = ()
    cgroups: Sequence[int] = ()
    pids: Sequence[int] = ()
    comms: Sequence[str] = ()
    ports: Sequence[int] = ()
    addresses: Sequence[Network] = ()
    protocol: str | None = None
    min_queue: int = 0
    sample: int = 1
    group_by: str | None = None
    max_groups: int = 64
    order: str = "apart"
    since_entry: bool = False
    nic_stamps: bool = False
    hops: Sequence[str] = ()
    ways: Mapping[str, str] = field(default_factory=dict)
    shown: Mapping[str, str] = field(default_factory=dict)

    @property
    def defer(self) -> bool:
        """Whether a packet's hops can be recorded only when its socket is known."""
        socket_facts = (self.cgroups, self.ports, self.addresses, self.min_queue, self.protocol)
        return any(socket_facts) or self.group_by in {"cgroup", "protocol"}

    @property
    def rows(self) -> int:
        """Rows a hop has on each CPU, "other" included."""
        if self.group_by in {None, "cpu"}:
            return 1
        return 3 if self.group_by == "protocol" else self.max_groups + 1

    def wants_interface(self, ifindex: int, namespace: int) -> bool:
        """Tell whether packets of an interface may be wanted; `namespace` is the inode of its own."""
        listed = not self.interfaces or (ifindex, namespace) in self.interfaces
        return listed and (not self.namespaces or namespace in self.namespaces)

    @property
    def selects_packets(self) -> bool:
        """Whether any packet may be left out: then what is not of a packet cannot be shown."""
        return bool(self.interfaces or self.namespaces or self.pids or self.comms or self.defer)


def configure(bpf: BpfObject, options: RxOptions) -> None:
    """Set the constants that follow from the options alone.

    Raises
    ------
    UsageError
        A filter has more values than the kernel side takes.
    """
    scalars: dict[str, int] = {
        "cfg_groups": options.rows,
        "cfg_group_by": GROUP_BY[options.group_by] if options.group_by else HopRxGroupBy.HOP_GROUP_NONE,
        "cfg_order": ORDER[options.order],
        "cfg_sample": options.sample,
        "cfg_min_queue": options.min_queue,
        "cfg_since_entry": int(options.since_entry),
        "cfg_defer": int(options.defer),
    }
    for name, value in scalars.items():
        bpf.set_const(name, value)
    ports = [int.from_bytes(port.to_bytes(2, "big"), "little") for port in options.ports]
    _set_list(bpf, "interface", np.array(list(options.interfaces), HOP_INTERFACE_DTYPE))
    _set_list(bpf, "namespace", np.array(options.namespaces, np.uint32))
    _set_list(bpf, "cgroup", np.array(options.cgroups, np.uint64))
    _set_list(bpf, "pid", np.array(options.pids, np.uint32))
    _set_list(bpf, "comm", np.array([(comm.encode(),) for comm in options.comms], HOP_COMM_DTYPE))
    _set_list(bpf, "port", np.array(ports, np.uint16))
    _set_list(bpf, "address", np.array([_prefix(each) for each in options.addresses], HOP_PREFIX_DTYPE))


def _set_list(bpf: BpfObject, name: str, values: Array) -> None:
    most = int(HopLimits.HOP_FILTERS)
    if len(values) > most:
        raise UsageError(f"--{name} takes at most {most} values, {len(values)} were given", "Ask for fewer")
    padded = np.zeros(most, values.dtype)
    padded[: len(values)] = values
    plural = {"address": "addresses"}.get(name, f"{name}s")
    bpf.set_const(f"cfg_{plural}", len(values))
    bpf.set_const(f"cfg_{name}", padded)


def _prefix(network: Network) -> tuple[list[int], list[int]]:
    """Return address and mask as four words each in network order; IPv4 is mapped into IPv6."""
    address, mask = network.network_address.packed, network.netmask.packed
    if network.version == 4:
        address, mask = b"\0" * 10 + b"\xff\xff" + address, b"\xff" * 12 + mask
    return list(np.frombuffer(address, np.uint32)), list(np.frombuffer(mask, np.uint32))
