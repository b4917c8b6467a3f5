# SPDX-License-Identifier: Apache-2.0
"""Namespaces recorded apart, as hosts of their own, and joined; and at the same time together, as the truth."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from tests.lab.command import hopscope, start
from tests.lab.measure import wait_at_rest
from tests.waiting import TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

    from hopscope.lab import Namespace

TOGETHER, JOINED = "together", "joined"


@contextmanager
def recorded_apart(
    folder: Path,
    hosts: Mapping[str, Namespace | list[Namespace]],
    *,
    together: bool = True,
    options: tuple[object, ...] = (),
) -> Iterator[None]:
    """Record while the body runs: each host into a folder of its name, joined into `joined`, and all in `together`.

    A host is a namespace, or some with those inside of it.
    """
    wanted = {name: each if isinstance(each, list) else [each] for name, each in hosts.items()}
    if together:
        wanted[TOGETHER] = [namespace for namespaces in wanted.values() for namespace in namespaces]
    recorders = {name: _start(folder / name, namespaces, options) for name, namespaces in wanted.items()}
    for name in wanted:
        while not (folder / name / "hopscope.json").exists():
            assert recorders[name].poll() is None, recorders[name].communicate()
            time.sleep(0.02)
    try:
        yield
    finally:
        for recorder in recorders.values():
            recorder.send_signal(2)
        for recorder in recorders.values():
            _, said = recorder.communicate(timeout=TIMEOUT_S)
            assert recorder.returncode == 0, said
            assert "none lost" in said
    done = hopscope("join", *(folder / name for name in hosts), "-o", folder / JOINED)
    assert done.returncode == 0, done.stderr


def _start(folder: Path, namespaces: list[Namespace], options: tuple[object, ...]) -> subprocess.Popen[str]:
    within = [option for namespace in namespaces for option in ("--netns", namespace.pid)]
    return start("record", "-o", folder, "-P", "messages", "--counters", 0, *within, *options)


MESSAGES, ASKED, ANSWERED = 101, 331, 1009
PORT = 8000
_SERVER: Final = f"""
import socket, threading

def whole(connection, size):
    while size:
        size -= len(connection.recv(size))

def datagrams():
    for _ in range({MESSAGES}):
        data, client = receiver.recvfrom(2048)
        receiver.sendto(data[:8] + bytes({ANSWERED - 8}), client)

receiver = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
receiver.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
receiver.bind(("::", {PORT}))
threading.Thread(target=datagrams, daemon=True).start()
with socket.create_server(("::", {PORT}), family=socket.AF_INET6, dualstack_ipv6=True) as listener:
    print("ready", flush=True)
    connection, _ = listener.accept()
    for _ in range({MESSAGES}):
        whole(connection, {ASKED})
        connection.sendall(bytes({ANSWERED}))
    whole(connection, 1)
"""
_CLIENT: Final = f"""
import socket, sys, time

def whole(connection, size):
    while size:
        size -= len(connection.recv(size))

address, own = (sys.argv[1], int(sys.argv[2])), ("", int(sys.argv[3]))
unanswered = set(map(int, sys.argv[4:]))
family = socket.getaddrinfo(*address)[0][0]
with (
    socket.create_connection(address, source_address=own) as stream, socket.socket(family, socket.SOCK_DGRAM) as sender
):
    sender.bind(own)
    sender.connect(address)
    for number in range({MESSAGES}):
        stream.sendall(bytes({ASKED}))
        whole(stream, {ANSWERED})
        sender.send(number.to_bytes(8, "little") + bytes({ASKED - 8}))
        if number not in unanswered:
            sender.recv(2048)
        time.sleep(0.005)
    stream.sendall(b"x")
"""


def talk(  # noqa: PLR0913 # what may be said of traffic
    client: Namespace,
    server: Namespace,
    host: str,
    port: int = PORT,
    *,
    own_port: int = 0,
    unanswered: Collection[int] = (),
) -> None:
    """Let the client ask :data:`MESSAGES` times, with `ASKED` bytes, by TCP and by UDP, and be answered `ANSWERED`.

    It does so from `own_port`, 0: any. The answers to the datagrams of these numbers are not waited for: they are
    dropped on their way.
    """
    python = (sys.executable, "-c")
    with server.popen([*python, _SERVER], stdout=subprocess.PIPE, text=True) as serving:
        try:
            assert serving.stdout is not None
            assert serving.stdout.readline() == "ready\n"
            words = [*python, _CLIENT, *map(str, (host, port, own_port, *unanswered))]
            done = client.run(words, capture_output=True, text=True, timeout=TIMEOUT_S)
            assert done.returncode == 0, done.stderr
            assert serving.wait(TIMEOUT_S) == 0
        finally:
            serving.kill()
    wait_at_rest(client, server)
