# SPDX-License-Identifier: Apache-2.0
"""Who held messages, and on which evidence: one function a cause.

Each looks at the messages of the table ``explained``, and first at the thread, the flow or the device that had the
largest part in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.model.cause import BY_NAME
from hopscope.trace.gaps import attached
from hopscope.verbs.explain.of_arrival import gathering, late
from hopscope.verbs.explain.of_path import lost, neighbour, netfilter, others, own, shaper
from hopscope.verbs.explain.of_reader import Readers, application, asleep, reading, runnable, running
from hopscope.verbs.explain.of_tcp import congestion, of_flow, pacing, receiver_window, send_buffer, send_lock
from hopscope.verbs.explain.suspects import Found

if TYPE_CHECKING:
    from collections.abc import Callable

    from hopscope.store.trace import Trace


class Culprits:
    """Who held the messages of the table ``explained``."""

    def __init__(self, trace: Trace) -> None:
        self._trace, self._readers = trace, Readers(trace)

    def of(self, cause: str) -> Found:
        """Return who held messages by a cause, and the evidence."""
        if cause in _OF_READERS:
            return _OF_READERS[cause](self._readers, cause)
        return _FINDERS.get(cause, _nobody)(self._trace, cause)


def _nobody(trace: Trace, cause: str) -> Found:  # noqa: ARG001 # as all of them
    return Found(BY_NAME[cause].meaning)


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


_OF_READERS: Final[dict[str, Callable[[Readers, str], Found]]] = {
    "reader-asleep": asleep,
    "reader-runnable": runnable,
    "reader-running": running,
    "earlier-data": reading,
}
_FINDERS: Final[dict[str, Callable[[Trace, str], Found]]] = {
    "receiver-window": receiver_window,
    "congestion-window": congestion,
    "pacing": pacing,
    "nagle": of_flow(
        "{sender} wrote small messages, which TCP held back until the peer had acknowledged earlier ones (Nagle's"
        " algorithm; the peer delays its ACKs)",
        "set TCP_NODELAY, or write request and answer in one call each",
    ),
    "cork": of_flow(
        "{sender} asked TCP to wait for more bytes (TCP_CORK, or MSG_MORE)",
        "remove TCP_CORK where the message is complete",
    ),
    "small-queue": of_flow(
        "enough bytes of {flow} were in the queueing discipline and the driver already (TCP small queues)",
        "tc -s qdisc   (why they do not leave)",
    ),
    "send-buffer": send_buffer,
    "send-lock": send_lock,
    "shaper": shaper,
    "queue-others": others,
    "queue-own": own,
    "retransmission": lost,
    "stream-hole": lost,
    "neighbour": neighbour,
    "softirq-wait": late,
    "gro": gathering,
    "netfilter": netfilter,
    "application": application,
    "unknown": _unknown,
}
