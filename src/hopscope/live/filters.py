# SPDX-License-Identifier: Apache-2.0
"""Which sockets and processes are wanted, and the constants that this makes for ``bpf/common/select.h``."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hopscope.bpf.layout import HOP_COMM_DTYPE, HOP_PREFIX_DTYPE, HopLimits
from hopscope.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hopscope.libbpf import BpfObject

Array = np.ndarray[Any, np.dtype[Any]]
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_PLURALS: Final = {"address": "addresses"}


@dataclass(frozen=True, slots=True)
class Selection:
    """The filters that every collector has, for the options of one to inherit; names are resolved to numbers already.

    Attributes
    ----------
    namespaces
        Inodes.
    cgroups
        Ids; cgroups below them count, too.
    pids, comms
        Of the process that reads, or sends.
    ports, addresses
        Either end.
    shown
        All filters in the user's words.
    """

    namespaces: Sequence[int] = ()
    cgroups: Sequence[int] = ()
    pids: Sequence[int] = ()
    comms: Sequence[str] = ()
    ports: Sequence[int] = ()
    addresses: Sequence[Network] = ()
    shown: Mapping[str, str] = field(default_factory=dict)

    @property
    def selects(self) -> bool:
        """Whether anything may be left out."""
        return any((self.namespaces, self.cgroups, self.pids, self.comms, self.ports, self.addresses))

    def configure(self, bpf: BpfObject) -> None:
        """Set the constants.

        Raises
        ------
        UsageError
            A filter has more values than the kernel side takes.
        """
        ports = [int.from_bytes(port.to_bytes(2, "big"), "little") for port in self.ports]
        set_list(bpf, "namespace", np.array(self.namespaces, np.uint32))
        set_list(bpf, "cgroup", np.array(self.cgroups, np.uint64))
        set_list(bpf, "pid", np.array(self.pids, np.uint32))
        set_list(bpf, "comm", np.array([(comm.encode(),) for comm in self.comms], HOP_COMM_DTYPE))
        set_list(bpf, "port", np.array(ports, np.uint16))
        set_list(bpf, "address", np.array([_prefix(each) for each in self.addresses], HOP_PREFIX_DTYPE))


def set_list(bpf: BpfObject, name: str, values: Array) -> None:
    """Set one filter's values and their number.

    Raises
    ------
    UsageError
        They are too many.
    """
    most = int(HopLimits.HOP_FILTERS)
    if len(values) > most:
        raise UsageError(f"--{name} takes at most {most} values, but {len(values)} were given", "Give fewer")
    padded = np.zeros(most, values.dtype)
    padded[: len(values)] = values
    bpf.set_const(f"cfg_{_PLURALS.get(name, f'{name}s')}", len(values))
    bpf.set_const(f"cfg_{name}", padded)


def _prefix(network: Network) -> tuple[list[int], list[int]]:
    """Return address and mask as four words each in network order; IPv4 is mapped into IPv6."""
    address, mask = network.network_address.packed, network.netmask.packed
    if network.version == 4:
        address, mask = b"\0" * 10 + b"\xff\xff" + address, b"\xff" * 12 + mask
    return list(np.frombuffer(address, np.uint32)), list(np.frombuffer(mask, np.uint32))
