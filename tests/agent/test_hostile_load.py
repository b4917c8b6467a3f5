# SPDX-License-Identifier: Apache-2.0
"""A peer that keeps to the format and asks for too much: what it can make the other side hold is bounded."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

import pytest

from hopscope.agent.channel import HELD_BYTES, STREAMS
from hopscope.agent.frames import BLOCK_BYTES, PART_BYTES, PING, Kind, header
from hopscope.agent.message import encode
from tests.agent.pair import both, serving_stranger, with_stranger
from tests.waiting import eventually

if TYPE_CHECKING:
    import socket

    from hopscope.agent.channel import Channel
    from hopscope.errors import ConnectionLostError

PATIENCE_S = 60.0


def frame(kind: Kind, stream: int, payload: bytes) -> bytes:
    return header(kind, stream, len(payload)) + payload


def lost(channel: Channel) -> ConnectionLostError:
    return eventually(lambda: channel.lost, "the connection is not lost")


def fill(sock: socket.socket, stream: int) -> None:
    """Send a whole block on a stream, as the largest that there may be."""
    sock.sendall(frame(Kind.BLOCK, stream, encode({"bytes": BLOCK_BYTES, "head": {}})))
    part = frame(Kind.PART, stream, bytes(PART_BYTES))
    for _ in range(BLOCK_BYTES // PART_BYTES):
        sock.sendall(part)


def test_client_cannot_make_an_agent_hold_more_than_the_limit() -> None:
    with serving_stranger() as (sock, agent):
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for stream in range(1, STREAMS + 1):
                sock.sendall(frame(Kind.OPEN, stream, encode({"service": "test", "request": {"do": "ignore"}})))
                fill(sock, stream)
        assert f"more than {HELD_BYTES:,} bytes wait to be taken" in str(lost(agent.channel))
        assert stream == HELD_BYTES // BLOCK_BYTES


def test_agent_cannot_make_a_client_hold_more_than_the_limit() -> None:
    with with_stranger() as (channel, sock):
        streams = [channel.open("test", {}) for _ in range(STREAMS)]
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for stream in streams:
                fill(sock, stream.number)
        assert f"more than {HELD_BYTES:,} bytes wait to be taken" in str(lost(channel))


def test_what_was_taken_closed_or_ended_is_held_no_more() -> None:
    with both() as (channel, agent):
        with channel.open("test", {"do": "echo"}) as stream:
            stream.send_block({}, [bytes(BLOCK_BYTES // 8)])
            assert stream.receive(PATIENCE_S) is not None
            stream.send_block({}, [bytes(BLOCK_BYTES // 8)])
        with channel.open("test", {"do": "bulk", "count": 3, "size_bytes": BLOCK_BYTES // 8}) as stream:
            assert stream.receive(PATIENCE_S) is not None
        eventually(lambda: not (channel._held_bytes or agent.channel._held_bytes), "bytes are still held")


def test_client_that_opens_and_closes_and_never_reads_is_given_up() -> None:
    with serving_stranger() as (sock, agent):
        begin = frame(Kind.OPEN, 1, encode({"service": "none", "request": {}}))
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            while agent.channel.lost is None:
                for said, taken in ((begin, True), (frame(Kind.CLOSE, 1, b""), False)):
                    sock.sendall(said)
                    while (1 in agent.channel._streams) != taken and agent.channel.lost is None:
                        time.sleep(0)
        assert "it asks for much and reads nothing" in str(lost(agent.channel))


@pytest.mark.parametrize("there_ns", [1 << 63, (1 << 64) - 1])
def test_clock_that_no_clock_shows_is_refused(there_ns: int) -> None:
    with with_stranger() as (channel, sock):
        sock.sendall(frame(Kind.PING, 0, PING.pack(there_ns)))
        assert "no clock has run so long" in str(lost(channel))
        assert channel.alive.there_ns < 1 << 63


def test_peer_that_sends_pings_without_end_holds_up_nothing() -> None:
    with with_stranger() as (channel, sock):
        stream = channel.open("test", {})
        sock.sendall(frame(Kind.PING, 0, PING.pack(7)) * 100_000 + frame(Kind.MESSAGE, stream.number, b'{"a":1}'))
        assert stream.receive(PATIENCE_S) is not None
