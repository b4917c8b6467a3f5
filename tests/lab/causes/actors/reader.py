# SPDX-License-Identifier: Apache-2.0
"""Reads messages, and does other things before; answers some."""

from __future__ import annotations

import contextlib
import select
import socket
import time

from tests.lab.causes.actors.common import STAMP, Held, Options, Schedstat, Steps, report, say, tcp_info

_SO_RCVBUFFORCE = 33
_UDP_GRO = 104
_SILENCE_S = 0.4


def run(options: Options) -> None:
    """Read so many messages of one connection, or datagrams until there are no more, and say when each was there.

    Options: `address`, `port`, `count`, `sizes` (of the messages in turn); `steps` in turn before each; `wait` for the
    whole message before a step; `rcvbuf`; `replies` in turn, bytes or 0, and `before_reply`, a step; `delack`; `udp`;
    `gro` (UDP_GRO); `sink`, a port whose datagrams nobody reads.
    """
    held, scheduled = Held(), Schedstat()
    steps = Steps(held)
    with contextlib.ExitStack() as stack:
        sock = stack.enter_context(_listen(options))
        if "sink" in options:
            stack.enter_context(_bound(options["address"], options["sink"], socket.SOCK_DGRAM))
        waited_ns = scheduled.waited_ns()
        say("ready")
        if not options.get("udp"):
            sock = stack.enter_context(sock.accept()[0])
        messages = _read(sock, options, steps, scheduled)
        info = {} if options.get("udp") else tcp_info(sock)
    report(messages=messages, waited_ns=waited_ns, intervals=held.intervals, tcp_info=info)


def _listen(options: Options) -> socket.socket:
    kind = socket.SOCK_DGRAM if options.get("udp") else socket.SOCK_STREAM
    sock = _bound(options["address"], options["port"], kind, options.get("rcvbuf"))
    if kind == socket.SOCK_STREAM:
        sock.listen()
    else:
        sock.setsockopt(socket.IPPROTO_UDP, _UDP_GRO, bool(options.get("gro")))
    return sock


def _bound(address: str, port: int, kind: socket.SocketKind, rcvbuf: int | None = None) -> socket.socket:
    sock = socket.socket(socket.AF_INET, kind)
    if rcvbuf:
        sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, rcvbuf)
    sock.bind((address, port))
    return sock


def _read(sock: socket.socket, options: Options, steps: Steps, scheduled: Schedstat) -> list[tuple[int, int, int]]:
    messages = []
    for number in range(options["count"]):
        size, step, reply = (_turn(options, name, number) for name in ("sizes", "steps", "replies"))
        if step and options.get("wait"):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)
            select.select([sock], [], [])
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
        steps.do(step)
        if options.get("delack"):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
        message = _datagram(sock, size) if options.get("udp") else _whole(sock, size)
        if not message:
            break
        if options.get("udp"):
            sock.settimeout(_SILENCE_S)
        messages.append((STAMP.unpack_from(message)[0], time.monotonic_ns(), scheduled.waited_ns()))
        if reply:
            steps.do(options.get("before_reply"), "application")
            sock.sendall(bytes(reply))
    return messages


def _turn(options: Options, name: str, number: int) -> object:
    values = options.get(name) or [None]
    return values[number % len(values)]


def _whole(sock: socket.socket, size: int) -> bytearray:
    message = bytearray(size)
    view = memoryview(message)
    while view:
        got = sock.recv_into(view)
        if not got:
            return bytearray()
        view = view[got:]
    return message


def _datagram(sock: socket.socket, size: int) -> bytes:
    with contextlib.suppress(TimeoutError):
        return sock.recv(size)
    return b""
