# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopscope.timestamping import Message, Missing, Stage, Stamp
from hopscope.timestamping.messages import Correlator, unwrap

SCHED, SND, ACK = Stage.SCHED, Stage.SND, Stage.ACK
ALL = (SCHED, SND, ACK)


def send(to: Correlator, number: int, *wanted: Stage) -> Message:
    message = Message(number, 1, 0, 0, wanted or ALL)
    to.sent(message)
    return message


def stamps(to: Correlator, number: int, *stages: Stage) -> None:
    for stage in stages:
        to.stamped(Stamp(stage, number % 2**32, 1_000 + number))


@given(st.integers(0, 2**40), st.integers(0, 2**32 - 1))
def test_unwrapped_id_is_the_one_that_was_sent(newest: int, behind: int) -> None:
    sent = newest - behind
    assert unwrap(sent % 2**32, newest) == sent


def test_id_that_was_never_sent_is_counted() -> None:
    correlator = Correlator(stream=False, limit=9)
    stamps(correlator, 0, SND)
    message = send(correlator, 0, SND)
    stamps(correlator, 7, SND)
    assert (correlator.unmatched, message.time_ns, correlator.take()) == (2, {}, [])


def test_stream_of_more_than_4_gib_keeps_its_messages_apart() -> None:
    correlator = Correlator(stream=True, limit=9)
    sent = [send(correlator, gib << 30) for gib in range(3, 7)]
    for message in sent:
        stamps(correlator, message.id, *ALL)
    assert correlator.take() == sent
    assert [message.time_ns[ACK] - 1_000 for message in sent] == [message.id for message in sent]
    assert correlator.unmatched == 0


def test_ids_count_from_the_first() -> None:
    correlator = Correlator(stream=True, limit=9, first_packet_id=2**32 - 2)
    sent = [send(correlator, 0), send(correlator, 3)]
    stamps(correlator, 2**32 - 2, *ALL)
    stamps(correlator, 1, *ALL)
    assert correlator.take() == sent


def test_first_stamp_counts_and_the_rest_are_repeats() -> None:
    correlator = Correlator(stream=True, limit=9)
    message = send(correlator, 5)
    for time_ns in (10, 20, 30):
        correlator.stamped(Stamp(SCHED, 5, time_ns, {"TCP_NLA_BUSY": time_ns}))
    assert (message.time_ns, message.repeats, message.stats) == ({SCHED: 10}, {SCHED: 2}, {SCHED: {"TCP_NLA_BUSY": 10}})


def test_acknowledged_later_send_tells_that_earlier_ones_were_coalesced() -> None:
    correlator = Correlator(stream=True, limit=9)
    first, second, third, fourth = (send(correlator, number) for number in range(4))
    stamps(correlator, 0, SCHED)
    stamps(correlator, 2, SCHED, SND)
    assert correlator.take() == []
    stamps(correlator, 2, ACK)
    assert correlator.take() == [first, second, third]
    assert [message.missing for message in (first, second, third)] == [Missing.COALESCED, Missing.COALESCED, None]
    assert correlator.waiting == 1
    stamps(correlator, 3, *ALL)
    assert correlator.take() == [fourth]


def test_without_ack_a_later_send_that_left_tcp_tells() -> None:
    correlator = Correlator(stream=True, limit=9)
    first, second = (send(correlator, number, SCHED, SND) for number in range(2))
    stamps(correlator, 1, SCHED)
    assert correlator.take() == [first]
    assert first.missing == Missing.COALESCED
    assert second.missing is None


def test_a_driver_may_stamp_out_of_order() -> None:
    correlator = Correlator(stream=True, limit=9)
    first, second = (send(correlator, number, SCHED, SND) for number in range(2))
    stamps(correlator, 0, SCHED)
    stamps(correlator, 1, SCHED, SND)
    stamps(correlator, 0, SND)
    assert correlator.take() == [second, first]
    assert first.complete


def test_a_send_that_asked_for_less_is_not_overtaken_by_what_it_did_not_ask_for() -> None:
    correlator = Correlator(stream=True, limit=9)
    first = send(correlator, 0, SND)
    stamps(correlator, send(correlator, 1).id, *ALL)
    assert first.missing is None
    stamps(correlator, 0, SND)
    assert first.complete


def test_datagrams_do_not_overtake() -> None:
    correlator = Correlator(stream=False, limit=9)
    first, second = (send(correlator, number, SCHED, SND) for number in range(2))
    stamps(correlator, 1, SCHED, SND)
    stamps(correlator, 0, SCHED, SND)
    assert correlator.take() == [second, first]
    assert first.complete


@pytest.mark.parametrize("stream", [False, True])
def test_what_was_sent_before_the_queue_was_full_may_have_lost_stamps(stream: bool) -> None:  # noqa: FBT001 - parameter
    correlator = Correlator(stream=stream, limit=9)
    for number in range(2):
        send(correlator, number)
    correlator.overflowed()
    send(correlator, 2)
    correlator.give_up_all()
    assert [message.missing for message in correlator.take()] == [Missing.OVERFLOW, Missing.OVERFLOW, Missing.NO_STAMP]
    assert correlator.waiting == 0


def test_the_oldest_is_given_up_beyond_the_limit() -> None:
    correlator = Correlator(stream=False, limit=3)
    sent = [send(correlator, number) for number in range(5)]
    assert correlator.take() == sent[:2]
    assert {message.missing for message in sent[:2]} == {Missing.NO_STAMP}
    assert correlator.waiting == 3
