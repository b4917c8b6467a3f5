# SPDX-License-Identifier: Apache-2.0
"""Short ways to name the readings that knowledge looks at."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from hopscope.verbs.check.scene import Ref

__all__ = ["FAMILIES", "Ref", "link", "nic", "nstat", "optional", "sysctl"]

# What the names of counters, entries and sentences have for each version of IP.
FAMILIES: Final = (("", "", "IPv4"), ("6", "6", "IPv6"))


def nstat(name: str, since: str = "") -> Ref:
    """Return the counter that nstat calls so; `since` says which kernel has it, if not all have."""
    if name.startswith(("TcpExt", "IpExt", "MPTcpExt")):
        return Ref("netstat", (name,), since=since)
    if name.startswith(("Ip6", "Icmp6", "Udp6", "UdpLite6")):
        return Ref("snmp6", (name,), since=since)
    return Ref("snmp", (name,), since=since)


def link(name: str) -> Ref:
    """Return a counter of an interface, by its name in ``struct rtnl_link_stats64``."""
    return Ref("link", (name,))


def nic(*names: str, drivers: str) -> Ref:
    """Return a counter of a NIC by the names that these drivers give it."""
    return Ref("ethtool", names, since=f"drivers that have it: {drivers}")


def sysctl(name: str) -> Ref:
    """Return a setting; one of the host is found from every namespace."""
    return Ref("sysctl", (name,))


def optional(ref: Ref) -> Ref:
    """Return a reading that the condition can do without."""
    return replace(ref, optional=True)
