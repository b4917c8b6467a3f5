# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from hopscope.model.message import UNSEEN, Device, Flow, ReceivedMessage, SentMessage

FLOW = Flow("tcp", "10.0.0.1", 40_000, "10.0.0.2", 80, "main", 23, "curl")
# Each duration is another sum of powers of ten, so that none can stand in for another.
START = 5_000_000_000


def tcp(**changes: Any) -> SentMessage:  # noqa: ANN401 - whatever SentMessage takes
    seen: dict[str, Any] = {
        "flow": FLOW,
        "cookie": 7,
        "pid": 23,
        "len_bytes": 64,
        "end_byte": 64,
        "entry_ns": START,
        "handed_ns": START + 10,
        "sched_ns": START + 30,
        "driver_ns": START + 430,
        "nic_ns": None,
        "done_ns": START + 2_430,
        "qdisc_ns": 300,
        "devices": [Device("eth0", 0)],
        "retransmits": 0,
        "cause": "none",
        "slept": False,
        "datagram": False,
        "aborted": False,
    }
    return SentMessage(**(seen | changes))


def udp(**changes: Any) -> SentMessage:  # noqa: ANN401 - whatever SentMessage takes
    return tcp(**({"datagram": True, "end_byte": 0, "handed_ns": START, "done_ns": START + 440} | changes))


def test_hops_of_tcp_are_the_times_between() -> None:
    assert tcp().hops() == {
        "tx.tcp": 10,
        "tx.sched": 20,
        "tx.qdisc": 300,
        "tx.driver": 100,
        "tx.nic": None,
        "tx.ack": 2_000,
    }
    assert tcp().total_ns == 2_430


def test_hops_of_a_datagram_add_up_to_its_total() -> None:
    assert udp().hops() == {"tx.udp": 30, "tx.udp_qdisc": 300, "tx.udp_driver": 110}
    assert udp().total_ns == 440


@pytest.mark.parametrize(
    ("unseen", "hops"),
    [
        ("entry_ns", {"tx.tcp"}),
        ("handed_ns", {"tx.tcp", "tx.sched"}),
        ("sched_ns", {"tx.sched", "tx.driver"}),
        ("driver_ns", {"tx.driver", "tx.ack"}),
        ("qdisc_ns", {"tx.qdisc"}),
        ("done_ns", {"tx.ack"}),
    ],
)
def test_hop_is_missing_where_an_end_was_not_seen(unseen: str, hops: set[str]) -> None:
    found = tcp(**{unseen: None}).hops()
    assert {hop for hop, duration in found.items() if duration is None} == hops | {"tx.nic"}


def test_time_in_the_driver_has_the_qdisc_in_it_where_that_was_not_seen() -> None:
    assert tcp(qdisc_ns=None).hops()["tx.driver"] == 400


def test_clocks_that_disagree_give_no_hop_and_never_a_negative_one() -> None:
    assert tcp(sched_ns=START + 5).hops()["tx.sched"] is None
    assert tcp(qdisc_ns=401).hops()["tx.driver"] is None
    assert tcp(done_ns=START - 1).total_ns is None


def test_message_starts_where_tcp_had_it_if_the_call_was_not_seen() -> None:
    assert tcp(entry_ns=None).total_ns == 2_420
    assert tcp(entry_ns=None, handed_ns=None).total_ns is None


@pytest.mark.parametrize(
    ("cause", "layer"),
    [
        ("congestion-window", "congestion-window"),
        ("unknown", "unknown"),
        ("none", "stack"),
    ],
)
def test_wait_in_tcp_is_blamed_on_its_cause(cause: str, layer: str) -> None:
    late = dict.fromkeys(("sched_ns", "driver_ns", "done_ns"), START + 815_000)
    assert tcp(cause=cause, qdisc_ns=0, **late).blame() == (layer, 814_990)


@pytest.mark.parametrize(
    ("changes", "blame"),
    [
        ({}, ("network and receiver", 2_000)),
        ({"retransmits": 2}, ("retransmission", 2_000)),
        ({"nic_ns": START + 2_330}, ("NIC", 1_900)),
        ({"nic_ns": START + 530}, ("network and receiver", 1_900)),
        ({"done_ns": START + 440}, ("queueing discipline", 300)),
        ({"done_ns": START + 440, "qdisc_ns": 0}, ("driver", 400)),
        ({"entry_ns": START - 9_000}, ("send-copy", 9_010)),
        ({"entry_ns": START - 9_000, "slept": True}, ("send-buffer", 9_010)),
    ],
)
def test_longest_hop_is_blamed(changes: dict[str, Any], blame: tuple[str, int]) -> None:
    assert tcp(**changes).blame() == blame


@pytest.mark.parametrize(
    ("changes", "blame"),
    [
        ({}, ("queueing discipline", 300)),
        ({"entry_ns": START - 900}, ("UDP and IP", 930)),
        ({"done_ns": START + 9_000}, ("driver", 8_670)),
    ],
)
def test_longest_hop_of_a_datagram_is_blamed(changes: dict[str, Any], blame: tuple[str, int]) -> None:
    assert udp(**changes).blame() == blame


def test_what_was_not_seen_is_not_blamed_on_what_was() -> None:
    lost_sight_of = tcp(sched_ns=None, driver_ns=None, qdisc_ns=None)
    assert lost_sight_of.layers() == {"send-copy": 10, UNSEEN: 2_420}
    assert lost_sight_of.blame() == (UNSEEN, 2_420)


@pytest.mark.parametrize("unseen", [None, "sched_ns", "driver_ns", "handed_ns", "qdisc_ns"])
@pytest.mark.parametrize("nic_ns", [None, START + 600])
def test_layers_add_up_to_the_total(unseen: str | None, nic_ns: int | None) -> None:
    message = tcp(nic_ns=nic_ns, **({unseen: None} if unseen else {}))
    assert sum(message.layers().values()) == message.total_ns


def test_nothing_seen_is_nobodys_fault() -> None:
    nothing = dict.fromkeys(("entry_ns", "handed_ns", "sched_ns", "driver_ns", "done_ns", "qdisc_ns"))
    assert tcp(**nothing, aborted=True).blame() is None


def test_name_is_of_the_process_that_sent() -> None:
    assert tcp().comm == "curl"
    assert tcp(pid=24).comm == ""
    assert tcp(flow=None).comm == ""


@pytest.mark.parametrize(
    ("flow", "text"),
    [
        (FLOW, "10.0.0.1:40000 > 10.0.0.2:80"),
        (Flow("tcp", "fd77::1", 1, "fd77::2", 2, "", 0, ""), "[fd77::1]:1 > [fd77::2]:2"),
        (Flow("udp", "::", 53, "::", 0, "", 0, ""), "[::]:53 > *"),
    ],
)
def test_flow_reads_as_in_ss(flow: Flow, text: str) -> None:
    assert str(flow) == text


def received(**changes: Any) -> ReceivedMessage:  # noqa: ANN401 - whatever ReceivedMessage takes
    seen: dict[str, Any] = {
        "flow": FLOW,
        "cookie": 7,
        "pid": 24,
        "reader": "httpd",
        "len_bytes": 64,
        "end_byte": 64,
        "datagram": False,
        "entry_ns": START,
        "core_ns": START + 1,
        "ip_ns": START + 11,
        "transport_ns": START + 111,
        "queued_ns": START + 1_111,
        "ordered_ns": None,
        "asleep_ns": 10_000,
        "runnable_ns": 100_000,
        "done_ns": START + 1_111_111 + 1_000_000,
    }
    return ReceivedMessage(**(seen | changes))


def test_hops_of_a_received_message_add_up_to_its_total() -> None:
    assert received().hops() == {
        "rx.core": 1,
        "rx.ip": 10,
        "rx.tcp": 100,
        "rx.tcp_queue": 1_000,
        "rx.tcp_asleep": 10_000,
        "rx.tcp_runnable": 100_000,
        "rx.tcp_read": 2_000_000,
    }
    assert received().blame() == ("reader-running", 2_000_000)
    late = received(ordered_ns=START + 11_111_111, done_ns=START + 11_111_111 + 110_001)
    assert (late.hops()["rx.tcp_order"], late.hops()["rx.tcp_read"]) == (11_110_000, 1)
    assert late.blame() == ("stream-hole", 11_110_000)
    for each in (received(), late, received(datagram=True), received(core_ns=None, transport_ns=None)):
        assert sum(duration or 0 for duration in each.hops().values()) == each.total_ns == sum(each.layers().values())


def test_a_hop_whose_end_was_not_seen_is_in_the_next_one() -> None:
    found = received(ip_ns=None).hops()
    assert (found["rx.ip"], found["rx.tcp"]) == (None, 110)


def test_where_it_is_not_known_when_the_reader_slept_nobody_is_blamed_for_it() -> None:
    found = received(asleep_ns=None, runnable_ns=None)
    assert [found.hops()[f"rx.tcp_{hop}"] for hop in ("asleep", "runnable", "read")] == [None] * 3
    assert found.blame() == (UNSEEN, 2_110_000)


def test_a_received_message_goes_from_the_peer_to_the_socket() -> None:
    assert received().path == "10.0.0.2:80 > 10.0.0.1:40000"
    assert received(flow=None).path == ""
