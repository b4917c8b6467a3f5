# SPDX-License-Identifier: Apache-2.0
"""Sockets that are joined, on the host's lo (no rights needed) or in the lab."""

from __future__ import annotations

import contextlib
import select
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hopscope.timestamping import Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pytest

    from hopscope.lab import Lab
    from hopscope.timestamping import Collected, Message

# Nothing here blocks for longer: a hung test is a failed one.
TIMEOUT_S = 20.0
Pair = tuple[socket.socket, socket.socket]


def _here(act: Callable[..., Any], *args: object) -> Any:  # noqa: ANN401 - as `act` returns
    return act(*args)


@dataclass(frozen=True)
class Path:
    """From where to where packets go."""

    host: str
    at_sender: Callable[..., Any] = _here
    at_receiver: Callable[..., Any] = _here

    @property
    def family(self) -> socket.AddressFamily:
        return socket.AF_INET6 if ":" in self.host else socket.AF_INET

    @contextlib.contextmanager
    def tcp(self) -> Iterator[Pair]:
        """Yield the ends of a connection, of which the first sends each message at once."""
        with self.at_receiver(socket.socket, self.family) as listener:
            listener.bind((self.host, 0))
            listener.listen()
            address = (self.host, listener.getsockname()[1])
            with self.at_sender(socket.create_connection, address, TIMEOUT_S) as sender:
                receiver = listener.accept()[0]
                with receiver:
                    sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    receiver.settimeout(TIMEOUT_S)
                    yield sender, receiver

    @contextlib.contextmanager
    def udp(self) -> Iterator[Pair]:
        """Yield a sender that is connected, and the receiver."""
        with (
            self.at_receiver(socket.socket, self.family, socket.SOCK_DGRAM) as receiver,
            self.at_sender(socket.socket, self.family, socket.SOCK_DGRAM) as sender,
        ):
            receiver.bind((self.host, 0))
            receiver.settimeout(TIMEOUT_S)
            sender.connect((self.host, receiver.getsockname()[1]))
            yield sender, receiver


def reset(sender: socket.socket, receiver: socket.socket) -> None:
    """Leave the sender with data to read and a connection that the receiver reset: all that keeps `poll` returning."""
    receiver.send(b"data that nobody reads")
    sender.send(b"unread, so that closing resets the connection")
    receiver.close()
    with select.epoll() as epoll:
        epoll.register(sender, select.EPOLLHUP)
        assert epoll.poll(TIMEOUT_S)


def count_calls(monkeypatch: pytest.MonkeyPatch, owner: object, name: str) -> list[None]:
    """Return a list that grows with each call of a method: unlike CPU time, that does not depend on the machine."""
    calls: list[None] = []
    method = getattr(owner, name)

    def counted(*args: object, **kwargs: object) -> object:
        calls.append(None)
        return method(*args, **kwargs)

    monkeypatch.setattr(owner, name, counted)
    return calls


LO_4 = Path("127.0.0.1")
LO_6 = Path("::1")


def veth(lab: Lab, version: int) -> Path:
    return Path("10.77.0.2" if version == 4 else "fd77::2", lab.client.call, lab.server.call)


def in_order(message: Message) -> bool:
    """All that was asked for is there, and time went forward from stage to stage."""
    times_ns = [message.time_ns[stage] for stage in (Stage.SCHED, Stage.SND, Stage.ACK) if stage in message.wanted]
    return message.complete and message.missing is None and sorted(times_ns) == times_ns > [message.called_ns]


def assert_each(found: Collected, sent: list[Message]) -> None:
    """Exactly these came back, in the order of the stream, with all their stamps, and nothing else."""
    assert found.messages == sent
    assert [message.id for message in sent if not in_order(message)] == []
    assert found.errors == []
