# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from hopscope.model.counters.deltas import HOW, Move, differences, moves, seconds_between
from hopscope.model.counters.readings import HOST, Key, Readings, Unread
from hopscope.model.counters.sources import SOURCES

NETNS = 4026531833
WIDE = Key(NETNS, "snmp", "", "UdpInDatagrams")
NARROW = Key(HOST, "softnet", "cpu 0", "dropped")
EITHER = Key(NETNS, "ethtool", "eth0", "rx_packets")
GAUGE = Key(NETNS, "sockstat", "", "TCP.inuse")
SETTING = Key(NETNS, "link_setting", "eth0", "mtu")
# Of each width, a counter of it; one of either width can only be told from its value.
COUNTERS = {32: NARROW, 64: WIDE, 0: EITHER}


def readings(numbers: dict[Key, int], *unread: Unread, time_ns: int = 0) -> Readings:
    return Readings(time_ns, time_ns, numbers, unread=unread)


def only(key: Key, before: int, now: int) -> Move:
    (move,) = moves(readings({key: before}), readings({key: now}))
    assert (move.key, move.before, move.now) == (key, before, now)
    return move


def bits_of(key: Key, before: int) -> int:
    return SOURCES[key.source].bits or (32 if before < 1 << 32 else 64)


@given(st.sampled_from([32, 64, 0]), st.data())
def test_counter_that_went_on(bits: int, data: st.DataObject) -> None:
    before = data.draw(st.integers(0, (1 << (bits or 64)) - 2))
    now = data.draw(st.integers(before + 1, min(before + (1 << 62), 1 << (bits or 64)) - 1))
    move = only(COUNTERS[bits], before, now)
    assert (move.by, move.how) == (now - before, "counted")


@given(st.sampled_from([32, 64, 0]), st.booleans(), st.data())
def test_counter_that_went_round(bits: int, large: bool, data: st.DataObject) -> None:  # noqa: FBT001 # hypothesis
    """It counted less than a quarter of its range, which it does not between two readings unless it began anew."""
    width = bits or (64 if large else 32)
    span = 1 << width
    by = data.draw(st.integers(1, (span >> 2) - 1))
    before = data.draw(st.integers(max(span - by, 1 << 32 if width == 64 else 0), span - 1))
    move = only(COUNTERS[bits], before, before + by - span)
    assert (move.by, move.how) == (by, "wrapped")


@given(st.sampled_from([32, 64, 0]), st.data())
@example(32, None)
def test_counter_that_began_anew(bits: int, data: st.DataObject | None) -> None:
    """What it counted until then, and how often it did, nobody knows."""
    before, now = (3_000_000_000, 10) if data is None else _fallen(bits, data)
    move = only(COUNTERS[bits], before, now)
    assert (move.by, move.how) == (0, "restarted")


def _fallen(bits: int, data: st.DataObject) -> tuple[int, int]:
    before = data.draw(st.integers(1, (1 << (bits or 64)) - 1))
    now = data.draw(st.integers(0, before - 1))
    span = 1 << bits_of(COUNTERS[bits], before)
    assume(span - before + now >= span >> 2)
    assume(now < 1 << 63)
    return before, now


def test_counter_of_a_device_that_was_pulled_out() -> None:
    """All of its registers read as ones then, which nobody counted."""
    ones = (1 << 64) - 1
    for key in (EITHER, WIDE):
        for before, now, by in ((5, ones, 0), (0, 1 << 63, 0), (0, 1 << 62, 0), (ones, 1 << 63, 0)):
            move = only(key, before, now)
            assert (move.by, move.how) == (by, "restarted")
    assert only(EITHER, ones, 5).by <= 6


def test_what_stays_did_not_move() -> None:
    numbers = {WIDE: 5, NARROW: (1 << 32) - 1, GAUGE: 3, SETTING: 1500}
    assert list(moves(readings(numbers), readings(dict(numbers)))) == []


@given(st.integers(0, 1 << 40), st.integers(0, 1 << 40))
def test_gauges_and_settings_go_up_and_down(before: int, now: int) -> None:
    assume(before != now)
    for key in (GAUGE, SETTING, Key(NETNS, "snmp", "", "TcpCurrEstab")):
        move = only(key, before, now)
        assert (move.by, move.how) == (now - before, "changed")


def test_gauge_that_is_negative() -> None:
    assert only(Key(NETNS, "snmp", "", "TcpMaxConn"), -1, 100).by == 101


def test_counter_that_appeared_counted_all_that_it_has() -> None:
    new = Key(NETNS, "snmp", "", "IcmpMsgOutType3")
    assert list(moves(readings({WIDE: 7}), readings({WIDE: 7, new: 3}))) == [Move(new, 0, 3, 3, "appeared")]
    assert list(moves(readings({WIDE: 7}), readings({WIDE: 7, new: 0}))) == []


def test_gauge_that_appeared_did_not_move() -> None:
    assert list(moves(readings({}), readings({GAUGE: 3, SETTING: 1500}))) == []


def test_counter_of_a_source_that_could_not_be_read_before_did_not_appear() -> None:
    unread = Unread(NETNS, "snmp", "what it says is not understood: its last line is cut off")
    other = Key(NETNS, "netstat", "", "TcpExtTCPTimeouts")
    last = Key(NETNS, "netstat", "", "TcpExtTCPLostRetransmit")
    found = moves(readings({other: 1}, unread), readings({other: 1, last: 3, WIDE: 7}))
    assert [move.key for move in found] == [last]


def test_cpu_that_came_back_did_not_count_all_that_it_has() -> None:
    """The kernel goes on where it was."""
    back = Key(HOST, "softnet", "cpu 1", "dropped")
    assert list(moves(readings({NARROW: 7}), readings({NARROW: 7, back: 3}))) == []


def test_interrupt_that_came_to_a_cpu_for_the_first_time() -> None:
    """Zeros are left out of this source."""
    local = Key(HOST, "interrupt", "LOC Local timer interrupts", "cpu 1")
    first = Key(HOST, "interrupt", "38 virtio2-input.0", "cpu 1")
    back = Key(HOST, "interrupt", "38 virtio2-input.0", "cpu 5")
    found = moves(readings({local: 1000}), readings({local: 1000, first: 3, back: 900}))
    assert list(found) == [Move(first, 0, 3, 3, "appeared")]


def test_what_is_gone_is_not_told() -> None:
    assert list(moves(readings({WIDE: 7, NARROW: 3}), readings({NARROW: 3}))) == []
    assert list(moves(readings({WIDE: 7}), readings({}))) == []


def test_seconds_between() -> None:
    assert seconds_between(readings({}, time_ns=1_000_000_000), readings({}, time_ns=3_500_000_000)) == 2.5


@given(st.lists(st.tuples(st.sampled_from([32, 64, 0]), st.integers(0, (1 << 64) - 1), st.integers(0, (1 << 64) - 1))))
def test_never_less_than_nothing(values: list[tuple[int, int, int]]) -> None:
    limited = [(bits, before % (1 << (bits or 64)), now % (1 << (bits or 64))) for bits, before, now in values]
    bits, before, now = (
        (np.array(column, np.uint64) for column in zip(*limited, strict=True))
        if limited
        else [np.zeros(0, np.uint64)] * 3
    )
    by, how = differences(before.view(np.int64), now.view(np.int64), bits.astype(np.int64))
    assert by.min(initial=0) >= 0
    assert set(how.tolist()) <= set(range(len(HOW)))
    # One at a time it is the same.
    for index in range(len(limited)):
        one = slice(index, index + 1)
        alone = differences(before.view(np.int64)[one], now.view(np.int64)[one], bits.astype(np.int64)[one])
        assert (int(alone[0][0]), int(alone[1][0])) == (int(by[index]), int(how[index]))


@pytest.mark.parametrize("key", [WIDE, NARROW, EITHER])
@given(st.integers(0, (1 << 32) - 1), st.lists(st.integers(0, (1 << 30) - 1), max_size=20))
def test_what_was_counted_between_readings_adds_up(key: Key, first: int, steps: list[int]) -> None:
    """However often a narrow counter goes round."""
    span = 1 << SOURCES[key.source].bits if SOURCES[key.source].bits else 1 << 64
    values = [first]
    for step in steps:
        values.append((values[-1] + step) % span)
    total = 0
    for before, now in pairwise(values):
        total += sum(move.by for move in moves(readings({key: before}), readings({key: now})))
    assert total == sum(steps)
