# SPDX-License-Identifier: Apache-2.0
"""Whatever bytes the other side sends, what comes of it is one of our errors, soon: no other exception, no hang."""

from __future__ import annotations

import contextlib
import functools
import struct
import threading
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopscope.agent.frames import FrameReader, Kind, header, parse
from hopscope.agent.handshake import Hello, read_greeting
from hopscope.agent.message import DEPTH, decode
from hopscope.agent.stream import decode_error
from hopscope.agent.target import Target
from hopscope.errors import ConnectionLostError, FormatError, HopscopeError, UsageError, VersionError
from tests.agent.conversation import against, greeted, meddled, recorded, talk
from tests.waiting import eventually

if TYPE_CHECKING:
    from hopscope.agent.handshake import Side

PATIENCE_S = 60.0
GREETED = len(greeted("agent", b""))
CONVERSATION = settings(max_examples=150)
SIDES = pytest.mark.parametrize("side", ["agent", "client"])


@pytest.fixture(autouse=True)
def _threads_end() -> object:
    """Fail where a thread is left, or died of anything."""
    died: list[str] = []
    before, there_already = threading.excepthook, set(threading.enumerate())
    threading.excepthook = lambda args: died.append(f"{args.exc_type.__name__}: {args.exc_value}")
    yield
    threading.excepthook = before
    eventually(lambda: set(threading.enumerate()) <= there_already, "a thread is left")
    assert died == []


@functools.cache
def _whole() -> dict[Side, bytes]:
    return recorded()


def said(side: Side) -> bytes:
    """Return what a side says in a whole conversation."""
    return _whole()[side]


def lost_to(said: bytes, side: Side) -> HopscopeError:
    """Say these bytes to the other side, and return what it makes of them."""
    try:
        with against(said, side) as (made, _):
            channel = made if side == "agent" else made.channel
            lost: HopscopeError = eventually(lambda: channel.lost, "it hangs")
    except (FormatError, ConnectionLostError, VersionError) as error:
        lost = error
    assert str(lost).isprintable()
    assert len(str(lost)) < 1000
    return lost


@given(st.binary(min_size=8, max_size=8))
def test_any_header_is_one_or_refused(raw: bytes) -> None:
    with contextlib.suppress(FormatError):
        found = parse(raw)
        assert header(found.kind, found.stream, found.length) == raw


@given(st.binary(max_size=300) | st.text(max_size=300).map(str.encode))
def test_any_bytes_are_a_message_or_refused(raw: bytes) -> None:
    with contextlib.suppress(FormatError):
        assert isinstance(decode(raw), dict)
    with contextlib.suppress(FormatError):
        assert str(decode_error(bytearray(raw), "there")).isprintable()


@pytest.mark.parametrize(
    "raw",
    [
        b'{"a":' * 100_000,
        b'{"a":' + b"[" * DEPTH + b"]" * DEPTH + b"}",
        b'{"a":' + b"9" * 100_000 + b"}",
        b'{"a":NaN}',
        b'{"a":-Infinity}',
        b'{"a":"\\ud800"}',
        b'{"a":"\xff"}',
        b'{"a":1}\0',
        b"\xef\xbb\xbf{}",
        b"[]",
        b"",
    ],
)
def test_json_that_would_take_too_much_or_is_none_is_refused(raw: bytes) -> None:
    with pytest.raises(FormatError):
        decode(raw)


@given(
    st.binary(max_size=2000), st.sampled_from([b"", b"hopscope-agent/1\n", b"hopscope-agent/", b"hopscope-agent/2\n"])
)
def test_any_greeting_is_one_or_refused(after: bytes, before: bytes) -> None:
    rest = bytearray(before + after)

    def read_into(buffer: memoryview) -> int:
        count = min(len(buffer), len(rest), 100)
        buffer[:count] = rest[:count]
        del rest[:count]
        return count

    try:
        assert isinstance(read_greeting(FrameReader(read_into), "agent", "there"), Hello)
    except HopscopeError as error:
        said = str(error)
    else:
        said = ""
    assert said.isprintable() or not said
    assert len(said) < 1000


@given(st.text(max_size=80) | st.from_regex(r"(ssh|tls)://[^,]{0,40}(,name=.{0,9})?", fullmatch=True))
def test_any_host_is_one_or_refused(text: str) -> None:
    try:
        found = Target.parse(text)
    except UsageError:
        return
    assert "/" not in found.name
    assert not found.name.startswith(".")
    assert not found.destination.startswith("-")
    assert found.destination.isprintable()


@SIDES
@CONVERSATION
@given(st.binary(max_size=400), st.booleans())
def test_any_bytes_end_a_connection_in_a_sentence(side: Side, rest: bytes, well_begun: bool) -> None:  # noqa: FBT001 # drawn
    lost_to(greeted(side, rest) if well_begun else rest, side)


def frames() -> st.SearchStrategy[bytes]:
    """Draw frames that are well formed and may make no sense."""
    opening = st.sampled_from(
        [
            b'{"service":"test","request":{"do":"echo"}}',
            b'{"service":"test","request":{}}',
            b'{"service":[],"request":{}}',
        ]
    )
    payloads = {
        Kind.OPEN: opening,
        Kind.MESSAGE: st.sampled_from([b"{}", b'{"a":1}', b"[]", b'{"error":1}']),
        Kind.BLOCK: st.integers(-1, 1 << 27).map(lambda size: b'{"bytes":%d,"head":{}}' % size)
        | st.sampled_from(
            [b'{"bytes":true,"head":{}}', b'{"bytes":1e3,"head":{}}', b'{"bytes":3}', b'{"bytes":3,"head":[]}']
        ),
        Kind.PART: st.binary(min_size=1, max_size=64),
        Kind.CREDIT: st.integers(0, (1 << 32) - 1).map(struct.Struct("<I").pack),
        Kind.CLOSE: st.sampled_from(
            [b"", b'{"error":{"what":"\\u001b[2J","next_step":7,"exit_code":3}}', b'{"error":{}}']
        ),
        Kind.PING: st.integers(0, (1 << 64) - 1).map(struct.Struct("<Q").pack),
    }
    return st.sampled_from(list(Kind)).flatmap(
        lambda kind: st.tuples(st.integers(0 if kind == Kind.PING else 1, 3), payloads[kind]).map(
            lambda drawn: header(kind, drawn[0] if kind != Kind.PING else 0, len(drawn[1])) + drawn[1]
        )
    )


@SIDES
@CONVERSATION
@given(st.data())
def test_any_frames_end_a_connection_in_a_sentence(side: Side, data: st.DataObject) -> None:
    lost_to(greeted(side, b"".join(data.draw(st.lists(frames(), max_size=12)))), side)


Change = tuple[str, float, float, int]
CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["flip", "delete", "repeat", "swap", "insert", "cut"]),
        st.floats(0, 1),
        st.floats(0, 0.2),
        st.integers(0, 255),
    ),
    min_size=1,
    max_size=4,
)


def changed(said: bytes, changes: list[Change]) -> bytes:
    """Return a conversation in which somebody has changed something."""
    for how, where, length, value in changes:
        at = int(where * len(said))
        end = at + 1 + int(length * len(said))
        piece = said[at:end]
        said = {
            "flip": said[:at] + bytes([value]) + said[at + 1 :],
            "delete": said[:at] + said[end:],
            "repeat": said[:end] + piece + said[end:],
            "swap": said[:at] + piece[::-1] + said[end:],
            "insert": said[:at] + bytes([value]) * (end - at) + said[at:],
            "cut": said[:at],
        }[how]
    return said


@SIDES
@CONVERSATION
@given(CHANGES)
def test_changed_conversation_ends_in_a_sentence(side: Side, changes: list[Change]) -> None:
    lost_to(changed(said(side), changes), side)


@SIDES
@settings(max_examples=25)
@given(st.integers(0, 200_000), CHANGES)
def test_conversation_that_is_changed_on_the_way_has_one_of_our_errors(
    side: Side, at: int, changes: list[Change]
) -> None:
    seen = {"client": 0, "agent": 0}

    def meddle(by: Side, data: bytes) -> bytes:
        before, seen[by] = seen[by], seen[by] + len(data)
        return (
            changed(data, changes)
            if by == side and before <= GREETED + at % (len(said(side)) - GREETED) < seen[by]
            else data
        )

    # Whoever changes a letter of a text, or leaves out a whole frame, is not noticed here: TLS and ssh see to that.
    with contextlib.suppress(HopscopeError, AssertionError, TimeoutError), meddled(meddle) as channel:
        talk(channel, 0.2)


def test_what_changes_nothing_is_no_error() -> None:
    with meddled(lambda _side, data: data) as channel:
        talk(channel)
    assert str(lost_to(said("client"), "client")) == "The connection to the client ended"
