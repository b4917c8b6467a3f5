# SPDX-License-Identifier: Apache-2.0
"""Streams that come and go at random, and a conversation that is cut, chunked or changed anywhere."""

from __future__ import annotations

import functools
import random
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from hopscope.agent.frames import FrameReader, Kind
from hopscope.agent.message import encode
from hopscope.agent.stream import Block, Message
from hopscope.errors import ConnectionLostError, RemoteError
from tests.agent import service
from tests.agent.pair import both, serving_stranger, with_stranger
from tests.agent.test_channel import PATIENCE_S, frame, wait_lost

if TYPE_CHECKING:
    from hopscope.agent.channel import Channel
    from hopscope.agent.stream import Stream

ASKED = ({"do": "bulk", "count": 3, "size_bytes": 1000}, {"do": "refuse"})


def live(channel: Channel, seed: int) -> int:
    """Open streams, read some of what comes and leave, over and over; return how many were as expected."""
    rng, well = random.Random(seed), 0  # noqa: S311 - no secret
    for _ in range(60):
        deed, count = rng.choice(["echo", "bulk", "refuse"]), rng.randint(1, 20)
        size, taken = rng.choice([0, 10, 300_000]), 0
        with channel.open(service.NAME, {"do": deed, "count": count, "size_bytes": size}) as stream:
            if deed == "echo":
                stream.send({"seed": seed})
                well += stream.receive(PATIENCE_S) == Message({"seed": seed})
                continue
            try:
                while taken < rng.randint(0, count) and isinstance(got := stream.receive(PATIENCE_S), Block):
                    assert (got.head["number"], len(got.data)) == (taken, size)
                    taken += 1
            except RemoteError:
                assert deed == "refuse"
            well += 1
    return well


def test_streams_that_come_and_go_do_not_disturb_each_other() -> None:
    with both() as (channel, agent):
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(functools.partial(live, channel), range(8))) == [60] * 8
        assert channel.lost is None
        assert agent.channel.lost is None


@functools.cache
def conversation() -> bytes:
    """Return what an agent sends whom two streams were opened to, after its hello."""
    raw = bytearray()

    def read_into(buffer: memoryview) -> int:
        count = stranger.recv_into(buffer)
        raw.extend(buffer[:count])
        return count

    with serving_stranger() as (stranger, _):
        reader = FrameReader(read_into)
        reader.find(b"}", 1 << 16)
        for number, request in enumerate(ASKED, 1):
            stranger.sendall(frame(Kind.OPEN, number, encode({"service": service.NAME, "request": request})))
        begin, closed = len(raw) - len(reader.held()), 0
        while closed < len(ASKED):
            head = reader.header()
            reader.payload(head)
            closed += head.kind == Kind.CLOSE
    return bytes(raw[begin:])


def heard(said: list[bytes]) -> list[list[object]]:
    """Return what the client of that conversation receives on each stream, if the agent says this and goes."""
    with with_stranger() as (channel, stranger):
        streams = [channel.open(service.NAME, request) for request in ASKED]
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        for chunk in said:
            stranger.sendall(chunk)
        stranger.close()
        got = [outcome(stream) for stream in streams]
        wait_lost(channel)
    return got


def outcome(stream: Stream) -> list[object]:
    got: list[object] = []
    try:
        while arrived := stream.receive(PATIENCE_S):
            got.append(bytes(arrived.data) if isinstance(arrived, Block) else arrived.body)
    except ConnectionLostError:
        return [*got, "lost"]
    except RemoteError:
        return [*got, "refused"]
    return [*got, "closed"]


WHOLE = [[bytes(1000)] * 3 + ["closed"], ["refused"]]


@given(st.lists(st.integers(1, 2000), min_size=1, max_size=4))
def test_a_conversation_may_come_in_any_chunks(sizes: list[int]) -> None:
    raw, chunks, at = conversation(), list[bytes](), 0
    while at < len(raw):
        size = sizes[len(chunks) % len(sizes)]
        chunks.append(raw[at : at + size])
        at += size
    assert heard(chunks) == WHOLE


@given(st.data())
def test_a_conversation_that_is_cut_is_known_up_to_there(data: st.DataObject) -> None:
    raw = conversation()
    cut = data.draw(st.integers(0, len(raw) - 1))
    got = heard([raw[:cut]])
    assert got != WHOLE
    for found, whole in zip(got, WHOLE, strict=True):
        assert found == whole or (found[-1] == "lost" and found[:-1] == whole[: len(found) - 1])


@settings(max_examples=300)
@given(st.data())
def test_a_conversation_with_a_wrong_byte_ends_one_way_or_another(data: st.DataObject) -> None:
    raw = bytearray(conversation())
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    for found in heard([raw]):
        assert found[-1] in {"lost", "refused", "closed"}
