# SPDX-License-Identifier: Apache-2.0
"""``stamps``: what SO_TIMESTAMPING costs an application in Python, the kernel's part and ours.

CPU time of this process, in which the kernel also receives: over lo, all of a packet's way is in it.
"""

from __future__ import annotations

import contextlib
import socket
import time
from typing import TYPE_CHECKING, Final

from bench.measure import Spread, table, turns
from hopscope.timestamping import ErrorQueue, Sof, StampedSocket, enable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

ROUNDS: Final = 41
MESSAGES: Final = 100
_DATA: Final = bytes(100)
_SENT: Final = Sof.TX_SCHED | Sof.TX_SOFTWARE
_REPORT: Final = Sof.SOFTWARE | Sof.OPT_ID | Sof.OPT_TSONLY
_TITLES: Final = {
    "plain": "send and recv",
    "kernel": "stamped, nothing read",
    "unsampled": "StampedSocket, not sampled",
    "stamped": "StampedSocket, every stage",
    "read": "ErrorQueue.read, a stamp",
    "collect": "collect, a stamp",
}


def run(rounds: int = ROUNDS) -> Iterator[str]:
    """Measure, and yield the report."""
    for name, pair, flags in (("TCP", _tcp, _SENT | Sof.TX_ACK), ("UDP", _udp, _SENT)):
        with contextlib.ExitStack() as stack:
            measured = _measured([pair(stack) for _ in range(4)], flags, rounds)
        yield f"{name}, {len(_DATA)} bytes over lo, median of {rounds} rounds\n{costs_table(measured)}\n"


def costs_table(rounds: Sequence[Mapping[str, float]]) -> str:
    """Lay out the CPU time of a message or a stamp, and how much of a plain message that is."""
    rows = []
    for name, title in _TITLES.items():
        cost = Spread.of(taken[name] for taken in rounds)
        times = Spread.of(taken[name] / taken["plain"] for taken in rounds)
        rows.append([title, cost.shown(), f"{times.median:.2f}"])
    return table(("", "µs CPU", "times plain"), rows)


def _measured(pairs: Sequence[tuple[socket.socket, socket.socket]], flags: Sof, rounds: int) -> list[dict[str, float]]:
    plain, kernel, unsampled, stamped = pairs
    enable(kernel[0], flags | _REPORT)
    queue = ErrorQueue(kernel[0])
    with StampedSocket(unsampled[0], Sof(0)) as idle, StampedSocket(stamped[0], flags) as busy:
        sends: dict[str, Callable[[bytes], object]] = {
            "plain": plain[0].send,
            "kernel": kernel[0].send,
            "unsampled": idle.send,
            "stamped": busy.send,
        }
        receivers = dict(zip(sends, (receiver for _, receiver in pairs), strict=True))
        measured = []
        for order in turns([*sends], rounds):
            taken = {name: _talk(sends[name], receivers[name]) for name in order}
            taken["read"] = _timed(lambda: len(queue.read()[0]))
            taken["collect"] = _timed(lambda: _collect(busy))
            measured.append(taken)
    return measured


def _collect(stamped: StampedSocket) -> int:
    """Collect, and return how many stamps that were."""
    before = stamped.counts.stamps
    stamped.collect()
    return stamped.counts.stamps - before


def _talk(send: Callable[[bytes], object], receiver: socket.socket) -> float:
    """Return µs of CPU a message."""

    def talk() -> int:
        for _ in range(MESSAGES):
            send(_DATA)
            receiver.recv(len(_DATA))
        return MESSAGES

    return _timed(talk)


def _timed(act: Callable[[], int]) -> float:
    """Return µs of CPU for each of what `act` counts."""
    start_ns = time.process_time_ns()
    count = act()
    spent_ns = time.process_time_ns() - start_ns
    if not count:
        raise RuntimeError("no stamp was read")
    return spent_ns / count / 1e3


def _tcp(stack: contextlib.ExitStack) -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sender = stack.enter_context(socket.create_connection(listener.getsockname()))
        receiver = stack.enter_context(listener.accept()[0])
    sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return _with_room(sender), receiver


def _udp(stack: contextlib.ExitStack) -> tuple[socket.socket, socket.socket]:
    sender, receiver = (stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) for _ in range(2))
    receiver.bind(("127.0.0.1", 0))
    sender.connect(receiver.getsockname())
    return _with_room(sender), receiver


def _with_room(sender: socket.socket) -> socket.socket:
    """Let the error queue hold all stamps of a round; needs CAP_NET_ADMIN."""
    so_rcvbufforce = 33
    sender.setsockopt(socket.SOL_SOCKET, so_rcvbufforce, 8 << 20)
    return sender
