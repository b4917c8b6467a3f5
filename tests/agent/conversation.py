# SPDX-License-Identifier: Apache-2.0
"""Conversations of both sides: recorded, meddled with on their way, and with a side that says what a test likes."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING, Any

from hopscope.agent.channel import Channel
from hopscope.agent.handshake import Hello, greeting
from hopscope.agent.serve import Agent
from hopscope.agent.stream import Block, Message
from hopscope.errors import HopscopeError
from tests.agent.pair import SERVICES, pipes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hopscope.agent.handshake import Side

BLOCK = bytes(range(256)) * 64
HELLO = Hello()


def talk(channel: Channel, patience_s: float = 20.0) -> None:
    """Have everything said that there is: messages, a block in parts, an error, a close by either side."""
    with channel.open("test", {"do": "echo"}) as stream:
        stream.send({"number": 1, "text": "grüße", "list": [1, 2.5, None, {"deep": []}]})
        stream.send_block({"name": "bytes"}, [BLOCK, BLOCK])
        message, block = stream.receive(patience_s), stream.receive(patience_s)
    assert isinstance(message, Message)
    assert isinstance(block, Block)
    with channel.open("test", {"do": "refuse"}) as stream, contextlib.suppress(HopscopeError):
        stream.receive(patience_s)
    with channel.open("nobody", {}) as stream, contextlib.suppress(HopscopeError):
        stream.receive(patience_s)


def recorded() -> dict[Side, bytes]:
    """Return what each side says in a whole conversation."""
    said: dict[Side, bytearray] = {"client": bytearray(), "agent": bytearray()}

    def keep(side: Side, data: bytes) -> bytes:
        said[side] += data
        return data

    with meddled(keep) as channel:
        talk(channel)
    return {side: bytes(whole) for side, whole in said.items()}


@contextlib.contextmanager
def meddled(meddle: Callable[[Side, bytes], bytes | None]) -> Iterator[Channel]:
    """Yield a client's channel to an agent, with somebody between them through whose hands all bytes go.

    Parameters
    ----------
    meddle
        Returns what becomes of bytes that a side has sent; None cuts the connection.

    Raises
    ------
    HopscopeError
        The greeting did not survive that.
    """
    here, by_client = socket.socketpair()
    there, by_agent = socket.socketpair()
    ends = pipes(here), pipes(there)
    copying = [
        threading.Thread(target=_copy, args=(by_client, by_agent, lambda data: meddle("client", data))),
        threading.Thread(target=_copy, args=(by_agent, by_client, lambda data: meddle("agent", data))),
    ]
    agents: list[Agent] = []

    def start() -> None:
        with contextlib.suppress(HopscopeError):
            agents.append(Agent(ends[1], SERVICES))

    starting = threading.Thread(target=start)
    with by_client, by_agent:
        for thread in (*copying, starting):
            thread.start()
        try:
            with Channel(ends[0], "client", "there", hello_s=20) as channel:
                yield channel
        finally:
            for sock in (by_client, by_agent):
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
            for thread in (*copying, starting):
                thread.join()
            for agent in agents:
                agent.close()


def _copy(one: socket.socket, other: socket.socket, meddle: Callable[[bytes], bytes | None]) -> None:
    with contextlib.suppress(OSError):
        while data := one.recv(1 << 16):
            if (rest := meddle(data)) is None:
                break
            other.sendall(rest)
        for sock in (one, other):
            sock.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def against(said: bytes, side: Side) -> Iterator[tuple[Any, socket.socket]]:
    """Yield a `Channel` or an `Agent` that is the other side of one that has said these bytes and no more.

    Raises
    ------
    HopscopeError
        That was not enough for a greeting.
    """
    here, there = socket.socketpair()
    with there:
        writing = threading.Thread(target=_say, args=(there, said))
        reading = threading.Thread(target=_swallow, args=(there,))
        writing.start()
        reading.start()
        transport = pipes(here)
        made: Any = None
        try:
            made = Channel(transport, "client", "there", hello_s=20) if side == "agent" else Agent(transport, SERVICES)
            yield made, there
        finally:
            if made:
                made.close()
            with contextlib.suppress(OSError):
                there.shutdown(socket.SHUT_RDWR)
            writing.join()
            reading.join()


def _say(sock: socket.socket, said: bytes) -> None:
    with contextlib.suppress(OSError):
        sock.sendall(said)
        sock.shutdown(socket.SHUT_WR)


def _swallow(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while sock.recv(1 << 16):
            pass


def greeted(side: Side, rest: bytes) -> bytes:
    """Return a side's greeting, and what it says then."""
    return greeting(side, HELLO) + rest
