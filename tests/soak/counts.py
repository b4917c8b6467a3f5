# SPDX-License-Identifier: Apache-2.0
"""What hopscope counted, by each way to get it, and what the kernel itself did."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tests.verbs.serve.receiver import metrics_of

if TYPE_CHECKING:
    import hopscope
    from hopscope.lab import Lab, Namespace
    from tests.verbs.serve.receiver import Receiver
    from tests.verbs.serve.served import Served

# Where every packet passes that the stack gets.
POINT: Final = "rx.core"
_HEADER_BYTES: Final = 14  # Ethernet's, which is no part of a packet any more there
_REASONS: Final = {"nobody listens": "NO_SOCKET", "socket full": "SOCKET_RCVBUFF"}


class Subscriber:
    """Counts the events of a subscription, and their bytes, in a thread.

    Attributes
    ----------
    packets, len_bytes
        Events that it got, and the sum of their lengths.
    """

    def __init__(self, subscription: hopscope.Subscription) -> None:
        self._subscription = subscription
        self.packets = self.len_bytes = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    @property
    def lost(self) -> int:
        return self._subscription.lost + self._subscription.kernel_lost

    def join(self) -> None:
        """Wait until the server has ended the subscription."""
        self._thread.join()

    def _run(self) -> None:
        import pyarrow.compute as pc  # noqa: PLC0415 # no stubs

        for batch in self._subscription.batches():
            self.packets += batch.num_rows
            self.len_bytes += int(pc.sum(batch.column("len_bytes")).as_py())


def of_kernel(lab: Lab, messages: int) -> dict[str, int]:
    """Return the kernel's counters of both namespaces, and how many messages TCP was given, which it does not count."""
    devices = {**_devices(lab.client), **_devices(lab.server)}
    udp = [_udp(namespace) for namespace in (lab.client, lab.server)]
    found = {
        "messages sent": messages,
        "packets": sum(packets for _, packets in devices.values()),
        "bytes": sum(len_bytes for len_bytes, _ in devices.values()),
    }
    for ours, theirs in (
        ("datagrams read", "InDatagrams"),
        ("nobody listens", "NoPorts"), ("socket full", "RcvbufErrors"),
    ):  # fmt: skip
        found[ours] = sum(each[theirs] for each in udp)
    return found


def _devices(namespace: Namespace) -> dict[str, tuple[int, int]]:
    """Return received bytes and packets of each interface."""
    lines = _read(namespace, "dev").splitlines()[2:]
    fields = {name.strip(): rest.split() for name, _, rest in (line.partition(":") for line in lines)}
    return {f"{name}@{namespace.inode}": (int(each[0]), int(each[1])) for name, each in fields.items()}


def _udp(namespace: Namespace) -> dict[str, int]:
    names, values = (line.split()[1:] for line in _read(namespace, "snmp").splitlines() if line.startswith("Udp: "))
    return {name: int(value) for name, value in zip(names, values, strict=True)}


def _read(namespace: Namespace, name: str) -> str:
    return namespace.call(Path(f"/proc/thread-self/net/{name}").read_text)


def of_metrics(samples: dict[tuple[str, str], float]) -> dict[str, int]:
    """Return what the metrics say of the same."""

    def total(name: str, *labels: str) -> int:
        return int(sum(value for key, value in samples.items() if key[0] == name and all(x in key[1] for x in labels)))

    unseen = total("hopscope_receive_discarded_samples_total", 'hop="rx.udp_read"', 'reason="unseen"')
    read = total("hopscope_receive_hop_seconds_count", 'hop="rx.udp_total"')
    drops = {what: total("hopscope_dropped_packets_total", f'reason="{reason}"') for what, reason in _REASONS.items()}
    return {
        "packets": total("hopscope_receive_packets_total", 'fate="entered"'),
        "datagrams read": read + unseen,
        "messages sent": total("hopscope_transmit_hop_seconds_count", 'hop="tx.total"'),
        **drops,
    }


def of_pushed(receiver: Receiver) -> dict[str, int]:
    """Return what the last request says that the receiver got."""
    metrics = metrics_of(receiver.requests[-1].body)

    def points(name: str) -> list[tuple[str, Any]]:
        data = metrics[name]
        found = data.exponential_histogram.data_points or data.sum.data_points
        return [(" ".join(each.value.string_value for each in point.attributes), point) for point in found]

    hops = dict(points("hopscope_receive_hop_seconds"))
    drops = points("hopscope_dropped_packets_total")
    found = {
        what: sum(point.as_int for labels, point in drops if labels.split()[0] == reason)
        for what, reason in _REASONS.items()
    }
    return {"datagrams read": hops["rx.udp_total packet"].count, **found}


class Counts(NamedTuple):
    """All of them at a moment."""

    kernel: dict[str, int]
    ours: dict[str, dict[str, int]]
    lost: int

    @classmethod
    def now(cls, known: dict[str, int], served: Served, subscriber: Subscriber, receiver: Receiver) -> Counts:
        """Read them; `known` is what there was until now."""
        got = {"packets": subscriber.packets, "bytes": subscriber.len_bytes + _HEADER_BYTES * subscriber.packets}
        lost = subscriber.lost
        ours = {"metrics": of_metrics(served.samples()), "OTLP": of_pushed(receiver), "subscriber": got}
        return cls(known, ours, lost)

    def since(self, before: Counts) -> Counts:
        """Return what was counted since then."""
        ours = {way: _less(counts, before.ours[way]) for way, counts in self.ours.items()}
        return Counts(_less(self.kernel, before.kernel), ours, self.lost - before.lost)

    def differences(self) -> list[str]:
        """Return a sentence for each count that is not the kernel's; a subscriber is told how many packets it lost."""
        return [
            f"{what}: {way} has {count:,}, the kernel {self.kernel[what]:,}; {self.lost:,} lost"
            for way, counts in self.ours.items()
            for what, count in counts.items()
            if count != self.kernel[what] and not self._is_told(way, what, count)
        ]

    def _is_told(self, way: str, what: str, count: int) -> bool:
        missing = self.kernel[what] - count
        return way == "subscriber" and missing > 0 and (self.lost >= missing or (what == "bytes" and self.lost > 0))


def _less(now: dict[str, int], before: dict[str, int]) -> dict[str, int]:
    return {what: count - before[what] for what, count in now.items()}
