# SPDX-License-Identifier: Apache-2.0
"""Records of single messages out of the rings, turned into something to show."""

from __future__ import annotations

import socket
import struct
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from hopscope.bpf.layout import HOP_MESSAGE_FLOW_DTYPE
from hopscope.kernel import netns
from hopscope.libbpf import RingReader, possible_cpus
from hopscope.live.labels import address_of, protocol_name
from hopscope.model.message import Flow

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from hopscope.kernel.netns import Namespace
    from hopscope.libbpf import BpfObject
    from hopscope.model.message import Message

RING_BYTES: Final = 1 << 24
_FLOWS: Final = 16384

Array = np.ndarray[Any, np.dtype[Any]]


def configure_records(bpf: BpfObject, *, wanted: bool) -> None:
    """Set what the kernel side has to know of records, before the object is loaded."""
    bpf.set_const("cfg_events", int(wanted))
    bpf.maps["rings"].set_max_entries(possible_cpus())
    bpf.maps["flows"].set_max_entries(_FLOWS if wanted else 1)


class Decodes(Protocol):
    """What makes messages of records."""

    def totals_ns(self, records: NDArray[np.void]) -> NDArray[np.int64]:
        """Return the time from the first to the last that was seen of each, -1 where one of them was not."""

    def decode(self, records: Iterable[np.void]) -> Sequence[Message]:
        """Turn records into messages."""


class MessageRecords(ABC):
    """Reads the records of messages and tells whose they are.

    Parameters
    ----------
    bpf
        The loaded object, with ``cfg_events`` set.
    dtype
        Of a record: with `done_name`, its last time.
    done_name
        The records are in its order.

    Raises
    ------
    KernelError
        The kernel refuses a ring, or this machine's CPU may reorder loads.
    """

    def __init__(self, bpf: BpfObject, dtype: np.dtype[np.void], done_name: str) -> None:
        self._flows_map = bpf.maps["flows"]
        self._reader = RingReader.per_cpu(bpf.maps["rings"], dtype, RING_BYTES)
        self._done_name = done_name
        self._namespaces: dict[int, Namespace] = {}
        self._devices: dict[tuple[int, int], str] = {}

    def read(self) -> NDArray[np.void]:
        """Return the records that came since the last call, in the order in which the messages were done.

        Returns
        -------
        ndarray of the records, shape (n,)
        """
        records = self._reader.read()
        return records[np.argsort(records[self._done_name], kind="stable")]

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

    @staticmethod
    @abstractmethod
    def totals_ns(records: NDArray[np.void]) -> NDArray[np.int64]:
        """Return the time from the first to the last that was seen of each, -1 where one of them was not."""

    @abstractmethod
    def _message(self, record: np.void, flow: Flow | None, netns_inode: int) -> Message:
        """Return the message of a record; `netns_inode` is 0 where the flow is not known."""

    def _flow(self, cookie: int) -> tuple[Flow | None, int]:
        """Return whose socket it is, and the inode of its network namespace (0: not known)."""
        raw = self._flows_map.lookup(struct.pack("=Q", cookie))
        if raw is None:
            return None, 0
        record = np.frombuffer(raw, HOP_MESSAGE_FLOW_DTYPE)[0]
        return self._decoded(record), int(record["netns"])

    def _decoded(self, flow: np.void) -> Flow:
        return Flow(
            protocol=protocol_name(int(flow["protocol"])),
            local=address_of(flow["local"]),
            local_port=int(flow["local_port"]),
            peer=address_of(flow["peer"]),
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
