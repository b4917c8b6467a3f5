# SPDX-License-Identifier: Apache-2.0
"""The causes that hold a message between its send call and the read that delivers it.

Every nanosecond between the two belongs to exactly one cause. All verbs use these names, live and for recordings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SENDER: Final = "sender's application"
SENDER_STACK: Final = "sender's stack"
NETWORK: Final = "network"
RETRANSMISSION: Final = "retransmission"
RECEIVER_STACK: Final = "receiver's stack"
RECEIVER: Final = "receiver's application"
NOWHERE: Final = "unknown"


@dataclass(frozen=True, slots=True)
class Cause:
    """What holds a message.

    Attributes
    ----------
    name
        Its name in every output.
    part
        The part of the path where it holds a message.
    meaning
        What happens meanwhile, as part of a sentence.
    usual
        Whether it is part of every message's path: it takes time, but little, and nothing is wrong.
    much_ns
        What it may hold a message on average before that is a finding even if messages are not slow, because it takes
        CPU time from everything else; None: any time.
    """

    name: str
    part: str
    meaning: str
    usual: bool = False
    much_ns: int | None = None

    @property
    def column(self) -> str:
        """Name of the column with its time."""
        return f"held_{self.name.replace('-', '_')}_ns"


# In the order in which a message can meet them.
CAUSES: Final = (
    Cause("send-lock", SENDER, "another thread holds the lock of the sending socket"),
    Cause("send-copy", SENDER, "the send call copies the bytes, and TCP makes packets of them", usual=True),
    Cause("send-buffer", SENDER_STACK, "the send buffer is full of bytes that are not yet acknowledged"),
    Cause("handshake", SENDER_STACK, "the connection is being set up"),
    Cause("receiver-window", SENDER_STACK, "the receiver's window has no room"),
    Cause("congestion-window", SENDER_STACK, "the congestion window is full"),
    Cause("pacing", SENDER_STACK, "TCP or fq sends at a limited rate"),
    Cause("nagle", SENDER_STACK, "Nagle's algorithm keeps a small segment until earlier bytes are acknowledged"),
    Cause("cork", SENDER_STACK, "TCP_CORK or MSG_MORE asks for more bytes before a segment leaves"),
    Cause("small-queue", SENDER_STACK, "enough bytes of the socket are in the qdisc and the driver (TCP small queues)"),
    Cause("neighbour", SENDER_STACK, "the link-layer address of the next hop is being resolved"),
    Cause("shaper", SENDER_STACK, "a queueing discipline delays packets on purpose: a rate, or netem"),
    Cause("queue-others", SENDER_STACK, "packets of other flows are ahead in the queueing discipline"),
    Cause("queue-own", SENDER_STACK, "packets of the same flow are ahead in the queueing discipline"),
    Cause("driver", SENDER_STACK, "the driver, or its queue, which is full"),
    Cause("network", NETWORK, "between the sender's driver and the receiver's"),
    Cause("retransmission", RETRANSMISSION, "its bytes were lost, until they were sent again"),
    Cause("stream-hole", RETRANSMISSION, "it has arrived, but earlier bytes of the stream are missing"),
    Cause("interrupt", RECEIVER_STACK, "the device's interrupt is moderated or disabled"),
    Cause("softirq-wait", RECEIVER_STACK, "the receive softirq is pending but does not run"),
    Cause("gro", RECEIVER_STACK, "generic receive offload waits for more segments"),
    Cause("backlog", RECEIVER_STACK, "the packet is in the backlog queue of a CPU or of a socket in use", usual=True),
    Cause("netfilter", RECEIVER_STACK, "netfilter's rules are evaluated", much_ns=100_000),
    Cause("stack", RECEIVER_STACK, "the stack's own processing: IP, routing, TCP or UDP", usual=True),
    Cause("reader-asleep", RECEIVER, "the reading thread sleeps"),
    Cause("reader-runnable", RECEIVER, "the reading thread wants a CPU and has none"),
    Cause("reader-running", RECEIVER, "the reading thread runs, but does not read"),
    Cause("earlier-data", RECEIVER, "the reading thread copies data that came before"),
    Cause("receive-copy", RECEIVER, "the receive call copies the bytes and returns", usual=True),
    Cause("application", RECEIVER, "between the read of a request and the send call of its answer"),
    Cause("unknown", NOWHERE, "not recorded"),
)
BY_NAME: Final = {cause.name: cause for cause in CAUSES}
UNKNOWN: Final = "unknown"
