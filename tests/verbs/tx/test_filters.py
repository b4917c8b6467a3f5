# SPDX-License-Identifier: Apache-2.0
"""Each filter of ``tx``, with one flow that matches and one that does not: all of the first, nothing of the second.

TCP is looked at both ways that it can be followed.
"""

from __future__ import annotations

import contextlib
import functools
import ipaddress
import os
import socket
import struct
from typing import TYPE_CHECKING, Any

import pytest

from hopscope.lab import Lab, Workload
from tests.lab.measure import NetworkPath, ping, tcp_pair, udp_pair, way
from tests.verbs.rx.test_filters import cgroups
from tests.verbs.tx.measure import UDP_HOPS, assert_seen, run_tx, total_when

if TYPE_CHECKING:
    from collections.abc import Callable

    from hopscope.model.snapshot import Snapshot
    from hopscope.verbs.tx.collector import TxCollector

pytestmark = pytest.mark.root

KINDS = {
    "udp": {"protocol": "udp"},
    "stamped": {"protocol": "tcp"},
}
TCP_HOPS = ("tx.sched", "tx.qdisc", "tx.ack", "tx.total")


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def pair(kind: str, path: NetworkPath) -> Any:  # noqa: ANN401 - a context manager
    return udp_pair(path) if kind == "udp" else tcp_pair(path)


def run_kind(lab: Lab, kind: str, **options: Any) -> TxCollector:  # noqa: ANN401 - as for run_tx
    return run_tx(lab, **KINDS[kind], **options)


def seen(tx: TxCollector, kind: str, expected: int) -> Snapshot:
    """Check that all that was wanted, and nothing else, is at each hop."""
    snapshot = total_when(tx, "tx.udp_total" if kind == "udp" else "tx.total", expected)
    assert_seen(snapshot, UDP_HOPS if kind == "udp" else TCP_HOPS, expected)
    return snapshot


@pytest.mark.slow
@pytest.mark.parametrize("end", ["source", "destination"])
def test_port(lab: Lab, either: NetworkPath, kind: str, end: str) -> None:
    with pair(kind, either) as flow, pair(kind, either) as other:
        sender, receiver = flow
        port = (sender if end == "source" else receiver).getsockname()[1]
        with run_kind(lab, kind, ports=[port]) as tx:
            assert ping(*other, 69) + ping(*flow, 23) == 92
            seen(tx, kind, 23)


@pytest.mark.parametrize(
    ("wanted", "other", "prefix"),
    [
        ("veth-4", "lo-4", "10.77.0.0/24"),
        ("veth-4", "veth-6", "10.77.0.2/32"),
        ("veth-6", "lo-6", "fd77::/64"),
        ("lo-6", "veth-6", "::1/128"),
        ("lo-4", "veth-4", "126.0.0.0/7"),
    ],
)
def test_address(lab: Lab, kind: str, wanted: str, other: str, prefix: str) -> None:
    addresses = [ipaddress.ip_network(prefix)]
    with (
        pair(kind, way(lab, wanted)) as flow,
        pair(kind, way(lab, other)) as other_flow,
        run_kind(lab, kind, addresses=addresses) as tx,
    ):
        assert ping(*other_flow, 69) + ping(*flow, 23) == 92
        seen(tx, kind, 23)


def test_address_of_an_unconnected_sender(lab: Lab, veth: NetworkPath) -> None:
    with udp_pair(veth) as (_, receiver), lab.client.call(socket.socket, socket.AF_INET6, socket.SOCK_DGRAM) as sender:
        host, port = receiver.getsockname()
        for wanted, expected in (("10.77.0.2/32", 23), ("10.77.0.9/32", 0)):
            with run_kind(lab, "udp", addresses=[ipaddress.ip_network(wanted)], ports=[port]) as tx:
                for _ in range(23):
                    sender.sendto(b"mapped", (f"::ffff:{host}", port))
                seen(tx, "udp", expected)


def test_a_protocol_without_ports_has_no_port(lab: Lab) -> None:
    echo = struct.pack("!BBHHH", 128, 0, 0, 7, 1)
    raw = lab.client.call(socket.socket, socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6)
    with raw as sender, run_kind(lab, "udp", ports=[128 << 8]) as tx:  # its type and code, where others have a port
        for _ in range(23):
            sender.sendto(echo, ("fd77::2", 0))
        seen(tx, "udp", 0)


def test_namespace(lab: Lab, kind: str) -> None:
    loopback = NetworkPath(lab.client, lab.client, "127.0.0.1", "lo")
    with (
        pair(kind, loopback) as flow,
        pair(kind, way(lab, "lo-4")) as other,
        run_kind(lab, kind, namespaces=[lab.client.inode]) as tx,
    ):
        assert ping(*flow, 23) + ping(*other, 69) == 92
        seen(tx, kind, 23)


def traffic(path: NetworkPath, kind: str, messages: int, *options: Any) -> None:  # noqa: ANN401 - words
    """Send so many messages of 100 bytes by a process of its own, with these options."""
    protocol = "udp" if kind == "udp" else "tcp"
    with Workload(path.receiver, f"{protocol}-sink", "--bind", path.host, "--count", messages) as sink:
        words = (path.host, sink.port, "--size", 100, "--count", messages, "--rate", 1000)
        Workload(path.sender, f"{protocol}-send", *words, *options).result()
        sink.result()


def test_cgroup_of_the_socket_and_those_below(lab: Lab, veth: NetworkPath, kind: str) -> None:
    with cgroups() as (wanted, child, other), run_kind(lab, kind, cgroups=[wanted.stat().st_ino]) as tx:
        traffic(veth, kind, 69, "--cgroup", other)
        traffic(veth, kind, 23, "--cgroup", wanted)
        traffic(veth, kind, 7, "--cgroup", child)
        seen(tx, kind, 30)


def test_name_of_the_sender(lab: Lab, veth: NetworkPath, kind: str) -> None:
    with run_kind(lab, kind, comms=["wanted-name"]) as tx:
        traffic(veth, kind, 69, "--comm", "wanted-names")
        traffic(veth, kind, 23, "--comm", "wanted-name")
        traffic(veth, kind, 7)
        seen(tx, kind, 23)


def in_child(act: Callable[[], object]) -> tuple[int, Callable[[], None]]:
    """Fork a process; return its pid, and what makes it act and waits for its end."""
    ready, go = os.pipe()
    pid = os.fork()
    if not pid:
        code = 1
        try:
            os.close(go)
            if os.read(ready, 1):
                act()
                code = 0
        finally:
            os._exit(code)
    os.close(ready)

    def finish() -> None:
        os.write(go, b"x")
        os.close(go)
        assert os.waitpid(pid, 0)[1] == 0

    return pid, finish


def test_pid_of_the_sender_whoever_opened_the_socket(lab: Lab, veth: NetworkPath, kind: str) -> None:
    with pair(kind, veth) as (sender, receiver):
        pid, finish = in_child(lambda: [sender.send(bytes(100)) and receiver.recv(200) for _ in range(23)])
        with run_kind(lab, kind, pids=[pid]) as tx:
            assert ping(sender, receiver, 69) == 69
            finish()
            seen(tx, kind, 23)


def test_pid_has_what_it_connects_later(lab: Lab, veth: NetworkPath, kind: str) -> None:
    with run_kind(lab, kind, pids=[os.getpid()]) as tx:
        traffic(veth, kind, 69)
        for _ in range(3):
            with pair(kind, veth) as flow:
                assert ping(*flow, 23) == 23
                _, finish = in_child(functools.partial(flow[0].send, bytes(100)))
                finish()
                assert len(flow[1].recv(200)) == 100
        seen(tx, kind, 69)


@pytest.mark.parametrize("kind", ["stamped"], indirect=True)
@pytest.mark.parametrize("by", ["pid", "comm"])
def test_what_a_listener_accepts_is_its_process_s(lab: Lab, veth: NetworkPath, kind: str, by: str) -> None:
    name = ("--comm", "wanted-name")
    with (
        Workload(lab.server, "tcp-echo", "--bind", veth.host, *name) as wanted,
        Workload(lab.server, "tcp-echo", "--bind", veth.host) as other,
    ):
        chosen: dict[str, Any] = {"pids": [wanted.pid]} if by == "pid" else {"comms": ["wanted-name"]}
        with run_kind(lab, kind, **chosen) as tx:
            for echo, requests in ((other, 69), (wanted, 23)):
                words = (veth.host, echo.port, "--count", requests)
                Workload(lab.client, "tcp-rr", *words).result()
            seen(tx, kind, 23)


def test_two_filters_must_both_hold(lab: Lab, kind: str) -> None:
    with pair(kind, way(lab, "veth-4")) as flow, pair(kind, way(lab, "lo-4")) as lo:
        ports = [flow[1].getsockname()[1], lo[1].getsockname()[1]]
        with run_kind(lab, kind, ports=ports, addresses=[ipaddress.ip_network("10.0.0.0/8")]) as tx:
            assert ping(*lo, 69) + ping(*flow, 23) == 92
            seen(tx, kind, 23)


def test_values_of_one_filter_are_alternatives(lab: Lab, veth: NetworkPath, kind: str) -> None:
    with contextlib.ExitStack() as stack:
        flows = [stack.enter_context(pair(kind, veth)) for _ in range(17)]
        tx = stack.enter_context(run_kind(lab, kind, ports=[flow[1].getsockname()[1] for flow in flows[:16]]))
        for flow in flows:
            assert ping(*flow, 3) == 3
        seen(tx, kind, 48)


@pytest.mark.parametrize("protocol", ["udp", "tcp"])
def test_protocol(lab: Lab, either: NetworkPath, protocol: str) -> None:
    with udp_pair(either) as udp, tcp_pair(either) as tcp, run_tx(lab, protocol=protocol) as tx:
        assert ping(*udp, 23) + ping(*tcp, 7) == 30
        snapshot = seen(tx, "udp" if protocol == "udp" else "stamped", 23 if protocol == "udp" else 7)
    assert {row.hop.startswith("tx.udp") for row in snapshot.hops} == {protocol == "udp"}
