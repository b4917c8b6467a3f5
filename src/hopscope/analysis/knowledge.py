# SPDX-License-Identifier: Apache-2.0
"""All that `hopscope check` knows, from the wire upwards. To add an entry, see docs/check.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.analysis import (
    knowledge_conntrack,
    knowledge_device,
    knowledge_host,
    knowledge_icmp,
    knowledge_interrupt,
    knowledge_ip,
    knowledge_neighbour,
    knowledge_nic,
    knowledge_socket,
    knowledge_softnet,
    knowledge_tcp,
    knowledge_tcp_loss,
    knowledge_tcp_memory,
    knowledge_udp,
)

if TYPE_CHECKING:
    from hopscope.analysis.findings import Entry

ENTRIES: Final[tuple[Entry, ...]] = (
    *knowledge_nic.ENTRIES,
    *knowledge_interrupt.ENTRIES,
    *knowledge_softnet.ENTRIES,
    *knowledge_device.ENTRIES,
    *knowledge_neighbour.ENTRIES,
    *knowledge_ip.ENTRIES,
    *knowledge_icmp.ENTRIES,
    *knowledge_conntrack.ENTRIES,
    *knowledge_tcp.ENTRIES,
    *knowledge_tcp_loss.ENTRIES,
    *knowledge_tcp_memory.ENTRIES,
    *knowledge_udp.ENTRIES,
    *knowledge_socket.ENTRIES,
    *knowledge_host.ENTRIES,
)
