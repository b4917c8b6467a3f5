# SPDX-License-Identifier: Apache-2.0
"""Both sides in this process, or one of them and a stranger who does not keep to the rules."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import struct
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopscope.agent import channel as channel_module
from hopscope.agent import connect as connect_module
from hopscope.agent import serve
from hopscope.agent import stream as stream_module
from hopscope.agent.channel import STREAMS, Channel
from hopscope.agent.frames import BLOCK_BYTES, PART_BYTES, PING, Kind
from hopscope.agent.handshake import Hello, greeting
from hopscope.agent.ssh import Ssh
from hopscope.agent.stream import WINDOW_BYTES, Block, Message, Stream
from hopscope.agent.target import Target
from hopscope.agent.transport import Pipes
from hopscope.errors import ConnectionLostError, FormatError, RemoteError, StreamClosedError, UsageError
from tests.agent import service
from tests.agent.pair import both, serving_stranger, with_stranger
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

MB = 1 << 20
PATIENCE_S = 60.0


def opened(channel: Channel, deed: str, **request: object) -> Stream:
    return channel.open(service.NAME, {"do": deed, **request})


def frame(kind: int, stream: int, payload: bytes) -> bytes:
    return struct.pack("<IHBB", len(payload), stream, kind, 0) + payload


def message(stream: int, text: bytes = b"{}") -> bytes:
    return frame(Kind.MESSAGE, stream, text)


def wait_lost(channel: Channel) -> ConnectionLostError:
    gone = threading.Event()
    channel.when_lost(gone.set)
    assert gone.wait(PATIENCE_S)
    assert channel.lost is not None
    return channel.lost


def receive_all(stream: Stream) -> None:
    with contextlib.suppress(ConnectionLostError, RemoteError):
        while stream.receive(PATIENCE_S):
            pass


def test_what_is_sent_is_what_comes() -> None:
    with both() as (channel, _), opened(channel, "echo") as stream:
        stream.send({"a": [1, "ä", None]})
        assert stream.receive() == Message({"a": [1, "ä", None]})
        columns = [np.arange(1000, dtype="<i8"), b"bytes", bytearray(b""), memoryview(b"view")]
        stream.send_block({"rows": 1000}, columns)
        block = stream.receive()
        assert isinstance(block, Block)
        assert block.head == {"rows": 1000}
        assert bytes(block.data) == columns[0].tobytes() + b"bytesview"


@pytest.mark.parametrize("size", [0, 1, PART_BYTES, PART_BYTES + 1, 10 * MB, BLOCK_BYTES])
def test_a_block_of_any_size_is_whole(size: int) -> None:
    data = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    with both() as (channel, _), opened(channel, "echo") as stream:
        stream.send_block({}, [data])
        block = stream.receive()
    assert isinstance(block, Block)
    assert np.array_equal(np.frombuffer(block.data, np.uint8), data)


@settings(max_examples=30)
@given(st.lists(st.lists(st.integers(0, 2 * PART_BYTES), max_size=30), max_size=3))
def test_blocks_of_any_pieces_are_whole(blocks: list[list[int]]) -> None:
    with both() as (channel, _), opened(channel, "echo") as stream:
        for sizes in blocks:
            pieces = [os.urandom(min(size, 50)) * (size // 50) for size in sizes]
            stream.send_block({}, pieces)
            block = stream.receive()
            assert isinstance(block, Block)
            assert bytes(block.data) == b"".join(pieces)


def test_a_block_of_many_small_pieces_is_whole() -> None:
    pieces = [struct.pack("<I", number) for number in range(10_000)]
    with both() as (channel, _), opened(channel, "echo") as stream:
        stream.send_block({}, pieces)
        block = stream.receive()
    assert isinstance(block, Block)
    assert bytes(block.data) == b"".join(pieces)


def test_streams_are_apart() -> None:
    with both() as (channel, _):
        streams = [opened(channel, "echo") for _ in range(20)]

        def talk(number: int) -> list[object]:
            got = []
            for turn in range(20):
                streams[number].send_block({"turn": turn}, [bytes([number]) * 100_000])
                block = streams[number].receive()
                assert isinstance(block, Block)
                got.append((block.head["turn"], set(block.data)))
            return got

        with ThreadPoolExecutor(20) as pool:
            for number, got in enumerate(pool.map(talk, range(20))):
                assert got == [(turn, {number}) for turn in range(20)]


def test_what_several_threads_send_on_one_stream_is_not_torn() -> None:
    with both() as (channel, _), opened(channel, "echo") as stream, ThreadPoolExecutor(4) as pool:

        def send(number: int) -> None:
            for _ in range(10):
                stream.send_block({"number": number}, [bytes([number]) * (PART_BYTES + 7)])

        sent = [pool.submit(send, number) for number in range(4)]
        for _ in range(40):
            block = stream.receive()
            assert isinstance(block, Block)
            assert set(block.data) == {block.head["number"]}
        for each in sent:
            each.result()


def test_the_end_of_a_service_closes_its_stream() -> None:
    with both() as (channel, _), opened(channel, "bulk", count=3, size_bytes=10) as stream:
        blocks = [stream.receive() for _ in range(4)]
        assert [block.head for block in blocks[:3] if isinstance(block, Block)] == [{"number": n} for n in range(3)]
        assert blocks[3] is None
        assert stream.receive() is None
        with pytest.raises(StreamClosedError):
            stream.send({})


def test_what_a_service_could_not_do_is_raised_here() -> None:
    with both() as (channel, _), opened(channel, "refuse") as stream:
        with pytest.raises(RemoteError) as raised:
            stream.receive()
        assert str(raised.value) == "b: It may not do this. Run it as root"
        assert raised.value.exit_code == 77
        with pytest.raises(RemoteError):
            stream.send({})


def test_a_bug_of_a_service_is_no_end(capsys: pytest.CaptureFixture[str]) -> None:
    with both() as (channel, _), opened(channel, "fail") as stream:
        with pytest.raises(RemoteError, match="b: The service test failed: KeyError: 'a bug'"):
            stream.receive()
        with opened(channel, "echo") as other:
            other.send({"goes": "on"})
            assert other.receive() == Message({"goes": "on"})
    assert "Traceback" in capsys.readouterr().err


def test_a_service_that_there_is_not() -> None:
    no_such = pytest.raises(RemoteError, match="b: This agent has no service 'no such'")
    with both() as (channel, _), channel.open("no\nsuch", {}) as stream, no_such:
        stream.receive()


def test_nothing_in_time_is_not_the_end() -> None:
    with both() as (channel, _), opened(channel, "echo") as stream:
        with pytest.raises(TimeoutError):
            stream.receive(0.01)
        stream.send({"late": True})
        assert stream.receive(PATIENCE_S) == Message({"late": True})


def test_who_does_not_read_holds_up_its_own_stream_alone() -> None:
    count, size = 100, MB
    with both() as (channel, agent), opened(channel, "bulk", count=count, size_bytes=size) as unread:
        with opened(channel, "echo") as other:
            for number in range(1000):
                other.send({"number": number})
                assert other.receive(PATIENCE_S) == Message({"number": number})
        theirs = agent.channel._streams[unread.number]
        eventually(lambda: theirs._credit_bytes <= 0)  # so it waits
        held = sum(cost for _, cost in unread._arrived)
        assert held <= WINDOW_BYTES + size
        assert sum(unread.receive(PATIENCE_S) is not None for _ in range(count)) == count


def test_many_small_messages_that_nobody_reads_are_bounded_too() -> None:
    with both() as (channel, _), opened(channel, "echo") as stream, ThreadPoolExecutor(1) as pool:

        def flood() -> int:
            sent = 0
            try:
                while True:
                    stream.send({})
                    sent += 1
            except StreamClosedError:
                return sent

        flooding = pool.submit(flood)
        while stream._credit_bytes > 0:
            threading.Event().wait(0.01)
        stream.close()
        assert flooding.result() <= 3 * WINDOW_BYTES // 512


def test_close_from_either_side_wakes_who_waits() -> None:
    with both() as (channel, _), ThreadPoolExecutor(2) as pool:
        stream = opened(channel, "echo")
        waiting = pool.submit(stream.receive)
        stream.close()
        assert waiting.result(PATIENCE_S) is None
        stream = opened(channel, "echo")
        waiting = pool.submit(stream.receive)
        channel.close()
        assert waiting.result(PATIENCE_S) is None
        with pytest.raises(ConnectionLostError, match="closed here") as raised:
            opened(channel, "echo")
        assert raised.value.how == "closed"


def test_the_other_sides_end_wakes_who_waits_and_says_so() -> None:
    called = threading.Event()
    with both() as (channel, agent), ThreadPoolExecutor(2) as pool:
        channel.when_lost(called.set)
        reading, writing = opened(channel, "echo"), opened(channel, "hang")
        waiting = pool.submit(reading.receive)

        def flood() -> None:
            while True:
                writing.send_block({}, [bytes(MB)])

        flooding = pool.submit(flood)
        while writing._credit_bytes > 0:
            threading.Event().wait(0.01)
        assert agent.channel.lost is None
        agent.channel._transport.close()
        for each in (waiting, flooding):
            with pytest.raises(ConnectionLostError, match="The connection to b ended") as raised:
                each.result(PATIENCE_S)
            assert raised.value.how == "ended"
        assert called.wait(PATIENCE_S)
        late = threading.Event()
        channel.when_lost(late.set)
        assert late.is_set()


class SlowToSay(Pipes):
    """Is closed, and takes its time to say why it ended."""

    def __init__(self, fd: int) -> None:
        super().__init__(fd, fd)
        self.asked, self.say = threading.Event(), threading.Event()

    def why_ended(self) -> str:
        self.close()
        self.asked.set()
        assert self.say.wait(PATIENCE_S)
        return "it ended with 3"


def test_the_other_sides_end_is_said_however_long_it_takes_to_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel_module, "_FLUSH_S", 0)
    here, there = socket.socketpair()
    there.sendall(greeting("agent", Hello()))
    transport = SlowToSay(here.detach())
    with there, Channel(transport, "client", "b") as channel, ThreadPoolExecutor(1) as pool:
        there.shutdown(socket.SHUT_WR)
        assert transport.asked.wait(PATIENCE_S)
        opening = pool.submit(opened, channel, "echo")
        with pytest.raises(TimeoutError):
            opening.result(0.1)
        transport.say.set()
        with pytest.raises(ConnectionLostError, match=r"^The connection to b ended: it ended with 3$") as raised:
            opening.result(PATIENCE_S)
    assert raised.value.how == "ended"


def test_what_came_before_the_end_is_received() -> None:
    with with_stranger() as (channel, stranger):
        stream = channel.open("any", {})
        stranger.sendall(message(stream.number, b'{"last":"words"}'))
        stranger.close()
        assert stream.receive(PATIENCE_S) == Message({"last": "words"})
        with pytest.raises(ConnectionLostError):
            stream.receive(PATIENCE_S)


def test_services_end_with_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "_END_S", PATIENCE_S)
    with both() as (channel, agent):
        streams = [opened(channel, "echo") for _ in range(3)]
        streams[0].send({})
        streams[0].receive()
        channel.close()
        assert agent.close() == []


def test_numbers_are_used_again() -> None:
    with both() as (channel, _):
        for _ in range(3 * STREAMS):
            with opened(channel, "echo") as stream:
                stream.send({})
                assert stream.receive() == Message({})
        channel._number = (1 << 16) - 2
        numbers = []
        for _ in range(3):
            with opened(channel, "echo") as stream:
                numbers.append(stream.number)
        assert numbers == [65535, 1, 2]


def test_streams_are_so_many_at_most() -> None:
    with both() as (channel, _):
        for _ in range(STREAMS):
            opened(channel, "echo")
        with pytest.raises(UsageError, match=f"There are {STREAMS} streams to b already"):
            opened(channel, "echo")


def test_signs_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel_module, "PING_S", 0.01)
    with both() as (channel, agent):
        first = channel.alive
        while channel.alive == first or agent.channel.alive.there_ns <= first.here_ns:
            threading.Event().wait(0.01)
        there_ns, here_ns = channel.alive  # one host: one clock
        assert first.here_ns < there_ns <= here_ns


def test_who_is_silent_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel_module, "SILENCE_S", 1)
    with with_stranger() as (channel, _):
        stream = channel.open("any", {})
        with pytest.raises(ConnectionLostError, match="b was silent for 1 s") as raised:
            stream.receive(PATIENCE_S)
        assert raised.value.how == "silent"
        assert channel.lost is raised.value


def test_who_only_pings_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel_module, "SILENCE_S", 1)
    with with_stranger() as (channel, stranger):
        stream = channel.open("any", {})
        for _ in range(5):
            with pytest.raises(TimeoutError):
                stream.receive(0.5)
            stranger.sendall(frame(Kind.PING, 0, PING.pack(7)))
        assert channel.lost is None


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "there is no frame of kind"),
        (message(2), "there is no stream 2"),
        (frame(Kind.OPEN, 9, b'{"service":"record","request":{}}'), "a stream is opened in a way that there is not"),
        (frame(Kind.PART, 1, b"x"), "a part of 1 bytes belongs to no block"),
        (frame(Kind.BLOCK, 1, b'{"bytes":3,"head":{}}') + message(1), "a frame MESSAGE comes within a block"),
        (frame(Kind.BLOCK, 1, b'{"bytes":3,"head":{}}') + frame(Kind.PART, 1, b"xxxx"), "a part of 4 bytes"),
        (frame(Kind.BLOCK, 1, b'{"bytes":-1,"head":{}}'), "a block has no head, or is not of 0 to 67,108,864 bytes"),
        (frame(Kind.BLOCK, 1, b'{"bytes":67108865,"head":{}}'), "a block has no head, or"),
        (frame(Kind.BLOCK, 1, b'{"bytes":true,"head":{}}'), "a block has no head, or"),
        (frame(Kind.BLOCK, 1, b'{"bytes":1.5,"head":{}}'), "a block has no head, or"),
        (frame(Kind.BLOCK, 1, b'{"bytes":1}'), "a block has no head"),
        (frame(Kind.BLOCK, 1, b'{"bytes":1,"head":[]}'), "a block has no head"),
        (frame(Kind.CLOSE, 1, b"") + message(1), "after a close"),
        (frame(Kind.CLOSE, 1, b"{}"), "closed in a way that there is not"),
        (frame(Kind.CLOSE, 1, b'{"error":{"what":"","next_step":"","exit_code":0}}'), "closed in a way"),
        (message(1, b"[]"), "a message is not an object of JSON"),
    ],
)
def test_who_does_not_keep_to_the_rules_is_lost(said: bytes, sentence: str) -> None:
    with with_stranger() as (channel, stranger):
        stream = channel.open("any", {})
        assert stream.number == 1
        stranger.sendall(said)
        receive_all(stream)
        lost = wait_lost(channel)
        assert re.search(f"The connection to b is garbled: .*{re.escape(sentence)}", str(lost))
        assert lost.how == "garbled"


def test_who_sends_more_than_it_may_is_lost() -> None:
    with with_stranger() as (channel, stranger):
        channel.open("any", {})
        with contextlib.suppress(OSError):  # until it ends
            stranger.sendall(message(1) * (WINDOW_BYTES // 512 + 2))
        assert "garbled: more was sent than may be" in wait_lost(channel).what


def test_an_error_from_there_is_printable_and_bounded() -> None:
    said = {"what": "\x1b[2Jgone\n" + "x" * 30_000, "next_step": "\x07", "exit_code": 1}
    with with_stranger() as (channel, stranger):
        stream = channel.open("any", {})
        stranger.sendall(frame(Kind.CLOSE, 1, json.dumps({"error": said}).encode()))
        with pytest.raises(RemoteError) as raised:
            stream.receive(PATIENCE_S)
    assert str(raised.value).isprintable()
    assert str(raised.value).startswith("b: ?[2Jgone x")
    assert len(str(raised.value)) < 5000


def test_what_comes_for_a_stream_that_was_closed_here_is_dropped() -> None:
    with with_stranger() as (channel, stranger):
        stream = channel.open("any", {})
        stranger.sendall(frame(Kind.BLOCK, 1, b'{"bytes":3,"head":{}}') + frame(Kind.PART, 1, b"x"))
        while not stream._filled_bytes:
            threading.Event().wait(0.001)
        stream.close()
        stranger.sendall(frame(Kind.PART, 1, b"xx") + message(1) + frame(Kind.CLOSE, 1, b""))
        while channel._streams:
            threading.Event().wait(0.001)
        assert channel.lost is None
        assert channel.open("any", {}).number == 2


def test_what_may_not_be_sent_is_refused_here() -> None:
    with both() as (channel, _), opened(channel, "echo") as stream:
        with pytest.raises(FormatError, match=r"A message of .* bytes is longer"):
            stream.send({"a": "x" * MB})
        with pytest.raises(FormatError, match="A block of 67,108,865 bytes is longer"):
            stream.send_block({}, [bytes(BLOCK_BYTES + 1)])
        with pytest.raises(FormatError, match="longer than 65,536"):
            stream.send_block({"a": "x" * 70_000}, [])
        stream.send({"still": "there"})
        assert stream.receive() == Message({"still": "there"})


@settings(max_examples=50)
@given(st.binary(max_size=2000))
def test_any_bytes_end_the_connection_or_not_and_nothing_else(raw: bytes) -> None:
    with with_stranger() as (channel, stranger):
        stream = channel.open("any", {})
        stranger.sendall(raw)
        stranger.close()
        receive_all(stream)
        wait_lost(channel)


@settings(max_examples=100)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([*Kind]),
            st.integers(0, 2),
            st.binary(max_size=40) | st.sampled_from([b"{}", b'{"bytes":9,"head":{}}', b"\x00\x00\x00\x01"]),
        ),
        max_size=20,
    )
)
def test_any_frames_end_the_connection_or_not_and_nothing_else(frames: list[tuple[Kind, int, bytes]]) -> None:
    with with_stranger() as (channel, stranger):
        streams = [channel.open("any", {}) for _ in range(2)]
        stranger.sendall(b"".join(frame(*each) for each in frames))
        stranger.close()
        for stream in streams:
            receive_all(stream)
        wait_lost(channel)


def test_a_frame_that_was_cut_by_ctrl_c_is_the_last_one(interrupt: Callable[[type[BaseException]], None]) -> None:
    with with_stranger() as (channel, stranger):
        stream = channel.open("any", {})
        stranger.sendall(frame(Kind.CREDIT, 1, b"\xff\xff\xff\x7f"))
        interrupt(KeyboardInterrupt)
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012
            while True:
                stream.send_block({}, [bytes(MB)])
        with pytest.raises(ConnectionLostError, match="was closed here"):
            channel.open("any", {})


def test_an_agent_bounds_what_is_opened() -> None:
    opening = b'{"service":"test","request":{"do":"hang"}}'
    with serving_stranger() as (stranger, agent):
        stranger.sendall(b"".join(frame(Kind.OPEN, number, opening) for number in range(1, STREAMS + 2)))
        lost = wait_lost(agent.channel)
        assert "open already, or one too many" in lost.what
        assert len(agent._threads) == STREAMS


def test_a_host_that_never_says_hello_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("_PASSWORD_S", "_AGAIN_S"):
        monkeypatch.setattr(connect_module, limit, 0.1)
    attended = Ssh(("sh", "-c", "exec sleep 1000"), "hopscope agent")
    for ssh in (attended, attended.again()):
        with pytest.raises(ConnectionLostError, match=r"^web sent no greeting within 0\.1 s\. See whether its agent"):
            connect_module.connect(Target.parse("web"), ssh)


def test_a_service_that_never_begins_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_module, "ANSWER_S", 0.1)
    with both() as (channel, _):
        stream = opened(channel, "echo")
        with pytest.raises(ConnectionLostError, match=r"^b did not begin within 0\.1 s, though its agent runs"):
            stream.answer()
