# SPDX-License-Identifier: Apache-2.0
"""Sends messages that carry the time of their send call, in a pattern, and makes what is the sender's to make."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.lab.causes.actors.common import STAMP, Held, Options, report, tcp_info

if TYPE_CHECKING:
    from collections.abc import Iterator

_SO_SNDBUFFORCE = 32
_TCP_CONGESTION = 13
_SO_MAX_PACING_RATE = 47


def run(options: Options) -> None:
    """Send so many messages on one connection, then wait for its end.

    Options: `address`, `port`, `count`; `pattern`, messages in turn; `nagle`, `sndbuf`, `pacing` (bytes/s),
    `congestion`, `udp`, `calls` (what is the cause while a call lasts).

    A message has `size`, and may have `gap` (ms of rest after it; `meanwhile`, the cause that it makes so), `more`
    (MSG_MORE), `reply` (bytes to wait for), and what is done about it: `cork` (ms until it is let go), `neighbour` (ms
    until the next hop is known), `poke` (pid of a hog), `others` and `behind` (datagrams of another flow that go
    before and after it).
    """
    held = Held()
    with _connected(options) as sock, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        if "sink" in options:
            other.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, 4 << 20)
            other.connect((options["address"], options["sink"]))
        bursts: list[list[int]] = []
        for number in range(options["count"]):
            message = options["pattern"][number % len(options["pattern"])]
            if "others" in message:
                bursts.append([time.monotonic_ns(), *_burst(other, *message["others"])])
            if "poke" in message:
                os.kill(message["poke"], signal.SIGUSR1)
            with _made(message, sock, options, held), held.by(options.get("calls", "")):
                _send(sock, message)
            if "behind" in message:
                _burst(other, *message["behind"])
            _await(sock, message.get("reply", 0))
            with held.by(message.get("meanwhile", "")):
                time.sleep(message.get("gap", 0) / 1e3)
        held.intervals.pop("", None)
        info = _end(sock, options)
    report(intervals=held.intervals, tcp_info=info, bursts=bursts)


def _connected(options: Options) -> socket.socket:
    udp = options.get("udp")
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM if udp else socket.SOCK_STREAM)
    if "sndbuf" in options:
        sock.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, options["sndbuf"])
    if "pacing" in options:
        sock.setsockopt(socket.SOL_SOCKET, _SO_MAX_PACING_RATE, options["pacing"])
    if not udp:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, not options.get("nagle"))
        if "congestion" in options:
            sock.setsockopt(socket.IPPROTO_TCP, _TCP_CONGESTION, options["congestion"].encode())
    sock.connect((options["address"], options["port"]))
    return sock


def _send(sock: socket.socket, message: Options) -> None:
    data = bytearray(message["size"])
    STAMP.pack_into(data, 0, time.monotonic_ns())
    sock.sendall(data, socket.MSG_MORE if message.get("more") else 0)


def _burst(other: socket.socket, count: int, size: int) -> tuple[int, int]:
    for _ in range(count):
        other.send(bytes(size))
    return count, size


def _await(sock: socket.socket, reply: int) -> None:
    while reply:
        reply -= len(sock.recv(reply)) or reply


@contextmanager
def _made(message: Options, sock: socket.socket, options: Options, held: Held) -> Iterator[None]:
    if "cork" in message:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
        with held.by("cork"):
            yield
            time.sleep(message["cork"] / 1e3)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)
    elif "neighbour" in message:
        hop = (options["address"], "dev", options["device"])
        subprocess.run(["ip", "neigh", "del", *hop], check=True)
        resolver = threading.Thread(target=_resolve, args=(message["neighbour"], hop, options["mac"], held))
        resolver.start()
        yield
        resolver.join()
    else:
        yield


def _resolve(ms: float, hop: tuple[str, ...], mac: str, held: Held) -> None:
    with held.by("neighbour"):
        time.sleep(ms / 1e3)
        subprocess.run(["ip", "neigh", "replace", *hop, "lladdr", mac, "nud", "reachable"], check=True)


def _end(sock: socket.socket, options: Options) -> dict[str, int]:
    if options.get("udp"):
        return {}
    sock.shutdown(socket.SHUT_WR)
    while sock.recv(1 << 16):
        pass
    return tcp_info(sock)
