# SPDX-License-Identifier: Apache-2.0
"""Who held messages, and on which evidence: one function a cause.

Each looks at the messages of the table ``explained``, and first at the thread, the flow or the device that had the
largest part in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from hopscope.model.cause import BY_NAME
from hopscope.model.system_calls import WAITS, call_name
from hopscope.term.format import part, plural, time
from hopscope.trace.causes.table import ARRIVED, READ
from hopscope.trace.causes.threads import ASLEEP, READING, RUNNABLE, RUNNING, STOPPED, THROTTLED
from hopscope.trace.gaps import attached
from hopscope.trace.packets.continues import PLACE
from hopscope.verbs.explain.activity import activity

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hopscope.store.trace import Trace
    from hopscope.verbs.explain.activity import Activity
    from hopscope.verbs.explain.explanation import Confidence

_MOSTLY: Final = 0.5


@dataclass(frozen=True, slots=True)
class Found:
    """What was found of a cause; as of :class:`~hopscope.verbs.explain.explanation.Held`."""

    sentence: str
    culprit: str = ""
    evidence: tuple[str, ...] = ()
    confidence: Confidence = "high"
    advice: str = ""


def found(trace: Trace, cause: str) -> Found:
    """Return who held messages by a cause, and the evidence."""
    return _FINDERS.get(cause, _nobody)(trace, cause)


def _nobody(trace: Trace, cause: str) -> Found:  # noqa: ARG001 # as all of them
    return Found(BY_NAME[cause].meaning)


# ---- who had the largest part ----

_OF: Final = "explained e JOIN messages m ON m.message = e.message JOIN message_causes c ON c.message = e.message"


def _largest(trace: Trace, cause: str, column: str) -> Any:  # noqa: ANN401 # a value of the column
    """Return the value of a column of ``messages`` that has most of a cause's time; None: none."""
    held = BY_NAME[cause].column
    rows = trace.rows(
        f"SELECT m.{column}, sum(c.{held}) AS held FROM {_OF} WHERE c.{held} > 0 AND m.{column} IS NOT NULL"
        " GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 1"
    )
    return rows[0][0] if rows else None


def _thread(trace: Trace, tid: int | None) -> str:
    if tid is None:
        return "an unknown thread"
    if tid == 0:
        return "the idle task"
    rows = trace.rows(f"SELECT name FROM thread_names WHERE tid = {tid}")
    return str(rows[0][0]) if rows else f"thread {tid}"


def _flow(trace: Trace, flow: int | None) -> str:
    rows = trace.rows(f"SELECT name FROM flow_names WHERE flow = {flow}") if flow is not None else []
    return str(rows[0][0]) if rows else "an unknown flow"


def _machine(trace: Trace) -> str:
    return str(trace.metadata.host.get("machine", ""))


def _most(parts: Mapping[Any, int]) -> tuple[Any, float]:
    """Return the key with the largest part, and this part of the whole."""
    whole = sum(parts.values())
    key = max(parts, key=lambda each: parts[each])
    return key, parts[key] / whole if whole else 0.0


# ---- the reader ----


def _reader(trace: Trace, cause: str) -> tuple[int | None, str, Activity]:
    """Return the reader that held messages longest, its name, and what it did while they waited."""
    held = BY_NAME[cause].column
    rows = trace.rows(
        "SELECT tid, sum(held) FROM ("
        f" SELECT m.reader_tid AS tid, c.{held} AS held FROM {_OF}"
        f" UNION ALL SELECT CAST(s.subject AS INTEGER), p.{held} FROM explained e JOIN pending_causes p"
        " ON p.message = e.message JOIN pending_spans s ON s.message = p.message AND s.part = p.part"
        " WHERE p.part = 'reader') both_kinds WHERE held > 0 AND tid IS NOT NULL GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 1"
    )
    tid = rows[0][0] if rows else None
    if tid is None:
        return None, _thread(trace, None), activity(trace, -1, "SELECT 0, 0 LIMIT 0")
    spans = (
        f"SELECT {ARRIVED}, {READ} FROM explained e JOIN messages m ON m.message = e.message WHERE reader_tid = {tid}"
        f" AND {READ} > {ARRIVED} UNION ALL SELECT s.from_ns, s.until_ns FROM explained e"
        f" JOIN pending_spans s ON s.message = e.message WHERE s.part = 'reader' AND s.subject = {tid}"
    )
    return tid, _thread(trace, tid), activity(trace, tid, spans)


def _asleep(trace: Trace, cause: str) -> Found:
    tid, name, did = _reader(trace, cause)
    asleep, stopped = did.states.get(ASLEEP, 0), did.states.get(STOPPED, 0)
    if stopped > asleep:
        return Found(
            f"the reader {name} was stopped, by a signal or a debugger",
            name,
            (f"it was stopped for {time(stopped)} while messages waited",),
            advice=f"kill -CONT {_pid(trace, tid)}",
        )
    if not did.calls:
        return Found(f"the reader {name} slept", name, confidence="medium", advice=_stacks(trace, tid))
    call, share = _most(did.calls)
    word = call_name(call, _machine(trace)) if call >= 0 else ""
    if not word:
        return Found(
            f"the reader {name} slept",
            name,
            ("the system call in which it slept is not known",),
            "medium",
            _stacks(trace, tid),
        )
    mostly = "" if share > 0.95 else f" for {part(share)} of that"
    if word in WAITS:
        sentence = f"the reader {name} slept in {word}(){mostly}: it did not wait for this socket"
    else:
        sentence = f"the reader {name} slept in {word}(){mostly}, not while waiting for this socket"
    longest = f"its longest sleep was {time(did.longest_ns[ASLEEP])}"
    return Found(sentence, name, (longest,), advice=_stacks(trace, tid))


def _pid(trace: Trace, tid: int | None) -> int:
    rows = trace.rows(f"SELECT pid FROM thread_names WHERE tid = {tid}") if tid is not None else []
    return int(rows[0][0]) if rows else tid or 0


def _stacks(trace: Trace, tid: int | None) -> str:
    return f"sudo strace -f -T -p {_pid(trace, tid)}   (which calls it waits in)" if tid else ""


def _runnable(trace: Trace, cause: str) -> Found:
    tid, name, did = _reader(trace, cause)
    runnable, throttled = did.states.get(RUNNABLE, 0), did.states.get(THROTTLED, 0)
    waited = f"it was ready to run for {time(runnable + throttled)} while messages waited"
    if throttled > runnable:
        return Found(
            f"the reader {name} was ready to run, but the CPU quota of its cgroup was used up",
            name,
            (waited, f"{time(throttled)} of that while it was throttled"),
            advice=f"cat /proc/{_pid(trace, tid)}/cgroup; raise cpu.max of that cgroup",
        )
    ran = {who: ns for who, ns in did.others.items() if who > 0}
    if not ran:
        return Found(
            f"the reader {name} was ready to run, but had no CPU",
            name,
            (waited, "what occupied the CPU was not seen; it may have been idle and waking up"),
            "medium",
        )
    who, share = _most(did.others)
    other = _thread(trace, who)
    most = ", ".join(
        f"{_thread(trace, each)} {part(ns / (runnable + throttled))}" for each, ns in list(did.others.items())[:3]
    )
    return Found(
        f"the reader {name} was ready to run, but {other} occupied the CPU",
        other,
        (waited, f"on the CPU just before it: {most} of that time"),
        "high" if share > _MOSTLY else "medium",
        f"ps -o pid,ni,cls,psr,cgroup,comm -p {_pid(trace, who)},{_pid(trace, tid)}   (weights, CPUs, cgroups)",
    )


def _running(trace: Trace, cause: str) -> Found:
    tid, name, did = _reader(trace, cause)
    return Found(
        f"the reader {name} was running, but had not read the message yet",
        name,
        (f"it ran for {time(did.states.get(RUNNING, 0))} while messages waited",),
        advice=f"sudo hopscope cpu --stacks -p {_pid(trace, tid)}   (what it does there)",
    )


def _reading(trace: Trace, cause: str) -> Found:
    tid, name, did = _reader(trace, cause)
    return Found(
        f"the reader {name} was copying data that came before: it receives as fast as it can",
        name,
        (f"it copied for {time(did.states.get(READING, 0))} while messages waited",),
        advice=f"sudo hopscope cpu --breakdown -p {_pid(trace, tid)}   (copies and checksums; more threads share them)",
    )


# ---- the sender, and what TCP waited for ----


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


def _receiver_window(trace: Trace, cause: str) -> Found:
    flow = _largest(trace, cause, "flow")
    name = _flow(trace, flow)
    if flow is None:
        return Found(BY_NAME[cause].meaning, confidence="medium")
    tid, did = _receivers(trace, flow, "receiver_window")
    windows = trace.rows(f"SELECT max(detail) FROM tcp_limits WHERE subject = {flow} AND state = 'receiver_window'")
    window = f"the window was at most {windows[0][0] or 0:,} bytes then"
    whole = sum(did.states.values())
    machine = _machine(trace)
    waits = sum(ns for call, ns in did.calls.items() if call >= 0 and call_name(call, machine) in WAITS)
    if not whole:
        return Found(f"the receiver's window of {name} had no room", name, (window,), "medium", _WINDOW_ADVICE)
    reader = _thread(trace, tid)
    if waits > _MOSTLY * whole:
        return Found(
            f"the receiver's window of {name} is too small for the path: its reader {reader} was waiting for data",
            name,
            (window, f"the reader slept in its wait for data for {part(waits / whole)} of that time"),
            advice=_WINDOW_ADVICE,
        )
    doing, share = _most(did.states)
    return Found(
        f"the receiver's window of {name} was full: its reader {reader} reads more slowly than the sender sends",
        reader,
        (window, f"the reader was {doing} for {part(share)} of that time"),
        advice=_stacks(trace, tid) if doing == ASLEEP else "",
    )


_WINDOW_ADVICE: Final = "sysctl net.ipv4.tcp_rmem; ss -tmi   (limit and use of the receive buffer; SO_RCVBUF fixes it)"
_CA_STATES: Final = {0: "open", 1: "disorder", 2: "CWR", 3: "recovery", 4: "loss"}


def _congestion(trace: Trace, cause: str) -> Found:
    flow = _largest(trace, cause, "flow")
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
        f"the congestion window of {_flow(trace, flow)} was full: {why}",
        _flow(trace, flow),
        (
            f"the window had {least} to {greatest} packets; state: {_CA_STATES.get(int(state), state)}",
            f"{plural(int(again), 'retransmission')} of these messages",
        ),
        advice="ss -ti   (cwnd, ssthresh, rtt, retrans of the connection)",
    )


def _pacing(trace: Trace, cause: str) -> Found:
    flow = _largest(trace, cause, "flow")
    if flow is None:
        return Found(BY_NAME[cause].meaning, confidence="medium")
    rows = trace.rows(
        f"SELECT max(condition), min(detail), max(detail) FROM tcp_limits WHERE subject = {flow} AND state = 'pacing'"
    )
    own, least, greatest = rows[0] if rows and rows[0][0] is not None else (None, 0, 0)
    name = _flow(trace, flow)
    if own is None:
        place, kind = _device(trace, cause)
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


def _of_flow(words: str, advice: str) -> Callable[[Trace, str], Found]:
    def finder(trace: Trace, cause: str) -> Found:
        flow, tid = _largest(trace, cause, "flow"), _largest(trace, cause, "sender_tid")
        name = _flow(trace, flow)
        return Found(words.format(flow=name, sender=_thread(trace, tid)), _thread(trace, tid), advice=advice)

    return finder


def _send_buffer(trace: Trace, cause: str) -> Found:
    flow, tid = _largest(trace, cause, "flow"), _largest(trace, cause, "sender_tid")
    return Found(
        f"{_thread(trace, tid)} waited for room in the send buffer of {_flow(trace, flow)}: everything in it"
        " had been sent, but was not yet acknowledged",
        _thread(trace, tid),
        advice="sysctl net.ipv4.tcp_wmem; ss -tmi   (SO_SNDBUF fixes the send buffer)",
    )


def _send_lock(trace: Trace, cause: str) -> Found:
    flow, tid = _largest(trace, cause, "flow"), _largest(trace, cause, "sender_tid")
    rows = trace.rows(
        f"SELECT m.sender_tid, count(*) FROM messages m WHERE m.flow = {flow or 0} AND m.sender_tid <> {tid or 0}"
        " GROUP BY 1 ORDER BY 2 DESC LIMIT 1"
    )
    other = _thread(trace, rows[0][0]) if rows else "another thread"
    return Found(
        f"{_thread(trace, tid)} waited for the lock of the socket of {_flow(trace, flow)}, into which {other} was"
        " sending",
        other,
    )


# ---- queues ----


def _device(trace: Trace, cause: str) -> tuple[str, str]:
    """Return the device in whose queue messages were held longest, and its queueing discipline."""
    held = BY_NAME[cause].column
    rows = trace.rows(
        f"SELECT d.name, q.kind, q.place, sum(c.{held}) FROM {_OF} JOIN queue_shares q ON q.message = m.message"
        f" LEFT JOIN device_queues d ON d.place = q.place WHERE c.{held} > 0 GROUP BY 1, 2, 3 ORDER BY 4 DESC LIMIT 1"
    )
    if not rows:
        return "an unknown device", ""
    name, kind, *_ = rows[0]
    return str(name or "an unknown device"), str(kind or "")


def _shaper(trace: Trace, cause: str) -> Found:
    device, kind = _device(trace, cause)
    return Found(
        f"the queueing discipline {kind} of {device} delayed packets on purpose",
        f"{kind} on {device}",
        advice=f"tc -s qdisc show dev {device}   (in its network namespace)",
    )


def _others(trace: Trace, cause: str) -> Found:
    device, kind = _device(trace, cause)
    rows = trace.rows(
        f"SELECT d.flow, sum(p.len_bytes) FROM explained e JOIN queue_shares q ON q.message = e.message"
        f" JOIN queue_departures d ON d.place = q.place AND d.time_ns > q.from_ns AND d.time_ns < q.until_ns"
        f" AND d.flow <> q.flow JOIN (SELECT {PLACE} AS place, time_ns, len_bytes FROM packets) p"
        " ON p.place = d.place AND p.time_ns = d.time_ns GROUP BY 1 ORDER BY 2 DESC LIMIT 5"
    )
    if not rows:
        return Found(f"packets of other flows were ahead in the queue of {device}", confidence="medium")
    whole = sum(each[1] for each in rows)
    first = _flow(trace, rows[0][0])
    return Found(
        f"packets of other flows were ahead in the queue of {device} ({kind or 'unknown queueing discipline'}), most of"
        f" them of {first}",
        first,
        (f"{first} had {part(rows[0][1] / whole)} of the bytes that left meanwhile, of {plural(len(rows), 'flow')}",),
        advice=f"tc -s qdisc show dev {device}   (fq_codel or fq give each flow its turn)",
    )


def _own(trace: Trace, cause: str) -> Found:
    device, kind = _device(trace, cause)
    flow = _largest(trace, cause, "flow")
    return Found(
        f"earlier packets of the same flow were in the queue of {device} ({kind or 'unknown queueing discipline'})",
        _flow(trace, flow),
    )


# ---- loss ----


# What a stream waits for was lost a little before what waits for it was sent.
_BEFORE_NS: Final = 1_000_000_000


def _lost(trace: Trace, cause: str) -> Found:
    held = BY_NAME[cause].column
    rows = trace.rows(
        "SELECT coalesce(r.name, CAST(d.reason AS STRING)), coalesce(s.name, ''), count(DISTINCT d.time_ns)"
        " FROM drops d"
        f" JOIN (SELECT m.flow, m.begins_ns, coalesce(m.order_ns, m.resent_ns, m.ends_ns) AS until_ns FROM {_OF}"
        f" WHERE c.{held} > 0) h ON h.flow = d.flow AND d.time_ns >= h.begins_ns - {_BEFORE_NS}"
        " AND d.time_ns < h.until_ns"
        " LEFT JOIN reasons r ON r.reason = d.reason"
        " LEFT JOIN (SELECT address, min(name) AS name FROM symbols GROUP BY address) s ON s.address = d.location"
        " GROUP BY 1, 2 ORDER BY 3 DESC, 1 LIMIT 1"
    )
    again = int(trace.rows(f"SELECT coalesce(sum(m.retransmits), 0) FROM {_OF} WHERE c.{held} > 0")[0][0])
    what = "lost bytes had to be sent again" if cause == "retransmission" else "earlier bytes of the stream were lost"
    evidence = (f"{plural(again, 'retransmission')} of these messages",) if again else ()
    if not rows:
        return Found(f"{what}; where they were lost was not seen on this host", "the network", evidence, "medium",
                     "sudo hopscope drops; ethtool -S DEVICE   (drops of the kernel, and of the NIC)")  # fmt: skip
    reason, place, count = rows[0]
    where = f" in {place}" if place else ""
    return Found(
        f"{what}: packets were dropped on this host ({reason}{where})",
        f"{reason}{where}",
        (*evidence, f"{plural(int(count), 'packet')} of these flows dropped for this reason"),
        advice="sudo hopscope drops --stacks   (where, and by which rule)",
    )


def _neighbour(trace: Trace, cause: str) -> Found:
    flow = _largest(trace, cause, "flow")
    devices = trace.rows(
        f"SELECT d.name, count(*) FROM packets p JOIN points n ON n.point = p.point AND n.name = 'tx.neighbour' JOIN"
        f" device_names d ON d.ifindex = p.ifindex AND d.netns = p.netns WHERE p.flow = {flow or 0} GROUP BY 1"
        " ORDER BY 2 DESC"
    )
    device = f" on {devices[0][0]}" if devices else ""
    rows = trace.rows(f"SELECT destination FROM flow_names WHERE flow = {flow}") if flow is not None else []
    address = str(rows[0][0]) if rows else "the destination"
    return Found(
        f"the link-layer address of the next hop to {address}{device} was being resolved (ARP or neighbour discovery)",
        f"{address}{device}",
        advice=f"ip route get {address}; ip neigh   (state of the neighbour)",
    )


# By number, enum nf_inet_hooks, as nft names them.
_HOOKS: Final = ("prerouting", "input", "forward", "output", "postrouting")


def _netfilter(trace: Trace, cause: str) -> Found:
    held = BY_NAME[cause].column
    rows = trace.rows(
        "SELECT e.extra % 256, min(d.name), count(*), CAST(sum(e.value) / count(*) AS BIGINT)"
        " FROM cpu e JOIN points n ON n.point = e.point AND n.name = 'nf.rules'"
        " LEFT JOIN final_translations t ON t.flow = e.subject AND e.time_ns >= t.from_ns AND e.time_ns < t.until_ns"
        " LEFT JOIN device_names d ON d.ifindex = e.ifindex AND d.netns = e.netns"
        f" WHERE coalesce(t.original, e.subject) IN (SELECT m.flow FROM {_OF} WHERE c.{held} > 0)"
        " GROUP BY 1 ORDER BY sum(e.value) DESC, 1 LIMIT 1"
    )
    if not rows:
        return Found("netfilter's rules were evaluated", confidence="medium")
    number, device, count, mean_ns = rows[0]
    hook = _HOOKS[number] if number < len(_HOOKS) else f"hook {number}"
    at = f"{hook} on {device}" if device else hook
    return Found(
        f"netfilter's rules at the hook {at} were evaluated for each packet",
        at,
        (f"{plural(int(count), 'packet')} of these flows, {time(int(mean_ns))} each on average",),
        advice="nft -a list ruleset; iptables -L -v   (sets and maps take the place of many rules)",
    )


# ---- others ----


def _application(trace: Trace, cause: str) -> Found:  # noqa: ARG001 # as all of them
    rows = trace.rows(
        "SELECT server_tid, sum(answers_ns - asked_ns) FROM explained_exchanges WHERE server_tid IS NOT NULL"
        " GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 1"
    )
    tid = rows[0][0] if rows else None
    if tid is None:
        return Found("the server needed that time to answer", confidence="medium")
    did = activity(
        trace,
        tid,
        f"SELECT asked_ns, answers_ns FROM explained_exchanges WHERE server_tid = {tid} AND answers_ns > asked_ns",
    )
    name = _thread(trace, tid)
    if not did.states:
        return Found(f"the server {name} needed that time to answer", name, confidence="medium")
    state, share = _most(did.states)
    how = {
        ASLEEP: "it slept",
        STOPPED: "it was stopped",
        RUNNABLE: "it was ready to run, but had no CPU",
        THROTTLED: "its cgroup had no CPU time left",
        RUNNING: "it was computing",
        READING: "it was copying what it received",
    }[state]
    if state == ASLEEP and did.calls and (call := _most(did.calls)[0]) >= 0:
        how = f"it slept in {call_name(call, _machine(trace))}()"
    advice = f"sudo hopscope cpu --stacks -p {_pid(trace, tid)}" if state == RUNNING else _stacks(trace, tid)
    return Found(
        f"the server {name} needed that time between request and answer",
        name,
        (f"{how} for {part(share)} of that time",),
        advice=advice,
    )


def _unknown(trace: Trace, cause: str) -> Found:  # noqa: ARG001 # as all of them
    needed = ("tx.send", "tx.sent", "tx.limit", "tx.queue", "rx.ready", "sched.switch", "sched.wake", "rx.received")
    seen = attached(trace)
    absent = [name for name in needed if trace.metadata.plan and name not in seen]
    if absent:
        return Found(
            f"what held messages was not recorded: {', '.join(absent)}",
            advice="record with -P messages   (`hopscope probes` says what this kernel grants)",
            confidence="low",
        )
    return Found("what held messages was not seen", confidence="low")


_FINDERS: Final[dict[str, Callable[[Trace, str], Found]]] = {
    "reader-asleep": _asleep,
    "reader-runnable": _runnable,
    "reader-running": _running,
    "earlier-data": _reading,
    "receiver-window": _receiver_window,
    "congestion-window": _congestion,
    "pacing": _pacing,
    "nagle": _of_flow(
        "{sender} wrote small messages, which TCP held back until the peer had acknowledged earlier ones (Nagle's"
        " algorithm; the peer delays its ACKs)",
        "set TCP_NODELAY, or write request and answer in one call each",
    ),
    "cork": _of_flow(
        "{sender} asked TCP to wait for more bytes (TCP_CORK, or MSG_MORE)",
        "remove TCP_CORK where the message is complete",
    ),
    "small-queue": _of_flow(
        "enough bytes of {flow} were in the queueing discipline and the driver already (TCP small queues)",
        "tc -s qdisc   (why they do not leave)",
    ),
    "send-buffer": _send_buffer,
    "send-lock": _send_lock,
    "shaper": _shaper,
    "queue-others": _others,
    "queue-own": _own,
    "retransmission": _lost,
    "stream-hole": _lost,
    "neighbour": _neighbour,
    "netfilter": _netfilter,
    "application": _application,
    "unknown": _unknown,
}
