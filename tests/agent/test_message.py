# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopscope.agent.message import DEPTH, decode, encode
from hopscope.errors import FormatError

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
SCALARS = st.none() | st.booleans() | st.integers(-(1 << 63), 1 << 63) | st.floats(allow_nan=False, width=64) | TEXT
FINITE = SCALARS.filter(lambda value: not isinstance(value, float) or abs(value) != float("inf"))
VALUES = st.recursive(FINITE, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner), max_leaves=20)


@pytest.mark.slow
@given(st.dictionaries(TEXT, VALUES))
def test_a_message_is_what_was_sent(message: dict[str, object]) -> None:
    assert decode(encode(message)) == message


@given(st.binary())
def test_any_bytes_are_a_message_or_an_error(raw: bytes) -> None:
    try:
        message = decode(raw)
    except FormatError:
        return
    assert isinstance(message, dict)


def nested(depth: int) -> bytes:
    return b'{"a":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"


def test_depth_is_bounded() -> None:
    assert decode(nested(DEPTH))
    for depth in (DEPTH + 1, 500, 100_000):
        with pytest.raises(FormatError, match=r"nested|not JSON"):
            decode(nested(depth))


def test_a_message_that_is_wide_is_not_deep() -> None:
    wide = {"a": [{"b": [number]} for number in range(1000)]}
    assert decode(encode(wide)) == wide


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        (b"", "not JSON"),
        (b"[]", "not an object"),
        (b'{"a": NaN}', "not JSON"),
        (b'{"a": -Infinity}', "not JSON"),
        (b'{"a": "\xff"}', "not JSON"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not JSON"),
        (rb'{"a": "\ud800"}', "half a character"),
        (rb'{"\uDFFF": 1}', "half a character"),
    ],
)
def test_what_is_no_message_is_refused(raw: bytes, sentence: str) -> None:
    with pytest.raises(FormatError, match=sentence):
        decode(raw)


def test_a_whole_character_may_be_escaped() -> None:
    assert decode(rb'{"a": "\ud83d\ude00"}') == {"a": "😀"}


def test_length_is_bounded() -> None:
    with pytest.raises(FormatError, match="longer than 10"):
        encode({"a": "1234567"}, 10)
    assert json.loads(encode({"a": "12"}, 10)) == {"a": "12"}
