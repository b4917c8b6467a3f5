# SPDX-License-Identifier: Apache-2.0
"""What the lab asks of pyroute2.

Each function works on the network namespace of the calling thread: use `Namespace.call`. All raise `KernelError` with
the kernel's reason.
"""

from __future__ import annotations

import contextlib
import errno as errnos
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hopscope.errors import KernelError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

_IFF_UP = 0x01
_IFF_NOARP = 0x80
_IFA_F_NODAD = 0x02
_IN6_ADDR_GEN_MODE_NONE = 1
_NUD_PERMANENT = 0x80
_RTN_LOCAL = 2
_NO_ROUTE = (errnos.ENETUNREACH, errnos.EHOSTUNREACH)
_MAX_BUCKET_S = 2**32 / 1e9  # the kernel cuts longer ones off (tbf_change)
_PREFIX_BITS = {4: 24, 6: 64}
_WAIT_S = 5.0
_POLL_S = 0.002


@dataclass(frozen=True)
class Tbf:
    """A token bucket on an interface's egress.

    Parameters
    ----------
    rate_bit_s
        Rate in bits per second.
    burst_bytes
        Size of the bucket; no packet on the wire may be larger.
    limit_bytes
        What may wait in the queue before packets are dropped.

    Raises
    ------
    UsageError
        It takes the rate more than 4.29 s to fill the bucket: the kernel would make it smaller, and drop every packet
        that is then too large, without a word.
    """

    rate_bit_s: int
    burst_bytes: int = 3_200
    limit_bytes: int = 1_000_000

    def __post_init__(self) -> None:
        if self.burst_bytes * 8 > self.rate_bit_s * _MAX_BUCKET_S:
            what = f"A bucket of {self.burst_bytes} bytes is too large for {self.rate_bit_s} bit/s"
            raise UsageError(what, f"The rate must fill it within {_MAX_BUCKET_S:.2f} s.")


def add_veth(ifname: str, peer_ifname: str, peer_pid: int, mtu_bytes: int) -> None:
    """Make a veth pair with one end here and the other where the process `peer_pid` is."""
    peer = {"ifname": peer_ifname, "net_ns_pid": peer_pid, "mtu": mtu_bytes}
    with _kernel_errors("A veth pair cannot be made", "Load the kernel module veth."), _iproute() as ipr:
        ipr.link("add", kind="veth", ifname=ifname, mtu=mtu_bytes, peer=peer)


def add_addresses(ifname: str, addresses: Iterable[str]) -> str:
    """Set an interface up, silent (no ARP, no link-local address), with usable addresses; return its MAC, if any."""
    with _kernel_errors(f"{ifname} cannot be set up", "See dmesg."), _iproute() as ipr:
        index = _index(ipr, ifname)
        inet6 = {"attrs": [["IFLA_INET6_ADDR_GEN_MODE", _IN6_ADDR_GEN_MODE_NONE]]}
        ipr.link("set", index=index, IFLA_AF_SPEC={"attrs": [["AF_INET6", inet6]]})
        ipr.link("set", index=index, flags=_IFF_UP | _IFF_NOARP, change=_IFF_UP | _IFF_NOARP)
        for address in addresses:
            version = 6 if ":" in address else 4
            nodad = {"flags": _IFA_F_NODAD} if version == 6 else {}
            ipr.addr("add", index=index, address=address, prefixlen=_PREFIX_BITS[version], **nodad)
        return str(ipr.get_links(index)[0].get_attr("IFLA_ADDRESS") or "")


def add_bridge(ifname: str, ports: Sequence[str]) -> None:
    """Make a bridge of interfaces; all of them are up and silent."""
    with _kernel_errors("A bridge cannot be made", "Load the kernel module bridge."), _iproute() as ipr:
        # A bridge that snoops joins the group of all snoopers, and says so on every port.
        ipr.link("add", kind="bridge", ifname=ifname, br_mcast_snooping=0)
        for port in ports:
            ipr.link("set", index=_index(ipr, port), master=_index(ipr, ifname))
    for each in (*ports, ifname):
        add_addresses(each, ())


def add_neighbours(ifname: str, mac: str, addresses: Iterable[str]) -> None:
    """Make the MAC of on-link addresses known for good."""
    with _kernel_errors(f"Neighbours of {ifname} cannot be set", "See dmesg."), _iproute() as ipr:
        index = _index(ipr, ifname)
        for address in addresses:
            ipr.neigh("replace", dst=address, lladdr=mac, ifindex=index, state=_NUD_PERMANENT)


def replace_tbf(ifname: str, tbf: Tbf) -> None:
    """Make a token bucket the root qdisc of an interface, or replace its settings."""
    what = f"A token bucket cannot be put on {ifname}"
    with _kernel_errors(what, "Load the kernel module sch_tbf."), _iproute() as ipr:
        rate_bytes_s = tbf.rate_bit_s // 8
        index = _index(ipr, ifname)
        ipr.tc("replace", "tbf", index, rate=rate_bytes_s, burst=tbf.burst_bytes, limit=tbf.limit_bytes)


def wait_up(ifname: str) -> None:
    """Wait until packets can pass an interface: it is up, its other end as well, and its qdisc is in use."""

    def is_up() -> bool:
        with _kernel_errors(f"{ifname} cannot be looked at", "See dmesg."), _iproute() as ipr:
            (link,) = ipr.get_links(_index(ipr, ifname))
            return bool(link.get_attr("IFLA_OPERSTATE") == "UP")

    _wait(is_up, f"{ifname} does not come up", "See dmesg.")


def wait_local(addresses: Iterable[str]) -> None:
    """Wait until packets to these addresses are delivered here.

    An IPv6 address exists before it is usable, even without duplicate address detection: the kernel inserts its route
    from a work queue, and a packet that comes earlier is dropped.
    """
    for address in addresses:
        _wait(
            lambda address=address: _is_local(address),  # type: ignore[misc]
            f"The address {address} does not become usable",
            "See whether the sysctl net.ipv6.conf.all.disable_ipv6 is set.",
        )


def _is_local(address: str) -> bool:
    from pyroute2.netlink.exceptions import NetlinkError  # type: ignore[import-untyped]  # noqa: PLC0415

    with _kernel_errors("Routes cannot be looked at", "See dmesg."), _iproute() as ipr:
        try:
            (route, *_) = ipr.route("get", dst=address)
        except NetlinkError as error:
            if error.code in _NO_ROUTE:
                return False
            raise
        return bool(route["type"] == _RTN_LOCAL)


def _wait(condition: Callable[[], bool], what: str, next_step: str) -> None:
    deadline_s = time.monotonic() + _WAIT_S
    while not condition():
        if time.monotonic() > deadline_s:
            raise KernelError(what, next_step)
        time.sleep(_POLL_S)


def _iproute() -> Any:  # noqa: ANN401 - pyroute2 is not typed
    # Imported late: it takes a quarter of a second, and processes that only send and receive do not need it.
    from pyroute2 import IPRoute  # type: ignore[import-untyped]  # noqa: PLC0415

    return IPRoute()


def _index(ipr: Any, ifname: str) -> int:  # noqa: ANN401 - pyroute2 is not typed
    indexes = ipr.link_lookup(ifname=ifname)
    if not indexes:
        raise OSError(errnos.ENODEV, os.strerror(errnos.ENODEV))
    return int(indexes[0])


@contextlib.contextmanager
def _kernel_errors(what: str, next_step: str) -> Iterator[None]:
    from pyroute2.netlink.exceptions import NetlinkError  # noqa: PLC0415

    try:
        yield
    except NetlinkError as error:
        raise KernelError(f"{what}: {os.strerror(error.code)}", next_step) from error
    except OSError as error:
        raise KernelError(f"{what}: {error.strerror}", next_step) from error
