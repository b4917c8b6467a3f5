# SPDX-License-Identifier: Apache-2.0
"""The path of a message from the send call to the return of the receive call: its points in order, and what holds it.

A stage is the time between two consecutive points that were seen. Its cause is what had to happen for the message to
reach the second point.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Final

# Stages whose time is divided among several causes, from what else was recorded (hopscope.trace.causes).
SENDER: Final = "sender"
QDISC: Final = "qdisc"
READER: Final = "reader"
GROUPS: Final = (SENDER, QDISC, READER)
NETWORK: Final = "network"
RETRANSMISSION: Final = "retransmission"


@dataclass(frozen=True, slots=True)
class Step:
    """A point on the path.

    Parameters
    ----------
    point
        Its name in the trace.
    column
        Column of the table ``messages``: when the message passed it, CLOCK_MONOTONIC in ns, NULL: not seen.
    cause
        What the stage that ends here waits for: a cause (:mod:`hopscope.model.cause`), or one of :data:`GROUPS`.
    meaning
        Meaning of the column.
    """

    point: str
    column: str
    cause: str
    meaning: str

    @property
    def title(self) -> str:
        """The name shown in reports."""
        return "tx.queue first" if self.column == "first_ns" else self.point


STEPS: Final = (
    Step("call.enter", "call_ns", "send-lock", "the send call began"),
    Step("tx.send", "send_ns", "send-lock", "the send call acquired the socket lock"),
    Step(
        "tx.queue",
        "first_ns",
        SENDER,
        "the packet with its first byte reached a device, if its last byte followed in a later packet",
    ),
    Step(
        "tx.neighbour",
        "neighbour_ns",
        SENDER,
        "the packet with its last byte began to wait for the link-layer address of the next hop",
    ),
    Step("tx.queue", "queue_ns", SENDER, "the packet with its last byte reached a device"),
    Step("tx.enqueue", "enqueue_ns", "stack", "that packet entered the queueing discipline"),
    Step("tx.dequeue", "dequeue_ns", QDISC, "that packet left the queueing discipline"),
    Step("tx.start", "start_ns", QDISC, "the driver's transmit function was called with that packet"),
    Step("rx.driver", "driver_ns", "driver", "the receiving driver handed the packet with the last byte to the stack"),
    Step("rx.core", "core_ns", "backlog", "the stack's core received that packet"),
    Step("rx.ip", "ip_ns", "stack", "IP received that packet"),
    Step("rx.l4", "l4_ns", "stack", "TCP or UDP received that packet"),
    Step("rx.tcp_queue", "tcp_ns", "backlog", "the receiving TCP socket queued that packet"),
    Step(
        "rx.tcp_order",
        "order_ns",
        "stream-hole",
        "the last missing byte before it in the stream had arrived, if after it",
    ),
    Step("rx.ready", "ready_ns", "stack", "the reader was notified"),
    Step("sched.wake", "wake_ns", READER, "the reader was woken up"),
    Step("sched.switch", "switch_ns", READER, "the reader was scheduled on a CPU"),
    Step("rx.copy", "copy_ns", READER, "the last byte was copied to the reader's buffer"),
    Step("rx.read", "read_ns", READER, "the reader had read the last byte (TCP)"),
    Step("rx.received", "received_ns", READER, "the receive call returned"),
)
BY_COLUMN: Final = {step.column: step for step in STEPS}
_NAMES: Final = tuple(BY_COLUMN)


def _between(first: str, last: str) -> tuple[str, ...]:
    return _NAMES[_NAMES.index(first) : _NAMES.index(last) + 1]


# Points of packets; their times are those of the packet with the last byte.
PACKET_COLUMNS: Final = _between("neighbour_ns", "tcp_ns")
# Points at the sender, and at the receiver.
SENT: Final = _between("call_ns", "start_ns")
RECEIVED: Final = _between("driver_ns", "received_ns")
# If bytes were retransmitted in a stage that ends at one of these, it was lost before. In `stream-hole` it has arrived:
# after a timeout, TCP may send again what it has no acknowledgement of, lost or not.
_AGAIN: Final = tuple(name for name in _between("enqueue_ns", "ready_ns") if BY_COLUMN[name].cause != "stream-hole")
_READING: Final = ("copy_ns", "read_ns", "received_ns")


def before(column: str) -> tuple[str, ...]:
    """Return the columns of the points before this one."""
    return _NAMES[: _NAMES.index(column)]


def cause_of(column: str, previous: str, *, resent: bool, across: bool = False) -> str:
    """Return the cause, or the group of causes, of the stage between two consecutive points that were seen.

    `resent`: bytes of the message were retransmitted during the stage. `across`: sender and receiver are different
    hosts.
    """
    if resent and column in _AGAIN:
        return RETRANSMISSION
    if across and column in RECEIVED and previous in SENT:
        return NETWORK
    if column == "queue_ns" and previous == "neighbour_ns":
        return "neighbour"
    if column in _READING and previous in _READING:
        return "receive-copy"
    # The device has no queueing discipline, or the beginning of TCP was not seen.
    if (column in {"dequeue_ns", "start_ns"} and previous != "enqueue_ns") or (
        column == "tcp_ns" and previous != "l4_ns"
    ):
        return "driver" if column == "start_ns" and previous == "dequeue_ns" else "stack"
    return BY_COLUMN[column].cause


def latest(columns: tuple[str, ...]) -> str:
    """Return SQL for the latest of these times; NULL if none was seen.

    It is nested from the front, so that the engine can eliminate common subexpressions.
    """
    return reduce(lambda first, second: f"greatest({first}, {second})", columns)


def earliest(columns: tuple[str, ...]) -> str:
    """Return SQL for the earliest of these times; NULL if none was seen. It is nested from the end."""
    return reduce(lambda last, before: f"least({before}, {last})", reversed(columns))


def stage(column: str) -> str:
    """Return SQL for the duration of the stage that ends at a point, ns; NULL: none."""
    return f"{column} - {latest(before(column))}"


def with_previous(source: str) -> str:
    """Return the query for messages, with the time of the last point seen before each point, for :func:`held_sql`."""
    times = (f"{latest(before(column))} AS {_previous(column)}" for column in _NAMES[1:])
    return f"SELECT *, {', '.join(times)} FROM {source}"


def _previous(column: str) -> str:
    return f"before_{column}"


def held_sql(column: str, *, joined: bool = False) -> dict[str, str]:
    """Return cause or group of causes → SQL for the time (ns) of the stage that ends at a point; NULL: none.

    This is :func:`cause_of` applied to rows of :func:`with_previous`. `joined`: the trace contains several hosts.
    """
    kinds: dict[str, list[str]] = {}
    for previous in before(column):
        kinds.setdefault(cause_of(column, previous, resent=False), []).append(previous)
    held = f"{column} - {_previous(column)}"
    if len(kinds) == 1:
        own = dict.fromkeys(kinds, held)
    else:
        own = {cause: f"CASE WHEN {_is_last(names, column)} THEN {held} END" for cause, names in kinds.items()}
    others = []
    if column in _AGAIN:
        resent = f"resent_ns > {_previous(column)} AND resent_ns < {column}"
        others.append((RETRANSMISSION, resent, held))
    if joined and column in RECEIVED:
        others.append((NETWORK, _crosses(column), "network_ns"))
    for cause, condition, sql in reversed(others):
        own = {name: f"CASE WHEN {condition} THEN NULL ELSE {each} END" for name, each in own.items()}
        own[cause] = f"CASE WHEN {condition} THEN {sql} END"
    return own


def _is_last(names: list[str], column: str) -> str:
    """Return the condition that the last point seen before this one is one of these."""
    return f"coalesce({' OR '.join(f'{_previous(column)} = {name}' for name in names)}, FALSE)"


def _crosses(column: str) -> str:
    """Return the condition that the stage ending at this point of the receiver began at the sender, on another host."""
    earlier = RECEIVED[: RECEIVED.index(column)]
    unseen = [f"{name} IS NULL" for name in earlier]
    return " AND ".join(["network_bound_ns IS NOT NULL", f"{column} IS NOT NULL", *unseen])
