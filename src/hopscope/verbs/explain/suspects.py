# SPDX-License-Identifier: Apache-2.0
"""What all that looks for culprits shares: what is found, and who had the largest part in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from hopscope.model.cause import BY_NAME
from hopscope.term.format import part
from hopscope.trace.host_numbers import THREADS, hosts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hopscope.store.trace import Trace
    from hopscope.verbs.explain.explanation import Confidence

# More than this share of the time is most of it.
MOSTLY: Final = 0.5
OF: Final = "explained e JOIN messages m ON m.message = e.message JOIN message_causes c ON c.message = e.message"


@dataclass(frozen=True, slots=True)
class Found:
    """What was found of a cause; as of :class:`~hopscope.verbs.explain.explanation.Held`."""

    sentence: str
    culprit: str = ""
    evidence: tuple[str, ...] = ()
    confidence: Confidence = "high"
    advice: str = ""


def largest(trace: Trace, cause: str, column: str) -> Any:  # noqa: ANN401 # a value of the column
    """Return the value of a column of ``messages`` that has most of a cause's time; None: none."""
    held = BY_NAME[cause].column
    rows = trace.rows(
        f"SELECT m.{column}, sum(c.{held}) AS held FROM {OF} WHERE c.{held} > 0 AND m.{column} IS NOT NULL"
        " GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 1"
    )
    return rows[0][0] if rows else None


def thread_name(trace: Trace, tid: int | None) -> str:
    """Return a thread's name and number, as sentences have it."""
    if tid is None:
        return "an unknown thread"
    if tid == 0:
        return "the idle task"
    rows = trace.rows(f"SELECT name FROM thread_names WHERE tid = {tid}")
    return str(rows[0][0]) if rows else f"thread {tid}"


def flow_name(trace: Trace, flow: int | None) -> str:
    """Return a flow's ends, as sentences have them."""
    rows = trace.rows(f"SELECT name FROM flow_names WHERE flow = {flow}") if flow is not None else []
    return str(rows[0][0]) if rows else "an unknown flow"


def machine_of(trace: Trace) -> str:
    """Return the machine of the recorded host, by which its system calls are numbered."""
    return str(trace.metadata.host.get("machine", ""))


def greatest(parts: Mapping[Any, int]) -> tuple[Any, float]:
    """Return the key with the largest part, and this part of the whole."""
    whole = sum(parts.values())
    key = max(parts, key=lambda each: parts[each])
    return key, parts[key] / whole if whole else 0.0


def occupants(trace: Trace, others: Mapping[int, int], waited_ns: int) -> tuple[str, str, Confidence]:
    """Return who had a CPU longest that somebody waited for; those who had it most, with their parts; and how sure.

    Parameters
    ----------
    others
        Thread → for how long it had the CPU meanwhile, ns, longest first; 0: the idle task.
    waited_ns
        How long the wait was.
    """
    if not any(who > 0 for who in others):
        return "", "", "medium"
    who, share = greatest(others)
    group = cgroup_of(trace, who)
    most = ", ".join(f"{thread_name(trace, each)} {part(ns / waited_ns)}" for each, ns in list(others.items())[:3])
    name = thread_name(trace, who) + (f" in the cgroup {group}" if group else "")
    return name, most, "high" if share > MOSTLY else "medium"


def cgroup_of(trace: Trace, tid: int | None) -> str:
    """Return the path of the cgroup that limits a thread's CPU time; empty: the root, or not known."""
    rows = trace.rows(f"SELECT cgroup_path FROM thread_names WHERE tid = {tid}") if tid is not None else []
    path = str(rows[0][0] or "") if rows else ""
    return "" if path == "/" else path


def pid_of(trace: Trace, tid: int | None) -> int:
    """Return the process of a thread, by its number on its own host."""
    rows = trace.rows(f"SELECT pid FROM thread_names WHERE tid = {tid}") if tid is not None else []
    return int(rows[0][0] if rows else tid or 0) % THREADS


def on_host(trace: Trace, number: int, command: str) -> str:
    """Return a command, with the name of the host on which to run it where several were recorded."""
    names = hosts(trace)
    return f"on {names[number]}: {command}" if names else command


def of_thread(trace: Trace, tid: int | None, command: str) -> str:
    """Return a command on a thread, `{tid}` or its process `{pid}`, as `on_host` does; empty: it is not known."""
    if tid is None:
        return ""
    return on_host(trace, tid // THREADS, command.format(tid=tid % THREADS, pid=pid_of(trace, tid)))


def calls_advice(trace: Trace, tid: int | None) -> str:
    """Return the command that shows in which calls a thread waits."""
    return of_thread(trace, tid or None, "sudo strace -f -T -p {pid}   (which calls it waits in)")


def fullest_queue(trace: Trace, cause: str) -> tuple[str, str]:
    """Return the device in whose queue messages were held longest, and its queueing discipline."""
    held = BY_NAME[cause].column
    rows = trace.rows(
        f"SELECT d.name, q.kind, q.place, sum(c.{held}) FROM {OF} JOIN queue_shares q ON q.message = m.message"
        f" LEFT JOIN device_queues d ON d.place = q.place WHERE c.{held} > 0 GROUP BY 1, 2, 3 ORDER BY 4 DESC LIMIT 1"
    )
    if not rows:
        return "an unknown device", ""
    name, kind, *_ = rows[0]
    return str(name or "an unknown device"), str(kind or "")
