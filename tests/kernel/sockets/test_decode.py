# SPDX-License-Identifier: Apache-2.0
"""Decoding of what sock_diag sends, from made messages: whatever comes is decoded right or refused."""

from __future__ import annotations

import contextlib
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopscope.errors import FormatError
from hopscope.kernel.netlink import NLM_F_DUMP_INTR, NLMSG_DONE, NLMSG_ERROR
from hopscope.kernel.sockets.decode import Decoded, decode
from hopscope.kernel.sockets.table import MESSAGE, Seen
from hopscope.kernel.sockets.tcp_info import DTYPE

SEQUENCE = 7
SOCK_DIAG = 20
INFO, CONG, TOS, SKMEMINFO, MARK, BBRINFO, ULP_INFO, CGROUP_ID = 2, 4, 5, 7, 15, 16, 20, 21

Attributes = list[tuple[int, bytes]]


def attribute(number: int, payload: bytes) -> bytes:
    whole = struct.pack("=HH", 4 + len(payload), number) + payload
    return whole + bytes(-len(whole) % 4)


def message(body: bytes, kind: int = SOCK_DIAG, flags: int = 2, sequence: int = SEQUENCE) -> bytes:
    return struct.pack("=IHHII", 16 + len(body), kind, flags, sequence, 0) + body + bytes(-len(body) % 4)


def one(number: int, attributes: Attributes, **more: int) -> bytes:
    head = np.zeros(1, MESSAGE)
    head["cookie"] = number, 0
    head["sport"] = number & 0xFFFF
    return message(head.tobytes() + b"".join(attribute(*each) for each in attributes), **more)


def done(code: int = 0) -> bytes:
    return message(struct.pack("=i", code), NLMSG_DONE)


def decoded(*datagrams: bytes) -> Decoded:
    ends, data = [], b""
    for datagram in datagrams:
        data += datagram
        ends.append(len(data))
        data += bytes(-len(data) % 4)
    return decode(np.frombuffer(data, np.uint8).copy(), np.array(ends, np.int64), SEQUENCE)


def by_cookie(found: Decoded) -> dict[int, Any]:
    return {int(row["message"]["cookie"][0]): row for row in found.rows}


def test_layouts_that_take_turns_are_told_apart() -> None:
    layouts: list[Attributes] = [
        [(TOS, b"\1"), (CONG, b"cubic\0")],
        [(TOS, b"\2"), (CONG, b"bbr\0"), (BBRINFO, struct.pack("=5I", 1, 2, 3, 4, 5))],
        [(MARK, b"\3\0\0\0"), (CONG, b"reno\0")],  # as long as the first
        [],
    ]
    found = decoded(b"".join(one(number, layouts[number % 4]) for number in range(1, 201)), done())
    rows = by_cookie(found)
    assert sorted(rows) == list(range(1, 201))
    assert found.ended
    for number, row in rows.items():
        assert row["message"]["sport"] == number
        expected = dict(layouts[number % 4])
        assert row["cong"] == expected.get(CONG, b"").rstrip(b"\0")
        assert row["tos"] == expected.get(TOS, b"\0")[0]
        assert row["mark"] == int.from_bytes(expected.get(MARK, b"\0"), "little")
        assert int(row["seen"]) == sum(1 << each for each in expected)
    assert rows[1]["control"].tobytes() == struct.pack("=5I", 1, 2, 3, 4, 5)


@pytest.mark.parametrize("size", [104, 232, 280, 320])
def test_tcp_info_of_every_length_is_taken_as_far_as_it_goes(size: int) -> None:
    payload = bytes(range(1, 255)) + bytes(range(1, 255))
    found = decoded(one(1, [(INFO, payload[:size])]), done())
    assert found.tcp_info_bytes == size
    kept = min(size, DTYPE.itemsize)
    assert found.rows[0]["tcp"].tobytes() == payload[:kept] + bytes(DTYPE.itemsize - kept)


def test_memory_of_an_old_kernel_has_no_backlog_and_no_drops() -> None:
    found = decoded(one(1, [(SKMEMINFO, struct.pack("=7I", *range(1, 8)))]), done())
    assert found.rows[0]["memory"].tolist() == (1, 2, 3, 4, 5, 6, 7, 0, 0)


def test_name_of_an_upper_layer_protocol_ends_where_the_kernel_ends_it() -> None:
    nested = attribute(1, b"tls\0") + attribute(2, bytes(20))
    found = decoded(one(1, [(ULP_INFO | 0x8000, nested)]) + one(2, [(ULP_INFO, b"")]), done())
    rows = by_cookie(found)
    assert rows[1]["ulp"] == b"tls"
    assert rows[2]["ulp"] == b""


def test_of_two_attributes_of_one_number_the_first_counts() -> None:
    assert decoded(one(1, [(TOS, b"\1"), (TOS, b"\2")]), done()).rows[0]["tos"] == 1


def test_attributes_that_nobody_knows_are_passed_over() -> None:
    row = decoded(one(1, [(99, b"abcde"), (TOS, b"\4"), (10, b"")]), done()).rows[0]
    assert row["tos"] == 4
    assert int(row["seen"]) == Seen.TOS


def test_answers_to_other_questions_are_left_out() -> None:
    found = decoded(one(1, [], sequence=6) + one(2, []), done())
    assert list(by_cookie(found)) == [2]


def test_what_comes_behind_the_end_is_left_out() -> None:
    assert list(by_cookie(decoded(one(1, []) + done() + one(2, [])))) == [1]


def test_interruption_and_errors_are_told() -> None:
    found = decoded(one(1, [], flags=2 | NLM_F_DUMP_INTR), done(-2))
    assert found.interrupted
    assert found.error == 2
    assert decoded(message(struct.pack("=i", -1) + bytes(16), NLMSG_ERROR)).error == 1
    assert not decoded(one(1, [])).ended


@pytest.mark.parametrize(
    ("datagram", "why"),
    [
        (b"\0" * 15, "does not end where it says"),
        (b"\0" * 16, "does not end where it says"),
        (struct.pack("=IHHII", 17, 20, 0, SEQUENCE, 0), "does not end where it says"),
        (message(bytes(71)), "shorter than struct inet_diag_msg"),
        (message(bytes(72) + b"\0\0\0"), "within the header of an attribute"),
        (message(bytes(72) + b"\3\0\1\0"), "Attribute 1 of sock_diag does not end"),
        (message(bytes(72) + b"\x09\0\1\0"), "Attribute 1 of sock_diag does not end"),
        (one(1, [(MARK, b"\0\0")]), "Attribute 15 of sock_diag has 2 bytes"),
        (one(1, [(ULP_INFO, struct.pack("=HH", 99, 1))]), "does not end where it says"),
    ],
)
def test_wrong_bytes_are_refused_with_a_sentence(datagram: bytes, why: str) -> None:
    with pytest.raises(FormatError, match=why):
        decoded(datagram)


KNOWN: dict[int, int] = {INFO: 232, CONG: 1, TOS: 1, SKMEMINFO: 36, MARK: 4, BBRINFO: 20, CGROUP_ID: 8}
attributes = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(sorted(KNOWN)), st.just(b"")).map(lambda pair: (pair[0], bytes(KNOWN[pair[0]]))),
        st.tuples(st.sampled_from((0, 10, 18, 19, 23, 200)), st.binary(max_size=9)),
    ),
    max_size=5,
    unique_by=lambda each: each[0],
)


@given(st.lists(st.lists(st.tuples(attributes, st.integers(0, 255)), max_size=6), max_size=4))
def test_any_mixture_is_decoded_as_one_by_one(datagrams: list[list[tuple[Attributes, int]]]) -> None:
    number, sent, expected = 0, [], {}
    for datagram in datagrams:
        text = b""
        for layout, fill in datagram:
            number += 1
            filled = [(kind, bytes([fill]) * len(payload)) for kind, payload in layout]
            text += one(number, filled)
            expected[number] = dict(filled)
        sent.append(text)
    rows = by_cookie(decoded(*sent, done()))
    assert sorted(rows) == sorted(expected)
    for cookie, told in expected.items():
        row = rows[cookie]
        assert int(row["seen"]) == sum(1 << kind for kind in told if kind in KNOWN)
        assert row["tcp"].tobytes() == told.get(INFO, b"").ljust(DTYPE.itemsize, b"\0")
        assert row["memory"].tobytes() == told.get(SKMEMINFO, b"").ljust(36, b"\0")
        assert int(row["mark"]) == int.from_bytes(told.get(MARK, b""), "little")
        assert int(row["cgroup_id"]) == int.from_bytes(told.get(CGROUP_ID, b""), "little")


def usual(count: int) -> bytes:
    layout: Attributes = [(TOS, b"\1"), (INFO, bytes(280)), (CONG, b"cubic\0"), (SKMEMINFO, bytes(36))]
    return b"".join(one(number, layout) for number in range(1, count + 1))


@given(st.integers(0, len(usual(3))))
def test_an_answer_that_is_cut_anywhere_is_decoded_or_refused(length: int) -> None:
    whole = usual(3)
    try:
        found = decoded(whole[:length])
    except FormatError:
        assert length % (len(whole) // 3)
        return
    assert len(found.rows) == length // (len(whole) // 3)


@given(st.lists(st.tuples(st.integers(0, len(usual(3)) - 1), st.integers(0, 255)), min_size=1, max_size=8))
def test_changed_bytes_do_no_more_than_change_what_they_say(changes: list[tuple[int, int]]) -> None:
    whole = bytearray(usual(3))
    for at, value in changes:
        whole[at] = value
    try:
        found = decoded(bytes(whole))
    except FormatError:
        return
    assert len(found.rows) <= len(whole) // 88


@given(st.binary(max_size=300))
def test_any_bytes_are_decoded_or_refused(data: bytes) -> None:
    with contextlib.suppress(FormatError):
        decoded(data)
