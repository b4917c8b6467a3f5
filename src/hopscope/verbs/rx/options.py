# SPDX-License-Identifier: Apache-2.0
"""What the user asks of ``rx``, and the constants that this makes for the kernel side."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from hopscope.bpf.layout import HOP_INTERFACE_DTYPE, HopGroupBy, HopRxOrder
from hopscope.live.filters import Selection, set_list
from hopscope.live.labels import GROUPS_OF_FLOWS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hopscope.libbpf import BpfObject

GROUP_BY: Final = {
    "interface": HopGroupBy.HOP_GROUP_INTERFACE,
    "netns": HopGroupBy.HOP_GROUP_NETNS,
    "cgroup": HopGroupBy.HOP_GROUP_CGROUP,
    "process": HopGroupBy.HOP_GROUP_PROCESS,
    "protocol": HopGroupBy.HOP_GROUP_PROTOCOL,
    "port": HopGroupBy.HOP_GROUP_PORT,
    "peer": HopGroupBy.HOP_GROUP_PEER,
    "flow": HopGroupBy.HOP_GROUP_FLOW,
    # Every CPU has its own rows anyway.
    "cpu": HopGroupBy.HOP_GROUP_NONE,
}
ORDER: Final = {
    "apart": HopRxOrder.HOP_ORDER_APART,
    "include": HopRxOrder.HOP_ORDER_INCLUDE,
    "exclude": HopRxOrder.HOP_ORDER_EXCLUDE,
}
PROTOCOLS: Final = ("tcp", "udp")


@dataclass(frozen=True, slots=True)
class RxOptions(Selection):
    """Everything that ``rx`` can be asked for.

    Attributes
    ----------
    interfaces
        Pairs of ifindex and the inode of its network namespace.
    protocol
        ``tcp`` or ``udp`` alone.
    min_queue
        Packets that must wait in the socket's queue when a packet joins it; of UDP this one included, of TCP, which
        may merge it with another, not.
    sample
        Follow one packet in so many.
    budget
        What measuring may cost, in per cent of one CPU; None: all is measured.
    events
        Each message is wanted.
    slowest
        So many of the slowest messages are wanted; 0: none.
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
    """

    interfaces: Sequence[tuple[int, int]] = ()
    protocol: str | None = None
    min_queue: int = 0
    sample: int = 1
    budget: float | None = None
    events: bool = False
    slowest: int = 0
    group_by: str | None = None
    max_groups: int = 64
    order: str = "apart"
    since_entry: bool = False
    nic_stamps: bool = False
    hops: Sequence[str] = ()
    ways: Mapping[str, str] = field(default_factory=dict)

    @property
    def defer(self) -> bool:
        """Whether a packet's hops can be recorded only when its socket is known."""
        return self.socket_facts or self.group_by in {"cgroup", "protocol", *GROUPS_OF_FLOWS}

    @property
    def socket_facts(self) -> bool:
        """Whether only its socket tells that a packet is wanted."""
        return any((self.cgroups, self.ports, self.addresses, self.min_queue, self.protocol))

    @property
    def accounts(self) -> bool:
        """Whether what becomes of each packet can be told: all hooks are there, and nobody asks who reads."""
        return not (self.hops or self.pids or self.comms or self.budget)

    @property
    def records(self) -> bool:
        """Whether the kernel side makes a record of each message."""
        return self.events or bool(self.slowest)

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
        "cfg_group_by": GROUP_BY[options.group_by] if options.group_by else HopGroupBy.HOP_GROUP_NONE,
        "cfg_order": ORDER[options.order],
        "cfg_sample": options.sample,
        "cfg_budget": int(options.budget is not None),
        "cfg_min_queue": options.min_queue,
        "cfg_since_entry": int(options.since_entry),
        "cfg_defer": int(options.defer),
        "cfg_socket_facts": int(options.socket_facts),
    }
    for name, value in scalars.items():
        bpf.set_const(name, value)
    options.configure(bpf)
    set_list(bpf, "interface", np.array(list(options.interfaces), HOP_INTERFACE_DTYPE))
