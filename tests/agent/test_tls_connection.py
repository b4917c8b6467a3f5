# SPDX-License-Identifier: Apache-2.0
"""A TLS connection under two threads, and one that somebody on the way cuts or changes."""

from __future__ import annotations

import random
import re
import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest

from hopscope.errors import ConnectionLostError
from tests.agent.certificates import agent_files, client_files
from tests.agent.tls_pair import connected, receive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hopscope.agent.tls import TlsFiles
    from hopscope.agent.tls_connection import TlsConnection
    from tests.agent.certificates import Authority

Both = tuple["TlsConnection", "TlsConnection"]
_MORE_THAN_BUFFERS = 1 << 24


@pytest.fixture(scope="module")
def files(ours: Authority) -> tuple[TlsFiles, TlsFiles]:
    return agent_files(ours), client_files(ours)


@pytest.fixture
def pair(files: tuple[TlsFiles, TlsFiles]) -> Iterator[Both]:
    with connected(*files) as both:
        yield both


def in_thread(function: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=function)
    thread.start()
    return thread


def until_lost(connection: TlsConnection) -> tuple[bytes, ConnectionLostError]:
    """Read until the connection breaks; return what came, and how it broke."""
    got = b""
    try:
        while True:
            got += receive(connection, 1)
    except ConnectionLostError as lost:
        return got, lost


def test_both_directions_run_at_once_and_nothing_is_changed(pair: Both) -> None:
    sent = [random.Random(side).randbytes(_MORE_THAN_BUFFERS) for side in range(2)]  # noqa: S311 - no secret
    got: dict[int, bytes] = {}

    def take(side: int) -> None:
        got[side] = receive(pair[side], _MORE_THAN_BUFFERS)

    def give(side: int) -> None:
        whole, sizes, at = memoryview(sent[side]), random.Random(side), 0  # noqa: S311 - as above
        while at < len(whole):
            cuts = sorted(sizes.randrange(1 << 19) for _ in range(2))
            pair[side].write([whole[at : at + cuts[0]], whole[at + cuts[0] : at + cuts[1]]])
            at += cuts[1]

    threads = [in_thread(lambda side=side, act=act: act(side)) for side in range(2) for act in (take, give)]  # type: ignore[misc]
    for thread in threads:
        thread.join()
    assert got == {0: sent[1], 1: sent[0]}


def test_end_that_is_meant_is_the_end(pair: Both) -> None:
    server, client = pair
    client.write([memoryview(b"last words")])
    client.close()
    assert receive(server, 100) == b"last words"


def test_end_that_somebody_on_the_way_made_is_none(pair: Both) -> None:
    server, client = pair
    client.sock.shutdown(socket.SHUT_WR)
    with pytest.raises(ConnectionLostError, match=r"^the client has hung up$") as lost:
        receive(server, 1)
    assert lost.value.how == "ended"


def test_reset_is_said(files: tuple[TlsFiles, TlsFiles]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        here = socket.create_connection(listening.getsockname())
        there, _ = listening.accept()
    with connected(*files, (there, here)) as (server, client):
        server.write([memoryview(b"unread")])
        client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        client.sock.close()
        with pytest.raises(ConnectionLostError, match=r"^the client is gone: Connection reset by peer$"):
            receive(server, 1)


@pytest.mark.parametrize("changed_by", ["a bit", "a repetition", "a gap"])
def test_bytes_that_somebody_changed_are_never_delivered(files: tuple[TlsFiles, TlsFiles], changed_by: str) -> None:
    with connected(*files) as (server, client):
        real, tapped, arriving = server.sock, *socket.socketpair()
        server.sock = tapped  # what the server sends comes out at `arriving`
        server.write([memoryview(b"first")])
        server.write([memoryview(b"second")])
        both = arriving.recv(1 << 16)
        half = len(both) // 2
        changed = {
            "a bit": both[:-1] + bytes([both[-1] ^ 1]),
            "a repetition": both[:half] + both[:half],
            "a gap": both[half + 1 :],
        }[changed_by]
        server.sock = real
        real.sendall(changed)
        got, lost = until_lost(client)
        assert b"first".startswith(got)
        assert re.search(r"^the agent (sent corrupted data|breaks TLS)", str(lost))
        assert lost.how == "garbled"
        for sock in (tapped, arriving):
            sock.close()


def test_nothing_comes_in_time(pair: Both) -> None:
    with pytest.raises(TimeoutError):
        pair[0].read_into(memoryview(bytearray(1)), 0.01)
    pair[1].write([memoryview(b"later")])
    assert receive(pair[0], 5) == b"later"


def test_close_wakes_reader_and_writer(pair: Both) -> None:
    server, _ = pair
    ways: list[str] = []

    def repeat(act: Callable[[], object]) -> None:
        try:
            while True:
                act()
        except ConnectionLostError as lost:
            ways.append(lost.how)

    threads = [
        in_thread(lambda: repeat(lambda: server.read_into(memoryview(bytearray(1)), None))),
        in_thread(lambda: repeat(lambda: server.write([memoryview(bytes(_MORE_THAN_BUFFERS))]))),
    ]
    while server._users < len(threads):
        time.sleep(0.001)
    server.close()
    for thread in threads:
        thread.join()
    assert ways == ["closed", "closed"]
    server.close()


def test_closed_connection_is_of_no_use(pair: Both) -> None:
    pair[0].close()
    with pytest.raises(ConnectionLostError, match="was closed here"):
        pair[0].write([memoryview(b"x")])
