# SPDX-License-Identifier: Apache-2.0
"""Two namespaces and a veth pair between them: a network whose every packet is ours.

Neighbours are permanent, there are no link-local addresses and the devices are NOARP, so that no ARP, neighbour
discovery or multicast report runs beside the traffic: 23 datagrams sent are 23 packets on the wire.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from hopscope.lab.links import set_offloads
from hopscope.lab.namespaces import Namespace
from hopscope.lab.netlink import (
    Tbf,
    add_addresses,
    add_bridge,
    add_neighbours,
    add_veth,
    replace_tbf,
    wait_local,
    wait_up,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType
    from typing import Self

CLIENT_IPV4 = "10.77.0.1"
SERVER_IPV4 = "10.77.0.2"
CLIENT_IPV6 = "fd77::1"
SERVER_IPV6 = "fd77::2"
CLIENT_IFNAME = "client0"
SERVER_IFNAME = "server0"
_PORTS = ("client-port", "server-port")


class Lab:
    """Namespaces `client` and `server`, joined by a veth pair (``client0`` and ``server0``).

    Addresses are 10.77.0.1 and fd77::1 for the client, 10.77.0.2 and fd77::2 for the server.

    Parameters
    ----------
    mtu_bytes
        MTU of both ends.
    offloads
        Offloads to switch on both ends, as for `set_offloads`; the others stay as the kernel makes them (a veth has GRO
        off, which also means that it has no NAPI).
    tbf
        A token bucket on the client's egress; `shape` sets one later or on the other end.
    bridged
        Put a bridge, in a namespace of its own, between the ends, which are of two pairs then.

    Raises
    ------
    HopscopeError
        As from `Namespace`; KernelError when the kernel has no veth or TBF.
    """

    def __init__(
        self,
        *,
        mtu_bytes: int = 1500,
        offloads: Mapping[str, bool] | None = None,
        tbf: Tbf | None = None,
        bridged: bool = False,
    ) -> None:
        with contextlib.ExitStack() as stack:
            self.client = stack.enter_context(Namespace())
            self.server = stack.enter_context(Namespace())
            self._middle = stack.enter_context(Namespace()) if bridged else None
            self._connect(mtu_bytes)
            for namespace, ifname in ((self.client, CLIENT_IFNAME), (self.server, SERVER_IFNAME)):
                namespace.call(set_offloads, ifname, offloads or {})
            if tbf is not None:
                shape(self.client, CLIENT_IFNAME, tbf)
            self._wait_ready()
            self._cleanup = stack.pop_all()

    def __enter__(self) -> Self:
        """Return the lab."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """Remove both namespaces and all that is in them; idempotent."""
        self._cleanup.close()

    def _connect(self, mtu_bytes: int) -> None:
        client = (CLIENT_IPV4, CLIENT_IPV6)
        server = (SERVER_IPV4, SERVER_IPV6)
        if self._middle:
            for end, ifname, port in ((self.client, CLIENT_IFNAME, _PORTS[0]), (self.server, SERVER_IFNAME, _PORTS[1])):
                end.call(add_veth, ifname, port, self._middle.pid, mtu_bytes)
            self._middle.call(add_bridge, "bridge0", _PORTS)
        else:
            self.client.call(add_veth, CLIENT_IFNAME, SERVER_IFNAME, self.server.pid, mtu_bytes)
        client_mac = self.client.call(add_addresses, CLIENT_IFNAME, client)
        server_mac = self.server.call(add_addresses, SERVER_IFNAME, server)
        self.client.call(add_neighbours, CLIENT_IFNAME, server_mac, server)
        self.server.call(add_neighbours, SERVER_IFNAME, client_mac, client)

    def _wait_ready(self) -> None:
        for namespace, ifname, *addresses in (
            (self.client, CLIENT_IFNAME, CLIENT_IPV4, CLIENT_IPV6),
            (self.server, SERVER_IFNAME, SERVER_IPV4, SERVER_IPV6),
        ):
            namespace.call(wait_up, ifname)
            namespace.call(wait_local, addresses)
        if self._middle:
            for port in _PORTS:
                self._middle.call(wait_up, port)


def shape(namespace: Namespace, ifname: str, tbf: Tbf) -> None:
    """Make a token bucket the root qdisc of an interface, or replace its settings.

    Raises
    ------
    KernelError
        The kernel has no TBF, or there is no such interface.
    """
    namespace.call(replace_tbf, ifname, tbf)
