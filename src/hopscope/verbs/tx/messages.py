# SPDX-License-Identifier: Apache-2.0
"""Single messages of ``tx``, made of their records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from hopscope.bpf.layout import HOP_TX_EVENT_DTYPE, HOP_TX_EVENT_TCP_DTYPE, HopTxCause, HopTxFlags
from hopscope.live.messages.records import MessageRecords
from hopscope.model.message import CONGESTION_STATES, SSTHRESH_NOT_SET, STAGES, Device, SentMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from hopscope.libbpf import BpfObject
    from hopscope.model.message import Flow

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


class SentRecords(MessageRecords):
    """Reads the records of messages that were sent.

    Parameters
    ----------
    bpf
        The loaded object, with ``cfg_events`` set.
    qdisc
        Whether the hook behind the queueing disciplines is attached for TCP. For datagrams it always is.
    fields
        What of the state of sockets messages of TCP come with; if it is anything, `cfg_fields` is set.

    Raises
    ------
    KernelError
        The kernel refuses a ring, or this machine's CPU may reorder loads.
    """

    def __init__(self, bpf: BpfObject, *, qdisc: bool, fields: Sequence[str] = ()) -> None:
        super().__init__(bpf, _with_state() if fields else HOP_TX_EVENT_DTYPE, "done_ns")
        self._fields = fields
        self._qdisc = qdisc

    @staticmethod
    def totals_ns(records: NDArray[np.void]) -> NDArray[np.int64]:
        """Return the time from the first to the last that was seen of each, -1 where one of them was not."""
        entered, handed, done = (records[name].astype(np.int64) for name in ("entry_ns", "handed_ns", "done_ns"))
        started = np.where(entered > 0, entered, handed)
        return np.where((started > 0) & (done >= started), done - started, -1)

    def _message(self, record: np.void, flow: Flow | None, netns_inode: int) -> SentMessage:
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
        return SentMessage(
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
            tcp=_states(record["tcp"], self._fields) if self._fields and not datagram else None,
        )


def _with_state() -> np.dtype[np.void]:
    """Return the dtype of a message and what follows it, with the members of both side by side; neither has gaps."""
    message, more = HOP_TX_EVENT_DTYPE, HOP_TX_EVENT_TCP_DTYPE["tcp"]
    return np.dtype([*((name, message[name]) for name in message.names or ()), ("tcp", more)])


def _states(stages: NDArray[np.void], fields: Sequence[str]) -> dict[str, dict[str, int | str | None] | None]:
    return {
        name: {field: _FIELDS[field](stage) for field in fields} if stage["seen"] else None
        for name, stage in zip(STAGES, stages, strict=True)
    }


def _ssthresh(state: np.void) -> int | None:
    return int(state["ssthresh"]) if state["ssthresh"] < SSTHRESH_NOT_SET else None


# Field of hopscope.model.message → its value.
_FIELDS: Final[dict[str, Callable[[np.void], int | str | None]]] = {
    "cwnd": lambda state: int(state["snd_cwnd"]),
    "ssthresh": _ssthresh,
    "in_flight": lambda state: int(state["in_flight"]),
    "unacked_bytes": lambda state: int(state["unacked_bytes"]),
    "snd_wnd_bytes": lambda state: int(state["snd_wnd"]),
    "rcv_wnd_bytes": lambda state: int(state["rcv_wnd"]),
    "srtt_ns": lambda state: int(state["srtt_us"]) * 1000 or None,
    "retransmits": lambda state: int(state["retransmits"]),
    "state": lambda state: CONGESTION_STATES[int(state["ca_state"])],
}
