# SPDX-License-Identifier: Apache-2.0
"""``ring``: what reading one record of a ring costs, in bulk and by libbpf's callback for each.

A BPF program fills a ring; then the one reader or the other empties it, in turns. The callbacks are called by
``ring_buffer__consume``, which is ``ring_buffer__poll`` without the wait.
"""

from __future__ import annotations

import ctypes
import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import build_bpf
from bench.measure import Spread, table, turns
from hopscope.libbpf import BpfObject, RingReader
from hopscope.libbpf._library import lib

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

ROUNDS: Final = 9
RECORDS: Final = 200_000
_SOURCE: Final = Path(__file__).parent / "bpf" / "ring.bpf.c"
_RING_BYTES: Final = 16 << 20
_CALLBACK: Final = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_TITLES: Final = {
    "bulk": "RingReader, into one array",
    "count": "callback, only counts",
    "copy": "callback, copies the record",
}


def run(rounds: int = ROUNDS) -> Iterator[str]:
    """Measure, and yield the report."""
    with tempfile.TemporaryDirectory(prefix="hopscope-bench-") as scratch:
        path = Path(scratch, "ring.bpf.o")
        build_bpf.compile_object(_SOURCE, path, build_bpf.host_arch())
        with BpfObject.open(path) as bpf:
            measured = _measured(bpf, rounds)
    yield f"{RECORDS} records of 48 bytes and their header, median of {rounds} rounds\n{costs_table(measured)}\n"


def costs_table(rounds: Sequence[Mapping[str, float]]) -> str:
    """Lay out ns a record, records a second, and how many times the bulk reader's cost that is."""
    rows = []
    for name, title in _TITLES.items():
        cost = Spread.of(taken[name] for taken in rounds)
        times = Spread.of(taken[name] / taken["bulk"] for taken in rounds)
        rows.append([title, cost.shown(), f"{1e3 / cost.median:.1f}", f"{times.median:.1f}"])
    return table(("", "ns a record", "M records/s", "times bulk"), rows)


def _measured(bpf: BpfObject, rounds: int) -> list[dict[str, float]]:
    bpf.set_const("cfg_tgid", os.getpid())
    bpf.maps["ring"].set_max_entries(_RING_BYTES)
    bpf.load()
    ring = bpf.maps["ring"]
    bpf.programs["fill_ring"].attach()
    with RingReader([ring.fd], bpf.btf.dtype("bench_record"), _RING_BYTES) as reader:
        counter, copier = _Callbacks(ring.fd, copy=False), _Callbacks(ring.fd, copy=True)
        drains: dict[str, Callable[[], int]] = {
            "bulk": lambda: len(reader.read()),
            "count": counter.drain,
            "copy": copier.drain,
        }
        try:
            return [{name: _timed(bpf, drains[name]) for name in order} for order in turns([*drains], rounds)]
        finally:
            counter.close()
            copier.close()


def _timed(bpf: BpfObject, drain: Callable[[], int]) -> float:
    """Fill the ring, empty it, and return ns a record."""
    data = bpf.data()
    data["left"] = RECORDS
    while data["left"]:
        os.getppid()
    start_ns = time.perf_counter_ns()
    drained = drain()
    spent_ns = time.perf_counter_ns() - start_ns
    if drained != RECORDS:
        raise RuntimeError(f"{drained} of {RECORDS} records were read")
    return spent_ns / RECORDS


class _Callbacks:
    """libbpf's own reader of the ring."""

    def __init__(self, fd: int, *, copy: bool) -> None:
        self._count = 0
        self._records: list[bytes] = []
        # Kept, or ctypes would free it under libbpf.
        self._callback = _CALLBACK(self._keep if copy else self._tell)
        library = lib()
        library.ring_buffer__new.restype = ctypes.c_void_p
        library.ring_buffer__new.argtypes = (ctypes.c_int, _CALLBACK, ctypes.c_void_p, ctypes.c_void_p)
        library.ring_buffer__consume.argtypes = library.ring_buffer__free.argtypes = (ctypes.c_void_p,)
        self._pointer = library.ring_buffer__new(fd, self._callback, None, None)
        if not self._pointer:
            raise OSError(ctypes.get_errno(), "libbpf cannot map the ring")

    def drain(self) -> int:
        """Empty the ring; return how many records there were."""
        self._count = 0
        self._records = []
        lib().ring_buffer__consume(self._pointer)
        return self._count + len(self._records)

    def close(self) -> None:
        """Unmap the ring."""
        lib().ring_buffer__free(self._pointer)

    def _tell(self, _context: int, _record: int, _size: int) -> int:
        self._count += 1
        return 0

    def _keep(self, _context: int, record: int, size: int) -> int:
        self._records.append(ctypes.string_at(record, size))
        return 0
