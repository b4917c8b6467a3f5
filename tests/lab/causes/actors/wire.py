# SPDX-License-Identifier: Apache-2.0
"""A wire with a delay and with losses between two TAP devices: what netem would be, on a kernel that has none."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections import deque
from typing import NoReturn

from tests.lab.causes.actors.common import Options, report, say

_MOST_BYTES = 65_536
_ETHERNET = 14
_TCP = 6


def run(options: Options) -> None:
    """Carry frames until it is ended.

    Options: `fds` of the client's and of the server's device; `delay` (ms) there and back; `lose`, which of the
    client's segments that bring new data are lost: every so many, and from which number on.
    """
    signal.signal(signal.SIGTERM, _end)
    losses = _Losses(*options["lose"]) if "lose" in options else None
    say("ready")
    with contextlib.suppress(_Ended):
        _carry(options["fds"], [round(ms * 1e6) for ms in options["delay"]], losses)
    report(lost=losses.taken if losses else 0)


def _carry(fds: list[int], delays_ns: list[int], losses: _Losses | None) -> NoReturn:
    under_way: list[deque[tuple[int, bytes]]] = [deque(), deque()]
    while True:
        now_ns = time.monotonic_ns()
        for way, frames in enumerate(under_way):
            while frames and frames[0][0] <= now_ns:
                os.write(fds[1 - way], frames.popleft()[1])
        due_ns = min((frames[0][0] for frames in under_way if frames), default=now_ns + 10**9)
        readable, _, _ = select.select(fds, [], [], max(0, due_ns - time.monotonic_ns()) / 1e9)
        for way, fd in enumerate(fds):
            for frame in _frames(fd) if fd in readable else ():
                if not (losses and way == 0 and losses.takes(frame)):
                    under_way[way].append((time.monotonic_ns() + delays_ns[way], frame))


class _Ended(Exception):  # noqa: N818 - nothing is wrong
    pass


def _end(*_: object) -> None:
    raise _Ended


def _frames(fd: int) -> list[bytes]:
    frames = []
    while True:
        try:
            frames.append(os.read(fd, _MOST_BYTES))
        except BlockingIOError:
            return frames


class _Losses:
    def __init__(self, every: int, first: int) -> None:
        self._every, self._next, self._count, self._end, self.taken = every, first, 0, -1, 0

    def takes(self, frame: bytes) -> bool:
        ip = frame[_ETHERNET:]
        if ip[9] != _TCP:
            return False
        tcp = ip[(ip[0] & 15) * 4 : int.from_bytes(ip[2:4], "big")]
        len_bytes = len(tcp) - (tcp[12] >> 4) * 4
        end = int.from_bytes(tcp[4:8], "big") + len_bytes
        again = self._end >= 0 and (self._end - end) % (1 << 32) < 1 << 31
        if again or not len_bytes:
            return False
        self._end = end
        self._count += 1
        if self._count < self._next:
            return False
        self._next += self._every
        self.taken += 1
        return True
