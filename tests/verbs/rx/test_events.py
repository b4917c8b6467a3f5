# SPDX-License-Identifier: Apache-2.0
"""Single messages of ``rx`` on traffic whose answer is known: as many as were sent, and the slow one is the slowest."""

from __future__ import annotations

import socket
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from hopscope.bpf.layout import HopLimits
from hopscope.lab import Workload
from hopscope.lab.veth import SERVER_IPV4
from tests.lab.command import assert_fits, complaint, hopscope, objects, only
from tests.lab.measure import MS, counts, discarded, histogram, ping, run, tcp_pair, udp_pair

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hopscope.lab import Lab
    from hopscope.model.message import Message
    from hopscope.model.snapshot import Snapshot
    from hopscope.verbs.rx.collector import RxCollector
    from tests.lab.measure import NetworkPath

pytestmark = pytest.mark.root
MESSAGES = 23
UDP_SEGMENT = 103


def messages(rx: RxCollector) -> Sequence[Message]:
    """Return the single messages since the last call."""
    assert rx.messages is not None
    return rx.messages.decode(rx.messages.read())


def end(sock: socket.socket) -> str:
    host, port = sock.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def assert_same(single: Sequence[Message], snapshot: Snapshot, before_sockets: bool) -> None:  # noqa: FBT001
    """Fail unless the histograms have these messages: as many, with as much time at each hop.

    At the hops `before_sockets` there are acknowledgements, too, unless they are of what joined a socket alone.
    """
    found = [each.hops() for each in single]
    hops = {hop for each in found for hop in each}
    for hop in hops if before_sockets else hops - {"rx.core", "rx.ip", "rx.tcp"}:
        assert sum(each.get(hop) or 0 for each in found) == histogram(snapshot, hop).sum_ns, hop
    for protocol in ("tcp", "udp"):
        total = histogram(snapshot, f"rx.{protocol}_total")
        times = [each.total_ns or 0 for each in single if each.datagram == (protocol == "udp")]
        assert (len(times), sum(times)) == (total.count, total.sum_ns)


@pytest.mark.parametrize("ports_given", [False, True])
def test_events_are_the_messages_of_the_histograms(lab: Lab, either: NetworkPath, ports_given: bool) -> None:  # noqa: FBT001
    with tcp_pair(either) as tcp, udp_pair(either) as udp:
        ports = [each[1].getsockname()[1] for each in (tcp, udp)] if ports_given else []
        with run(lab, events=True, ports=ports) as rx:
            assert ping(*tcp, MESSAGES, 100) + ping(*udp, 7, 50) == MESSAGES + 7
            snapshot, single = rx.interval(), messages(rx)
        assert [each.len_bytes for each in single] == [100] * MESSAGES + [50] * 7
        assert [each.end_byte for each in single] == [100 * (i + 1) for i in range(MESSAGES)] + [0] * 7
        of_tcp, of_udp = ({each.path for each in part} for part in (single[:MESSAGES], single[MESSAGES:]))
        assert (of_tcp, of_udp) == ({f"{end(tcp[0])} > {end(tcp[1])}"}, {f"{end(udp[0])} > {end(udp[1])}"})
    assert_same(single, snapshot, before_sockets=ports_given)
    assert snapshot.lost == 0


def test_hops_that_are_not_shown_are_in_the_messages(lab: Lab, veth: NetworkPath) -> None:
    with udp_pair(veth) as udp, run(lab, events=True, hops=["rx.ip"], since_entry=True) as rx:
        assert ping(*udp, 7) == 7
        snapshot, single = rx.interval(), messages(rx)
    assert {*counts(snapshot)} == {"rx.ip"}
    ip_since_entry_ns = [(each.hops()["rx.core"] or 0) + (each.hops()["rx.ip"] or 0) for each in single]
    assert sum(ip_since_entry_ns) == histogram(snapshot, "rx.ip").sum_ns
    for each in single:
        assert sum(duration or 0 for duration in each.hops().values()) == each.total_ns


def test_the_slowest_is_the_one_for_which_the_reader_slept(lab: Lab, veth: NetworkPath) -> None:
    with tcp_pair(veth) as tcp, udp_pair(veth) as udp, run(lab, slowest=3) as rx:
        ping(*tcp, MESSAGES)
        ping(*udp, MESSAGES)
        for sender, receiver, len_bytes in ((*tcp, 137), (*udp, 71)):
            sender.send(bytes(len_bytes))
            time.sleep(0.1)
            receiver.recv(1000)
        assert rx.found.fetch() == []
        rx.interval()
        slowest = rx.found.slowest("interval")
    assert slowest is not None
    assert (slowest.seen, slowest.unfinished, len(slowest.messages)) == (2 * MESSAGES + 2, 0, 3)
    first, second, third = slowest.messages
    assert {first.len_bytes, second.len_bytes} == {137, 71}
    for each, protocol in ((first, "udp" if first.datagram else "tcp"), (second, "udp" if second.datagram else "tcp")):
        assert 95 * MS < (each.hops()[f"rx.{protocol}_asleep"] or 0) < (each.total_ns or 0)
        assert each.blame() == ("reader-asleep", each.hops()[f"rx.{protocol}_asleep"])
    assert (third.total_ns or 0) <= (second.total_ns or 0)


def test_segments_that_share_a_sample_are_one_message_with_the_bytes_of_all(lab: Lab, veth: NetworkPath) -> None:
    sent = 2 * HopLimits.HOP_SEGMENTS
    with tcp_pair(veth) as (sender, receiver), run(lab, events=True, protocol="tcp") as rx:
        for _ in range(sent):
            sender.send(bytes(100))
            receiver.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)  # else TCP sends several as one
        had = 0
        while had < sent * 100:
            had += len(receiver.recv(1 << 20))
        snapshot, single = rx.interval(), messages(rx)
    assert discarded(snapshot)["rx.tcp_read", "merged"] > 0
    assert len(single) == histogram(snapshot, "rx.tcp_total").count == HopLimits.HOP_SEGMENTS
    assert sum(each.len_bytes for each in single) == sent * 100 == single[-1].end_byte


def test_datagrams_that_came_as_one_packet_are_messages_of_their_own(lab: Lab, veth: NetworkPath) -> None:
    with udp_pair(veth) as (sender, receiver), run(lab, events=True, protocol="udp") as rx:
        sender.setsockopt(socket.SOL_UDP, UDP_SEGMENT, 100)
        sender.send(bytes(950))
        for _ in range(10):
            receiver.recv(200)
        single = messages(rx)
    assert [each.len_bytes for each in single] == [100] * 9 + [50]
    assert all(each.total_ns == sum(each.layers().values()) for each in single)


def test_events_and_slowest_as_json(kept_lab: Lab) -> None:
    with Workload(kept_lab.server, "tcp-echo", "--bind", SERVER_IPV4) as echo:
        client = [sys.executable, "-m", "hopscope.lab.traffic", "tcp-rr", SERVER_IPV4, echo.port, "--count", MESSAGES]
        command = ["--", "nsenter", f"--net=/proc/{kept_lab.client.pid}/ns/net", *client]
        done = hopscope("rx", "--events", "--slowest", 2, "--json", *only(kept_lab), *command)
        assert done.returncode == 0, done.stderr
    documents = objects(done.stdout)
    of: dict[str, list[Any]] = {}
    for each in documents:
        of.setdefault(each["schema"], []).append(each)
        assert_fits(each, each["schema"].removeprefix("hopscope.").replace("/", "-"))
    single, total = of["hopscope.rx.message/1"], documents[-1]
    assert total["kind"] == "total"
    (row,) = [row for row in total["hops"] if row["hop"] == "rx.tcp_total"]
    assert len(single) == 2 * MESSAGES == row["count"]
    for each in single:
        assert {each["local"], each["peer"]} == {"10.77.0.1", "10.77.0.2"}
        assert (each["len_bytes"], each["protocol"], each["comm"][:6]) == (64, "tcp", "python")
        times = [each[f"{name}_ns"] for name in ("entry", "core", "ip", "transport", "queued", "done")]
        assert times == sorted(times)
    (slowest,) = [each for each in of["hopscope.rx.slowest/1"] if each["kind"] == "total"]
    assert [each["total_ns"] for each in slowest["messages"]] == sorted(each["total_ns"] for each in single)[:-3:-1]


def test_single_messages_are_not_of_all_hosts_together() -> None:
    done = hopscope("rx", "--events", "--host", "a", "--host", "b", "--together")
    assert complaint(done, 2).startswith("--together cannot be combined with --events or --slowest")
