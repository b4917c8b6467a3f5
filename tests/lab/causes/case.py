# SPDX-License-Identifier: Apache-2.0
"""A case: traffic whose messages are held by causes that are known, and what clocks and the kernel say of that.

A scenario is a function from chance to a :class:`Plan`; a case is a plan that runs on a port of its own.
"""

from __future__ import annotations

import itertools
import os
import statistics
from dataclasses import dataclass, field, replace
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from tests.lab.causes.world import DEVICE, SERVER, World, cpu_group, postgres

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from random import Random

    from tests.lab.causes.actors.common import Options
    from tests.lab.causes.world import Actor

    Shares = Mapping[str, float]
    Scenario = Callable[[Random], "Plan"]

SENDER_CPU, READER_CPU = sorted(os.sched_getaffinity(0))[:2]
# Ports of the flows that are only in the way.
_SINK_OFFSET: Final = 20_000
_ATTEMPT_OFFSET: Final = 5_000
_HOG_S: Final = 1.5
# Before the others of this machine, but after hogs of a higher priority.
_FIRST: Final[dict[str, Any]] = {"policy": "fifo", "priority": 1}
# A message over veth takes a tenth of that where nothing holds it.
_HEALTHY_NS: Final = 500_000
_MOST_WAITED_NS: Final = 100_000
_LATE_NS: Final = 1_000_000
_MOST_LATE: Final = 0.02
_FEWEST_SHARE: Final = 0.55


@dataclass(frozen=True)
class Ran:
    """What was seen of a case without hopscope.

    Attributes
    ----------
    messages
        When each was sent and when its read returned, and how long its reader had waited for a CPU by then: ns.
    waited_ns
        How long that was before the first.
    intervals
        Cause → when it was made, by the clock of who made it: ns.
    sender, reader
        What the kernel says of either end's socket.
    bursts
        Datagrams of another flow: when they were sent, how many, and their size.
    lost
        Segments that the wire lost.
    """

    messages: Sequence[tuple[int, int, int]]
    waited_ns: int
    intervals: Mapping[str, Sequence[tuple[int, int]]]
    sender: Mapping[str, int]
    reader: Mapping[str, int]
    bursts: Sequence[tuple[int, int, int]] = ()
    lost: int = 0

    @property
    def total_ns(self) -> int:
        """Time of all messages."""
        return sum(read - sent for sent, read, _ in self.messages)

    @property
    def median_ns(self) -> float:
        return statistics.median(read - sent for sent, read, _ in self.messages)


def by_clock(ran: Ran) -> dict[str, float]:
    """Return the share of each cause by the clocks of those who made it, and by the scheduler's account."""
    # A reader waits for a CPU after it is woken up, so that a wait ends not long before a read.
    before = itertools.chain([ran.waited_ns], (so_far for *_, so_far in ran.messages))
    waits = [(read - (so_far - had), read) for had, (_, read, so_far) in zip(before, ran.messages, strict=False)]
    shares = {
        cause: sum(overlap(message, intervals) for message in ran.messages) / ran.total_ns
        for cause, intervals in {**ran.intervals, "reader-runnable": waits}.items()
    }
    # It computes for a time by the clock, in which it may be without a CPU.
    return shares | {"reader-running": min(shares.get("reader-running", 0), 1 - shares["reader-runnable"])}


def overlap(message: Sequence[int], intervals: Sequence[Sequence[int]]) -> int:
    """Return for how long intervals were within a message's time."""
    return sum(max(0, min(message[1], end) - max(message[0], begin)) for begin, end in intervals)


def by_tcp(ran: Ran) -> dict[str, float]:
    """Return the share of each limit in the time in which the sending TCP had anything to do, with `by_clock`."""
    limits = ("receiver-window", "send-buffer")
    shares = {cause: ran.sender[f"{cause}_us"] * 1e3 / max(1, ran.sender["busy_us"] * 1e3) for cause in limits}
    return by_clock(ran) | shares


def ends(
    pattern: Sequence[Options], count: int, *, reader: Options | None = None, sender: Options | None = None
) -> dict[str, Any]:
    """Return the ends of so many messages, in a pattern, as fields of :class:`Plan`."""
    sizes, replies = ([message.get(name, 0) for message in pattern] for name in ("size", "reply"))
    return {
        "reader": {"count": count, "sizes": sizes, "replies": replies, **(reader or {})},
        "sender": {"count": count, "pattern": list(pattern), **(sender or {})},
    }


@dataclass(frozen=True)
class Plan:
    """What a scenario wants to happen.

    Attributes
    ----------
    truth
        Cause → its share of the messages' time, roughly; nothing where they are healthy.
    culprit
        Who or what makes them wait.
    reader, sender
        Options of the ends.
    role
        Of the sending end.
    reader_role
        Of the other one: a `reader`, or a `server`, of which the sending end says when it answered.
    hogs
        Options of those who take the reader's CPU; the last is the one that messages poke.
    stops
        Options of who stops the reader.
    before_others
        Whether the reader gets a CPU before whatever else runs on this machine, but for its hogs.
    most
        How much CPU time the reader has, and in which period: µs.
    wire
        Options of the wire between them, if that is no veth pair.
    prepare
        What is done to the world before.
    links
        Programs that a recorder attaches for that.
    proof
        What the shares were, told by others than hopscope.
    record
        Options of the recording.
    lacking
        Whether that recording cannot tell the cause.
    shows
        What is the cause as far as that recording shows it; empty: it shows none.
    """

    truth: Shares
    culprit: str
    reader: Options
    sender: Options
    role: str = "sender"
    reader_role: str = "reader"
    hogs: Sequence[Options] = ()
    stops: Options | None = None
    before_others: bool = True
    most: tuple[int, int] | None = None
    wire: Options | None = None
    prepare: Sequence[Callable[[World], object]] = ()
    links: int = 0
    proof: Callable[[Ran], Mapping[str, float]] = by_clock
    record: tuple[str, ...] = ("-P", "all")
    lacking: bool = False
    shows: str = ""

    @property
    def main(self) -> str | None:
        """The cause that must be named, if any."""
        return max(self.truth, key=self.truth.__getitem__, default=None)

    def but(self, **changes: Any) -> Plan:  # noqa: ANN401 - of any field
        return replace(self, **changes)


def _poking(message: Options, hogs: Sequence[Actor]) -> Options:
    pokes = {"poke": hogs[-1].pid} if message.get("poke") else {}
    return {name: value for name, value in message.items() if name != "poke"} | pokes


@dataclass(frozen=True)
class Case:
    """A plan that was made from chance.

    Attributes
    ----------
    name
        Of the scenario.
    number
        Of the case: with its seed and its name, it is the same again.
    """

    name: str
    number: int
    port: int
    plan: Plan = field(repr=False)

    def at(self, attempt: int) -> int:
        """Return the port of an attempt: what is recorded of one is not mixed with another."""
        return self.port + attempt * _ATTEMPT_OFFSET

    def run(self, attempt: int = 0, await_links: Callable[[], None] | None = None) -> Ran:
        """Make the world, wait for the recorder, let the traffic run, and remove all of it."""
        plan = self.plan
        with World(plan.wire) as world:
            for prepare in plan.prepare:
                prepare(world)
            if await_links:
                await_links()
            port = self.at(attempt)
            common = {"address": SERVER, "port": port, "sink": port + _SINK_OFFSET}
            if plan.reader_role == "server":
                common["folder"] = world.stack.enter_context(TemporaryDirectory(prefix="hopscope-causes-"))
            reader = self._reader(world, common)
            hogs = [world.actor(world.client, "hog", cpu=READER_CPU, seconds=_HOG_S, **hog) for hog in plan.hogs]
            stopper = plan.stops and world.actor(world.client, "stopper", pid=reader.pid, seconds=_HOG_S, **plan.stops)
            sender = world.actor(world.client, plan.role, **self._sender(world, common, hogs))
            sent = sender.result()
            read = reader.result() if plan.reader_role == "reader" else reader.end()
            others: list[Options] = [actor.end() for actor in (stopper, world.wire, *hogs) if actor]
        intervals: dict[str, list[tuple[int, int]]] = {}
        for found in (sent, read, *others):
            for cause, ours in found.get("intervals", {}).items():
                intervals.setdefault(cause, []).extend((begin, end) for begin, end in ours)
        seen = sent if plan.reader_role == "server" else read
        return Ran(
            *(seen["messages"], seen["waited_ns"], intervals, sent["tcp_info"], seen["tcp_info"], sent["bursts"]),
            lost=sum(found.get("lost", 0) for found in others),
        )

    def _reader(self, world: World, common: Options) -> Actor:
        options: Options = {"cpu": READER_CPU} | common | (_FIRST if self.plan.before_others else {}) | self.plan.reader
        if self.plan.most:
            options["cgroup"] = world.stack.enter_context(cpu_group(f"hopscope-causes-{self.port}", *self.plan.most))
        if options.get("server") == "postgres":
            options |= postgres()
        return world.actor(world.server, self.plan.reader_role, **options)

    def _sender(self, world: World, common: Options, hogs: Sequence[Actor]) -> Options:
        here: Options = {"cpu": SENDER_CPU, "device": DEVICE, "mac": world.macs[SERVER]}
        options = here | common | _FIRST | self.plan.sender
        if "pattern" in options:
            options["pattern"] = [_poking(message, hogs) for message in options["pattern"]]
        return options

    def as_meant(self, ran: Ran) -> str:
        """Return why this run is not what was meant, by other accounts than hopscope's; nothing if it is.

        Others on this machine may take the CPUs away from it.
        """
        shares, truth = self.plan.proof(ran), self.plan.truth
        if not truth:
            slow, waited = ran.total_ns / len(ran.messages), shares["reader-runnable"]
            late = sum(read - sent >= _LATE_NS for sent, read, _ in ran.messages)
            if slow > _HEALTHY_NS or slow * waited > _MOST_WAITED_NS or late > _MOST_LATE * len(ran.messages):
                return f"healthy messages took {slow / 1e3:.0f} µs, {waited:.0%} of that for want of a CPU"
            return ""
        main, *others = sorted(truth, key=lambda cause: -truth[cause])
        if shares.get(main, 0) < min(_FEWEST_SHARE, truth[main] * 0.8):
            return f"{main} is {shares.get(main, 0):.0%}"
        beside = {cause: share for cause, share in shares.items() if cause != main}
        worst = max(beside, key=beside.__getitem__, default="")
        if worst and beside[worst] > shares[main] * 0.7:
            return f"{worst} is {beside[worst]:.0%}, {main} {shares[main]:.0%}"
        if any(shares.get(cause, 0) < truth[cause] / 2 for cause in others):
            return ", ".join(f"{cause} is {shares.get(cause, 0):.0%}" for cause in others)
        return ""
