# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import io
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopscope.agent.frames import PART_BYTES, FrameReader, Header, Kind, header, parse
from hopscope.agent.message import MESSAGE_BYTES
from hopscope.errors import ConnectionLostError, FormatError


def chunked(raw: bytes, sizes: list[int]) -> FrameReader:
    """Return a reader to which bytes come in chunks of these sizes, over and over."""
    source, turn = io.BytesIO(raw), 0

    def read_into(buffer: memoryview) -> int:
        nonlocal turn
        turn += 1
        chunk = source.read(min(len(buffer), sizes[turn % len(sizes)]))
        buffer[: len(chunk)] = chunk
        return len(chunk)

    return FrameReader(read_into)


SIZES = st.lists(st.integers(1, 300), min_size=1, max_size=5)
PAYLOADS = st.lists(st.binary(min_size=2, max_size=400), max_size=8)


@given(PAYLOADS, SIZES)
def test_frames_come_out_as_they_went_in_however_they_are_chunked(payloads: list[bytes], sizes: list[int]) -> None:
    reader = chunked(b"".join(header(Kind.MESSAGE, 7, len(raw)) + raw for raw in payloads), sizes)
    for raw in payloads:
        found = reader.header()
        assert found == Header(len(raw), 7, Kind.MESSAGE)
        assert reader.payload(found) == raw
    with pytest.raises(ConnectionLostError):
        reader.header()


@given(st.binary(min_size=2, max_size=300), SIZES, st.data())
def test_a_cut_anywhere_is_noticed(raw: bytes, sizes: list[int], data: st.DataObject) -> None:
    whole = header(Kind.MESSAGE, 1, len(raw)) + raw
    cut = data.draw(st.integers(0, len(whole) - 1))
    reader = chunked(whole[:cut], sizes)
    with pytest.raises(ConnectionLostError) as raised:
        reader.payload(reader.header())
    assert raised.value.how == "ended"


@given(st.binary(min_size=8, max_size=8))
def test_any_eight_bytes_are_a_header_within_bounds_or_an_error(raw: bytes) -> None:
    try:
        found = parse(raw)
    except FormatError:
        return
    assert found.length <= MESSAGE_BYTES
    assert header(found.kind, found.stream, found.length) == raw


def test_a_payload_larger_than_the_buffer_is_whole() -> None:
    raw = bytes(range(256)) * (PART_BYTES // 256)
    reader = chunked(header(Kind.PART, 1, len(raw)) + raw, [70_000, 1, 300_000])
    assert reader.payload(reader.header()) == raw


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ((2, 1, 99, 0), "There is no frame of kind 99"),
        ((2, 1, 0, 0), "There is no frame of kind 0"),
        ((MESSAGE_BYTES + 1, 1, Kind.MESSAGE, 0), "MESSAGE of 1,048,577 bytes is not of 2 to 1,048,576"),
        ((PART_BYTES + 1, 1, Kind.PART, 0), "PART of 262,145 bytes"),
        ((0, 1, Kind.PART, 0), "PART of 0 bytes"),
        ((1 << 31, 1, Kind.CLOSE, 0), "CLOSE of 2,147,483,648 bytes"),
        ((5, 1, Kind.CREDIT, 0), "CREDIT of 5 bytes is not of 4 to 4"),
        ((2, 1, Kind.MESSAGE, 1), "has the flags 0x1"),
        ((2, 0, Kind.MESSAGE, 0), "MESSAGE is not about stream 0"),
        ((8, 3, Kind.PING, 0), "PING is not about stream 3"),
    ],
)
def test_what_is_no_frame_is_refused(fields: tuple[int, ...], sentence: str) -> None:
    with pytest.raises(FormatError, match=sentence):
        parse(struct.pack("<IHBB", *fields))


@given(st.binary(max_size=500), SIZES)
def test_a_pattern_is_found_behind_whatever_comes_first(before: bytes, sizes: list[int]) -> None:
    pattern = b"\x00pattern\x00"
    reader = chunked(before.replace(b"\x00", b"") + pattern + b"rest", sizes)
    assert reader.find(pattern, 1000) == before.replace(b"\x00", b"") + pattern
    assert reader.find(b"rest", 10) == b"rest"


def test_a_pattern_is_looked_for_only_so_far() -> None:
    reader = chunked(b"x" * 100_000 + b"pattern", [1000])
    assert reader.find(b"pattern", 64 << 10) is None
    assert reader.held() == b"x" * (64 << 10)
