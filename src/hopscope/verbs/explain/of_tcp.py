# SPDX-License-Identifier: Apache-2.0
"""What kept TCP from sending, and who."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.model.cause import BY_NAME
from hopscope.model.system_calls import WAITS, call_name
from hopscope.term.format import part, plural
from hopscope.trace.causes.threads import ASLEEP
from hopscope.verbs.explain.activity import activity
from hopscope.verbs.explain.suspects import (
    MOSTLY,
    Found,
    calls_advice,
    flow_name,
    fullest_queue,
    greatest,
    largest,
    machine_of,
    thread_name,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from hopscope.store.trace import Trace
    from hopscope.verbs.explain.activity import Activity


def _receivers(trace: Trace, flow: int, state: str) -> tuple[int | None, Activity]:
    """Return the reader of a flow, and what it did while a limit held the flow."""
    rows = trace.rows(
        f"SELECT reader_tid, count(*) FROM messages WHERE flow = {flow} AND reader_tid IS NOT NULL"
        " GROUP BY 1 ORDER BY 2 DESC LIMIT 1"
    )
    tid = rows[0][0] if rows else None
    spans = (
        f"SELECT time_ns, next_ns FROM (SELECT time_ns, state, lead(time_ns) OVER (ORDER BY time_ns) AS next_ns"
        f" FROM tcp_limits WHERE subject = {flow}) l WHERE state = '{state}' AND next_ns IS NOT NULL"
    )
    return tid, activity(trace, -1 if tid is None else tid, spans)


def receiver_window(trace: Trace, cause: str) -> Found:
    """Return whether the window was too small for the path, or what the reader did meanwhile."""
    flow = largest(trace, cause, "flow")
    name = flow_name(trace, flow)
    if flow is None:
        return Found(BY_NAME[cause].meaning, confidence="medium")
    tid, did = _receivers(trace, flow, "receiver_window")
    windows = trace.rows(f"SELECT max(detail) FROM tcp_limits WHERE subject = {flow} AND state = 'receiver_window'")
    window = f"the window was at most {windows[0][0] or 0:,} bytes then"
    whole = sum(did.states.values())
    machine = machine_of(trace)
    waits = sum(ns for call, ns in did.calls.items() if call >= 0 and call_name(call, machine) in WAITS)
    if not whole:
        return Found(f"the receiver's window of {name} had no room", name, (window,), "medium", _WINDOW_ADVICE)
    reader = thread_name(trace, tid)
    if waits > MOSTLY * whole:
        return Found(
            f"the receiver's window of {name} is too small for the path: its reader {reader} was waiting for data",
            name,
            (window, f"the reader slept in its wait for data for {part(waits / whole)} of that time"),
            advice=_WINDOW_ADVICE,
        )
    doing, share = greatest(did.states)
    return Found(
        f"the receiver's window of {name} was full: its reader {reader} reads more slowly than the sender sends",
        reader,
        (window, f"the reader was {doing} for {part(share)} of that time"),
        advice=calls_advice(trace, tid) if doing == ASLEEP else "",
    )


_WINDOW_ADVICE: Final = "sysctl net.ipv4.tcp_rmem; ss -tmi   (limit and use of the receive buffer; SO_RCVBUF fixes it)"
_CA_STATES: Final = {0: "open", 1: "disorder", 2: "CWR", 3: "recovery", 4: "loss"}


def congestion(trace: Trace, cause: str) -> Found:
    """Return the flow, and why its congestion window was small."""
    flow = largest(trace, cause, "flow")
    if flow is None:
        return Found(BY_NAME[cause].meaning, confidence="medium")
    rows = trace.rows(
        "SELECT max(condition), min(detail), max(detail) FROM tcp_limits"
        f" WHERE subject = {flow} AND state = 'congestion_window'"
    )
    state, least, greatest = rows[0] if rows and rows[0][0] is not None else (0, 0, 0)
    again = trace.rows(
        f"SELECT coalesce(sum(m.retransmits), 0) FROM explained e JOIN messages m ON m.message = e.message"
        f" WHERE m.flow = {flow}"
    )[0][0]
    why = "after losses" if state >= 3 or again else "it grows with each ACK (slow start), or the path is long"
    return Found(
        f"the congestion window of {flow_name(trace, flow)} was full: {why}",
        flow_name(trace, flow),
        (
            f"the window had {least} to {greatest} packets; state: {_CA_STATES.get(int(state), state)}",
            f"{plural(int(again), 'retransmission')} of these messages",
        ),
        advice="ss -ti   (cwnd, ssthresh, rtt, retrans of the connection)",
    )


def pacing(trace: Trace, cause: str) -> Found:
    """Return who limits the rate."""
    flow = largest(trace, cause, "flow")
    if flow is None:
        return Found(BY_NAME[cause].meaning, confidence="medium")
    rows = trace.rows(
        f"SELECT max(condition), min(detail), max(detail) FROM tcp_limits WHERE subject = {flow} AND state = 'pacing'"
    )
    own, least, greatest = rows[0] if rows and rows[0][0] is not None else (None, 0, 0)
    name = flow_name(trace, flow)
    if own is None:
        place, kind = fullest_queue(trace, cause)
        return Found(
            f"{kind or 'the queueing discipline'} on {place} kept packets of {name} until their departure time",
            f"{kind} on {place}",
            advice="ss -ti   (pacing_rate)",
        )
    who = "the application (SO_MAX_PACING_RATE)" if own else "congestion control"
    rates = f"{least:,} to {greatest:,} bytes/s" if least != greatest else f"{greatest:,} bytes/s"
    return Found(
        f"{who} limits the sending rate of {name}",
        who,
        (f"the rate was {rates}",),
        advice="ss -ti   (pacing_rate, and the congestion control)",
    )


def of_flow(words: str, advice: str) -> Callable[[Trace, str], Found]:
    """Return a function that names the flow and its sender in these words."""

    def finder(trace: Trace, cause: str) -> Found:
        flow, tid = largest(trace, cause, "flow"), largest(trace, cause, "sender_tid")
        name = flow_name(trace, flow)
        return Found(words.format(flow=name, sender=thread_name(trace, tid)), thread_name(trace, tid), advice=advice)

    return finder


def send_buffer(trace: Trace, cause: str) -> Found:
    """Return who waited for room."""
    flow, tid = largest(trace, cause, "flow"), largest(trace, cause, "sender_tid")
    return Found(
        f"{thread_name(trace, tid)} waited for room in the send buffer of {flow_name(trace, flow)}: everything in it"
        " had been sent, but was not yet acknowledged",
        thread_name(trace, tid),
        advice="sysctl net.ipv4.tcp_wmem; ss -tmi   (SO_SNDBUF fixes the send buffer)",
    )


def send_lock(trace: Trace, cause: str) -> Found:
    """Return who had the lock of the socket."""
    flow, tid = largest(trace, cause, "flow"), largest(trace, cause, "sender_tid")
    rows = trace.rows(
        f"SELECT m.sender_tid, count(*) FROM messages m WHERE m.flow = {flow or 0} AND m.sender_tid <> {tid or 0}"
        " GROUP BY 1 ORDER BY 2 DESC LIMIT 1"
    )
    other = thread_name(trace, rows[0][0]) if rows else "another thread"
    return Found(
        f"{thread_name(trace, tid)} waited for the lock of the socket of {flow_name(trace, flow)},"
        f" into which {other} was sending",
        other,
    )
