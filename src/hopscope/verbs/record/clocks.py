# SPDX-License-Identifier: Apache-2.0
"""Probes between the clocks of hosts that are recorded: they run beside the recording and go into it."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from hopscope.clock.pairs import Pairs
from hopscope.errors import HopscopeError
from hopscope.live.remote import clock
from hopscope.store.hosts import CHANGES
from hopscope.store.probes import change_columns, probe_columns

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Self

    from hopscope.agent.channel import Channel
    from hopscope.agent.target import Target
    from hopscope.store.hosts import HostsWriter
    from hopscope.verbs.record.host import HostRecording

_TWO: Final = 2
# Of more, not all pairs are compared.
_FEW: Final = 4


class Clocks:
    """The probes of all pairs of hosts; a context manager that ends them. Where there can be none, it says so.

    Parameters
    ----------
    targets, channels
        The hosts, and how they are reached.

    Attributes
    ----------
    generation
        Is another one when :meth:`flows` are.
    news
        Sentences that are to be said.
    """

    def __init__(self, targets: Sequence[Target], channels: Sequence[Channel]) -> None:
        self._targets = targets
        self._pairs: Pairs | None = None
        self._hosts: Sequence[HostRecording] = ()
        self._writer: HostsWriter | None = None
        self._numbers: list[int] = []
        self._returns = [0] * len(targets)
        self._said: set[str] = set()
        self.generation = 0
        self.news: deque[str] = deque()
        self._busy = threading.Lock()
        self._again: threading.Thread | None = None
        if len(targets) < _TWO:
            return
        try:
            hosts = [clock.host(channel, self._address(n)) for n, channel in enumerate(channels)]
            self._pairs = Pairs(hosts, ends_of(len(hosts)))
        except HopscopeError as error:
            self._say(f"The clocks cannot be compared: {error}")

    def __enter__(self) -> Self:
        """Return it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End the probes."""
        self.end()

    def end(self) -> None:
        """End the probes, and write down the last of them; again is allowed."""
        if self._pairs:
            self._pairs.close()
        if self._again:
            self._again.join()
        if self._pairs and self._writer:
            self._take(self._pairs)
        self._pairs = None

    def flows(self, host: int) -> list[list[Any]]:
        """Return the flows of a host's probes, for its recording to leave out."""
        if not self._pairs:
            return []
        found: list[list[Any]] = []
        for ends, pair in zip(self._pairs.ends, self._pairs.pairs, strict=True):
            if host in ends:
                side, other = pair.sides if host == ends[0] else pair.sides[::-1]
                found.append(["udp", other.address, other.port, None, side.port])
                found += [["udp", None, side.port, nobody, 0] for nobody in ("0.0.0.0", "::")]  # noqa: S104 # nothing is bound
        return found

    def start(self, hosts: Sequence[HostRecording], writer: HostsWriter) -> None:
        """Begin to probe, for this recording."""
        self._hosts, self._writer = hosts, writer
        if self._pairs:
            self._number()
            self._pairs.start()

    def look(self) -> None:
        """Write down what came since, and take care of hosts that came back. Does not wait."""
        if not self._pairs or not self._busy.acquire(blocking=False):
            return
        try:
            self._take(self._pairs)
            if all(host.channel and not host.channel.lost for host in self._hosts):  # else it is known, and why
                for sentence in (*self._pairs.silent(), *self._pairs.failed.values()):
                    self._say(sentence)
            back = next((n for n, host in enumerate(self._hosts) if host.returns > self._returns[n]), None)
        finally:
            self._busy.release()
        if back is not None:
            self._returns[back] = self._hosts[back].returns
            self._again = threading.Thread(target=self._replace, args=(self._pairs, back), name="hopscope-clocks")
            self._again.start()

    def _take(self, pairs: Pairs) -> None:
        assert self._writer is not None  # noqa: S101 # for the type checker: it was started
        while window := pairs.take(0):
            for columns in probe_columns(self._numbers[window.pair], window.samples):
                self._writer.append(columns)
            if any(window.changes):
                self._writer.append(change_columns(self._numbers[window.pair], window.changes), CHANGES)

    def _replace(self, pairs: Pairs, host: int) -> None:
        """Compare a host's clock again: a while may pass until it answers."""
        channel = self._hosts[host].channel
        with self._busy:
            self._take(pairs)
            try:
                if channel:
                    pairs.replace(host, clock.host(channel, self._address(host)))
            except HopscopeError as error:
                self._say(f"The clock of {channel.name if channel else host} can no longer be compared: {error}")
            self._number()
            self.generation += 1

    def _number(self) -> None:
        assert self._pairs is not None  # noqa: S101 # for the type checker: there are some
        assert self._writer is not None  # noqa: S101 # the same
        names = [host.name for host in self._hosts]
        self._numbers = [self._writer.pair(names[first], names[second]) for first, second in self._pairs.ends]

    def _address(self, host: int) -> str | None:
        return self._targets[host].address

    def _say(self, sentence: str) -> None:
        """Say it, the first time."""
        if sentence not in self._said:
            self._said.add(sentence)
            self.news.append(sentence)


def ends_of(hosts: int) -> list[tuple[int, int]]:
    """Return which of so many hosts are compared with which: all of a few; of many, each with the first and the next.

    So there are at least two ways from each to any other, one of which checks the other.
    """
    if hosts <= _FEW:
        return list(itertools.combinations(range(hosts), 2))
    star = {(0, other) for other in range(1, hosts)}
    ring = {(one, one + 1) for one in range(1, hosts - 1)} | {(1, hosts - 1)}
    return sorted(star | ring)
