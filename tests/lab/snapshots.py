# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
from functools import cache
from math import exp, log
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import pytest

from hopscope.model.cdf import Curve
from hopscope.model.histogram import Histogram
from hopscope.model.message import Device, Flow, ReceivedMessage, SentMessage
from hopscope.model.slowest import Slowest
from hopscope.model.snapshot import (
    Discard,
    HopRow,
    HostFact,
    MethodStatus,
    Overhead,
    PlanRow,
    PointStatus,
    ProgramCost,
    Snapshot,
)
from hopscope.model.stacks import Stack

if TYPE_CHECKING:
    from collections.abc import Callable

GOLDEN = Path(__file__).parent / "golden"
STARTED_NS = 1_767_323_045_250_000_000  # 2026-01-02 03:04:05.25 UTC


@cache
def spread(count: int, median_ns: float, sigma: float = 0.35) -> Histogram:
    """Return the histogram of a log-normal distribution's quantiles, without any randomness."""
    normal = NormalDist(log(median_ns), sigma)
    return Histogram.from_values([round(exp(normal.inv_cdf((k + 0.5) / count))) for k in range(count)])


def row(hop: str, from_point: str, histogram: Histogram, unit: str = "packet", **group: str) -> HopRow:
    protocol = hop.removeprefix("rx.").partition("_")[0]
    chain = protocol if protocol in {"tcp", "udp"} else ""
    alone = unit != "packet" or hop.endswith("_total")
    return HopRow(hop, from_point, hop, unit, group, histogram, None if alone else chain)


def overhead() -> Overhead:
    programs = [
        ProgramCost("rx_core", 8_123, 58.3, 31.0),
        ProgramCost("rx_tcp_read", 3_001, 97.9, 33.5, missed=3),
        ProgramCost("rx_unused", 0, None),
    ]
    return Overhead(11_124, 62.4, 0.83, 0.21, 3, programs)


def rx_rows(**group: str) -> list[HopRow]:
    slow = spread(2_700, 3_000) + spread(300, 1_900_000, 0.6)
    return [
        row("rx.softirq", "rx.raised", spread(8_123, 2_100, 0.8), "softirq", **group),
        row("rx.napi", "rx.softirq", spread(8_123, 9_400, 0.5), "poll", **group),
        row("rx.core", "rx.driver", spread(134_567, 210), **group),
        row("rx.ip", "rx.core", spread(134_567, 330), **group),
        row("rx.tcp", "rx.ip", spread(134_500, 410), **group),
        row("rx.tcp_queue", "rx.tcp", spread(134_500, 890, 0.6), **group),
        row("rx.tcp_order", "rx.tcp_queue", spread(23, 1_100_000, 0.2), **group),
        row("rx.tcp_wake", "rx.tcp_queue", slow, **group),
        row("rx.tcp_read", "rx.tcp_wake", spread(3_000, 12_000, 0.7), **group),
        row("rx.tcp_total", "rx.core", spread(2_700, 19_000) + spread(300, 2_000_000, 0.6), **group),
    ]


def udp_rows(**group: str) -> list[HopRow]:
    return [
        row("rx.udp", "rx.ip", spread(67, 390), **group),
        row("rx.udp_queue", "rx.udp", spread(67, 700), **group),
        row("rx.udp_wake", "rx.udp_queue", Histogram.empty(), **group),
        row(
            "rx.udp_read",
            "rx.udp_queue",
            Histogram.from_values([48, 59, 270_000_000_000, 320_123_456_789]) + spread(63, 51_000_000),
            **group,
        ),
        row("rx.udp_total", "rx.core", spread(63, 51_100_000), **group),
    ]


def plan() -> list[PlanRow]:
    return [
        PlanRow(
            "rx.core",
            "fentry __netif_receive_skb_core",
            "refused",
            "errno 1 (Operation not permitted)",
            next_step="Boot without lockdown, or go on with the tracepoint.",
        ),
        PlanRow("rx.core", "tp_btf netif_receive_skb", "attached", differs="before the packet taps and XDP generic"),
        PlanRow("rx.core", "kprobe __netif_receive_skb_core", "not needed"),
        PlanRow("rx.nic", "NIC receive stamp", "unavailable", "eth0 has no PTP clock"),
    ]


@pytest.fixture
def tcp_snapshot() -> Snapshot:
    return Snapshot("rx", "interval", STARTED_NS, 1.0004, rx_rows(), overhead(), plan=plan())


@pytest.fixture
def full_snapshot() -> Snapshot:
    discarded = [
        Discard("rx.tcp_read", "no_stamp", 8, "the packet came in before the run began"),
        Discard("rx.udp", "stale", 1_204, "its place in the stamp table was taken by a later packet"),
        Discard("rx.ip", "never", 0, "must not be shown"),
    ]
    return Snapshot(
        "rx",
        "total",
        STARTED_NS,
        30.2,
        rx_rows() + udp_rows(),
        Overhead(11_124, None, None, 0.004, 3, overhead().by_program),
        lost=12,
        discarded=discarded,
        plan=plan(),
        sampling_1_in=32,
        filters={"interface": "eth0", "port": "443"},
        notes=["rx.nic is not there: eth0 has no clock that can be related to the host's."],
    )


@pytest.fixture
def grouped_snapshot() -> Snapshot:
    groups = [
        {"interface": "eth0", "cgroup": "/system.slice/docker-0123456789abcdef.scope/nginx.service"},
        {"interface": "lo", "cgroup": "/user.slice/ü日本\x1b[31m"},
    ]
    rows = [*rx_rows(**groups[0]), *udp_rows(**groups[1])]
    return Snapshot("rx", "interval", STARTED_NS, 1.0, rows, overhead())


@pytest.fixture
def empty_snapshot() -> Snapshot:
    return Snapshot("rx", "interval", STARTED_NS, 1.0, [row("rx.core", "rx.driver", Histogram.empty())], overhead())


@pytest.fixture
def point_statuses() -> list[PointStatus]:
    refused = MethodStatus(
        "fentry ip_rcv_core",
        granted=False,
        chosen=False,
        reason="errno 1 (Operation not permitted): the kernel is locked down (integrity)",
        next_step="Boot without lockdown= if you need it.",
    )
    used = MethodStatus("tp_btf netif_receive_skb", granted=True, chosen=True, differs="µs earlier: before the taps")
    spare = MethodStatus("tracepoint net:netif_receive_skb", granted=True, chosen=False)
    missing = MethodStatus("NIC receive stamp", granted=False, chosen=False, reason="eth0 has no PTP clock")
    return [
        PointStatus("rx.core", "the driver hands the packet over", "tp_btf netif_receive_skb", [refused, used, spare]),
        PointStatus("rx.nic", "the network card received the packet", None, [missing]),
    ]


@pytest.fixture
def host() -> list[HostFact]:
    return [
        HostFact("rights", "root", ok=True),
        HostFact("lockdown", "integrity", ok=False, next_step="Nothing: the tracepoints do."),
    ]


@pytest.fixture
def golden() -> Callable[[str, str], None]:
    """Compare a text with the file of that name; HOPSCOPE_GOLDEN=1 writes the file instead."""

    def check(name: str, text: str) -> None:
        path = GOLDEN / f"{name}.txt"
        if os.environ.get("HOPSCOPE_GOLDEN"):
            path.write_text(text + "\n", encoding="utf-8")
        assert text + "\n" == path.read_text(encoding="utf-8")

    return check


@pytest.fixture
def curves() -> list[Curve]:
    """Return a fast run, a slow one, and one that is all slow."""
    slow = spread(17_000, 60_000, 0.6) + spread(3_000, 3_000_000, 0.4)
    return [
        Curve("before.jsonl", spread(20_000, 40_000, 0.5)),
        Curve("after.jsonl", slow),
        Curve("third.jsonl", spread(500, 360_000, 0.5)),
    ]


FLOW_4 = Flow("tcp", "10.77.0.1", 43_210, "10.77.0.2", 12_345, "client", 4_711, "worker")
FLOW_6 = Flow(
    "udp", "fd77:1:2:3:4:5:6:7", 5_353, "fd77:ffff:ffff:ffff:ffff:ffff:ffff:fffe", 53, "client", 12, "dns/日本"
)
SENT_NS = 3_000_000_000
OFFSET_NS = STARTED_NS - SENT_NS


def message(flow: Flow | None = FLOW_4, **changes: Any) -> SentMessage:  # noqa: ANN401 - whatever SentMessage takes
    seen: dict[str, Any] = {
        "flow": flow,
        "cookie": 4_138,
        "pid": flow.pid if flow else 99,
        "len_bytes": 64,
        "end_byte": 5_568,
        "entry_ns": SENT_NS,
        "handed_ns": SENT_NS + 3_100,
        "sched_ns": SENT_NS + 7_700,
        "driver_ns": SENT_NS + 10_250,
        "nic_ns": None,
        "done_ns": SENT_NS + 110_250,
        "qdisc_ns": 1_800,
        "devices": [Device("eth0", 0)],
        "retransmits": 0,
        "cause": "none",
        "slept": False,
        "datagram": False,
        "aborted": False,
    }
    return SentMessage(**(seen | changes))


def received_message(flow: Flow | None = FLOW_4, **changes: Any) -> ReceivedMessage:  # noqa: ANN401 - its members
    seen: dict[str, Any] = {
        "flow": flow,
        "cookie": 4_138,
        "pid": 4_712,
        "reader": "server",
        "len_bytes": 64,
        "end_byte": 5_568,
        "datagram": False,
        "entry_ns": SENT_NS,
        "core_ns": SENT_NS + 2_000,
        "ip_ns": SENT_NS + 2_300,
        "transport_ns": SENT_NS + 3_100,
        "queued_ns": SENT_NS + 4_200,
        "ordered_ns": None,
        "asleep_ns": 90_000,
        "runnable_ns": 5_000,
        "done_ns": SENT_NS + 110_250,
    }
    return ReceivedMessage(**(seen | changes))


@pytest.fixture
def received() -> list[ReceivedMessage]:
    """Return one message of each kind that is received."""
    return [
        received_message(),
        received_message(ordered_ns=SENT_NS + 50_000_000, done_ns=SENT_NS + 50_110_250),
        received_message(asleep_ns=0, runnable_ns=0, done_ns=SENT_NS + 9_800),
        received_message(asleep_ns=None, runnable_ns=None),
        received_message(ip_ns=None, core_ns=None),
        received_message(FLOW_6, datagram=True, end_byte=0, asleep_ns=812_000_000, done_ns=SENT_NS + 813_000_000),
        received_message(None, cookie=0, core_ns=None, ip_ns=None, transport_ns=None, len_bytes=0, end_byte=0),
    ]


@pytest.fixture
def messages() -> list[SentMessage]:
    """Return one message of each kind."""
    late = dict.fromkeys(("sched_ns", "driver_ns"), SENT_NS + 812_000_000)
    unseen = {"driver_ns": None, "done_ns": None, "qdisc_ns": None, "aborted": True}
    return [
        message(),
        message(cause="receiver-window", len_bytes=1 << 20, done_ns=SENT_NS + 815_000_000, qdisc_ns=0, **late),
        message(
            nic_ns=SENT_NS + 12_000, retransmits=2, done_ns=SENT_NS + 201_000_000, cause="congestion-window", slept=True
        ),
        message(sched_ns=None, driver_ns=None, qdisc_ns=None, retransmits=1),
        message(entry_ns=None, handed_ns=SENT_NS + 10_000_000, sched_ns=None, **unseen),
        message(FLOW_6, datagram=True, handed_ns=SENT_NS, done_ns=SENT_NS + 12_000),
        message(FLOW_6, datagram=True, pid=13, **unseen),
        message(None, devices=[Device("vxlan0", 0), Device("br0", 1_200), Device("eth0", 1_900)]),
    ]


@pytest.fixture
def slowest(messages: list[SentMessage]) -> Slowest:
    done = [each for each in messages if each.total_ns]
    return Slowest("total", 10, 1_234, 2, sorted(done, key=lambda each: each.total_ns or 0, reverse=True))


@pytest.fixture
def stacks() -> list[Stack]:
    """Return samples of four parts, one of them in two groups."""
    poll = ("handle_softirqs", "net_rx_action", "__napi_poll")
    core = (*poll, "process_backlog", "__netif_receive_skb_one_core")
    deliver = (*core, "ip_local_deliver", "ip_protocol_deliver_rcu")
    send = ("do_syscall_64", "__x64_sys_sendto")
    return [
        Stack("send", (*send, "udp_sendmsg", "ip_make_skb", "_copy_from_iter"), 310, "dns/日本"),
        Stack("send", (*send, "tcp_sendmsg"), 120, "nginx"),
        Stack("net_rx", (*poll, "veth_poll"), 90),
        Stack("net_rx", (*poll, "veth_poll", "bpf_prog_6deef7357e7b4530_count"), 60),
        Stack("net_rx", (*core, "ip_rcv", "nf_hook_slow", "nft_do_chain_ipv4", "nft_do_chain"), 200),
        Stack("net_rx", (*core, "ip_rcv", "nf_hook_slow", "nf_conntrack_in"), 77),
        Stack("net_rx", (*deliver, "tcp_v4_rcv", "_raw_spin_lock"), 23),
        Stack("net_rx", (*deliver, "tcp_v4_rcv"), 140),
        Stack("net_rx", (*deliver, "udp_rcv"), 1),
        Stack("net_rx", (*deliver, "udp_rcv"), 2),
        Stack("irq", ("common_interrupt", "0xffffffffc0001234"), 5),
        Stack("io_uring", ("unheard_of",), 3),
    ]
