# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopscope.clock.probe import SIZE_BYTES, Accepted, Gate, Kind, Refusal, Session, packet
from hopscope.errors import UsageError

SESSION = Session(b"8 bytes!", b"thirty-two bytes of a secret key")
OURS, THEIRS = 0, 1


def probe(number: int, session: Session = SESSION, role: int = THEIRS) -> bytes:
    return packet(session, role, Kind.PROBE, number)


def refusals(gate: Gate, *packets: bytes) -> dict[Refusal, int]:
    for data in packets:
        gate.admit(data)
    return dict(gate.refused)


def test_packets_pass_in_order_once() -> None:
    gate = Gate(SESSION, OURS)
    assert gate.admit(probe(0)) == Accepted(Kind.PROBE, 0)
    assert gate.admit(packet(SESSION, THEIRS, Kind.REPLY, 7)) == Accepted(Kind.REPLY, 7)
    assert not gate.refused


def test_a_duplicate_is_refused() -> None:
    assert refusals(Gate(SESSION, OURS), probe(3), probe(3), probe(4), probe(3)) == {Refusal.DUPLICATE: 2}


def test_a_packet_that_was_overtaken_is_refused() -> None:
    assert refusals(Gate(SESSION, OURS), probe(1), probe(3), probe(2)) == {Refusal.REORDERED: 1}


def test_a_packet_from_long_ago_is_refused() -> None:
    packets = [probe(number) for number in range(2_000)]
    assert refusals(Gate(SESSION, OURS), *packets, packets[3]) == {Refusal.REPLAYED: 1}


def test_a_packet_of_another_session_is_refused() -> None:
    assert refusals(Gate(SESSION, OURS), probe(0, Session.new())) == {Refusal.FOREIGN: 1}


def test_our_own_packet_is_refused() -> None:
    assert refusals(Gate(SESSION, OURS), probe(0, role=OURS)) == {Refusal.REFLECTED: 1}


def test_who_knows_the_token_but_not_the_key_is_refused() -> None:
    guessed = Session(SESSION.token, bytes(32))
    assert refusals(Gate(SESSION, OURS), probe(0, guessed)) == {Refusal.GARBLED: 1}


@given(st.integers(0, SIZE_BYTES - 1), st.integers(1, 255))
def test_one_changed_byte_is_refused_and_the_true_packet_still_passes(at: int, change: int) -> None:
    data = bytearray(probe(5))
    data[at] ^= change
    gate = Gate(SESSION, OURS)
    assert gate.admit(bytes(data)) is None
    assert sum(gate.refused.values()) == 1
    assert gate.admit(probe(5)) == Accepted(Kind.PROBE, 5)


@given(st.binary(max_size=2 * SIZE_BYTES))
def test_noise_is_refused_and_counted(data: bytes) -> None:
    gate = Gate(SESSION, OURS)
    assert gate.admit(data) is None
    assert sum(gate.refused.values()) == 1


def test_a_session_has_a_secret_of_full_length() -> None:
    with pytest.raises(UsageError, match="key of 32"):
        Session(b"8 bytes!", b"short")
