# SPDX-License-Identifier: Apache-2.0
"""Asks a server over TCP, and notes when each request was sent and answered."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.lab.causes.actors.common import SOCKET, WORKER, Held, Options, Schedstat, report

if TYPE_CHECKING:
    from collections.abc import Callable

# Until the server does what somebody else has asked for.
_LEAD_S = 0.001


def run(options: Options) -> None:
    """Ask so many times.

    Options: `address`, `port`, `folder` of the server, `count`; `hello`, `request` and `until` (in hexadecimal): what
    is sent first, each time, and how an answer ends; `other`, the same of somebody else at the Unix socket, with the
    `cause` that it makes; `pattern`, requests in turn: `gap` (ms of rest after it), `poke` (pid of a hog), `behind`
    (after the request of somebody else).
    """
    held, messages, folder = Held(), [], Path(options["folder"])
    scheduled = Schedstat(int((folder / WORKER).read_text()))
    waited_ns = scheduled.waited_ns()
    with socket.create_connection((options["address"], options["port"])) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        ask = _talk(sock, options)
        other = _Other(folder / SOCKET, options["other"], held) if "other" in options else None
        for number in range(options["count"]):
            request = options["pattern"][number % len(options["pattern"])]
            if other and request.get("behind"):
                other.begin()
            if "poke" in request:
                os.kill(request["poke"], signal.SIGUSR1)
            sent_ns = time.monotonic_ns()
            ask()
            messages.append((sent_ns, time.monotonic_ns(), scheduled.waited_ns()))
            if other:
                other.end()
            time.sleep(request.get("gap", 0) / 1e3)
    report(messages=messages, waited_ns=waited_ns, intervals=held.intervals, tcp_info={}, bursts=[])


def _talk(sock: socket.socket, options: Options) -> Callable[[], None]:
    """Say hello, and return what asks once."""
    hello, request, until = (bytes.fromhex(options[name]) for name in ("hello", "request", "until"))

    def ask(data: bytes = request) -> None:
        sock.sendall(data)
        answer = b""
        while not answer.endswith(until):
            more = sock.recv(1 << 16)
            if not more:
                raise ConnectionError(f"the server ended the connection after {answer!r}")
            answer += more

    if hello:
        ask(hello)
    return ask


class _Other:
    """Somebody else, who asks while we do."""

    def __init__(self, path: Path, options: Options, held: Held) -> None:
        self._sock = socket.socket(socket.AF_UNIX)
        self._sock.connect(str(path))
        self._ask, self._cause, self._held = _talk(self._sock, options), options["cause"], held
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        time.sleep(_LEAD_S)

    def _run(self) -> None:
        with self._held.by(self._cause):
            self._ask()

    def end(self) -> None:
        if self._thread:
            self._thread.join()
