# SPDX-License-Identifier: Apache-2.0
"""When a workload sends, when it ends, and what it says of itself."""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import StrEnum

# Nothing takes so long by itself, also where the machine is slow: what hangs ends.
LIMIT_S = 120.0
_SLEEP_SHORTER_S = 60e-6


class Ended(StrEnum):
    """What ended a workload."""

    COUNT = "count"
    DURATION = "duration"
    EOF = "eof"
    SIGNAL = "signal"
    LIMIT = "limit"


@dataclass(frozen=True)
class Summary:
    """What a workload did.

    Parameters
    ----------
    messages
        Sent: messages. Received: successful reads (datagrams, for UDP), requests for request/response.
    len_bytes
        Payload of them all.
    duration_s
        From the first message to the last.
    ended
        Why it ended.
    peeks
        Reads with MSG_PEEK that found data, on top of `messages`.
    refused
        Datagrams that the sender could not hand over (ENOBUFS, ECONNREFUSED from an ICMP error before).
    rtt_p50_ns, rtt_p99_ns, rtt_max_ns
        Of request/response: from before the send to after the last byte of the reply.
    stamps
        Time stamps of its messages that the sender read.
    """

    messages: int
    len_bytes: int
    duration_s: float
    ended: Ended
    peeks: int = 0
    refused: int = 0
    rtt_p50_ns: int = 0
    rtt_p99_ns: int = 0
    rtt_max_ns: int = 0
    stamps: int = 0


class Budget:
    """What a workload may use up.

    Parameters
    ----------
    limit_s
        Hard end, from now.
    duration_s
        Planned end, from `start`.
    count
        Messages.
    rate_s
        Messages per second; as fast as it goes if none.
    """

    def __init__(
        self,
        *,
        limit_s: float = LIMIT_S,
        duration_s: float | None = None,
        count: int | None = None,
        rate_s: float | None = None,
    ) -> None:
        self.count = count
        self.duration_s = duration_s
        self.rate_s = rate_s
        self._limit_at_s = time.monotonic() + limit_s
        self._start_s = time.monotonic()
        self._planned_at_s = float("inf")
        self._stopped = False

    def start(self) -> None:
        """Let the duration and the pace begin now."""
        self._start_s = time.monotonic()
        if self.duration_s is not None:
            self._planned_at_s = self._start_s + self.duration_s

    def stop(self) -> None:
        """End at the next look; may be called from a signal handler."""
        self._stopped = True

    def over(self, messages: int) -> Ended | None:
        """Tell whether, and why, to end after so many messages."""
        if self.count is not None and messages >= self.count:
            return Ended.COUNT
        if self._stopped:
            return Ended.SIGNAL
        now_s = time.monotonic()
        if now_s >= self._planned_at_s:
            return Ended.DURATION
        return Ended.LIMIT if now_s >= self._limit_at_s else None

    def wait_turn(self, messages: int) -> None:
        """Sleep until the message after so many is due; never longer than the budget lasts."""
        if self.rate_s is None:
            return
        due_s = self._start_s + messages / self.rate_s
        while (wait_s := min(due_s, self._planned_at_s, self._limit_at_s) - time.monotonic()) > _SLEEP_SHORTER_S:
            if self._stopped:
                return
            time.sleep(min(wait_s, 0.1))


class Tally:
    """Counts of one direction, and the time from the first message to the last."""

    def __init__(self) -> None:
        self.messages = 0
        self.len_bytes = 0
        self.peeks = 0
        self.refused = 0
        self._first_s = 0.0
        self._last_s = 0.0

    def add(self, messages: int, len_bytes: int) -> None:
        """Count messages that were sent or read just now."""
        self._last_s = time.monotonic()
        if not self.messages:
            self._first_s = self._last_s
        self.messages += messages
        self.len_bytes += len_bytes

    def summary(self, ended: Ended) -> Summary:
        """Sum up."""
        duration_s = self._last_s - self._first_s
        return Summary(self.messages, self.len_bytes, duration_s, ended, self.peeks, self.refused)
