# SPDX-License-Identifier: Apache-2.0
"""All pairs of several hosts, each probed in a thread of its own: who hangs or dies ends its own pairs, not others."""

from __future__ import annotations

import itertools
import queue
import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, NamedTuple

from hopscope.clock.pair import WINDOW_S, Pair
from hopscope.clock.remote import ANSWER_S, Remote
from hopscope.errors import HopscopeError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType
    from typing import Self

    from hopscope.clock.change import Change, Look
    from hopscope.clock.peer import Line
    from hopscope.clock.samples import Samples

SILENT_S: Final = 3.0
_JOIN_S: Final = 12.0


class Host(NamedTuple):
    """One that takes part.

    Attributes
    ----------
    name
        What its clock is called.
    address
        Where the other ones reach it.
    open
        Makes a line to a new peer on it.
    """

    name: str
    address: str
    open: Callable[[], Line]


class Window(NamedTuple):
    """What the two hosts of a pair stamped within half a second.

    Attributes
    ----------
    pair
        Its number.
    samples
        The packets that both stamped.
    changes
        What somebody did to the clocks of the first and of the second host since the window before, in the time of
        each; None where nothing.
    looks
        How the clocks of both hosts were at its end.
    """

    pair: int
    samples: Samples
    changes: tuple[Change | None, Change | None]
    looks: tuple[Look, Look]


class Pairs:
    """Probes between all hosts, from `start` to `close`. A context manager.

    Parameters
    ----------
    hosts
        Two or more.
    ends
        The numbers of both hosts of each pair, the lower one first; None: all pairs.
    port
        The first UDP port of each host, for one other host each in their order; any ports if 0.
    window_s
        How often a pair is probed.
    answer_s
        How long a host may take to answer.
    nic_stamps
        Let NICs stamp meanwhile, as of `Pair`.

    Attributes
    ----------
    hosts
        They.
    ends
        The numbers of both hosts of each pair.
    pairs
        The pairs; None where one has failed.
    failed
        Pair → why there will be no more windows of it.

    Raises
    ------
    HopscopeError
        One of the hosts cannot take part.
    """

    def __init__(  # noqa: PLR0913 # whom, and how to probe
        self,
        hosts: Sequence[Host],
        ends: Sequence[tuple[int, int]] | None = None,
        *,
        port: int = 0,
        window_s: float = WINDOW_S,
        answer_s: float = ANSWER_S,
        nic_stamps: bool = False,
    ) -> None:
        self.hosts = list(hosts)
        self._nic_stamps = nic_stamps
        self._port = port
        self._answer_s = answer_s
        self._window_s = window_s
        self.ends = list(itertools.combinations(range(len(hosts)), 2) if ends is None else ends)
        self.failed: dict[int, str] = {}
        self._windows: queue.SimpleQueue[Window] = queue.SimpleQueue()
        self._threads: dict[int, threading.Thread] = {}
        self._ended = threading.Event()
        self._heard_s: dict[int, float] = {}
        with ExitStack() as stack:
            self.pairs: list[Pair] = []
            for both in self.ends:
                self.pairs.append(self._meet(*both))
                stack.callback(self.pairs[-1].close)
            stack.pop_all()

    def __enter__(self) -> Self:
        """Return it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    @property
    def ports(self) -> list[list[int]]:
        """The UDP ports of each host, which it sends from and listens at."""
        found: list[list[int]] = [[] for _ in self.hosts]
        for ends, pair in zip(self.ends, self.pairs, strict=True):
            for host, side in zip(ends, pair.sides, strict=True):
                found[host].append(side.port)
        return found

    def daemons(self) -> list[list[str]]:
        """Ask each host what runs there that sets clocks; before `start`."""
        sides = {
            host: side
            for ends, pair in zip(self.ends, self.pairs, strict=True)
            for host, side in zip(ends, pair.sides, strict=True)
        }
        return [sides[host].daemons() for host in range(len(self.hosts))]

    def start(self) -> None:
        """Begin to probe."""
        for number in range(len(self.ends)):
            self._start(number)

    def take(self, timeout_s: float) -> Window | None:
        """Return the next window of any pair, None if none comes within a time."""
        try:
            return self._windows.get(timeout=timeout_s) if timeout_s > 0 else self._windows.get_nowait()
        except queue.Empty:
            return None

    def silent(self, for_s: float = SILENT_S) -> list[str]:
        """Return a sentence on each pair between which no packet has come through for a while."""
        now_s = time.monotonic()
        return [
            self._silence(number)
            for number, heard_s in sorted(self._heard_s.items())
            if number not in self.failed and now_s - heard_s > for_s
        ]

    def replace(self, host: int, by: Host) -> None:
        """Go on with the pairs of a host that has come back.

        Raises
        ------
        HopscopeError
            It cannot take part.
        """
        self.hosts[host] = by
        for number, ends in enumerate(self.ends):
            if host in ends:
                self.pairs[number].close()
                if number in self._threads:
                    self._threads.pop(number).join(_JOIN_S)
                self.pairs[number] = self._meet(*ends)
                self.failed.pop(number, None)
                self._start(number)

    def close(self) -> None:
        """End all peers; idempotent."""
        self._ended.set()
        for pair in self.pairs:
            pair.close()
        for thread in self._threads.values():
            thread.join(_JOIN_S)

    def _meet(self, first: int, second: int) -> Pair:
        with ExitStack() as stack:
            sides = []
            for host, other in ((first, second), (second, first)):
                line = self.hosts[host].open()
                stack.callback(line.close)
                port = self._port + other - (other > host) if self._port else 0
                name, address, _ = self.hosts[host]
                sides.append(Remote(line, address, name, port=port, answer_s=self._answer_s))
            pair = Pair(*sides, nic_stamps=self._nic_stamps)
            stack.pop_all()
        return pair

    def _start(self, number: int) -> None:
        self._heard_s[number] = time.monotonic()
        thread = threading.Thread(
            target=self._probe, args=(number, self.pairs[number]), name=f"clock pair {number}", daemon=True
        )
        self._threads[number] = thread
        thread.start()

    def _probe(self, number: int, pair: Pair) -> None:
        # Pairs take turns: a host that answers two others at once is slower.
        due_s = time.monotonic() + self._window_s * number / len(self.ends)
        try:
            while not self._ended.wait(max(due_s - time.monotonic(), 0)):
                samples = pair.window()
                if pair.looks is not None:
                    self._windows.put(Window(number, samples, pair.changes, pair.looks))
                if len(samples.there) or len(samples.back):
                    self._heard_s[number] = time.monotonic()
                due_s = max(due_s + self._window_s, time.monotonic())
        except HopscopeError as error:
            if not self._ended.is_set():
                self.failed[number] = str(error)
        finally:
            pair.close()

    def _silence(self, number: int) -> str:
        pair = self.pairs[number]
        here, there = (
            f"{self.hosts[host].name} ({_printed(side.address)}:{side.port})"
            for host, side in zip(self.ends[number], pair.sides, strict=True)
        )
        refused = ", ".join(f"{count} {reason}" for reason, count in pair.refused.most_common())
        why = f" (refused: {refused})" if refused else ""
        return (
            f"No UDP packet comes through between {here} and {there}{why}: let them through the firewall, "
            "or say where the hosts reach each other (--host …,address=…)"
        )


def _printed(address: str) -> str:
    return f"[{address}]" if ":" in address else address
