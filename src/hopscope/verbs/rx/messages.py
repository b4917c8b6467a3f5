# SPDX-License-Identifier: Apache-2.0
"""Single messages of ``rx``, made of their records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from hopscope.bpf.layout import HOP_RX_EVENT_DTYPE, HopLimits, HopRxFlags
from hopscope.live.messages.records import MessageRecords, configure_records
from hopscope.model.message import ReceivedMessage

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hopscope.libbpf import BpfObject
    from hopscope.model.message import Flow

# Time of a message → member of its record.
_TIMES: Final = {
    "entry_ns": "entry_ns",
    "core_ns": "core_ns",
    "ip_ns": "ip_ns",
    "transport_ns": "l4_ns",
    "queued_ns": "queued_ns",
    "ordered_ns": "ordered_ns",
    "done_ns": "read_ns",
}


def configure_messages(bpf: BpfObject, *, wanted: bool) -> None:
    """Set what the kernel side has to know of single messages, before the object is loaded."""
    configure_records(bpf, wanted=wanted)
    bpf.maps["waiting"].set_max_entries(HopLimits.HOP_WAITING if wanted else 1)


class ReceivedRecords(MessageRecords):
    """Reads the records of messages that were received and read.

    Parameters
    ----------
    bpf
        The loaded object, with ``cfg_events`` set.
    switches
        Whether the hook at the scheduler's switches is attached: without it, it is not known when a reader slept.

    Raises
    ------
    KernelError
        The kernel refuses a ring, or this machine's CPU may reorder loads.
    """

    def __init__(self, bpf: BpfObject, *, switches: bool) -> None:
        super().__init__(bpf, HOP_RX_EVENT_DTYPE, "read_ns")
        self._switches = switches

    @staticmethod
    def totals_ns(records: NDArray[np.void]) -> NDArray[np.int64]:
        """Return the time from the first to the last that was seen of each, -1 where one of them was not."""
        entered, done = (records[name].astype(np.int64) for name in ("entry_ns", "read_ns"))
        return np.where((entered > 0) & (done >= entered), done - entered, -1)

    def _message(self, record: np.void, flow: Flow | None, netns_inode: int) -> ReceivedMessage:  # noqa: ARG002 # no device
        flags = int(record["flags"])
        times = {name: int(record[member]) or None for name, member in _TIMES.items()}
        known = self._switches and not flags & HopRxFlags.HOP_RX_OFF_UNKNOWN
        runnable_ns = int(record["runnable_ns"])
        return ReceivedMessage(
            flow=flow,
            cookie=int(record["cookie"]),
            pid=int(record["pid"]),
            reader=bytes(record["comm"]).split(b"\0")[0].decode(errors="replace"),
            len_bytes=int(record["len_bytes"]),
            end_byte=int(record["end_byte"]),
            datagram=bool(flags & HopRxFlags.HOP_RX_DATAGRAM),
            **times,
            asleep_ns=int(record["off_ns"]) - runnable_ns if known else None,
            runnable_ns=runnable_ns if known else None,
        )
