# SPDX-License-Identifier: Apache-2.0
"""All that `hopscope check` knows, from the wire upwards. To add an entry, see docs/check.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.verbs.check.knowledge import conntrack as knowledge_conntrack
from hopscope.verbs.check.knowledge import device as knowledge_device
from hopscope.verbs.check.knowledge import firewall as knowledge_firewall
from hopscope.verbs.check.knowledge import host as knowledge_host
from hopscope.verbs.check.knowledge import icmp as knowledge_icmp
from hopscope.verbs.check.knowledge import interrupt as knowledge_interrupt
from hopscope.verbs.check.knowledge import ip as knowledge_ip
from hopscope.verbs.check.knowledge import limits as knowledge_limits
from hopscope.verbs.check.knowledge import neighbour as knowledge_neighbour
from hopscope.verbs.check.knowledge import nic as knowledge_nic
from hopscope.verbs.check.knowledge import pcie as knowledge_pcie
from hopscope.verbs.check.knowledge import socket as knowledge_socket
from hopscope.verbs.check.knowledge import softnet as knowledge_softnet
from hopscope.verbs.check.knowledge import tcp as knowledge_tcp
from hopscope.verbs.check.knowledge import tcp_loss as knowledge_tcp_loss
from hopscope.verbs.check.knowledge import tcp_memory as knowledge_tcp_memory
from hopscope.verbs.check.knowledge import udp as knowledge_udp

if TYPE_CHECKING:
    from hopscope.verbs.check.findings import Entry

ENTRIES: Final[tuple[Entry, ...]] = (
    *knowledge_nic.ENTRIES,
    *knowledge_pcie.ENTRIES,
    *knowledge_interrupt.ENTRIES,
    *knowledge_softnet.ENTRIES,
    *knowledge_device.ENTRIES,
    *knowledge_neighbour.ENTRIES,
    *knowledge_ip.ENTRIES,
    *knowledge_firewall.ENTRIES,
    *knowledge_icmp.ENTRIES,
    *knowledge_conntrack.ENTRIES,
    *knowledge_tcp.ENTRIES,
    *knowledge_tcp_loss.ENTRIES,
    *knowledge_tcp_memory.ENTRIES,
    *knowledge_udp.ENTRIES,
    *knowledge_socket.ENTRIES,
    *knowledge_limits.ENTRIES,
    *knowledge_host.ENTRIES,
)
