# SPDX-License-Identifier: Apache-2.0
"""Single messages of ``tx``: records out of the rings, turned into something to show."""

from __future__ import annotations

import ipaddress
import socket
import struct
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hopscope.bpf.layout import HOP_TX_EVENT_DTYPE, HOP_TX_FLOW_DTYPE, HopTxCause, HopTxFlags
from hopscope.kernel import netns
from hopscope.libbpf import RingReader
from hopscope.model.message import Device, Flow, Message

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from hopscope.kernel.netns import Namespace
    from hopscope.libbpf import BpfObject

RING_BYTES: Final = 1 << 24
FLOWS: Final = 16384
_PROTOCOLS: Final = {socket.IPPROTO_TCP: "tcp", socket.IPPROTO_UDP: "udp"}
# Names of hopscope.model.cause.
_CAUSES: Final[dict[int, str]] = {
    HopTxCause.HOP_CAUSE_NONE: "none",
    HopTxCause.HOP_CAUSE_CWND: "congestion-window",
    HopTxCause.HOP_CAUSE_RWND: "receiver-window",
    HopTxCause.HOP_CAUSE_NAGLE: "nagle",
    HopTxCause.HOP_CAUSE_CORK: "cork",
    HopTxCause.HOP_CAUSE_PACING: "pacing",
    HopTxCause.HOP_CAUSE_TSQ: "small-queue",
    HopTxCause.HOP_CAUSE_OTHER: "unknown",
}
_TIMES: Final = ("entry_ns", "handed_ns", "sched_ns", "driver_ns", "nic_ns", "done_ns")

Array = np.ndarray[Any, np.dtype[Any]]


class Messages:
    """Reads the records of messages and tells whose they are.

    Parameters
    ----------
    bpf
        The loaded object, with ``cfg_events`` set.
    qdisc
        Whether the hook behind the queueing disciplines is attached for TCP. For datagrams it always is.

    Raises
    ------
    KernelError
        The kernel refuses a ring, or this machine's CPU may reorder loads.
    """

    def __init__(self, bpf: BpfObject, *, qdisc: bool) -> None:
        self._flows_map = bpf.maps["flows"]
        self._qdisc = qdisc
        self._reader = RingReader.per_cpu(bpf.maps["rings"], HOP_TX_EVENT_DTYPE, RING_BYTES)
        self._namespaces: dict[int, Namespace] = {}
        self._devices: dict[tuple[int, int], str] = {}

    def read(self) -> NDArray[np.void]:
        """Return the records that came since the last call, in the order in which the messages were done.

        Returns
        -------
        ndarray of ``struct hop_tx_event``, shape (n,)
        """
        records = self._reader.read()
        return records[np.argsort(records["done_ns"], kind="stable")]

    def close(self) -> None:
        """Unmap the rings."""
        self._reader.close()

    def decode(self, records: Iterable[np.void]) -> list[Message]:
        """Turn records into messages."""
        # Not kept for later calls: the number of a datagram's socket is used again when the socket is gone.
        flows: dict[int, tuple[Flow | None, int]] = {}
        messages = []
        for record in records:
            cookie = int(record["cookie"])
            if cookie not in flows:
                flows[cookie] = self._flow(cookie)
            messages.append(self._message(record, *flows[cookie]))
        return messages

    def _message(self, record: np.void, flow: Flow | None, netns_inode: int) -> Message:
        flags = int(record["flags"])
        datagram = bool(flags & HopTxFlags.HOP_TX_DATAGRAM)
        seen = {name: int(record[name]) or None for name in _TIMES}
        devices = [
            Device(self._device(netns_inode, int(device["ifindex"])), int(device["after_ns"]))
            for device in record["device"]
            if device["ifindex"]
        ]
        # Where the driver had it but no device was noted, the packet was lost sight of below TCP.
        qdisc_seen = (self._qdisc or datagram) and seen["driver_ns"] and devices
        return Message(
            flow=flow,
            cookie=int(record["cookie"]),
            pid=int(record["pid"]),
            len_bytes=int(record["len_bytes"]),
            end_byte=int(record["end_byte"]),
            **seen,
            qdisc_ns=int(record["qdisc_ns"]) or None if qdisc_seen else None,
            devices=devices,
            retransmits=int(record["retransmits"]),
            cause=_CAUSES[int(record["cause"])],
            slept=bool(flags & HopTxFlags.HOP_TX_SLEPT),
            datagram=datagram,
            aborted=bool(flags & HopTxFlags.HOP_TX_ABORTED),
        )

    def _flow(self, cookie: int) -> tuple[Flow | None, int]:
        """Return whose socket it is, and the inode of its network namespace (0: not known)."""
        raw = self._flows_map.lookup(struct.pack("=Q", cookie))
        if raw is None:
            return None, 0
        record = np.frombuffer(raw, HOP_TX_FLOW_DTYPE)[0]
        return self._decoded(record), int(record["netns"])

    def _decoded(self, flow: np.void) -> Flow:
        protocol = int(flow["protocol"])
        return Flow(
            protocol=_PROTOCOLS.get(protocol, f"protocol {protocol}"),
            local=_address(flow["local"]),
            local_port=int(flow["local_port"]),
            peer=_address(flow["peer"]),
            peer_port=socket.ntohs(int(flow["peer_port"])),
            netns=self._namespace(int(flow["netns"])),
            pid=int(flow["pid"]),
            comm=bytes(flow["comm"]).split(b"\0")[0].decode(errors="replace"),
        )

    def _namespace(self, inode: int) -> str:
        if inode not in self._namespaces:
            self._namespaces |= netns.namespaces()
        known = self._namespaces.get(inode)
        return known.name if known else f"netns {inode}"

    def _device(self, inode: int, ifindex: int) -> str:
        if (inode, ifindex) not in self._devices:
            self._devices |= {(inode, index): name for index, name in self._interfaces(inode)}
        return self._devices.setdefault((inode, ifindex), f"device {ifindex}")

    def _interfaces(self, inode: int) -> list[tuple[int, str]]:
        if inode not in self._namespaces:
            return []
        try:
            return netns.inside(self._namespaces[inode], socket.if_nameindex)
        except OSError:
            return []  # it is gone, or closed to us


def _address(words: Array) -> str:
    address = ipaddress.IPv6Address(words.tobytes())
    return str(address.ipv4_mapped or address)
