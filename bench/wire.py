# SPDX-License-Identifier: Apache-2.0
"""``wire``: how many frames a second ``hopscope wire`` sends, and what it does not send.

The flood makes more events than an interface takes: what is not sent, and what the rings lost, is in the last line. A
recording is played as fast as it goes. Frames for a second of CPU time say what the rate would be on a machine with
nothing else to do.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from bench import traffic
from bench.measure import Spread, rates, table, turns
from bench.offload import wait_for_wire
from bench.tools import ToolError
from hopscope.lab import Namespace

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROUNDS: Final = 4
_LOAD_S: Final = 3.0
_LOOK_S: Final = 0.02
_LIVE, _PLAYED = "a flood, live", "its recording"
_CASES: Final = {_LIVE: (), f"{_LIVE}, --full": ("--full",), _PLAYED: ()}
_POINTS: Final = ("tx.queue", "tx.start", "rx.driver", "rx.core")
_HOPSCOPE: Final = (sys.executable, "-P", "-m", "hopscope")
# What the last line says of events.
_SENT, _NOT_SENT, _LOST = (re.compile(rf"([\d,]+) {what}") for what in ("events? sent", "not sent", "lost"))


class Figures(NamedTuple):
    """Of one round: frames a second, and for each second of CPU time; shares of events that were not sent, and lost."""

    per_s: float
    per_cpu_s: float
    not_sent_share: float
    lost_share: float


def run(rounds: int = ROUNDS) -> Iterator[str]:
    """Measure, and yield the report."""
    found: dict[str, list[Figures]] = {case: [] for case in _CASES}
    with tempfile.TemporaryDirectory(prefix="hopscope-bench-") as folder, Namespace() as namespace:
        trace = Path(folder, "trace")
        _record(namespace, trace)
        for order in turns([*_CASES], rounds):
            for case in order:
                words = (str(trace), "--speed=50", "--wait=0") if case == _PLAYED else _live_words(namespace)
                found[case].append(_measured(namespace, [*words, *_CASES[case]], live=case != _PLAYED))
    yield f"median of {rounds} rounds of {_LOAD_S} s (quartiles)\n{figures_table(found)}\nwanted: 0.5M frames/s\n"


def figures_table(found: dict[str, list[Figures]]) -> str:
    """Lay out what was measured."""
    rows = []
    for case, figures in found.items():
        per_s, per_cpu_s, not_sent, lost = (Spread.of(values) for values in zip(*figures, strict=True))
        rows.append([
            case, rates(per_s), rates(per_cpu_s),
            f"{not_sent.median * 100:.1f}%", f"{lost.median * 100:.1f}%",
        ])  # fmt: skip
    return table(("events of", "frames/s", "for each CPU-second", "not sent", "lost by rings"), rows)


def figures_of(said: str, took_s: float, cpu_s: float) -> Figures:
    """Return the figures of the last line that the command prints.

    Raises
    ------
    ToolError
        It has none.
    """
    counts = [_count(each, said) for each in (_SENT, _NOT_SENT, _LOST)]
    if not counts[0]:
        raise ToolError(f"hopscope wire says no number: {said.strip()}")
    sent, not_sent, lost = counts
    every = sum(counts)
    return Figures(sent / took_s, sent / max(cpu_s, 1e-9), not_sent / every, lost / every)


def _count(pattern: re.Pattern[str], said: str) -> int:
    found = pattern.search(said)
    return int(found[1].replace(",", "")) if found else 0


def _live_words(namespace: Namespace) -> Sequence[str]:
    return [*(word for point in _POINTS for word in ("--point", point)), "--netns", str(namespace.inode)]


def _record(namespace: Namespace, trace: Path) -> None:
    argv = [*_HOPSCOPE, "record", *_live_words(namespace), "-d", str(_LOAD_S), "-o", str(trace), "--counters=0"]
    with traffic.saturated(namespace, "udp", cpus=1):
        subprocess.run(argv, check=True, stderr=subprocess.DEVNULL)


def _measured(namespace: Namespace, words: Sequence[str], *, live: bool) -> Figures:
    with namespace.popen([*_HOPSCOPE, "wire", *words], stderr=subprocess.PIPE, text=True) as wire:
        try:
            wait_for_wire(wire)
            begun_s, cpu_ns = time.monotonic(), traffic.cpu_ns(wire.pid)
            if live:
                with traffic.saturated(namespace, "udp", cpus=1):
                    begun_s, cpu_ns = time.monotonic(), traffic.cpu_ns(wire.pid)
                    time.sleep(_LOAD_S)
                    wire.send_signal(signal.SIGINT)
            spent_ns = cpu_ns
            while wire.poll() is None:
                spent_ns = traffic.cpu_ns(wire.pid) or spent_ns
                time.sleep(_LOOK_S)
            took_s = time.monotonic() - begun_s
        finally:
            wire.terminate()
            said = wire.stderr.read() if wire.stderr else ""
    return figures_of(said, took_s, (spent_ns - cpu_ns) / 1e9)
