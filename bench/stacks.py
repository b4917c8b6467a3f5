# SPDX-License-Identifier: Apache-2.0
"""``stacks``: what a stack sample costs by a ring, and by a mapped array of two halves a CPU.

The kernel's own statistics say what a sample costs in BPF, over an empty program on the same clock, and the CPU time of
this thread what reading it costs. A record has 1 KiB. In the ring it is reserved, filled and submitted without a
wake-up. In the array the program fills the slot that its CPU's counter says, in the half that is written to; what comes
to a full half is counted as lost and goes nowhere. User space flips the halves, waits until no program can still be at
work in the old one, and copies what is used of it.

A thread of saturating TCP runs on each CPU, so that there are stacks to take.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import build_bpf
from bench.measure import Spread, table, turns
from bench.tools import ToolError
from bench.traffic import saturated
from hopscope.lab import Namespace
from hopscope.libbpf import BpfObject, RingReader, possible_cpus
from hopscope.live.cost import CostMeter
from hopscope.probes.attach import attach_clock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

ROUNDS: Final = 8
HZ: Final = 10_000
_WINDOW_S: Final = 1.0
_DRAIN_S: Final = 0.1
_SOURCE: Final = Path(__file__).parent / "bpf" / "stacks.bpf.c"
_RING_BYTES: Final = 4 << 20
_SLOTS: Final = 2 << 10
# A program that began before the flip has long ended then.
_QUIET_S: Final = 200e-6
_TITLES: Final = {"empty": "empty program", "ring": "ring", "halves": "array of two halves"}

Array = np.ndarray[Any, np.dtype[Any]]
# Of one window: ns a run in BPF, ns of the reader a sample, samples, lost.
Costs = dict[str, float]


def run(rounds: int = ROUNDS) -> Iterator[str]:
    """Measure, and yield the report."""
    with tempfile.TemporaryDirectory(prefix="hopscope-bench-") as scratch:
        path = Path(scratch, "stacks.bpf.o")
        build_bpf.compile_object(_SOURCE, path, build_bpf.host_arch())
        with Namespace() as namespace, saturated(namespace, "tcp"):
            measured = [{name: window(path, name) for name in order} for order in turns([*_TITLES], rounds)]
    yield f"stacks at {HZ} Hz a CPU under TCP on lo, median of {rounds} windows of {_WINDOW_S} s\n"
    yield costs_table(measured) + "\n" + verdict(measured) + "\n"


def window(path: Path, name: str) -> Costs:
    """Sample for a moment in one way, reading several times a second.

    Raises
    ------
    ToolError
        What was read is not what the program says it took.
    """
    with BpfObject.open(path) as bpf:
        bpf.set_const("cfg_slots", _SLOTS)
        bpf.maps["slots"].set_max_entries(possible_cpus() * 2 * _SLOTS)
        bpf.maps["rings"].set_max_entries(possible_cpus())
        bpf.load()
        with RingReader.per_cpu(bpf.maps["rings"], bpf.btf.dtype("bench_sample"), _RING_BYTES) as rings:
            drains: dict[str, Callable[[], Array]] = {
                "empty": lambda: np.empty(0),
                "ring": rings.read,
                "halves": _Halves(bpf).read,
            }
            program = bpf.programs[f"stack_{name}"]
            meter = CostMeter([program])
            links = attach_clock(program, HZ)
            reader = _Reader(drains[name])
            before = meter.read()
            for _ in range(round(_WINDOW_S / _DRAIN_S)):
                meter.sample(_DRAIN_S)
                reader.drain()
            for link in links:
                link.close()
            reader.drain()
            overhead = meter.overhead(before, meter.read())
            return _checked(name, bpf, reader, overhead.ns_per_hit)


class _Reader:
    """Drains, and knows what it took of this thread's time and how many samples came."""

    def __init__(self, drain: Callable[[], Array]) -> None:
        self._drain = drain
        self.spent_s = 0.0
        self.samples = 0

    def drain(self) -> None:
        start_s = time.thread_time()
        self.samples += len(self._drain())
        self.spent_s += time.thread_time() - start_s


class _Halves:
    """The reader of the array."""

    def __init__(self, bpf: BpfObject) -> None:
        self._data = bpf.data()
        self._slots = bpf.maps["slots"].array().reshape(possible_cpus(), 2, _SLOTS)
        # As one opaque item each: NumPy would copy a structured array field by field.
        self._opaque = self._slots.view(f"V{self._slots.dtype.itemsize}")

    def read(self) -> Array:
        """Flip the halves, and take what is in the one that was written to."""
        old = int(self._data["half"])
        self._data["half"] = 1 - old
        time.sleep(_QUIET_S)
        used = self._data["cpus"]["used"][: len(self._slots), old]
        taken = np.concatenate([self._opaque[cpu, old, :count] for cpu, count in enumerate(used.tolist())])
        used[:] = 0
        return taken.view(self._slots.dtype)


def costs_table(rounds: Sequence[Mapping[str, Costs]]) -> str:
    """Lay out what a sample costs in BPF, over the empty program too, and its reader."""
    rows = []
    for name, title in _TITLES.items():
        spreads = [Spread.of(taken[name][key] for taken in rounds) for key in ("samples", "lost", "bpf_ns")]
        over = Spread.of(taken[name]["bpf_ns"] - taken["empty"]["bpf_ns"] for taken in rounds)
        reader = Spread.of(taken[name]["reader_ns"] for taken in rounds)
        cells = [f"{spread.median:.0f}" for spread in spreads]
        rows.append([title, *cells, *(["", ""] if name == "empty" else [over.shown(".0f"), reader.shown(".0f")])])
    return table(("", "samples", "lost", "ns BPF", "over the empty one", "ns reader"), rows)


def verdict(rounds: Sequence[Mapping[str, Costs]]) -> str:
    """Say which is cheaper, BPF and reader together, and that the spread allows no word where it does not."""
    more = Spread.of(
        taken["ring"]["bpf_ns"] + taken["ring"]["reader_ns"] - taken["halves"]["bpf_ns"] - taken["halves"]["reader_ns"]
        for taken in rounds
    )
    words = "neither is cheaper for certain" if more.low <= 0 <= more.high else ""
    words = words or f"the {'array' if more.median > 0 else 'ring'} is cheaper"
    return f"ring against array, BPF and reader: {more.shown('+.0f')} ns a sample: {words}; the product uses the ring"


def _checked(name: str, bpf: BpfObject, reader: _Reader, bpf_ns: float | None) -> Costs:
    if bpf_ns is None:
        raise ToolError(f"stacks: the clock ran no program for {_TITLES[name]}")
    cpus = bpf.data()["cpus"]
    taken = int(cpus["taken"].sum())
    if reader.samples != taken or (name != "empty" and not taken):
        raise ToolError(f"stacks: {_TITLES[name]}: {reader.samples} of {taken} samples were read")
    return {
        "bpf_ns": bpf_ns,
        "reader_ns": reader.spent_s * 1e9 / taken if taken else 0.0,
        "samples": taken,
        "lost": int(cpus["lost"].sum()),
    }
