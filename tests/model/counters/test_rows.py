# SPDX-License-Identifier: Apache-2.0
"""Rows of counters: what is put together, what is left out, in which order, and what is said of odd ones."""

from __future__ import annotations

import itertools

import pytest

from hopscope.model.counters.deltas import moves
from hopscope.model.counters.readings import HOST, Key, Readings
from hopscope.model.counters.rows import CounterRow, Sums, Wanted, folded, rows_of

HERE, THERE = 1001, 1002
NAMES = {HERE: "host", THERE: "blue"}
SECOND_NS = 10**9


def readings(numbers: dict[Key, int], time_ns: int = 0) -> Readings:
    return Readings(time_ns, time_ns, numbers, namespaces=NAMES)


def rows(before: dict[Key, int], now: dict[Key, int], **wanted: object) -> list[CounterRow]:
    later = readings(now, SECOND_NS)
    found, _, _ = rows_of(moves(readings(before), later), later, Wanted(**wanted), NAMES)  # type: ignore[arg-type]
    return found


def softnet(cpu: int, name: str = "processed") -> Key:
    return Key(HOST, "softnet", f"cpu {cpu}", name)


def test_cpus_are_put_together_and_kept_apart_beside() -> None:
    before = {softnet(0): 10, softnet(1): 20, softnet(2): 30}
    (row,) = rows(before, {softnet(0): 1019, softnet(1): 21, softnet(2): 30})
    assert (row.subject, row.name, row.count, row.now) == ("", "processed", 1010, 1070)
    assert row.by_cpu == {"cpu 0": 1009, "cpu 1": 1}


def test_queues_of_a_device_are_one_interrupt() -> None:
    keys = [Key(HOST, "interrupt", f"{30 + queue} eth0-TxRx-{queue}", f"cpu {queue % 2}") for queue in range(12)]
    (row,) = rows(dict.fromkeys(keys, 5), dict.fromkeys(keys, 6))
    assert (row.name, row.count, row.now) == ("eth0-TxRx", 12, 72)
    assert row.by_cpu == {"cpu 0": 6, "cpu 1": 6}


@pytest.mark.parametrize(
    ("source", "subject", "name", "whole", "cpu"),
    [
        ("interrupt", "24 virtio0-input.0", "cpu 3", ("", "virtio0-input"), "cpu 3"),
        ("interrupt", "99 mlx5_comp12@pci:0000:03:00.0", "cpu 1", ("", "mlx5_comp@pci:0000:03:00.0"), "cpu 1"),
        ("interrupt", "8 rtc0, eth7", "cpu 0", ("", "rtc0, eth"), "cpu 0"),
        ("interrupt", "9", "cpu 0", ("", "9"), "cpu 0"),
        ("interrupt", "LOC Local timer interrupts", "cpu 0", ("", "LOC Local timer interrupts"), "cpu 0"),
        ("interrupt", "ERR", "total", ("", "ERR"), "total"),
        ("softirq", "NET_RX", "cpu 12", ("", "NET_RX"), "cpu 12"),
        ("neighbour", "arp cpu 1", "lookups", ("arp", "lookups"), "cpu 1"),
        ("neighbour", "arp", "entries", ("arp", "entries"), ""),
        ("conntrack", "cpu 1", "drop", ("", "drop"), "cpu 1"),
        ("link", "eth0", "rx_packets", ("eth0", "rx_packets"), ""),
        ("queue_stats", "eth0 rx-11", "rx-packets", ("eth0", "rx-packets"), "rx-11"),
        # Somebody may call an interface so.
        ("link", "xcpu 1", "rx_packets", ("xcpu 1", "rx_packets"), ""),
    ],
)
def test_what_a_counter_is_a_part_of(source: str, subject: str, name: str, whole: tuple[str, str], cpu: str) -> None:
    key, part = folded(Key(HERE, source, subject, name))
    assert ((key.subject, key.name), part) == (whole, cpu)


def test_memory_of_the_host_is_told_once() -> None:
    keys = [Key(netns, "sockstat", "", "TCP.mem") for netns in (HERE, THERE)]
    (row,) = rows(dict.fromkeys(keys, 4), dict.fromkeys(keys, 11))
    assert (row.netns, row.namespace, row.count, row.now, row.level) == (HOST, "", 7, 11, True)


def test_rows_go_from_the_nic_to_the_socket_and_losses_come_first() -> None:
    keys = [
        Key(HERE, "netstat", "", "TcpExtTCPHPHits"),
        Key(HERE, "netstat", "", "TcpExtTCPTimeouts"),
        Key(HERE, "netstat", "", "TcpExtListenDrops"),
        Key(HERE, "link", "eth0", "rx_packets"),
        Key(HERE, "link", "eth1", "rx_packets"),
        Key(HERE, "link", "eth1", "rx_dropped"),
        Key(THERE, "qdisc", "eth0 fq 1:", "drops"),
        Key(HERE, "ethtool", "eth0", "rx_missed_errors"),
        softnet(0, "dropped"),
    ]
    found = rows(dict.fromkeys(keys, 0), dict.fromkeys(keys, 1))
    assert [(row.layer, row.subject, row.name) for row in found] == [
        ("nic", "eth0", "rx_missed_errors"),
        ("softnet", "", "dropped"),
        ("device", "eth1", "rx_dropped"),
        ("device", "eth1", "rx_packets"),
        ("device", "eth0", "rx_packets"),
        ("qdisc", "eth0 fq 1:", "drops"),
        ("tcp", "", "TcpExtListenDrops"),
        ("tcp", "", "TcpExtTCPTimeouts"),
        ("tcp", "", "TcpExtTCPHPHits"),
    ]
    assert [row.is_loss for row in found] == [True, True, True, False, False, True, True, False, False]


def test_what_restarted_or_wrapped_says_so() -> None:
    keys = [Key(HERE, "link", "eth0", "rx_packets"), Key(HERE, "udp_socket", "*:53 inode 7", "drops"), softnet(0)]
    before = dict(zip(keys, (500, 2**32 - 4, 2**32 - 1), strict=True))
    found = {row.source: row for row in rows(before, dict(zip(keys, (12, 6, 1008), strict=True)))}
    assert (found["link"].count, found["link"].event) == (0, "restarted")
    assert (found["udp_socket"].count, found["udp_socket"].event) == (10, "wrapped")
    assert (found["softnet"].count, found["softnet"].event) == (1009, "wrapped")


def test_counter_that_comes_is_new() -> None:
    known, new = Key(HERE, "snmp", "", "IcmpMsgInType3"), Key(HERE, "snmp", "", "IcmpMsgInType8")
    (row,) = rows({known: 1}, {known: 1, new: 3})
    assert (row.name, row.count, row.event) == ("IcmpMsgInType8", 3, "new")


def test_sums_keep_what_is_gone() -> None:
    here, gone = Key(HERE, "snmp", "", "UdpInDatagrams"), Key(THERE, "link", "veth0", "rx_packets")
    steps = [readings({here: 1, gone: 10}, 0), readings({here: 5, gone: 19}, 1), readings({here: 7}, 2)]
    sums = Sums()
    for before, now in itertools.pairwise(steps):
        sums.add(moves(before, now))
    found, _, _ = rows_of(sums.moves(), steps[-1], Wanted(), NAMES)
    assert {(row.namespace, row.name, row.count, row.now) for row in found} == {
        ("host", "UdpInDatagrams", 6, 7),
        ("blue", "rx_packets", 9, 19),
    }


def test_level_that_comes_back_to_where_it_was_did_not_move() -> None:
    key = Key(HERE, "sockstat", "", "TCP.inuse")
    steps = [readings({key: value}, value) for value in (4, 9, 4)]
    sums = Sums()
    for before, now in itertools.pairwise(steps):
        sums.add(moves(before, now))
    assert sums.moves() == []


def test_what_always_moves_is_counted_and_left_out_unless_asked_for() -> None:
    timer = Key(HOST, "interrupt", "LOC Local timer interrupts", "cpu 0")
    before, now = readings({timer: 1, softnet(0): 1}), readings({timer: 2, softnet(0): 2}, SECOND_NS)
    for wanted, shown, left_out in ((Wanted(), 1, 1), (Wanted(unmoved=True), 2, 0), (Wanted(["interrupt"]), 1, 0)):
        found, read, rest = rows_of(moves(before, now), now, wanted, NAMES)
        assert (len(found), rest) == (shown, left_out)
        assert read == (1 if wanted.layers else 2)


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (Wanted(layers=["udp"]), {"UdpInErrors", "UdpInDatagrams"}),
        (Wanted(patterns=["*errors"]), {"UdpInErrors"}),
        (Wanted(patterns=["PROCESSED", "udpinerrors"]), {"UdpInErrors", "processed"}),
        (Wanted(layers=["udp"], patterns=["processed"]), set()),
        (Wanted(), {"UdpInErrors", "UdpInDatagrams", "processed"}),
    ],
)
def test_wanted(wanted: Wanted, names: set[str]) -> None:
    keys = [Key(HERE, "snmp", "", "UdpInErrors"), Key(HERE, "snmp", "", "UdpInDatagrams"), softnet(3)]
    assert {key.name for key in keys if key in wanted} == names


def test_settings_are_no_counters() -> None:
    assert Key(HERE, "ring", "eth0", "rx") not in Wanted()


def test_unmoved_counters_are_shown_where_asked_for() -> None:
    key = Key(HERE, "snmp", "", "UdpInErrors")
    (row,) = rows({key: 5}, {key: 5}, unmoved=True)
    assert (row.count, row.now, row.is_loss) == (0, 5, False)
