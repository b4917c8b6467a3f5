# SPDX-License-Identifier: Apache-2.0
"""The path of a message from the send call to the return of the receive call: its points in order, and their layers.

A stage is the time between two consecutive points that were seen. It is attributed to the layer that had to act for the
message to reach the second point.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Final

SEND_CALL: Final = "send call"
SENDER: Final = "sender's stack"
QDISC: Final = "qdisc"
DRIVER: Final = "driver"
NETWORK: Final = "network"
SOFTIRQ: Final = "receiver's softirq"
QUEUE: Final = "socket queue"
WAKE_UP: Final = "wake-up"
READER: Final = "reader"
RETRANSMISSION: Final = "retransmission"
HOLE: Final = "stream hole"

# In the order in which a message passes them.
LAYERS: Final = (SEND_CALL, SENDER, QDISC, DRIVER, NETWORK, RETRANSMISSION, HOLE, SOFTIRQ, QUEUE, WAKE_UP, READER)
# Layer → the part of the path between two hosts to which it belongs.
PARTS: Final = {
    SEND_CALL: "sender's application",
    SENDER: "sender's stack",
    QDISC: "sender's stack",
    DRIVER: "sender's stack",
    NETWORK: "network",
    RETRANSMISSION: "retransmission",
    HOLE: "retransmission",
    SOFTIRQ: "receiver's stack",
    QUEUE: "receiver's application",
    WAKE_UP: "receiver's application",
    READER: "receiver's application",
}


@dataclass(frozen=True, slots=True)
class Step:
    """A point on the path.

    Parameters
    ----------
    point
        Its name in the trace.
    column
        Column of the table ``messages``: when the message passed it, CLOCK_MONOTONIC in ns, NULL: not seen.
    layer
        The layer responsible for the stage that ends here.
    meaning
        Meaning of the column.
    """

    point: str
    column: str
    layer: str
    meaning: str

    @property
    def title(self) -> str:
        """The name shown in reports."""
        return "tx.queue first" if self.column == "first_ns" else self.point


STEPS: Final = (
    Step("call.enter", "call_ns", SEND_CALL, "the send call began"),
    Step("tx.send", "send_ns", SEND_CALL, "the send call acquired the socket lock"),
    Step(
        "tx.queue",
        "first_ns",
        SENDER,
        "the packet with its first byte reached a device, if its last byte followed in a later packet",
    ),
    Step("tx.queue", "queue_ns", SENDER, "the packet with its last byte reached a device"),
    Step("tx.enqueue", "enqueue_ns", SENDER, "that packet entered the queueing discipline"),
    Step("tx.dequeue", "dequeue_ns", QDISC, "that packet left the queueing discipline"),
    Step("tx.start", "start_ns", QDISC, "the driver's transmit function was called with that packet"),
    Step("rx.driver", "driver_ns", DRIVER, "the receiving driver handed the packet with the last byte to the stack"),
    Step("rx.core", "core_ns", SOFTIRQ, "the stack's core received that packet"),
    Step("rx.ip", "ip_ns", SOFTIRQ, "IP received that packet"),
    Step("rx.l4", "l4_ns", SOFTIRQ, "TCP or UDP received that packet"),
    Step("rx.tcp_queue", "tcp_ns", SOFTIRQ, "the receiving TCP socket queued that packet"),
    Step("rx.tcp_order", "order_ns", HOLE, "the last missing byte before it in the stream had arrived, if after it"),
    Step("rx.ready", "ready_ns", SOFTIRQ, "the reader was notified"),
    Step("sched.wake", "wake_ns", WAKE_UP, "the reader was woken up"),
    Step("sched.switch", "switch_ns", WAKE_UP, "the reader was scheduled on a CPU"),
    Step("rx.copy", "copy_ns", READER, "the last byte was copied to the reader's buffer"),
    Step("rx.read", "read_ns", READER, "the reader had read the last byte (TCP)"),
    Step("rx.received", "received_ns", READER, "the receive call returned"),
)
BY_COLUMN: Final = {step.column: step for step in STEPS}
# Points of packets; their times are those of the packet with the last byte.
PACKET_COLUMNS: Final = tuple(step.column for step in STEPS[3:12])
_ARRIVED: Final = tuple(step.column for step in STEPS[7:14])
# Points at the sender, and at the receiver.
SENT: Final = tuple(step.column for step in STEPS[:7])
RECEIVED: Final = tuple(step.column for step in STEPS[7:])


def before(column: str) -> tuple[str, ...]:
    """Return the columns of the points before this one."""
    names = list(BY_COLUMN)
    return tuple(names[: names.index(column)])


def layer_of(column: str, previous: str, *, resent: bool, across: bool = False) -> str:
    """Return the layer responsible for the stage between two consecutive points that were seen.

    `resent`: bytes of the message were retransmitted during the stage. `across`: sender and receiver are different
    hosts.
    """
    if resent and column in _ARRIVED:
        return RETRANSMISSION
    if across and column in RECEIVED and previous in SENT:
        return NETWORK
    if column == "copy_ns" and previous != "switch_ns":
        return QUEUE  # the reader was awake, but busy with other work
    return BY_COLUMN[column].layer


def latest(columns: tuple[str, ...]) -> str:
    """Return SQL for the latest of these times; NULL if none was seen.

    It is nested from the front, so that engines can eliminate common subexpressions.
    """
    return reduce(lambda first, second: f"greatest({first}, {second})", columns)


def earliest(columns: tuple[str, ...]) -> str:
    """Return SQL for the earliest of these times; NULL if none was seen. It is nested from the end."""
    return reduce(lambda last, before: f"least({before}, {last})", reversed(columns))


def stage(column: str) -> str:
    """Return SQL for the duration of the stage that ends at a point, ns; NULL: none."""
    return f"{column} - {latest(before(column))}"


def held_sql(column: str, *, joined: bool = False) -> dict[str, str]:
    """Return layer → SQL for the time (ns) that it held a message in the stage that ends at a point; NULL: not held.

    This is :func:`layer_of` applied to rows. `joined`: the trace contains several hosts.
    """
    other = None
    if column in _ARRIVED:
        other = RETRANSMISSION, f"resent_ns > {latest(before(column))} AND resent_ns < {column}"
    elif column == "copy_ns":
        other = QUEUE, "switch_ns IS NULL"
    layer, held = BY_COLUMN[column].layer, stage(column)
    own = {layer: held}
    if other is not None:
        own = {
            layer: f"CASE WHEN {other[1]} THEN NULL ELSE {held} END",
            other[0]: f"CASE WHEN {other[1]} THEN {held} END",
        }
    if not joined or column not in RECEIVED:
        return own
    crosses = _crosses(column)
    here = {name: f"CASE WHEN {crosses} THEN NULL ELSE {sql} END" for name, sql in own.items()}
    if RETRANSMISSION in own:
        here[RETRANSMISSION] = own[RETRANSMISSION]
        crosses += f" AND NOT coalesce({other[1] if other else 'FALSE'}, FALSE)"
    return here | {NETWORK: f"CASE WHEN {crosses} THEN network_ns END"}


def _crosses(column: str) -> str:
    """Return the condition that the stage ending at this point of the receiver began at the sender, on another host."""
    earlier = RECEIVED[: RECEIVED.index(column)]
    unseen = [f"{name} IS NULL" for name in earlier]
    return " AND ".join(["network_bound_ns IS NOT NULL", f"{column} IS NOT NULL", *unseen])
