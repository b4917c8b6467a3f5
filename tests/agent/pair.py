# SPDX-License-Identifier: Apache-2.0
"""Both sides of a connection in this process."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hopscope.agent.channel import Channel
from hopscope.agent.handshake import Hello, greeting
from hopscope.agent.serve import Agent
from hopscope.agent.transport import Pipes
from tests.agent import service

if TYPE_CHECKING:
    from collections.abc import Iterator

SERVICES = {service.NAME: service.__name__}


def pipes(sock: socket.socket) -> Pipes:
    """Return a transport over a socket, which it takes over."""
    fd = sock.detach()
    return Pipes(fd, fd)


@contextmanager
def both() -> Iterator[tuple[Channel, Agent]]:
    """Yield a client's channel and its agent."""
    here, there = socket.socketpair()
    with ThreadPoolExecutor(1) as pool:
        pending = pool.submit(Agent, pipes(there), SERVICES)
        with Channel(pipes(here), "client", "b") as channel, pending.result() as agent:
            yield channel, agent


@contextmanager
def with_stranger() -> Iterator[tuple[Channel, socket.socket]]:
    """Yield a client's channel, and the socket of an agent who has said hello and is the test."""
    here, there = socket.socketpair()
    with there:
        there.sendall(greeting("agent", Hello()))
        with Channel(pipes(here), "client", "b") as channel:
            yield channel, there


@contextmanager
def serving_stranger() -> Iterator[tuple[socket.socket, Agent]]:
    """Yield the socket of a client who has said hello and is the test, and the agent."""
    here, there = socket.socketpair()
    with here:
        here.sendall(greeting("client", Hello()))
        with Agent(pipes(there), SERVICES) as agent:
            yield here, agent
