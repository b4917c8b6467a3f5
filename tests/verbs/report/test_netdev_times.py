# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING

from hopscope.store.trace import Trace
from hopscope.trace.host_numbers import CPUS
from hopscope.trace.selection import Selection
from hopscope.verbs.report.netdev_times import received, sent
from tests.lab.joined import JoinedTrace
from tests.lab.traces import UDP, MadeTrace

if TYPE_CHECKING:
    from pathlib import Path

    from hopscope.model.report import Report, Value


def poll(made: MadeTrace, at: int, *, cpu: int = 0, interrupt: bool = True) -> None:
    """An interrupt raises a softirq, which ends after 1000 ns, 100 ns after its poll."""
    if interrupt:
        made.work("irq.enter", at, cpu=cpu, subject=24)
    made.work("softirq.raise", at + 10, cpu=cpu, subject=3)
    if interrupt:
        made.work("irq.exit", at + 20, cpu=cpu, subject=24)
    made.work("softirq.enter", at + 30, cpu=cpu, subject=3)
    made.work("napi.poll", at + 930, cpu=cpu)
    made.work("softirq.exit", at + 1_030, cpu=cpu, subject=3)


def rows(report: Report, *names: str) -> list[tuple[Value, ...]]:
    return list(zip(*map(report.column, names), strict=True))


def test_received_packet_is_followed_from_the_interrupt_to_the_copy(tmp_path: Path) -> None:
    made = MadeTrace()
    made.thread(18, "server")
    eth0 = made.device("eth0", 2)
    flow, datagrams = made.flow("10.0.0.1:1", "10.0.0.2:2"), made.flow("10.0.0.1:3", "10.0.0.2:4", UDP)
    poll(made, 1_000)
    poll(made, 5_000, interrupt=False)
    made.work("softirq.enter", 6_500, subject=1)  # of timers: nothing of ours is in it
    for at, of in ((1_100, flow), (5_100, datagrams), (6_600, flow)):
        made.packet("rx.driver", at, skb=8, head=9, flow=of, **eth0)
        made.packet("rx.core", at + 100, skb=8, head=9, len_bytes=60, **eth0)
    made.packet("rx.copy", 1_700, skb=8, head=9, cpu=1, tid=18)  # then its address is used again, without an end
    made.packet("skb.free", 5_800, skb=8, head=9, cpu=1, tid=18)
    with Trace(made.write(tmp_path / "trace")) as trace:
        report = received(trace, Selection())
        chosen = received(trace, Selection(ports=[4]))
    names = ("at_ns", "irq_ns", "softirq_ns", "receive_ns", "copy_ns", "poll_exit_ns", "thread", "instead")
    assert rows(report, *names) == [
        (1_000, 0, 30, 200, 700, 930, "server-18", ""),
        (5_030, None, 0, 170, None, 900, None, "freed"),
        (6_700, None, None, 0, None, None, None, "not seen"),
    ]
    assert chosen.column("at_ns") == [5_030]


def test_what_is_not_copied_is_not_said_to_be(tmp_path: Path) -> None:
    made = MadeTrace()
    eth0, eth1 = made.device("eth0", 2), made.device("eth1", 3)
    for number, ends in enumerate(["skb.drop", "skb.free", "tx.queue", "rx.tcp_queue"]):
        where = {"skb": number, "head": number + 1, "tid": 77}
        made.packet("rx.core", 1_000 * number, **where, **eth0)
        made.packet(ends, 1_000 * number + 100, **where, **(eth1 if ends == "tx.queue" else {}))
    with Trace(made.write(tmp_path / "trace")) as trace:
        report = received(trace, Selection())
    assert rows(report, "copy_ns", "thread", "instead") == [
        (None, None, "dropped"),
        (None, None, "freed"),
        (None, None, "forwarded"),
        (None, None, "merged, unread"),
    ]


def test_sent_packet_is_followed_from_the_queue_to_its_release(tmp_path: Path) -> None:
    made = MadeTrace()
    eth0, veth1 = made.device("eth0", 2), made.device("veth1", 3)
    ways = (
        ["tx.queue", "tx.start", "skb.free"],
        ["tx.queue", "skb.drop"],
        ["tx.queue", "skb.free"],
        ["tx.queue", "tx.start", "rx.driver", "skb.free"],
        ["tx.queue", "tx.start"],
    )
    for number, way in enumerate(ways):
        for place, point in enumerate(way):
            device = {} if point.startswith("skb") else veth1 if point == "rx.driver" else eth0
            at = 1_000 * number + 10 * place**2
            made.packet(point, at, skb=5, head=number + 1, len_bytes=60, cpu=2, **device)
    with Trace(made.write(tmp_path / "trace")) as trace:
        report = sent(trace, Selection())
    assert rows(report, "at_ns", "cpu", "qdisc_ns", "netdevice_ns", "instead") == [
        (0, 2, 10, 30, ""),
        (1_000, 2, None, None, "dropped"),
        (2_000, 2, None, None, "cut in segments"),
        (3_000, 2, 10, None, "received on this host"),
        (4_000, 2, 10, None, "not seen"),
    ]


def test_a_cpu_of_several_hosts_is_called_by_its_host(tmp_path: Path) -> None:
    joined = JoinedTrace()
    for host in range(2):
        joined.pass_on(host, ("rx.driver", "rx.core"), 1_000 + 10_000 * host, skb=8)
        joined.pass_on(host, ("tx.queue", "tx.start"), 5_000 + 10_000 * host, skb=16)
    with Trace(joined.write(tmp_path / "trace")) as trace:
        trace.metadata.joined = {"from": ["a", "b"]}
        for report in (received(trace, Selection()), sent(trace, Selection())):
            assert rows(report, "cpu", "cpu_name") == [(0, "a:0"), (CPUS, "b:0")]
