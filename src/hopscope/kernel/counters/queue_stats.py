# SPDX-License-Identifier: Apache-2.0
"""What drivers count of each queue, by names that all drivers share (Linux 6.10; some drivers)."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from hopscope.kernel.counters.link import Names
from hopscope.kernel.netlink import Generic, attribute, attributes, number

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hopscope.kernel.counters.text import Said

# include/uapi/linux/netdev.h
NETDEV_CMD_QSTATS_GET: Final = 12
NETDEV_A_QSTATS_IFINDEX: Final = 1
NETDEV_A_QSTATS_QUEUE_TYPE: Final = 2
NETDEV_A_QSTATS_QUEUE_ID: Final = 3
NETDEV_A_QSTATS_SCOPE: Final = 4
NETDEV_A_QSTATS_RX_PACKETS: Final = 8
NETDEV_QSTATS_SCOPE_QUEUE: Final = 1
_TYPES: Final = ("rx", "tx")
# From NETDEV_A_QSTATS_RX_PACKETS on, as Documentation/netlink/specs/netdev.yaml has them.
NAMES: Final = (
    "rx-packets", "rx-bytes", "tx-packets", "tx-bytes", "rx-alloc-fail", "rx-hw-drops", "rx-hw-drop-overruns",
    "rx-csum-complete", "rx-csum-unnecessary", "rx-csum-none", "rx-csum-bad", "rx-hw-gro-packets", "rx-hw-gro-bytes",
    "rx-hw-gro-wire-packets", "rx-hw-gro-wire-bytes", "rx-hw-drop-ratelimits", "tx-hw-drops", "tx-hw-drop-errors",
    "tx-csum-none", "tx-needs-csum", "tx-hw-gso-packets", "tx-hw-gso-bytes", "tx-hw-gso-wire-packets",
    "tx-hw-gso-wire-bytes", "tx-hw-drop-ratelimits", "tx-stop", "tx-wake",
)  # fmt: skip


def statistics() -> Iterator[Said]:
    """Yield the counters of all queues whose drivers take part."""
    scope = attribute(NETDEV_A_QSTATS_SCOPE, struct.pack("=I", NETDEV_QSTATS_SCOPE_QUEUE))
    with Generic("netdev") as netlink:
        listed = netlink.dump_command(NETDEV_CMD_QSTATS_GET, scope)
    names = Names()
    said: set[str] = set()
    for message in listed.messages:
        found = attributes(message.body)
        interface = names.of(number(found.get(NETDEV_A_QSTATS_IFINDEX, b"")))
        subject = f"{interface} {queue_name(found)}"
        if interface and subject not in said:
            said.add(subject)
            yield from ((subject, name, value) for name, value in figures(found))
    listed.check()


def queue_name(found: Mapping[int, bytes]) -> str:
    """Return what sysfs calls a queue: ``rx-0``."""
    kind = number(found.get(NETDEV_A_QSTATS_QUEUE_TYPE, b""))
    what = _TYPES[kind] if kind < len(_TYPES) else f"type{kind}"
    return f"{what}-{number(found.get(NETDEV_A_QSTATS_QUEUE_ID, b''))}"


def figures(found: Mapping[int, bytes]) -> Iterator[tuple[str, int]]:
    """Yield what the driver counts; it sends nothing for what it does not."""
    for kind, name in enumerate(NAMES, NETDEV_A_QSTATS_RX_PACKETS):
        if kind in found:
            yield name, number(found[kind])
