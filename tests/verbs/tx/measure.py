# SPDX-License-Identifier: Apache-2.0
"""What the accuracy tests of ``tx`` share: a run on the lab alone, and what it must have seen."""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any

import pytest

from hopscope.probes.catalogue import POINTS
from hopscope.probes.resolve import Resolver
from hopscope.verbs.tx.collector import TxCollector
from hopscope.verbs.tx.options import TxOptions
from tests.lab.measure import NetworkPath, all_discarded, counts, ping, udp_pair
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hopscope.lab import Lab, Namespace
    from hopscope.model.message import Message
    from hopscope.model.snapshot import Snapshot
    from hopscope.probes.grants import AttachSupport

UDP_HOPS = ("tx.udp", "tx.udp_qdisc", "tx.udp_driver", "tx.udp_total")


def run_tx(lab: Lab, **options: Any) -> TxCollector:  # noqa: ANN401 - whatever TxOptions takes
    """Return a collector that sees the lab and nothing else of this machine, by the hooks of all hops."""
    return TxCollector(
        TxOptions(**{"namespaces": [lab.client.inode, lab.server.inode], "flow_hooks": False, **options})
    )


def run_udp(lab: Lab, **options: Any) -> TxCollector:  # noqa: ANN401 - as above
    """Return one that sees what is not TCP."""
    return run_tx(lab, protocol="udp", **options)


@functools.cache
def _stamps() -> AttachSupport:
    return Resolver().judge(POINTS["tx.tcp"].ways[0])


def require_stamps() -> None:
    """Skip the test where the kernel has no BPF time stamps."""
    if not _stamps().granted:
        pytest.skip(f"no BPF time stamps here: {_stamps().reason}")


def total_when(tx: TxCollector, hop: str, expected: int) -> Snapshot:
    """Return all that was seen, once the hop has so many samples."""

    def there() -> bool:
        tx.interval()
        return counts(tx.total())[hop] >= expected

    eventually(there, f"{hop} does not get {expected} samples")
    return tx.total()


def assert_seen(snapshot: Snapshot, hops: Iterable[str], expected: int) -> None:
    """Each of these hops has so many samples, and nothing was discarded."""
    found = counts(snapshot)
    found = {hop: found[hop] for hop in hops}
    assert found == dict.fromkeys(hops, expected), (found, all_discarded(snapshot))
    assert all_discarded(snapshot) == {}


def messages(tx: TxCollector) -> list[Message]:
    """Return the single messages since the last call."""
    assert tx.messages is not None
    return tx.messages.decode(tx.messages.read())


def devices(single: list[Message]) -> set[tuple[str, ...]]:
    """Return the ways that messages took."""
    return {tuple(device.name for device in message.devices) for message in single}


def ip(namespace: Namespace, *commands: str) -> None:
    """Run commands of `ip`; skip the test where the kernel lacks a kind of device."""
    for words in commands:
        done = namespace.run(["ip", *words.split()], capture_output=True, text=True)
        if "Unknown device type" in done.stderr:
            pytest.skip(f"this kernel has no device of this kind: ip {words}")
        assert done.returncode == 0, (words, done.stderr)


@contextlib.contextmanager
def vxlan(lab: Lab) -> Iterator[NetworkPath]:
    """Yield a path from client to server by a tunnel in the veth."""
    for namespace, device, host, other in ((lab.client, "client0", 1, 2), (lab.server, "server0", 2, 1)):
        ip(
            namespace,
            f"link add vxlan7 type vxlan id 7 remote 10.77.0.{other} local 10.77.0.{host} dev {device} dstport 4789",
            f"addr add 10.78.0.{host}/24 dev vxlan7",
            "link set vxlan7 up",
        )
    path = NetworkPath(lab.client, lab.server, "10.78.0.2", "vxlan7")
    with udp_pair(path) as flow:
        ping(*flow, 1)  # the neighbour is found
    yield path
