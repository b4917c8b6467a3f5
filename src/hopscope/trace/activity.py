# SPDX-License-Identifier: Apache-2.0
"""What CPUs did, as intervals: interrupts, softirqs, and the threads that use sockets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from hopscope.trace.names import points

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hopscope.store.trace import Trace

# include/linux/interrupt.h
SOFTIRQS: Final = ("HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU")
# In the calling thread; other socket events may be in any thread that a softirq interrupted.
_CALLS: Final = ("tx.send", "tx.sent", "rx.read", "rx.received", "call.enter")


def softirq(number: int) -> str:
    """Return the name of a softirq, as in /proc/softirqs."""
    return SOFTIRQS[number] if 0 <= number < len(SOFTIRQS) else f"softirq {number}"


def interrupt_runs(trace: Trace, kind: str, source: str = "SELECT * FROM cpu") -> dict[str, NDArray[Any]]:
    """Return interrupts (``irq``) or softirqs, of which both ends are there, and nothing was lost in between.

    Parameters
    ----------
    source
        The query for the events of the table ``cpu``.

    Returns
    -------
    dict
        Columns ``cpu``, ``subject`` (number of the interrupt or softirq), ``begin_ns`` and ``end_ns``.
    """
    numbers = points(trace)
    first, last = (numbers.get(f"{kind}.{end}", -1) for end in ("enter", "exit"))
    return trace.columns(f"""
        SELECT cpu, subject, time_ns AS begin_ns, end_ns FROM (
            SELECT cpu, subject, point, time_ns, lead(time_ns) OVER w AS end_ns, lead(point) OVER w AS next_point
            FROM ({source}) e
            WHERE point IN ({first}, {last})
            WINDOW w AS (PARTITION BY cpu, subject ORDER BY time_ns, point)) s
        WHERE point = {first} AND next_point = {last} AND end_ns > time_ns
            AND NOT EXISTS (SELECT 1 FROM losses l
                            WHERE l.cpu = s.cpu AND l.from_ns < s.end_ns AND l.until_ns > s.time_ns)""")


def thread_runs(trace: Trace, wanted: str = "TRUE") -> dict[str, NDArray[Any]]:
    """Return when threads had a CPU: those that use sockets, from the first use on.

    Switches are recorded where one of both threads uses sockets. Where such a thread got a CPU, the next switch is from
    it; of another thread, switches in between may not have been recorded, so it is not among these.

    Parameters
    ----------
    wanted
        Condition on ``subject`` and ``begin_ns``.

    Returns
    -------
    dict
        Columns ``cpu``, ``subject`` (the thread), ``begin_ns`` and ``end_ns``.
    """
    numbers = points(trace)
    switch, wake = (numbers.get(f"sched.{name}", -1) for name in ("switch", "wake"))
    calls = ", ".join(str(numbers.get(name, -1)) for name in _CALLS)
    return trace.columns(f"""
        WITH uses AS (
            SELECT CAST(tid AS BIGINT) AS subject, min(time_ns) AS time_ns, min_by(cpu, time_ns) AS cpu
            FROM sockets WHERE point IN ({calls}) AND tid <> 0 GROUP BY tid),
        woken AS (SELECT subject, min(time_ns) AS time_ns FROM cpu WHERE point = {wake} GROUP BY subject),
        known AS (
            SELECT coalesce(u.subject, w.subject) AS subject,
                   least(coalesce(u.time_ns, w.time_ns), coalesce(w.time_ns, u.time_ns)) AS since_ns
            FROM uses u FULL JOIN woken w ON w.subject = u.subject),
        switches AS (
            SELECT cpu, time_ns, CAST(tid AS BIGINT) AS before, subject FROM cpu WHERE point = {switch}
            UNION ALL SELECT u.cpu, u.time_ns, NULL, u.subject
                      FROM uses u JOIN known k ON k.subject = u.subject AND k.since_ns = u.time_ns)
        SELECT r.cpu, r.subject, r.begin_ns, r.end_ns
        FROM (SELECT cpu, subject, time_ns AS begin_ns, lead(time_ns) OVER w AS end_ns, lead(before) OVER w AS leaves
              FROM switches WINDOW w AS (PARTITION BY cpu ORDER BY time_ns)) r
        JOIN known k ON k.subject = r.subject AND k.since_ns <= r.begin_ns
        WHERE r.leaves = r.subject AND r.end_ns > r.begin_ns AND {wanted}
            AND NOT EXISTS (SELECT 1 FROM losses l
                            WHERE l.cpu = r.cpu AND l.from_ns < r.end_ns AND l.until_ns > r.begin_ns)""")
