# SPDX-License-Identifier: Apache-2.0
"""What the tests of ``tx`` for TCP share: a run on the lab's flows alone, and whether each message is accounted for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from hopscope.verbs.tx.collector import TxCollector
from hopscope.verbs.tx.options import TxOptions
from tests.lab.measure import all_discarded, counts
from tests.verbs.tx.measure import require_stamps
from tests.waiting import eventually

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterable

    from hopscope.lab import Lab, Namespace
    from hopscope.model.message import Message
    from hopscope.model.snapshot import Snapshot

# How TCP is followed: by the kernel's time stamps, and by tracing.
WAYS: Final[dict[str, dict[str, str]]] = {"stamped": {}, "traced": {"tx.sched": "tp_btf:net_dev_queue"}}
# The hops of which every message has a sample or a reason.
HOPS: Final = {
    "stamped": ("tx.tcp", "tx.sched", "tx.qdisc", "tx.driver", "tx.host", "tx.ack", "tx.total"),
    "traced": ("tx.sched", "tx.qdisc", "tx.ack", "tx.total"),
}


def run(lab: Lab, way: str = "stamped", **options: Any) -> TxCollector:  # noqa: ANN401 - whatever TxOptions takes
    """Return a collector that sees the TCP flows of the lab and nothing else of this machine."""
    return run_in((lab.client, lab.server), way, **options)


def run_in(namespaces: Iterable[Namespace], way: str = "stamped", **options: Any) -> TxCollector:  # noqa: ANN401 - as above
    """Return a collector that sees the TCP flows of these namespaces; skip the test where the kernel lacks the way."""
    if way == "stamped":
        require_stamps()
    chosen = {"protocol": "tcp", "events": True, "flow_hooks": False, "ways": WAYS[way], **options}
    return TxCollector(TxOptions(namespaces=[namespace.inode for namespace in namespaces], **chosen))


def accounted(snapshot: Snapshot) -> dict[str, int]:
    """Return for each hop the messages that have a sample or a reason why not."""
    found = counts(snapshot)
    for (hop, _), count in all_discarded(snapshot).items():
        found[hop] += count
    return found


def done(tx: TxCollector, messages: int) -> Snapshot:
    """Wait until so many messages are done, with their ACK or without; return what was seen since the start."""

    def all_done() -> Snapshot | None:
        tx.interval()
        snapshot = tx.total()
        return snapshot if accounted(snapshot)["tx.total"] >= messages else None

    return eventually(all_done, f"{messages} messages are not done")


def assert_accounted(snapshot: Snapshot, way: str, messages: int) -> None:
    """Each hop has a sample of each message, or says why not."""
    found = accounted(snapshot)
    found = {hop: found[hop] for hop in HOPS[way]}
    assert found == dict.fromkeys(HOPS[way], messages), (found, counts(snapshot), all_discarded(snapshot))


def assert_each(snapshot: Snapshot, way: str, messages: int) -> None:
    """Each hop has a sample of each message."""
    assert_accounted(snapshot, way, messages)
    assert all_discarded(snapshot) == {}, all_discarded(snapshot)


def events(tx: TxCollector) -> list[Message]:
    """Return the messages that were done since the last call, in the order of the stream."""
    assert tx.messages is not None
    return sorted(tx.messages.decode(tx.messages.read()), key=lambda message: (message.cookie, message.end_byte))


def held(snapshot: Snapshot) -> dict[str, int]:
    """Return cause → messages of whose wait it has a part."""
    found = counts(snapshot)
    return {hop.removeprefix("tx.sched_"): found[hop] for hop in found if hop.startswith("tx.sched_") and found[hop]}


def cookie(sock: socket.socket) -> int:
    """Return the kernel's number of a socket."""
    return int.from_bytes(sock.getsockopt(1, _SO_COOKIE, 8), "little")


def read_all(receiver: socket.socket, len_bytes: int) -> None:
    """Read so many bytes."""
    while len_bytes:
        had = len(receiver.recv(min(len_bytes, 1 << 20)))
        assert had
        len_bytes -= had


_SO_COOKIE: Final = 57
