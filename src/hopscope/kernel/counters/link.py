# SPDX-License-Identifier: Apache-2.0
"""Interfaces: what the stack counts of them, and how they are set (``ip -s -s -d link``)."""

from __future__ import annotations

import os
import socket
import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from hopscope.errors import FormatError
from hopscope.kernel.netlink import NETLINK_ROUTE, Netlink, attribute, attributes, each_attribute, number, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from hopscope.kernel.counters.text import Said
    from hopscope.kernel.netlink import Listed

# include/uapi/linux/rtnetlink.h, if_link.h
RTM_GETLINK: Final = 18
IFINFOMSG: Final = struct.Struct("=BxHiII")
IFLA_IFNAME: Final = 3
IFLA_QDISC: Final = 6
IFLA_MASTER: Final = 10
IFLA_OPERSTATE: Final = 16
IFLA_LINKINFO: Final = 18
IFLA_STATS64: Final = 23
IFLA_EXT_MASK: Final = 29
IFLA_XDP: Final = 43
IFLA_INFO_KIND: Final = 1
IFLA_XDP_ATTACHED: Final = 2
IFLA_XDP_PROG_ID: Final = 4
# Without the statistics of IPv6, which are a fifth of all bytes and come from /proc/net/snmp6.
RTEXT_FILTER_SKIP_STATS: Final = 8

# struct rtnl_link_stats64, in order; an older kernel has fewer of them.
STATISTICS: Final = (
    "rx_packets", "tx_packets", "rx_bytes", "tx_bytes", "rx_errors", "tx_errors", "rx_dropped", "tx_dropped",
    "multicast", "collisions", "rx_length_errors", "rx_over_errors", "rx_crc_errors", "rx_frame_errors",
    "rx_fifo_errors", "rx_missed_errors", "tx_aborted_errors", "tx_carrier_errors", "tx_fifo_errors",
    "tx_heartbeat_errors", "tx_window_errors", "rx_compressed", "tx_compressed", "rx_nohandler",
    "rx_otherhost_dropped",
)  # fmt: skip

# IFLA_*: settings that are numbers, by the names that ip has for them.
NUMBERS: Final = {
    4: "mtu", 13: "tx_queue_len", 27: "group", 30: "promiscuity", 31: "num_tx_queues", 32: "num_rx_queues",
    40: "gso_max_segs", 41: "gso_max_size",
    50: "min_mtu", 51: "max_mtu", 58: "gro_max_size", 59: "tso_max_size", 60: "tso_max_segs",
    63: "gso_ipv4_max_size", 64: "gro_ipv4_max_size",
}  # fmt: skip

# IFLA_*: what is counted beside the statistics.
CHANGES: Final = {35: "carrier_changes", 47: "carrier_up_count", 48: "carrier_down_count"}

# RFC 2863, include/uapi/linux/if.h
OPERSTATES: Final = ("UNKNOWN", "NOTPRESENT", "DOWN", "LOWERLAYERDOWN", "TESTING", "DORMANT", "UP")
# enum XDP_ATTACHED_*
XDP: Final = ("off", "driver", "generic", "hardware", "multi")
# IFF_*, in the order in which ip writes them.
_UP: Final = 1 << 0
_RUNNING: Final = 1 << 6
FLAGS: Final = {
    "LOOPBACK": 1 << 3, "BROADCAST": 1 << 1, "POINTOPOINT": 1 << 4, "MULTICAST": 1 << 12, "NOARP": 1 << 7,
    "ALLMULTI": 1 << 9, "PROMISC": 1 << 8, "MASTER": 1 << 10, "SLAVE": 1 << 11, "DEBUG": 1 << 2,
    "DYNAMIC": 1 << 15, "AUTOMEDIA": 1 << 14, "PORTSEL": 1 << 13, "NOTRAILERS": 1 << 5, "UP": _UP,
    "LOWER_UP": 1 << 16, "DORMANT": 1 << 17, "ECHO": 1 << 18,
}  # fmt: skip


class Link(NamedTuple):
    """An interface of a namespace: its index there, its name in the kernel's bytes, ``IFF_*``, and ``IFLA_*``."""

    ifindex: int
    name: bytes
    flags: int
    attributes: Mapping[int, bytes]


def statistics() -> Iterator[Said]:
    """Yield what the stack counts of each interface."""
    listed = listing()
    for link in links(listed):
        subject = printable(link.name)
        for name, value in counted(link.attributes):
            yield subject, name, value
    listed.check()


def settings() -> Iterator[Said]:
    """Yield how each interface is set, and in which state it is."""
    listed = listing()
    found = links(listed)
    names = {link.ifindex: printable(link.name) for link in found}
    for link in found:
        yield from ((names[link.ifindex], name, value) for name, value in set_so(link, names))
    listed.check()


def listing() -> Listed:
    """Return what the kernel lists of the interfaces in the calling thread's network namespace."""
    mask = attribute(IFLA_EXT_MASK, struct.pack("=I", RTEXT_FILTER_SKIP_STATS))
    with Netlink(NETLINK_ROUTE) as netlink:
        return netlink.dump(RTM_GETLINK, IFINFOMSG.pack(0, 0, 0, 0, 0) + mask)


def links(listed: Listed) -> list[Link]:
    """Return the interfaces, each once: one that was renamed meanwhile may be listed twice, or two by one name."""
    by_index = {link.ifindex: link for link in map(link_of, (message.body for message in listed.messages))}
    return list({link.name: link for link in by_index.values()}.values())


def link_of(body: bytes) -> Link:
    """Take apart one message of the listing.

    Raises
    ------
    FormatError
        It is cut off, or has no name.
    """
    index, flags = _head(body)
    found = attributes(body[IFINFOMSG.size :])
    return Link(index, _name(found.get(IFLA_IFNAME, b"")), flags, found)


def interfaces() -> Iterator[tuple[int, bytes]]:
    """Yield index and name of each interface, for those who ask each of them something."""
    listed = listing()
    for message in listed.messages:
        index, _ = _head(message.body)
        found = each_attribute(message.body[IFINFOMSG.size :])
        yield index, _name(next((value for kind, value in found if kind == IFLA_IFNAME), b""))
    listed.check()


class Names:
    """Names of interfaces by index, as of the moment when each is first asked for."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}

    def of(self, index: int) -> str:
        """Return the name, empty for an interface that is gone."""
        if index not in self._names:
            try:
                self._names[index] = printable(os.fsencode(socket.if_indextoname(index)))
            except (OSError, OverflowError):
                self._names[index] = ""
        return self._names[index]


def counted(found: Mapping[int, bytes]) -> Iterator[tuple[str, int]]:
    """Yield the counters of an interface, as many as the kernel has and we know."""
    statistics = found.get(IFLA_STATS64, b"")
    count = min(len(statistics) // 8, len(STATISTICS))
    yield from zip(STATISTICS, struct.unpack_from(f"={count}Q", statistics), strict=False)
    yield from ((name, number(found[kind])) for kind, name in CHANGES.items() if kind in found)


def set_so(link: Link, names: Mapping[int, str]) -> Iterator[tuple[str, int | str]]:
    """Yield the settings of an interface; `names` of the others by index."""
    found = link.attributes
    yield from ((name, number(found[kind])) for kind, name in NUMBERS.items() if kind in found)
    yield "flags", flag_names(link.flags)
    if IFLA_OPERSTATE in found:
        yield "operstate", _of(OPERSTATES, number(found[IFLA_OPERSTATE]))
    if IFLA_QDISC in found:
        yield "qdisc", printable(found[IFLA_QDISC])
    if (master := number(found.get(IFLA_MASTER, b""))) in names:
        yield "master", names[master]
    kind = attributes(found.get(IFLA_LINKINFO, b"")).get(IFLA_INFO_KIND)
    if kind:
        yield "kind", printable(kind)
    xdp = attributes(found.get(IFLA_XDP, b""))
    if IFLA_XDP_ATTACHED in xdp:
        yield "xdp", _of(XDP, number(xdp[IFLA_XDP_ATTACHED]))
    if IFLA_XDP_PROG_ID in xdp:
        yield "xdp_prog_id", number(xdp[IFLA_XDP_PROG_ID])


def flag_names(flags: int) -> str:
    """Return the flags as ip writes them."""
    # RUNNING goes without saying, and its absence is what is told.
    names = ["NO-CARRIER"] if flags & _UP and not flags & _RUNNING else []
    rest = flags & ~_RUNNING
    for name, bit in FLAGS.items():
        if rest & bit:
            names.append(name)
            rest &= ~bit
    return ",".join([*names, f"{rest:x}"] if rest else names)


def _head(body: bytes) -> tuple[int, int]:
    if len(body) < IFINFOMSG.size:
        raise FormatError(f"an interface in {len(body)} bytes")
    _, _, index, flags, _ = IFINFOMSG.unpack_from(body)
    return index, flags


def _name(value: bytes) -> bytes:
    name = value.partition(b"\0")[0]
    if not name:
        raise FormatError("an interface without a name")
    return name


def _of(words: Iterable[str], value: int) -> str:
    return dict(enumerate(words)).get(value, str(value))
