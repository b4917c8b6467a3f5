# SPDX-License-Identifier: Apache-2.0
"""The times of perf's ``netdev-times`` script, one row per packet.

Received: from the interrupt through softirq and poll to the copy. Sent: from the queue through the driver to the
release.

perf identifies packets by their address alone, and reports dropped ones as copied. This report uses packet lifetimes
(:mod:`hopscope.trace.packets.skb_lifetimes`), and gives the outcome of packets that were not copied. A linear datagram
is copied without an event; `report messages` finds its read.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from hopscope.model.report import Column, Report, of_rows
from hopscope.store.engine import last_known
from hopscope.trace.gaps import loss_notes, unattached_notes
from hopscope.trace.host_numbers import cpu_step
from hopscope.trace.names import cpu_names, points
from hopscope.trace.relation import build, columns, relation

if TYPE_CHECKING:
    from hopscope.store.trace import Trace
    from hopscope.trace.relation import Context
    from hopscope.trace.selection import Selection

RX_COLUMNS: Final = (
    Column("at_ns", "at_ns", "time of the first of the following events", "at"),
    Column("cpu", "number", "CPU that received it", "CPU"),
    Column("interface", "text", "the device", "interface"),
    Column("flow_name", "text", "source > destination", "flow", rank=3),
    Column("len_bytes", "bytes", "length of the packet", "len", rank=2),
    Column("irq_ns", "ns", "entry of the interrupt, after `at_ns`", "irq"),
    Column("softirq_ns", "ns", "entry of the softirq, after `at_ns`", "softirq"),
    Column("receive_ns", "ns", "netif_receive_skb, after `at_ns`", "receive"),
    Column("copy_ns", "ns", "first copy to the reader, after `at_ns`", "copy"),
    Column("poll_exit_ns", "ns", "end of the NAPI poll, after `at_ns`", "poll end"),
    Column("thread", "text", "thread that read it", "read by", rank=1),
    Column("instead", "text", "outcome, if it was not copied to a reader", "instead"),
)
TX_COLUMNS: Final = (
    Column("at_ns", "at_ns", "time when it was queued at the device", "at"),
    Column("cpu", "number", "CPU that sent it", "CPU", rank=1),
    Column("interface", "text", "the device", "interface"),
    Column("flow_name", "text", "source > destination", "flow", rank=2),
    Column("len_bytes", "bytes", "length of the packet", "len"),
    Column("qdisc_ns", "ns", "time from the queue to the driver's transmit function", "qdisc"),
    Column("netdevice_ns", "ns", "time from the driver's transmit function to the release of the packet", "netdevice"),
    Column("instead", "text", "outcome, if it was not released as sent", "instead"),
)

# In a trace of several hosts, shown in addition to the number, which then differs from the host's own.
CPU_NAME: Final = Column("cpu_name", "text", "with several hosts: the host, and the CPU's number on it", "CPU")


def _since(point: str, value: str, closing: str) -> str:
    """Return the window function for a value at the last such point, 0 if a closing point followed."""
    return last_known(f"CASE WHEN point = {{{point}}} THEN {value} WHEN point = {{{closing}}} THEN 0 END")


# Interrupts and softirqs that precede events on a CPU: each NET_RX softirq, with the last time it was raised after the
# previous one ended, and the interrupt in which it was raised.
_SOFTIRQ_EVENTS: Final = f"""
    WITH works AS (
        SELECT cpu, time_ns, point FROM cpu
        WHERE point IN ({{irq_enter}}, {{irq_exit}}, {{napi_poll}})
           OR (point IN ({{raise}}, {{enter}}, {{exit}}) AND subject = 3)),
    opened AS (
        SELECT *, {_since("irq_enter", "time_ns", "irq_exit")} OVER own AS irq_open_ns FROM works {{own}}),
    raised AS (
        SELECT *, {_since("raise", "irq_open_ns", "exit")} OVER own AS raised_in_ns FROM opened {{own}})
    SELECT cpu, time_ns, point, CASE WHEN point = {{enter}} THEN coalesce(raised_in_ns, 0) END AS irq_ns FROM raised"""

_PACKETS: Final = """
    SELECT packet, min(CASE WHEN point = {core} THEN time_ns END) AS time_ns,
           min(CASE WHEN point = {core} THEN (time_ns - {started_ns}) * {cpu_step} + cpu END) % {cpu_step} AS cpu,
           max(CASE WHEN point = {core} THEN len_bytes END) AS len_bytes,
           max(CASE WHEN point = {core} THEN ifindex END) AS ifindex,
           max(CASE WHEN point = {core} THEN netns END) AS netns,
           max(CASE WHEN life_flow <> 0 THEN life_flow END) AS flow,
           min(CASE WHEN point = {copy} THEN time_ns END) AS copy_ns,
           max(CASE WHEN point = {copy} THEN tid END) AS tid,
           max(CASE WHEN point = {free} THEN time_ns END) AS free_ns,
           max(CASE WHEN point = {drop} THEN time_ns END) AS drop_ns,
           max(CASE WHEN point = {queue} AND continues AND from_point IN ({core}, {ip}) THEN 1 END) AS forwarded,
           max(CASE WHEN point = {tcp_queue} THEN 1 END) AS queued
    FROM skb_step_lifetimes GROUP BY packet
    HAVING min(CASE WHEN point = {core} THEN time_ns END) IS NOT NULL"""

_RX: Final = f"""
    WITH packets_in AS ({_PACKETS}),
    events AS (
        SELECT cpu, time_ns, point, irq_ns, NULL AS packet FROM softirq_events
        WHERE point IN ({{enter}}, {{exit}}, {{napi_poll}})
        UNION ALL SELECT cpu, time_ns, {{core}}, NULL, packet FROM packets_in WHERE {{wanted}}),
    placed AS (
        SELECT *, {_since("enter", "time_ns", "exit")} OVER own AS softirq_ns,
               {_since("enter", "irq_ns", "exit")} OVER own AS in_irq_ns,
               {_since("napi_poll", "time_ns", "exit")} OVER back AS poll_ns
        FROM events {{own}}, back AS (PARTITION BY cpu ORDER BY time_ns DESC
                                    ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)),
    known AS (
        SELECT packet, CASE WHEN softirq_ns > 0 THEN softirq_ns END AS softirq_ns,
               CASE WHEN softirq_ns > 0 AND in_irq_ns > 0 THEN in_irq_ns END AS irq_ns,
               CASE WHEN softirq_ns > 0 AND poll_ns > 0 THEN poll_ns END AS poll_ns
        FROM placed WHERE packet IS NOT NULL),
    timed AS (SELECT i.*, k.softirq_ns, k.irq_ns, k.poll_ns, coalesce(k.irq_ns, k.softirq_ns, i.time_ns) AS at_ns,
                     i.copy_ns AS read_ns, p.protocol
              FROM packets_in i JOIN known k ON k.packet = i.packet LEFT JOIN flows p ON p.flow = i.flow)
    SELECT at_ns - {{started_ns}}, t.cpu, d.label, f.name, len_bytes, irq_ns - at_ns, softirq_ns - at_ns,
           t.time_ns - at_ns, read_ns - at_ns, poll_ns - at_ns,
           CASE WHEN read_ns IS NOT NULL THEN coalesce(h.thread, concat('-', t.tid)) END,
           CASE WHEN read_ns IS NOT NULL THEN '' WHEN drop_ns IS NOT NULL THEN 'dropped'
                WHEN forwarded = 1 THEN 'forwarded' WHEN free_ns IS NOT NULL THEN 'freed'
                WHEN t.protocol = 17 THEN 'no event'
                WHEN queued = 1 THEN 'merged, unread' ELSE 'not seen' END,
           count(*) OVER ()
    FROM timed t LEFT JOIN device_names d ON d.netns = t.netns AND d.ifindex = t.ifindex
    LEFT JOIN flow_names f ON f.flow = t.flow LEFT JOIN thread_names h ON h.tid = t.tid
    ORDER BY at_ns, t.time_ns"""

_TX: Final = """
    WITH sent AS (
        SELECT packet, min(CASE WHEN point = {queue} THEN time_ns END) AS queue_ns,
               min(CASE WHEN point = {queue} THEN (time_ns - {started_ns}) * {cpu_step} + cpu END) % {cpu_step} AS cpu,
               max(CASE WHEN point = {queue} THEN len_bytes END) AS len_bytes,
               max(CASE WHEN life_flow <> 0 THEN life_flow END) AS flow,
               max(CASE WHEN point = {start} THEN ifindex WHEN point = {queue} THEN ifindex END) AS ifindex,
               max(CASE WHEN point IN ({start}, {queue}) THEN netns END) AS netns,
               max(CASE WHEN point = {start} THEN time_ns END) AS start_ns,
               max(CASE WHEN point = {free} THEN time_ns END) AS free_ns,
               max(CASE WHEN point = {drop} THEN time_ns END) AS drop_ns,
               max(CASE WHEN point = {driver} THEN time_ns END) AS received_ns
        FROM skb_step_lifetimes GROUP BY packet HAVING min(CASE WHEN point = {queue} THEN time_ns END) IS NOT NULL)
    SELECT queue_ns - {started_ns}, s.cpu, d.label, f.name, len_bytes, start_ns - queue_ns,
           CASE WHEN received_ns > start_ns THEN NULL ELSE free_ns - start_ns END,
           CASE WHEN received_ns > start_ns THEN 'received on this host' WHEN drop_ns IS NOT NULL THEN 'dropped'
                WHEN start_ns IS NULL AND free_ns IS NOT NULL THEN 'cut in segments'
                WHEN free_ns IS NULL THEN 'not seen' ELSE '' END,
           count(*) OVER ()
    FROM (SELECT * FROM sent WHERE {wanted}) s
    LEFT JOIN device_names d ON d.netns = s.netns AND d.ifindex = s.ifindex
    LEFT JOIN flow_names f ON f.flow = s.flow
    ORDER BY queue_ns"""

_OWN: Final = "WINDOW own AS (PARTITION BY cpu ORDER BY time_ns ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"
_NAMES: Final = {
    "core": "rx.core", "ip": "rx.ip", "tcp_queue": "rx.tcp_queue", "copy": "rx.copy", "free": "skb.free",
    "drop": "skb.drop",
    "queue": "tx.queue", "start": "tx.start", "driver": "rx.driver", "irq_enter": "irq.enter", "irq_exit": "irq.exit",
    "raise": "softirq.raise", "enter": "softirq.enter", "exit": "softirq.exit", "napi_poll": "napi.poll",
}  # fmt: skip


@relation(
    "softirq_events",
    "an event of an interrupt, a NET_RX softirq or a NAPI poll",
    columns(
        "cpu time_ns point irq_ns",
        irq_ns="for a softirq's entry: the entry of the interrupt that raised it, 0: none; NULL: another event",
    ),
    kind="view",
    report="netdev-times",
)
def _softirq_events(context: Context) -> str:
    return _SOFTIRQ_EVENTS.format(own=_OWN, **_terms(context.trace))


def received(trace: Trace, selection: Selection, *, limit: int | None = None) -> Report:
    """Return a row for each packet received by the core of the stack, in chronological order."""
    build(trace, "softirq_events")
    notes = unattached_notes(trace, ["rx.core", "rx.copy", "irq.enter", "softirq.enter", "napi.poll"])
    rows, left_out = _rows(trace, _RX, selection, "time_ns", limit)
    shown = _named(trace, RX_COLUMNS, rows)
    return of_rows("netdev-times.rx", shown, rows, notes=[*notes, *loss_notes(trace)], left_out=left_out)


def sent(trace: Trace, selection: Selection, *, limit: int | None = None) -> Report:
    """Return a row for each packet queued at a device for sending, in chronological order."""
    notes = unattached_notes(trace, ["tx.queue", "tx.start", "skb.free"])
    rows, left_out = _rows(trace, _TX, selection, "queue_ns", limit)
    shown = _named(trace, TX_COLUMNS, rows)
    return of_rows("netdev-times.tx", shown, rows, notes=[*notes, *loss_notes(trace)], left_out=left_out)


def _named(trace: Trace, shown: tuple[Column, ...], rows: list[tuple[Any, ...]]) -> tuple[Column, ...]:
    """Add the names of CPUs to rows and columns of a trace of several hosts."""
    names = cpu_names(trace)
    if not names:
        return shown
    rows[:] = [(at_ns, cpu, names[cpu], *rest) for at_ns, cpu, *rest in rows]
    at, cpu, *rest = shown
    return (at, replace(cpu, title="number", rank=9), CPU_NAME, *rest)


def _rows(
    trace: Trace, query: str, selection: Selection, time: str, limit: int | None
) -> tuple[list[tuple[Any, ...]], int]:
    """Return the rows of a query, and the number omitted by the limit."""
    build(trace, "device_names", "flow_names", "thread_names", "skb_step_lifetimes")
    wanted = " AND ".join([selection.window(trace, time), selection.flow(trace), selection.place(trace)])
    text = query.format(wanted=wanted, own=_OWN, **_terms(trace))
    rows = trace.rows(text if limit is None else f"{text} LIMIT {limit}")
    return [row[:-1] for row in rows], rows[0][-1] - len(rows) if rows else 0


def _terms(trace: Trace) -> dict[str, int]:
    number = points(trace)
    own = {"started_ns": trace.metadata.started_ns, "cpu_step": cpu_step(trace)}
    return own | {term: number.get(name, -1) for term, name in _NAMES.items()}
