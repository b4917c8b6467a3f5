# SPDX-License-Identifier: Apache-2.0
"""``subscribers``: how many events a second three Arrow subscribers get of one ``serve --socket``, and one that stalls.

A flood of datagrams over lo makes the events. All three read all the time, or one of them reads nothing until the flood
is over. What each got and lost must be the same number in the end, or the benchmark fails.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import hopscope
from bench import traffic
from bench.measure import Spread, rates, table, turns
from bench.tools import ToolError
from hopscope.lab import Namespace
from hopscope.term import format as fmt

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hopscope import Subscription

ROUNDS: Final = 4
_LOAD_S: Final = 3.0
_SETTLE_S: Final = 0.5
# After the flood nothing comes any more.
_QUIET_S: Final = 2.0
_POINTS: Final = ("tx.queue", "tx.start", "rx.driver", "rx.core", "rx.copy", "skb.free")
# What a subscriber asks for: the first case needs no packet to be followed.
FIELDS: Final = {"four fields": ("time_ns", "cpu", "point", "len_bytes"), "usual fields": ()}
STALLED: Final = {"all three read": False, "one is stalled": True}
_HOPSCOPE: Final = (sys.executable, "-P", "-m", "hopscope")


class Figures(NamedTuple):
    """Of one round.

    Attributes
    ----------
    made_per_s
        Events that each subscriber asked for.
    got_per_s
        Events that all subscribers together got.
    lost_share
        Of what was published to those who read, what their queues had no room for.
    kernel_lost_share
        Of all events, what the rings had no room for.
    got_per_cpu_s
        What they would get if the server's processes had a CPU of their own.
    """

    made_per_s: float
    got_per_s: float
    lost_share: float
    kernel_lost_share: float
    got_per_cpu_s: float


@dataclass
class _Reader(threading.Thread):
    """Counts what one subscriber gets, from when it may read on."""

    subscription: Subscription
    may_read: threading.Event
    got: int = 0
    last_s: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        super().__init__(daemon=True)

    def run(self) -> None:
        self.may_read.wait()
        for batch in self.subscription.batches():
            self.got += batch.num_rows
            self.last_s = time.monotonic()

    __hash__ = threading.Thread.__hash__


def run(rounds: int = ROUNDS) -> Iterator[str]:
    """Measure, and yield the report."""
    cases = [(fields, stalled) for fields in FIELDS for stalled in STALLED]
    found: dict[tuple[str, str], list[Figures]] = {case: [] for case in cases}
    for order in turns(cases, rounds):
        for fields, stalled in order:
            found[fields, stalled].append(_measured(FIELDS[fields], stalled=STALLED[stalled]))
    yield f"three subscribers to {len(_POINTS)} points; median of {rounds} rounds of {_LOAD_S} s (quartiles)\n"
    yield figures_table(found) + "\n"
    yield "got + lost was the same number for all three each time; wanted: 1M events/s to three\n"


def figures_table(found: dict[tuple[str, str], list[Figures]]) -> str:
    """Lay out what was measured."""
    rows = []
    for (fields, stalled), figures in found.items():
        made, got, lost, kernel_lost, got_per_cpu_s = (Spread.of(values) for values in zip(*figures, strict=True))
        rows.append([
            fields, stalled, fmt.rate(made.median), *map(rates, (got, got_per_cpu_s)),
            f"{lost.median * 100:.1f}%", f"{kernel_lost.median * 100:.1f}%",
        ])  # fmt: skip
    head = ("asked for", "subscribers", "events/s", "got/s, all", "for each CPU-second", "lost by readers", "by rings")
    return table(head, rows, names=2)


def _measured(fields: Sequence[str], *, stalled: bool) -> Figures:
    with (
        Namespace() as namespace,
        tempfile.TemporaryDirectory(prefix="hopscope-bench-") as folder,
        ExitStack() as stack,
    ):
        path = Path(folder, "events.sock")
        server = stack.enter_context(_serving(path, namespace))
        over = threading.Event()
        now = threading.Event()
        now.set()
        readers = []
        for number in range(3):
            subscription = hopscope.subscribe(path=path, points=_POINTS, fields=fields)
            stack.callback(subscription.close)
            readers.append(_Reader(subscription, over if stalled and number == 0 else now))
            readers[-1].start()
        pids = _children(server.pid)
        with traffic.saturated(namespace, "udp", cpus=1):
            time.sleep(_SETTLE_S)
            begun_s, cpu_ns = time.monotonic(), sum(map(traffic.cpu_ns, pids))
            got = [reader.got for reader in readers]
            time.sleep(_LOAD_S)
            took_s = time.monotonic() - begun_s
            cpu_ns = sum(map(traffic.cpu_ns, pids)) - cpu_ns
            got = [reader.got - before for reader, before in zip(readers, got, strict=True)]
        over.set()
        while time.monotonic() - max(reader.last_s for reader in readers) < _QUIET_S:
            time.sleep(0.1)
        return _figures(readers, sum(got) / took_s, sum(got) / max(cpu_ns, 1) * 1e9, got[-1] / took_s)


def _figures(readers: Sequence[_Reader], got_per_s: float, got_per_cpu_s: float, made_per_s: float) -> Figures:
    totals = [reader.got + reader.subscription.lost for reader in readers]
    if len(set(totals)) > 1:
        raise ToolError(f"subscribers got and lost different numbers of events: {totals}")
    reading = readers[1:]
    lost = sum(reader.subscription.lost for reader in reading)
    kernel_lost = readers[-1].subscription.kernel_lost
    return Figures(
        made_per_s,
        got_per_s,
        lost / max(sum(totals[1:]), 1),
        kernel_lost / max(totals[-1] + kernel_lost, 1),
        got_per_cpu_s,
    )


@contextmanager
def _serving(path: Path, namespace: Namespace) -> Iterator[subprocess.Popen[str]]:
    argv = [*_HOPSCOPE, "serve", "--socket", str(path), "--netns", str(namespace.inode), "--buffer", "64"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as server:
        try:
            if not server.stdout or not server.stdout.readline():
                raise ToolError("hopscope serve did not start")
            yield server
        finally:
            server.terminate()


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]
